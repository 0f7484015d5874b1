//! One value of every kind of message, the same in every run. A field that is
//! added later gets its default here: that is what an older message means.

use std::time::{Duration, SystemTime};

use executor_proto::id::{Epoch, ProcessId, SessionId};
use serde_bytes::ByteBuf;

use super::process::{everything_told, process};
use crate::host::control::{ControlReply, ControlRequest, DaemonStatus, HostStatus, Notice};
use crate::host::greeting::{
    Answer, EngineSettings, Hello, Predecessor, Purpose, Refusal, Welcome,
};
use crate::host::message::Reply;
use crate::host::wire::{WireReply, WireSegment};
use crate::process::exit::Member;
use crate::process::log::{Geometry, LogAddress};
use crate::process::snapshot::StopMeans;
use crate::process::tree::{LeftOvers, Preferred};
use crate::session::record::{Access, RootRecord, SessionCounts, SessionRecord};

/// A time with a fraction.
pub(super) fn time() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_789)
}

pub(super) fn epoch(letter: char) -> Epoch {
    format!("epo_{}", letter.to_string().repeat(26))
        .parse()
        .unwrap()
}

pub(super) fn session_id() -> SessionId {
    "ses_abcdefghijklmnopqrstuvwxyz".parse().unwrap()
}

pub(super) fn process_id() -> ProcessId {
    "prc_234567abcdefghijklmnopqrst".parse().unwrap()
}

