//! Messages of this schema as a release has written them, kept for good: this
//! release reads all of them, and what it writes can be read by that one.
//!
//! The recordings lie in `tests/fixtures/host/schema-N`, one message a line:
//! its name and the body in hexadecimal, and above it the same for people.
//! A new kind of message is recorded by
//! `EXECUTOR_RECORD=1 cargo test -p executor-daemon host::tests::recorded`, which
//! adds what is missing. A recording is never changed: where one cannot be read
//! any more, the change needs a new schema (`greeting.rs`) and a folder of its
//! own, and the one before stays while that schema is spoken.

use std::fmt::Debug;
use std::io::Write as _;
use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::tree::{bytes, missing, texts, tree, variants, with_more_fields, without_empty_fields};
use super::{requests, samples};
use crate::host::control::{ControlReply, ControlRequest, Notice};
use crate::host::frame::decode;
use crate::host::greeting::{Answer, Purpose, Refusal, SCHEMA, Welcome};
use crate::host::message::{Reply, Request};
use crate::host::wire::{AskedRequest, WireReply};
use crate::process::control::{SignalTarget, StopMode};
use crate::process::error::{ExitedAs, ProcessError, StdinClosedBecause};
use crate::process::exit::{Cause, SpawnStage, State, WaitStatus};
use crate::process::snapshot::StopMeans;
use crate::process::spec::{Command, EnvironmentPolicy, Flow, Io, Shell};
use crate::process::tree::Preferred;
use crate::session::record::Access;

fn path(group: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join(format!("tests/fixtures/host/schema-{SCHEMA}/{group}.txt"))
}

/// The recordings of one group: names and bodies.
#[expect(clippy::disallowed_methods, reason = "a test reads its fixtures")]
fn recorded(group: &str) -> Vec<(String, Vec<u8>)> {
    parsed(&std::fs::read_to_string(path(group)).unwrap_or_default())
}

/// Names and bodies.
pub(super) fn parsed(text: &str) -> Vec<(String, Vec<u8>)> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (name, digits) = line.split_once(' ').unwrap();
            let body = digits
                .as_bytes()
                .chunks(2)
                .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
                .collect();
            (name.to_owned(), body)
        })
        .collect()
}

#[expect(
    clippy::disallowed_methods,
    reason = "recorded where somebody asks for it"
)]
fn record(group: &str, name: &str, body: &[u8]) {
    if std::env::var_os("EXECUTOR_RECORD").is_none() {
        return;
    }
    std::fs::create_dir_all(path(group).parent().unwrap()).unwrap();
    let mut file = std::fs::OpenOptions::new();
    let mut file = file.create(true).append(true).open(path(group)).unwrap();
    let digits: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
    writeln!(file, "# {}\n{name} {digits}", tree(body)).unwrap();
}

fn write(value: &impl Serialize) -> Vec<u8> {
    rmp_serde::to_vec_named(value).unwrap()
}

/// Reads every recording of a group in each form in which it may come.
fn check<T: Serialize + DeserializeOwned + Debug>(group: &str, samples: &[(String, T)]) {
    let before = recorded(group);
    for (name, value) in samples {
        if !before.iter().any(|(recorded, _)| recorded == name) {
            record(group, name, &write(value));
        }
    }
    let recordings = recorded(group);
    assert!(!recordings.is_empty(), "{group} is not recorded");
    for (name, body) in &recordings {
        let sample = samples.iter().find(|(sample, _)| sample == name);
        let (_, value) = sample.unwrap_or_else(|| panic!("{group}: no value for {name}"));
        let due = format!("{value:?}");
        let same = |body: &[u8], what: &str| {
            let read = decode::<T>(body).map(|read| format!("{read:?}"));
            assert_eq!(read.as_ref(), Ok(&due), "{group}: {name}, {what}");
        };
        let old = tree(body);
        same(body, "as it was recorded");
        same(&bytes(&with_more_fields(&old)), "of a later release");
        same(&bytes(&without_empty_fields(&old)), "of a release before");
        let lost = missing(&old, &tree(&write(value)), "");
        assert_eq!(
            lost, None,
            "{group}: {name}, for the release that recorded it"
        );
    }
    for (name, _) in samples {
        let found = recordings.iter().any(|(recorded, _)| recorded == name);
        assert!(found, "{group}: {name} is not recorded");
    }
}

