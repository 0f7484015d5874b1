//! Values that no client of ours sends, in every field of every rpc.

use executor_client::v1;
use executor_proto::id::ProcessId;
use executor_proto::v1::stream_output_request::Message;

use super::Raw;

/// A generator of hostile values: the same in each run (splitmix64).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn one<T: Clone>(&mut self, of: &[T]) -> T {
        let count = u64::try_from(of.len()).unwrap();
        of[usize::try_from(self.next() % count).unwrap()].clone()
    }

    pub(crate) fn yes(&mut self) -> bool {
        self.next().is_multiple_of(2)
    }

    pub(super) fn bytes(&mut self) -> Vec<u8> {
        let length = self.one(&[0, 1, 7, 300, 5000]);
        let zero = self.yes();
        let keep = |byte: &u8| zero || *byte != 0;
        (0..length)
            .map(|_| self.next().to_le_bytes()[0])
            .filter(keep)
            .collect()
    }

    fn text(&mut self, known: &str) -> String {
        let bytes = self.bytes();
        let lossy = String::from_utf8_lossy(&bytes).into_owned();
        self.one(&[
            known.to_owned(),
            known.to_owned(),
            ProcessId::random().to_string(),
            "prc_\u{0}\u{202e}".to_owned(),
            "é".repeat(10_000),
            lossy,
            String::new(),
        ])
    }

    fn wide(&mut self) -> u64 {
        let any = self.next();
        self.one(&[
            0,
            1,
            u64::MAX,
            u64::MAX - 1,
            1 << 63,
            u64::from(u32::MAX),
            any,
        ])
    }

    pub(super) fn narrow(&mut self) -> u32 {
        self.one(&[0, 1, 2, 1000, 1001, 65_536, u32::MAX, u32::MAX - 1])
    }

    fn number(&mut self) -> i32 {
        self.one(&[0, 1, 2, 3, 4, -1, 5, 64, 65, 99, i32::MIN, i32::MAX])
    }

    fn time(&mut self) -> (i64, i32) {
        let seconds = self.one(&[
            0,
            0,
            -1,
            i64::MIN,
            i64::MAX,
            315_576_000_000,
            253_402_300_799,
            1 << 40,
        ]);
        (
            seconds,
            self.one(&[0, 1, -1, 999_999_999, 1_000_000_000, i32::MIN, i32::MAX]),
        )
    }

    fn duration(&mut self) -> Option<prost_types::Duration> {
        let (seconds, nanos) = self.time();
        self.yes()
            .then_some(prost_types::Duration { seconds, nanos })
    }

    fn size(&mut self) -> Option<v1::TerminalSize> {
        let (rows, columns) = (self.narrow(), self.narrow());
        self.yes().then_some(v1::TerminalSize { rows, columns })
    }

    fn start(&mut self) -> v1::StartProcessRequest {
        use v1::start_process_request::{Command, Io};
        let argv = v1::ArgvCommand {
            argv: vec![self.bytes(), self.bytes()],
        };
        let shell = v1::ShellCommand {
            shell: self.number(),
            text: self.bytes(),
        };
        let (seconds, nanos) = self.time();
        let now = prost_types::Timestamp::from(std::time::SystemTime::now());
        let pipe = v1::PipeIo {
            stdin: self.number(),
            separate_stderr: self.yes(),
        };
        let terminal = v1::TerminalIo { size: self.size() };
        v1::StartProcessRequest {
            process_id: ProcessId::random().to_string(),
            created_at: self.one(&[
                Some(now),
                Some(now),
                None,
                Some(prost_types::Timestamp { seconds, nanos }),
            ]),
            // Nothing that could run: a shell would try random text.
            command: self.one(&[
                Some(Command::Argv(argv)),
                Some(Command::Shell(v1::ShellCommand {
                    text: b":".to_vec(),
                    ..shell
                })),
                None,
            ]),
            label: self.text("label"),
            working_directory: self.one(&[Vec::new(), b"/".to_vec(), vec![255; 4095], vec![0]]),
            environment: self.yes().then(|| v1::Environment {
                policy: self.number(),
                set: vec![v1::EnvironmentVariable {
                    name: self.bytes(),
                    value: self.bytes(),
                }],
                unset: vec![self.bytes()],
                quiet: self.yes(),
            }),
            io: self.one(&[None, Some(Io::Pipe(pipe)), Some(Io::Terminal(terminal))]),
            flow: self.number(),
            timeout: self.duration(),
            idle_timeout: self.duration(),
            sandbox: self.one(&[0, 0, 1, self.0.to_le_bytes()[0].into(), -1]),
            max_bytes: self.narrow(),
            ..Default::default()
        }
    }
}

