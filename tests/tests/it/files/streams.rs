//! Answers in pieces, and a request in pieces: who goes, leaves nothing behind.

use std::fs;

use executor_client::{Reason, Session, v1};
use executor_proto::reason::Failure;
use executor_proto::v1::file_service_client::FileServiceClient;
use executor_tests::{Daemon, DaemonOptions, eventually, in_time};
use tokio_stream::StreamExt as _;

use super::*;
use crate::hostile::Raw;

#[tokio::test]
async fn a_client_that_takes_nothing_holds_no_place_and_leaves_none_taken() {
    let daemon = Daemon::start_with(DaemonOptions {
        configuration: "[limits]\nfile_reads = 1\n".into(),
        ..DaemonOptions::default()
    })
    .await;
    let session = daemon.session().await;
    let content = content(20_000_000);
    fs::write(daemon.work().join("f"), &content).unwrap();
    let before = daemon.descriptors().await;
    let mut slow = Vec::new();
    for _ in 0..20 {
        // Each over a connection of its own, which takes no more than 4 MiB.
        let machine = daemon.machine().await;
        let again = Session::resume(&machine, session.credentials().clone());
        let mut stream = again.await.unwrap().read_bytes(bytes("f"));
        in_time("the first piece", stream.next())
            .await
            .unwrap()
            .unwrap();
        slow.push(stream);
    }
    // The one place serves whoever asks.
    in_time("a small read", session.stat(stat("f")))
        .await
        .unwrap();
    let read = in_time("all of it", all(session.read_bytes(bytes("f")))).await;
    assert!(read.unwrap() == content);
    drop(slow);
    eventually("the files to be closed", || async {
        (daemon.descriptors().await <= before + 2).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_write_that_is_not_ended_changes_nothing() {
    let daemon = Daemon::start().await;
    let raw = Raw::new(&daemon).await;
    // The daemon's own directories go with it.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("f");
    fs::write(&path, "before").unwrap();
    let opening = || v1::WriteFileRequest {
        part: Some(v1::write_file_request::Part::Open(v1::WriteFileOpen {
            operation_id: executor_client::OperationId::random().to_string(),
            data: "after".into(),
            ..open(&path)
        })),
    };
    let mut files = FileServiceClient::new(raw.channel());
    // Never ended, and dropped.
    let (parts, stream) = tokio::sync::mpsc::channel(1);
    parts.send(opening()).await.unwrap();
    let stream = tokio_stream::wrappers::ReceiverStream::new(stream);
    let call = files.write_file(raw.with(stream));
    let waited = tokio::time::timeout(std::time::Duration::from_millis(300), call).await;
    assert!(waited.is_err(), "it waits for the end");
    // And one whose connection goes away.
    let gone = Raw::new(&daemon).await;
    let (more, stream) = tokio::sync::mpsc::channel(1);
    more.send(opening()).await.unwrap();
    let stream = tokio_stream::wrappers::ReceiverStream::new(stream);
    let mut cut = FileServiceClient::new(gone.channel());
    let call = cut.write_file(gone.with(stream));
    let waited = tokio::time::timeout(std::time::Duration::from_millis(300), call).await;
    assert!(waited.is_err(), "it waits for the end");
    drop((cut, gone));
    // What is no content ends it with an error.
    let odd = [
        vec![],
        vec![v1::WriteFileRequest { part: None }],
        vec![opening(), opening()],
        vec![v1::WriteFileRequest {
            part: Some(v1::write_file_request::Part::Data("x".into())),
        }],
        vec![v1::WriteFileRequest {
            part: Some(v1::write_file_request::Part::Open(v1::WriteFileOpen {
                operation_id: executor_client::OperationId::random().to_string(),
                data: vec![0; (1 << 20) + 1].into(),
                ..open(&path)
            })),
        }],
    ];
    for parts in odd {
        let answer = files.write_file(raw.with(tokio_stream::iter(parts))).await;
        assert_eq!(
            crate::hostile::reason(&answer.unwrap_err()),
            Some(Reason::InvalidArgument)
        );
    }
    // All that was begun is over once the daemon has ended.
    assert!(daemon.stop().await.success());
    assert_eq!(fs::read_to_string(&path).unwrap(), "before");
    drop((parts, more));
}

#[tokio::test]
async fn writes_whose_content_is_on_its_way_have_a_bound_that_frees_itself() {
    let daemon = Daemon::start_with(DaemonOptions {
        configuration: "[limits]\nfile_writes = 1\n".into(),
        ..DaemonOptions::default()
    })
    .await;
    let session = daemon.session().await;
    let raw = Raw::new(&daemon).await;
    let unfinished = |name: &str| {
        let opening = v1::WriteFileRequest {
            part: Some(v1::write_file_request::Part::Open(v1::WriteFileOpen {
                operation_id: executor_client::OperationId::random().to_string(),
                ..open(daemon.work().join(name))
            })),
        };
        raw.with(tokio_stream::once(opening).chain(tokio_stream::pending()))
    };
    let mut clients = [(); 2].map(|()| FileServiceClient::new(raw.channel()));
    let [one, other] = &mut clients;
    // Neither ends by itself: whichever comes second is refused.
    let refused = in_time("the bound", async {
        tokio::select! {
            refused = one.write_file(unfinished("f")) => refused,
            refused = other.write_file(unfinished("g")) => refused,
        }
    });
    let failure = Failure::from_status(&refused.await.unwrap_err()).unwrap();
    assert_eq!(failure.reason, Reason::CallLimit);
    assert_eq!(failure.metadata["limit"], "file_writes");
    // Both are given up by now.
    eventually("the place", || async {
        session.write_file(open("h"), "x").await.ok()
    })
    .await;
    drop(daemon);
}
