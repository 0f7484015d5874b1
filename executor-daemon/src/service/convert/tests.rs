use std::time::{Duration, SystemTime};

use executor_proto::id::{ProcessId, SessionSecret};
use executor_proto::reason::{Failure, Reason};
use executor_proto::v1;
use executor_proto::v1::start_process_request::{Command as WireCommand, Io as WireIo};

use super::control::{CheckedWrite, signal, signal_target, stop_mode};
use super::output::{CheckedOpen, CheckedRead};
use super::process::{state, terminal_size, terminal_size_to_wire};
use super::session::open_spec;
use super::start::CheckedStart;
use crate::limits::Limits;
use crate::process::control::StopMode;
use crate::process::exit::State;
use crate::process::spec::{Command, EnvironmentPolicy, Flow, Io, Shell, StartSpec, TerminalSize};

fn shell(text: &[u8]) -> Option<WireCommand> {
    Some(WireCommand::Shell(v1::ShellCommand {
        shell: 0,
        text: text.to_vec(),
    }))
}

fn argv(words: &[&[u8]]) -> Option<WireCommand> {
    Some(WireCommand::Argv(v1::ArgvCommand {
        argv: words.iter().map(|word| word.to_vec()).collect(),
    }))
}

fn start() -> v1::StartProcessRequest {
    v1::StartProcessRequest {
        process_id: ProcessId::random().to_string(),
        created_at: Some(SystemTime::now().into()),
        command: shell(b"true"),
        ..Default::default()
    }
}

fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

fn checked(request: v1::StartProcessRequest) -> Result<StartSpec, Failure> {
    CheckedStart::new(request, &Limits::default()).map(|start| start.into_spec("/".into()))
}

type Change = fn(&mut v1::StartProcessRequest);

fn environment(request: &mut v1::StartProcessRequest) -> &mut v1::Environment {
    request.environment.get_or_insert_default()
}

fn variable(name: &[u8], value: &[u8]) -> v1::EnvironmentVariable {
    v1::EnvironmentVariable {
        name: name.to_vec(),
        value: value.to_vec(),
    }
}

#[test]
fn each_refusal_of_a_start_names_its_field() {
    let refused: &[(&str, Change)] = &[
        ("process_id", |r| r.process_id.clear()),
        ("process_id", |r| {
            r.process_id = "ses_aaaaaaaaaaaaaaaaaaaaaaaaaa".into()
        }),
        ("created_at", |r| r.created_at = None),
        ("created_at", |r| {
            r.created_at = Some(prost_types::Timestamp {
                seconds: -1,
                nanos: 0,
            })
        }),
        ("created_at", |r| {
            r.created_at = Some(prost_types::Timestamp {
                seconds: i64::MAX,
                nanos: -1,
            })
        }),
        ("command", |r| r.command = None),
        ("argv", |r| r.command = argv(&[])),
        ("argv[0]", |r| r.command = argv(&[b""])),
        ("argv[1]", |r| r.command = argv(&[b"echo", b"a\0b"])),
        ("argv", |r| {
            r.command = argv(&[b"echo", &vec![b'x'; 4 << 20]])
        }),
        ("shell.text", |r| r.command = shell(b"a\0b")),
        ("shell.text", |r| {
            r.command = shell(&vec![b'x'; (4 << 20) + 1])
        }),
        ("shell.shell", |r| {
            r.command = Some(WireCommand::Shell(v1::ShellCommand {
                shell: 99,
                text: Vec::new(),
            }));
        }),
        ("label", |r| r.label = "x".repeat(4097)),
        ("working_directory", |r| {
            r.working_directory = b"a\0".to_vec()
        }),
        ("working_directory", |r| {
            r.working_directory = vec![b'x'; 4096]
        }),
        ("environment.policy", |r| environment(r).policy = -1),
        ("environment.set[1].name", |r| {
            environment(r).set = vec![variable(b"A", b""), variable(b"", b"x")];
        }),
        ("environment.set[0].name", |r| {
            environment(r).set = vec![variable(b"A=B", b"x")]
        }),
        ("environment.set[0].name", |r| {
            environment(r).set = vec![variable(b"A\0", b"x")]
        }),
        ("environment.set[0].value", |r| {
            environment(r).set = vec![variable(b"A", b"\0")]
        }),
        ("environment.unset[0]", |r| {
            environment(r).unset = vec![b"=".to_vec()]
        }),
        ("pipe.stdin", |r| {
            r.io = Some(WireIo::Pipe(v1::PipeIo {
                stdin: 3,
                ..Default::default()
            }));
        }),
        ("terminal.size.rows", |r| {
            let size = Some(v1::TerminalSize {
                rows: 1001,
                columns: 80,
            });
            r.io = Some(WireIo::Terminal(v1::TerminalIo { size }));
        }),
        ("terminal.size.columns", |r| {
            let size = Some(v1::TerminalSize {
                rows: 0,
                columns: 1001,
            });
            r.io = Some(WireIo::Terminal(v1::TerminalIo { size }));
        }),
        ("flow", |r| r.flow = 7),
        ("timeout", |r| r.timeout = seconds(0)),
        ("timeout", |r| r.timeout = seconds(-1)),
        ("timeout", |r| {
            r.timeout = Some(prost_types::Duration {
                seconds: 0,
                nanos: -5,
            })
        }),
        ("timeout", |r| r.timeout = seconds(i64::MAX)),
        ("idle_timeout", |r| r.idle_timeout = seconds(0)),
        ("sandbox", |r| r.sandbox = 12),
        ("wait", |r| r.wait = seconds(301)),
        ("wait", |r| r.wait = seconds(-1)),
        ("max_bytes", |r| r.max_bytes = 65_537),
    ];
    for (field, change) in refused {
        let mut request = start();
        change(&mut request);
        let failure = checked(request).unwrap_err();
        assert_eq!(failure.reason, Reason::InvalidArgument, "{field}");
        assert_eq!(failure.metadata["field"], *field);
        assert!(failure.message.starts_with(field), "{}", failure.message);
        assert!(
            failure.message.len() < 400,
            "{field}: {} bytes",
            failure.message.len()
        );
    }
}

