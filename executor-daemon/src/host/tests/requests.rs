//! Requests, for the recorded messages.

use std::ffi::CString;
use std::time::Duration;

use bytes::Bytes;

use super::samples::{named, process_id, record, session_id, time};
use crate::host::message::{Request, Target};
use crate::host::wire::{AskedRequest, WireRequest};
use crate::process::control::{SignalTarget, StdinWrite, StopMode};
use crate::process::spec::{
    Command, EnvironmentPolicy, EnvironmentSpec, Flow, Io, Shell, SpecDigest, StartSpec,
    TerminalSize,
};

fn word(text: &[u8]) -> CString {
    CString::new(text).unwrap()
}

fn start(command: Command, io: Io, policy: EnvironmentPolicy, flow: Flow) -> Request {
    let spec = StartSpec {
        id: process_id(),
        digest: SpecDigest([7; 16]),
        created_at: time(),
        label: "a command".into(),
        command,
        environment: EnvironmentSpec {
            policy,
            unset: vec![word(b"GONE")],
            set: vec![(word(b"NAME"), word(b"\xff value"))],
            quiet: true,
        },
        io,
        flow,
        timeout: Some(Duration::from_secs(60)),
        idle_timeout: None,
        cwd: "/work".into(),
    };
    Request::Start {
        session: session_id(),
        spec: Box::new(spec),
        wait: Duration::from_millis(10),
    }
}

fn starts() -> Vec<(&'static str, Request)> {
    let shell = |shell| Command::Shell {
        shell,
        text: word(b"echo \xff"),
    };
    let argv = Command::Argv(vec![word(b"ls"), word(b"-l"), word(b"")]);
    let pipe = Io::Pipe {
        stdin: true,
        separate_stderr: true,
    };
    let terminal = Io::Terminal(TerminalSize::DEFAULT);
    use EnvironmentPolicy::{All, Core, Login, None};
    vec![
        ("start-argv", start(argv, pipe, None, Flow::Lossless)),
        (
            "start-default",
            start(shell(Shell::Default), terminal, Core, Flow::Drain),
        ),
        (
            "start-sh",
            start(shell(Shell::Sh), pipe, Login, Flow::Drain),
        ),
        (
            "start-bash",
            start(shell(Shell::Bash), terminal, All, Flow::Drain),
        ),
        (
            "start-zsh",
            start(shell(Shell::Zsh), pipe, Core, Flow::Drain),
        ),
    ]
}

fn stop(mode: StopMode) -> Request {
    Request::Stop {
        target: target(),
        mode,
        by: "ses_abcdefghijklmnopqrstuvwxyz".into(),
    }
}

fn target() -> Target {
    Target {
        session: Some(session_id()),
        process: process_id(),
    }
}

fn others() -> Vec<(&'static str, Request)> {
    let anybody = Target {
        session: None,
        process: process_id(),
    };
    let (session, target, grace, wait) = (
        session_id(),
        target(),
        Duration::from_millis(1500),
        Duration::from_secs(30),
    );
    let reader = || "reader".to_owned();
    let signal = |signal, to| Request::Signal { target, signal, to };
    let write = StdinWrite {
        writer: "writer".into(),
        offset: 1 << 40,
        data: Bytes::from_static(b"\x00typed\xff"),
        close: true,
    };
    let size = TerminalSize::new(1000, 1).unwrap();
    vec![
        ("open-session", Request::OpenSession(record())),
        (
            "grant-root",
            Request::GrantRoot {
                session,
                root: record().roots.remove(0),
            },
        ),
        ("get-session", Request::GetSession(session)),
        ("contact", Request::Contact(session)),
        ("end-session", Request::EndSession { session, grace }),
        ("get", Request::Get { target, wait }),
        (
            "get-of-any-session",
            Request::Get {
                target: anybody,
                wait,
            },
        ),
        (
            "list",
            Request::List {
                session: Some(session),
            },
        ),
        ("list-all", Request::List { session: None }),
        ("open-log", Request::OpenLog(target)),
        (
            "attach-reader",
            Request::AttachReader {
                target,
                reader: reader(),
                consumed: 9,
            },
        ),
        (
            "consumed",
            Request::Consumed {
                target,
                reader: reader(),
                offset: u64::MAX,
            },
        ),
        (
            "detach-reader",
            Request::DetachReader {
                target,
                reader: reader(),
            },
        ),
        (
            "write-stdin",
            Request::WriteStdin {
                target,
                write,
                wait,
            },
        ),
        ("resize", Request::Resize { target, size }),
        ("signal-leader", signal(9, SignalTarget::Leader)),
        ("signal-group", signal(64, SignalTarget::Group)),
        ("interrupt", stop(StopMode::Interrupt)),
        ("terminate", stop(StopMode::Terminate { grace })),
        ("kill", stop(StopMode::Kill)),
        ("remove", Request::Remove(target)),
        ("shutdown", Request::Shutdown { grace }),
    ]
}

/// One of each.
pub(super) fn requests() -> Vec<(String, AskedRequest)> {
    let asked = |request| WireRequest {
        request,
        missing: Vec::new(),
    };
    let all = starts().into_iter().chain(others());
    let mut all: Vec<_> = all.map(|(name, request)| (name, asked(request))).collect();
    let again = WireRequest {
        request: Request::OpenLog(target()),
        missing: vec![3, 4],
    };
    all.push(("open-log-again", again));
    named(all)
}