/// Every rpc once, with values that no client of ours sends.
pub(super) async fn hostile_round(raw: &Raw, dice: &mut Dice, known: &str) {
    let (mut machines, mut sessions, mut processes) =
        (raw.machines(), raw.sessions(), raw.processes());
    let session = v1::OpenSessionRequest {
        session_id: dice.text(&raw.session.to_string()),
        roots: vec![v1::Root {
            path: dice.bytes(),
            mode: dice.number(),
        }],
        working_directory: dice.bytes(),
        lease: dice.duration(),
        label: dice.text("x"),
    };
    let _ = machines
        .get_machine(raw.with(v1::GetMachineRequest {}))
        .await;
    let _ = sessions.open_session(raw.with(session)).await;
    let _ = sessions
        .get_session(raw.with(v1::GetSessionRequest {}))
        .await;
    let _ = sessions.keep_alive(raw.with(v1::KeepAliveRequest {})).await;
    let _ = processes.start_process(raw.with(dice.start())).await;
    let all_sessions = dice.yes();
    let list = v1::ListProcessesRequest { all_sessions };
    let _ = processes.list_processes(raw.with(list)).await;
    let read = v1::ReadOutputRequest {
        process_id: dice.text(known),
        cursor: dice.wide(),
        max_bytes: dice.narrow(),
        // Not a wait that would be granted.
        wait: dice.duration().filter(|wait| wait.seconds != 0),
        all_sessions,
    };
    let _ = processes.read_output(raw.with(read)).await;
    let open = v1::StreamOutputRequest {
        message: Some(Message::Open(v1::StreamOutputOpen {
            process_id: dice.text(known),
            cursor: dice.wide(),
            reader_id: dice.text("reader"),
            all_sessions,
        })),
    };
    let consumed = v1::StreamOutputRequest {
        message: Some(Message::Consumed(dice.wide())),
    };
    let messages = dice.one(&[
        vec![open.clone(), consumed.clone(), open.clone()],
        vec![consumed],
        vec![v1::StreamOutputRequest { message: None }],
        Vec::new(),
        vec![open],
    ]);
    // Dropped at once where it opens: the client vanishes.
    let _ = processes
        .stream_output(raw.with(tokio_stream::iter(messages)))
        .await;
    let write = v1::WriteStdinRequest {
        process_id: dice.text(known),
        writer_id: dice.text("writer"),
        offset: dice.wide(),
        data: dice.bytes().into(),
        close: dice.yes(),
        wait: dice.duration().filter(|wait| wait.seconds != 0),
        all_sessions,
    };
    let _ = processes.write_stdin(raw.with(write)).await;
    let resize = v1::ResizeTerminalRequest {
        process_id: dice.text(known),
        size: dice.size(),
        all_sessions,
    };
    let _ = processes.resize_terminal(raw.with(resize)).await;
    let signal = v1::SignalProcessRequest {
        process_id: dice.text(known),
        signal: dice.one(&[0, -1, 65, i32::MAX, i32::MIN, 18, 23, 64]),
        target: dice.number(),
        all_sessions,
    };
    let _ = processes.signal_process(raw.with(signal)).await;
    let stop = v1::StopProcessRequest {
        process_id: dice.text("prc_"),
        mode: dice.number(),
        grace: dice.duration(),
        all_sessions,
    };
    let _ = processes.stop_process(raw.with(stop)).await;
    let remove = v1::RemoveProcessRequest {
        process_id: dice.text(known),
        all_sessions,
    };
    let _ = processes.remove_process(raw.with(remove)).await;
    let end = v1::EndSessionRequest {
        grace: Some(prost_types::Duration {
            seconds: dice.one(&[-1, i64::MIN, i64::MAX, 61]),
            nanos: 0,
        }),
    };
    let _ = sessions.end_session(raw.with(end)).await;
}