#[test]
fn a_start_at_its_limits_is_taken() {
    let mut request = start();
    request.command = shell(&vec![b'x'; 4 << 20]);
    request.wait = seconds(300);
    request.max_bytes = 65_536;
    request.io = Some(WireIo::Terminal(v1::TerminalIo {
        size: Some(v1::TerminalSize {
            rows: 1000,
            columns: 1,
        }),
    }));
    let spec = checked(request).unwrap();
    let size = TerminalSize::new(1000, 1).unwrap();
    assert_eq!(spec.io, Io::Terminal(size));
    assert_eq!(spec.label.chars().count(), 200);
}

#[test]
fn what_is_unspecified_gets_the_documented_default() {
    let request = start();
    let checked = CheckedStart::new(request, &Limits::default()).unwrap();
    assert_eq!(checked.max_bytes, 8192);
    assert_eq!(checked.wait, Duration::ZERO);
    let spec = checked.into_spec("/".into());
    assert_eq!(spec.environment.policy, EnvironmentPolicy::Core);
    assert_eq!(
        spec.io,
        Io::Pipe {
            stdin: false,
            separate_stderr: false
        }
    );
    assert_eq!(spec.flow, Flow::Drain);
    assert_eq!((spec.timeout, spec.idle_timeout), (None, None));
    let Command::Shell { shell, text } = spec.command else {
        panic!("a shell's")
    };
    assert_eq!((shell, text.as_bytes()), (Shell::Default, &b"true"[..]));
}

#[test]
fn a_command_keeps_its_bytes() {
    let text = b"printf '%s' \xff\xfe 'a!b' \\\\ $$ \r\n";
    let mut request = start();
    request.command = shell(text);
    let spec = checked(request).unwrap();
    let Command::Shell { text: kept, .. } = spec.command else {
        panic!("a shell's")
    };
    assert_eq!(kept.as_bytes(), text);
}

#[test]
fn the_label_is_the_command_shortened_between_characters() {
    let label = |command| {
        let mut request = start();
        request.command = command;
        checked(request).unwrap().label
    };
    assert_eq!(label(argv(&[b"echo", b"two words"])), "echo two words");
    assert_eq!(label(shell("é".repeat(300).as_bytes())), "é".repeat(200));
    assert_eq!(label(shell(b"a\xffb")), "a\u{fffd}b");
    assert!(!label(shell(b"")).is_empty());
    let mut request = start();
    request.label = "mine".to_owned();
    assert_eq!(checked(request).unwrap().label, "mine");
}

#[test]
fn the_digest_is_of_the_spec_and_not_of_how_the_call_waits() {
    let request = start();
    let digest = |request: v1::StartProcessRequest| checked(request).unwrap().digest;
    let mut waits = request.clone();
    waits.wait = seconds(5);
    waits.max_bytes = 100;
    assert_eq!(digest(request.clone()), digest(waits));
    let different: &[Change] = &[
        |r| r.command = shell(b"false"),
        |r| r.label = "other".into(),
        |r| r.working_directory = b"sub".to_vec(),
        |r| r.timeout = seconds(1),
        |r| r.flow = v1::Flow::Lossless.into(),
        |r| environment(r).set.push(variable(b"A", b"b")),
    ];
    for change in different {
        let mut other = request.clone();
        change(&mut other);
        assert_ne!(digest(request.clone()), digest(other));
    }
}