#[test]
fn greetings_are_read_as_they_were_recorded() {
    check("hello", &samples::hellos());
    check("answer", &samples::answers());
}

#[test]
fn requests_are_read_as_they_were_recorded() {
    check::<AskedRequest>("request", &requests::requests());
}

#[test]
fn replies_are_read_as_they_were_recorded() {
    check::<WireReply>("reply", &samples::replies());
    check::<WireReply>("refusal", &samples::refusals());
}

#[test]
fn what_commands_ask_and_are_told_is_read_as_it_was_recorded() {
    check("control_request", &samples::control_requests());
    check("control_reply", &samples::control_replies());
    check("notice", &samples::notices());
}

fn every_variant_of<T: DeserializeOwned>(groups: &[&str]) {
    let mut found = Vec::new();
    for group in groups {
        for (_, body) in recorded(group) {
            texts(&tree(&body), &mut found);
        }
    }
    for variant in variants::<T>() {
        let name = std::any::type_name::<T>();
        assert!(
            found.iter().any(|text| text == variant),
            "{name}::{variant} is not recorded"
        );
    }
}

#[test]
fn every_kind_of_message_and_of_what_is_in_them_is_recorded() {
    every_variant_of::<Purpose>(&["hello"]);
    every_variant_of::<Preferred>(&["hello"]);
    every_variant_of::<Answer>(&["answer"]);
    every_variant_of::<Refusal>(&["answer"]);
    every_variant_of::<Request>(&["request"]);
    every_variant_of::<Command>(&["request"]);
    every_variant_of::<Shell>(&["request"]);
    every_variant_of::<EnvironmentPolicy>(&["request"]);
    every_variant_of::<Io>(&["request"]);
    every_variant_of::<Flow>(&["request"]);
    every_variant_of::<StopMode>(&["request"]);
    every_variant_of::<SignalTarget>(&["request"]);
    every_variant_of::<Access>(&["request"]);
    every_variant_of::<Reply>(&["reply"]);
    every_variant_of::<State>(&["reply"]);
    every_variant_of::<WaitStatus>(&["reply"]);
    every_variant_of::<Cause>(&["reply"]);
    every_variant_of::<SpawnStage>(&["reply"]);
    every_variant_of::<StopMeans>(&["reply"]);
    every_variant_of::<ProcessError>(&["refusal"]);
    every_variant_of::<StdinClosedBecause>(&["refusal"]);
    every_variant_of::<ExitedAs>(&["refusal"]);
    every_variant_of::<ControlRequest>(&["control_request"]);
    every_variant_of::<ControlReply>(&["control_reply"]);
    every_variant_of::<Notice>(&["notice"]);
}

#[test]
fn what_has_a_default_may_be_missing() {
    use rmpv::Value;
    let only = |name: &str, value: &Value| bytes(&Value::Map(vec![(name.into(), value.clone())]));
    let request = Value::Map(vec![("List".into(), Value::Map(Vec::new()))]);
    let asked = decode::<AskedRequest>(&only("request", &request)).unwrap();
    assert!(asked.missing.is_empty());
    assert!(matches!(asked.request, Request::List { session: None }));
    let result = Value::Map(vec![("Ok".into(), "Done".into())]);
    let reply = decode::<WireReply>(&only("result", &result)).unwrap();
    assert!(matches!(reply.result, Ok(Reply::Done)));
    assert_eq!(reply.directories, 0);
    assert!(reply.logs.is_empty() && reply.segments.is_empty() && reply.live.is_empty());
    let (_, welcome) = samples::answers().swap_remove(0);
    let Answer::Welcome(welcome) = welcome else {
        panic!("the first is a welcome: {welcome:?}");
    };
    let mut fields = tree(&write(&welcome));
    if let Value::Map(fields) = &mut fields {
        fields.retain(|(name, _)| name.as_str() != Some("predecessor"));
    }
    let read = decode::<Welcome>(&bytes(&fields)).unwrap();
    assert_eq!(read.predecessor, None);
}
