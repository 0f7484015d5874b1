//! A daemon before a host that a test plays.

use std::sync::Arc;
use std::time::Duration;

use rmpv::Value;
use tokio::net::UnixListener;
use tokio::sync::Notify;

use super::end::{End, PATIENCE, config};
use super::process::process;
use super::samples;
use crate::host::control::Notice;
use crate::host::find::{Finder, socket_beside};
use crate::host::frame::{Kind, decode, encode};
use crate::host::greeting::{Answer, SCHEMA, Welcome};
use crate::host::link::{Linked, link};
use crate::host::message::{Descriptor, Reply, Request, Target};
use crate::host::wire::{AskedRequest, WireReply, WireSegment};
use crate::process::log::{Doorbell, Geometry, LogStore};
use crate::process::snapshot::StopMeans;

/// A daemon's link, and the host's end of it.
async fn linked() -> (Linked, End) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("daemon.sock");
    let listener = UnixListener::bind(socket_beside(&path)).unwrap();
    let doorbell = Doorbell::new().unwrap();
    let welcome = Answer::Welcome(Welcome {
        schema: SCHEMA,
        release: "9.9.9".into(),
        epoch: samples::epoch('c'),
        means: StopMeans::Cgroup,
        predecessor: None,
    });
    let greeted = async {
        let (stream, _) = listener.accept().await.unwrap();
        let mut host = End::new(stream.into_std().unwrap().into());
        let frame = host.hear().await.unwrap();
        assert_eq!(frame.kind, Some(Kind::Hello));
        let files = doorbell.descriptors();
        let files = files.map(|file| Arc::new(file.try_clone_to_owned().unwrap()));
        let frame = encode(Kind::Welcome, 0, &welcome, files.len()).unwrap();
        host.connection.send(frame, files.to_vec());
        host
    };
    let (linked, host) = tokio::join!(link(Finder::new(&path, &config(), &[])), greeted);
    (linked.unwrap(), host)
}

#[tokio::test]
async fn a_daemon_passes_over_what_it_does_not_know_and_goes_on() {
    let (mut linked, mut host) = linked().await;
    host.say_something_new(0);
    host.say(Kind::Notice, 0, &"FlyToTheMoon");
    host.say(Kind::Reply, 999, &samples::reply(Reply::Done));
    host.say(Kind::Notice, 0, &Notice::Stop);
    let notice = tokio::time::timeout(PATIENCE, linked.notices.recv()).await;
    assert!(matches!(notice, Ok(Some(Notice::Stop))), "{notice:?}");
    // An answer of which a part is not known is no answer; the next one is.
    for (answer, understood) in [("FlyToTheMoon", false), ("Done", true)] {
        let result = Value::Map(vec![("Ok".into(), answer.into())]);
        let call = linked
            .running
            .client
            .call(Request::Contact(samples::session_id()), Vec::new());
        let play = async {
            let frame = host.hear().await.unwrap();
            assert_eq!(frame.kind, Some(Kind::Request));
            decode::<AskedRequest>(&frame.body).unwrap();
            let body = Value::Map(vec![("result".into(), result)]);
            host.say_tree(Kind::Reply, frame.id, &body);
        };
        let (answer, ()) = tokio::join!(call, play);
        assert_eq!(answer.is_ok(), understood, "{answer:?}");
    }
}

#[tokio::test]
async fn memory_that_came_for_a_caller_who_has_gone_is_there_for_the_next() {
    let (linked, mut host) = linked().await;
    let store = LogStore::new(Geometry::PRODUCTION, 1 << 40);
    let (_writer, log) = store.create(Arc::new(Notify::new())).unwrap();
    let segment = store.segment(log.address().segment).unwrap().unwrap();
    let client = linked.running.client;
    let target = Target {
        session: None,
        process: process().id,
    };

    // Whoever asked goes; its answer is under way already.
    let call = client.call(Request::OpenLog(target), Vec::new());
    tokio::time::timeout(Duration::ZERO, call)
        .await
        .unwrap_err();
    let asked = host.hear().await.unwrap();
    assert_eq!(asked.kind, Some(Kind::Request));
    let answer = WireReply {
        logs: vec![log.address()],
        segments: vec![WireSegment {
            id: segment.id,
            number: segment.number,
            geometry: segment.geometry,
        }],
        live: store.live(),
        ..samples::reply(Reply::Done)
    };
    let frame = encode(Kind::Reply, asked.id, &answer, 1).unwrap();
    host.connection.send(frame, vec![segment.file]);

    // The host does not send twice what it has sent once.
    let play = async {
        loop {
            let frame = host.hear().await.unwrap();
            if frame.kind == Some(Kind::Request) {
                let asked = decode::<AskedRequest>(&frame.body).unwrap();
                assert!(asked.missing.is_empty());
                let answer = WireReply {
                    logs: vec![log.address()],
                    ..samples::reply(Reply::Done)
                };
                return host.say(Kind::Reply, frame.id, &answer);
            }
        }
    };
    let again = client.call(Request::OpenLog(target), Vec::new());
    let (answer, ()) = tokio::join!(again, play);
    let (_, descriptors) = answer.unwrap();
    let [Descriptor::Log(found)] = &descriptors[..] else {
        panic!("{descriptors:?}");
    };
    assert_eq!(found.address(), log.address());
}