#[test]
fn other_requests_name_their_fields_too() {
    let limits = Limits::default();
    let field = |failure: Failure| {
        assert_eq!(failure.reason, Reason::InvalidArgument);
        failure.metadata["field"].clone()
    };
    let process_id = ProcessId::random().to_string();
    let write = v1::WriteStdinRequest {
        process_id: process_id.clone(),
        writer_id: "w".into(),
        ..Default::default()
    };
    type Spoil = fn(&mut v1::WriteStdinRequest);
    let writes: [(&str, Spoil); 5] = [
        ("process_id", |w| w.process_id = "x".into()),
        ("writer_id", |w| w.writer_id.clear()),
        ("writer_id", |w| w.writer_id = "x".repeat(65)),
        ("data", |w| w.data = vec![0; 131_073].into()),
        ("offset", |w| {
            (w.offset, w.data) = (u64::MAX, vec![0].into())
        }),
    ];
    CheckedWrite::new(write.clone(), &limits).unwrap();
    for (name, change) in writes {
        let mut write = write.clone();
        change(&mut write);
        let refused = CheckedWrite::new(write, &limits).err().unwrap();
        assert_eq!(field(refused), name);
    }
    let read = v1::ReadOutputRequest {
        process_id,
        max_bytes: 65_537,
        ..Default::default()
    };
    assert_eq!(
        field(CheckedRead::new(&read, &limits).unwrap_err()),
        "max_bytes"
    );
    assert_eq!(field(CheckedOpen::new(None).unwrap_err()), "open");
    for number in [0, -9, 65] {
        assert_eq!(field(signal(number).unwrap_err()), "signal");
    }
    assert_eq!(field(signal_target(9).unwrap_err()), "target");
    assert_eq!(field(stop_mode(9, None).unwrap_err()), "mode");
    assert_eq!(field(stop_mode(0, seconds(61)).unwrap_err()), "grace");
    let default = StopMode::Terminate {
        grace: Duration::from_secs(2),
    };
    assert_eq!(stop_mode(0, None).unwrap(), default);
}

#[test]
fn a_session_is_checked_and_its_lease_has_three_forms() {
    let open = |change: fn(&mut v1::OpenSessionRequest)| {
        let mut request = v1::OpenSessionRequest {
            session_id: executor_proto::id::SessionId::random().to_string(),
            ..Default::default()
        };
        change(&mut request);
        open_spec(request, SessionSecret::random())
    };
    assert_eq!(open(|_| {}).unwrap().lease, Some(Duration::from_secs(3600)));
    assert_eq!(open(|r| r.lease = seconds(0)).unwrap().lease, None);
    assert_eq!(
        open(|r| r.lease = seconds(30)).unwrap().lease,
        Some(Duration::from_secs(30))
    );
    let root = |path: &[u8], mode| v1::Root {
        path: path.to_vec(),
        mode,
    };
    assert!(open(|r| r.working_directory = b"/w".to_vec()).is_ok());
    let refused = [
        ("session_id", open(|r| r.session_id.clear())),
        ("lease", open(|r| r.lease = seconds(31 * 24 * 3600))),
        (
            "working_directory",
            open(|r| r.working_directory = b"w".to_vec()),
        ),
        ("label", open(|r| r.label = "x".repeat(257))),
    ];
    for (field, result) in refused {
        assert_eq!(result.unwrap_err().metadata["field"], field);
    }
    let mut request = v1::OpenSessionRequest {
        session_id: executor_proto::id::SessionId::random().to_string(),
        roots: vec![root(b"/", 0), root(b"w", 0)],
        ..Default::default()
    };
    let failure = open_spec(request.clone(), SessionSecret::random()).unwrap_err();
    assert_eq!(failure.metadata["field"], "roots[1].path");
    request.roots = vec![root(b"/", 9)];
    let failure = open_spec(request, SessionSecret::random()).unwrap_err();
    assert_eq!(failure.metadata["field"], "roots[0].mode");
}

#[test]
fn sizes_and_states_survive_the_wire() {
    for (rows, columns) in [(1, 1), (24, 80), (1000, 1000)] {
        let size = TerminalSize::new(rows, columns).unwrap();
        let wire = terminal_size_to_wire(size);
        assert_eq!(terminal_size("size", Some(wire)).unwrap(), size);
    }
    assert_eq!(terminal_size("size", None).unwrap(), TerminalSize::DEFAULT);
    let states = [
        State::Starting,
        State::Running,
        State::Exited,
        State::Failed,
        State::Killed,
    ];
    let names = states.map(|one| state(one).as_str_name());
    let expected = ["STARTING", "RUNNING", "EXITED", "FAILED", "KILLED"];
    assert_eq!(names, expected.map(|name| format!("PROCESS_STATE_{name}")));
}
