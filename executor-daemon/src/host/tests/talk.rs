//! What the host does with what it does not know: it says so, or passes it
//! over, and goes on.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rmpv::Value;
use tokio::task::JoinSet;

use super::end::{End, config};
use super::tree::tree;
use crate::host::answering::Answering;
use crate::host::control::{ControlReply, ControlRequest};
use crate::host::frame::{Kind, decode};
use crate::host::greeting::{Answer, Purpose, RELEASE, Refusal, SCHEMA, hello};
use crate::host::message::{Reply, Request};
use crate::host::run::{self, Local};
use crate::host::serve::Host;
use crate::host::wire::WireRequest;
use crate::process::error::ProcessError;

/// `{"request": {"FlyToTheMoon": {"when": 1}}}`
fn unknown_request() -> Value {
    let fields = Value::Map(vec![("when".into(), 1.into())]);
    let request = Value::Map(vec![("FlyToTheMoon".into(), fields)]);
    Value::Map(vec![("request".into(), request)])
}

#[tokio::test]
async fn a_request_that_is_not_known_is_answered_and_the_connection_goes_on() {
    let (mut daemon, socket) = End::pair();
    let (local, _shutdowns) = Local::new(run::engine(config()));
    let mut host = End::new(socket);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let answering = Answering::new(local, Arc::clone(&host.connection));
        let take = |frame| answering.take(frame);
        host.connection.run(&mut host.reader, take).await;
    });
    daemon.say_something_new(1);
    let nothing = Value::Map(vec![("nothing".into(), Value::Nil)]);
    for (id, body) in [(2, unknown_request()), (3, nothing)] {
        daemon.say_tree(Kind::Request, id, &body);
        let (answered, result) = daemon.hear_reply().await;
        assert_eq!(answered, id);
        assert!(
            matches!(result, Err(ProcessError::NotUnderstood)),
            "{result:?}"
        );
    }
    // Out of turn.
    daemon.say(Kind::Welcome, 4, &());
    daemon.say(Kind::Cancel, 5, &());
    let list = WireRequest {
        request: Request::List { session: None },
        missing: Vec::new(),
    };
    daemon.say(Kind::Request, 6, &list);
    let (answered, result) = daemon.hear_reply().await;
    assert_eq!(answered, 6);
    assert!(matches!(result, Ok(Reply::Processes(none)) if none.is_empty()));
}

fn host(tasks: &mut JoinSet<()>, socket: OwnedFd) {
    let host = Arc::new(Host::new("/nonexistent".into(), Vec::new()));
    tasks.spawn(host.serve(socket));
}

#[tokio::test]
async fn a_command_of_another_release_is_told_what_is_not_known() {
    let mut tasks = JoinSet::new();
    let (mut command, socket) = End::pair();
    host(&mut tasks, socket);
    command.say(Kind::Hello, 0, &hello(Purpose::Control));
    let welcome = command.hear().await.unwrap();
    assert!(matches!(decode(&welcome.body), Ok(Answer::Control)));
    command.say_something_new(1);
    command.say(Kind::Request, 2, &"FlyToTheMoon");
    let frame = command.hear().await.unwrap();
    assert_eq!((frame.kind, frame.id), (Some(Kind::Reply), 2));
    let reply = decode(&frame.body).unwrap();
    let ControlReply::Failed(why) = reply else {
        panic!("{reply:?}");
    };
    assert!(why.contains(RELEASE), "{why}");
    command.say(Kind::Request, 3, &ControlRequest::Status);
    let frame = command.hear().await.unwrap();
    assert!(matches!(decode(&frame.body), Ok(ControlReply::Status(_))));
}

#[tokio::test]
async fn whoever_comes_for_something_that_is_not_known_is_refused_with_what_is_spoken() {
    let mut tasks = JoinSet::new();
    let (mut later, socket) = End::pair();
    host(&mut tasks, socket);
    let mut fields = tree(&rmp_serde::to_vec_named(&hello(Purpose::Control)).unwrap());
    if let Value::Map(fields) = &mut fields {
        fields.retain(|(name, _)| name.as_str() != Some("purpose"));
        fields.push(("purpose".into(), "FlyToTheMoon".into()));
    }
    later.say_tree(Kind::Hello, 0, &fields);
    let answer = later.hear().await.unwrap();
    let answer = decode::<Answer>(&answer.body).unwrap();
    let refused = matches!(
        answer,
        Answer::Refused(Refusal::Schema { schema: SCHEMA, .. })
    );
    assert!(refused, "{answer:?}");
    assert!(later.hear().await.is_none());
}