pub(super) fn named<T>(values: impl IntoIterator<Item = (&'static str, T)>) -> Vec<(String, T)> {
    values
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

pub(super) fn hellos() -> Vec<(String, Hello)> {
    let says = |purpose| Hello {
        schema: 1,
        oldest: 1,
        release: "0.1.0".into(),
        boot_id: "d1b2c3d4-0000-4000-8000-000000000001".into(),
        purpose,
    };
    let settings = |means, reaper: Option<&[u8]>| EngineSettings {
        limits: vec![("sessions".into(), 64), ("of_later".into(), u64::MAX)],
        environment: vec![
            (ByteBuf::from("PATH"), ByteBuf::from("/bin")),
            (ByteBuf::from([0xff, 0xfe]), ByteBuf::from([0x80])),
        ],
        means,
        reaper: reaper.map(ByteBuf::from),
        grace: Duration::from_millis(2500),
    };
    let daemon = |means, reaper| says(Purpose::Daemon(Box::new(settings(means, reaper))));
    named([
        ("daemon", daemon(Preferred::Auto, None)),
        ("daemon-cgroup", daemon(Preferred::Cgroup, None)),
        (
            "daemon-reaper",
            daemon(Preferred::Reaper, Some(b"/reaper\xff")),
        ),
        ("daemon-best-effort", daemon(Preferred::BestEffort, None)),
        ("control", says(Purpose::Control)),
    ])
}

pub(super) fn answers() -> Vec<(String, Answer)> {
    let predecessor = Predecessor {
        epoch: epoch('a'),
        left: LeftOvers {
            ended: vec![Member {
                pid: 4711,
                name: "sleep".into(),
            }],
            survivors: vec![4712],
        },
    };
    let welcome = |predecessor| {
        Answer::Welcome(Welcome {
            schema: 1,
            release: "0.1.0".into(),
            epoch: epoch('b'),
            means: StopMeans::Cgroup,
            predecessor,
        })
    };
    let schema = Refusal::Schema {
        schema: 1,
        oldest: 1,
        release: "0.1.0".into(),
    };
    named([
        ("welcome", welcome(None)),
        ("welcome-after-loss", welcome(Some(predecessor))),
        ("control", Answer::Control),
        ("refused-schema", Answer::Refused(schema)),
        ("refused-boot", Answer::Refused(Refusal::Boot)),
        (
            "refused-failed",
            Answer::Refused(Refusal::Failed("why".into())),
        ),
    ])
}

pub(super) fn record() -> SessionRecord {
    let root = |path: &str, access| RootRecord {
        path: path.into(),
        access,
    };
    SessionRecord {
        id: session_id(),
        secret_hash: std::array::from_fn(|at| u8::try_from(at * 8).unwrap_or(0)),
        lease: Some(Duration::from_secs(3600)),
        label: "a label".into(),
        cwd: "/work".into(),
        roots: vec![
            root("/work", Access::ReadWrite),
            root("/usr", Access::ReadOnly),
        ],
        created_at: time(),
    }
}

pub(super) fn reply(result: Reply) -> WireReply {
    WireReply {
        result: Ok(result),
        directories: 0,
        logs: Vec::new(),
        segments: Vec::new(),
        live: Vec::new(),
    }
}

pub(super) fn replies() -> Vec<(String, WireReply)> {
    let session = Reply::Session {
        record: record(),
        epoch: epoch('b'),
        counts: SessionCounts {
            running: 1,
            kept: 64,
        },
        created: true,
    };
    let ended = Reply::SessionEnded {
        ended: 3,
        survivors: vec![1, 2],
    };
    let started = Reply::Started {
        process: Box::new(process()),
        created: true,
    };
    let accepted = Reply::StdinAccepted {
        offset: 1 << 33,
        queued: 7,
        closed: true,
    };
    let signalled = Reply::Signalled {
        process: Box::new(process()),
        delivered: true,
    };
    let stopped = Reply::Stopped {
        process: Box::new(process()),
        means: StopMeans::Reaper,
        signalled: 5,
        survivors: vec![77],
        already_ended: false,
    };
    let segment = WireSegment {
        id: 9,
        number: 2,
        geometry: Geometry::PRODUCTION,
    };
    let with_log = WireReply {
        logs: vec![LogAddress {
            segment: 9,
            slot: 3,
            generation: 1,
        }],
        segments: vec![segment],
        live: vec![8, 9],
        ..reply(started)
    };
    let with_directories = WireReply {
        directories: 3,
        ..reply(session)
    };
    named([
        ("done", reply(Reply::Done)),
        ("session", with_directories),
        ("session-ended", reply(ended)),
        ("started", with_log),
        ("process", reply(Reply::Process(Box::new(process())))),
        ("processes", reply(Reply::Processes(everything_told()))),
        ("stdin-accepted", reply(accepted)),
        ("signalled", reply(signalled)),
        ("stopped", reply(stopped)),
    ])
}

pub(super) fn refusals() -> Vec<(String, WireReply)> {
    super::process::refusals()
        .into_iter()
        .map(|(name, error)| {
            let refused = WireReply {
                result: Err(error),
                ..reply(Reply::Done)
            };
            (name, refused)
        })
        .collect()
}

pub(super) fn control_requests() -> Vec<(String, ControlRequest)> {
    let program = "/usr/bin/executor-daemon".into();
    named([
        ("status", ControlRequest::Status),
        ("upgrade", ControlRequest::Upgrade { program }),
        ("stop", ControlRequest::Stop),
    ])
}

pub(super) fn control_replies() -> Vec<(String, ControlReply)> {
    let status = |daemon| {
        ControlReply::Status(HostStatus {
            pid: 4242,
            release: "0.1.0".into(),
            daemon,
        })
    };
    let daemon = DaemonStatus {
        pid: 4243,
        release: "0.2.0".into(),
        turn: 5,
    };
    named([
        ("status", status(Some(daemon))),
        ("status-alone", status(None)),
        ("stopping", ControlReply::Stopping),
        ("failed", ControlReply::Failed("why".into())),
    ])
}

pub(super) fn notices() -> Vec<(String, Notice)> {
    let program = "/usr/bin/executor-daemon".into();
    named([
        ("upgrade", Notice::Upgrade { program }),
        ("stop", Notice::Stop),
    ])
}
