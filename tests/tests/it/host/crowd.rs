//! Many commands at once, each of which can tell whether anything was lost:
//! numbered lines at different rates, from pipes and terminals, or what was
//! typed, and an exit of its own.

use std::sync::Arc;
use std::time::Duration;

use executor_client::v1::Shell;
use executor_client::{CallOptions, Command, ExitStatus, OutputEvent, Process, Session};
use executor_tests::{Daemon, DaemonOptions, in_time, scaled};
use tokio::sync::{Mutex, MutexGuard, Semaphore};
use tokio::task::JoinSet;

/// Longest life of one crowd.
const LIFE: Duration = Duration::from_secs(300);

/// Two crowds at once would try the machine's patience, not ours.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Waits until no other test of this program has a crowd.
pub(super) async fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().await
}

/// What one of a crowd is.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Pipe,
    Terminal,
    Typed,
}

/// Starts a crowd, of which every one is checked when it has ended. Returns when
/// all have begun.
pub(super) async fn crowd(session: &Session, count: usize, lines: usize) -> JoinSet<()> {
    let mut all = JoinSet::new();
    let started = Arc::new(Semaphore::new(0));
    // So many at once are slow to start on a small machine.
    let patient = CallOptions { deadline: LIFE };
    for number in 0..count {
        let session = session.clone().with_options(patient);
        let started = Arc::clone(&started);
        all.spawn(async move {
            let one = one(&session, number, lines, &started);
            tokio::time::timeout(LIFE, one)
                .await
                .unwrap_or_else(|_| panic!("{number} did not end within {LIFE:?}"));
        });
    }
    let everybody = started.acquire_many(u32::try_from(count).unwrap());
    in_time("the whole crowd", everybody)
        .await
        .unwrap()
        .forget();
    all
}

/// Waits for all of it.
pub(super) async fn all_well(mut crowd: JoinSet<()>) {
    while let Some(one) = crowd.join_next().await {
        one.unwrap();
    }
}

async fn one(session: &Session, number: usize, lines: usize, started: &Semaphore) {
    let kind = [Kind::Pipe, Kind::Terminal, Kind::Typed][number % 3];
    let code = i32::try_from(number % 50).unwrap();
    // From one line in 5 ms to one in 45 ms.
    let pause = 5 + 10 * (number / 3 % 5);
    let count = lines * 10 / pause;
    let printing = format!(
        "i=0; while [ $i -lt {count} ]; do echo \"{number} line $i\"; i=$((i+1)); \
         sleep 0.{pause:03}; done; exit {code}"
    );
    let command: Command = match kind {
        Kind::Pipe => bash(session, &printing),
        Kind::Terminal => bash(session, &printing).terminal(24, 80),
        Kind::Typed => bash(session, &format!("cat; exit {code}")).stdin_pipe(),
    };
    let process = command.spawn().await.unwrap();
    started.add_permits(1);
    let typing = match kind {
        Kind::Typed => Some(tokio::spawn(type_lines(
            process.clone(),
            number,
            count,
            pause,
        ))),
        Kind::Pipe | Kind::Terminal => None,
    };
    let output = follow(&process, number, code).await;
    if let Some(typing) = typing {
        typing.await.unwrap();
    }
    let ending = if matches!(kind, Kind::Terminal) {
        "\r\n"
    } else {
        "\n"
    };
    let expected: String = (0..count)
        .map(|line| format!("{number} line {line}{ending}"))
        .collect();
    assert!(
        output == expected.as_bytes(),
        "{number} ({kind:?}): {} bytes instead of {}; differs at {:?}",
        output.len(),
        expected.len(),
        output
            .iter()
            .zip(expected.as_bytes())
            .position(|(a, b)| a != b)
    );
}

async fn type_lines(process: Process, number: usize, count: usize, pause: usize) {
    let mut stdin = process.stdin();
    for line in 0..count {
        stdin
            .write(format!("{number} line {line}\n"))
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_millis(pause as u64)).await;
    }
    stdin.close().await.unwrap();
}

/// All output, without a gap, and the right exit.
async fn follow(process: &Process, number: usize, code: i32) -> Vec<u8> {
    let mut output = process.output();
    let (mut bytes, mut exit) = (Vec::new(), None);
    while let Some(event) = output.next().await.unwrap() {
        match event {
            OutputEvent::Page(page) => {
                assert!(page.gap.is_none(), "{number} has a gap: {:?}", page.gap);
                assert_eq!(page.start, bytes.len() as u64, "{number}");
                bytes.extend_from_slice(&page.data);
            }
            OutputEvent::Exit(told) => exit = Some(told),
            OutputEvent::End => {}
        }
    }
    let exit = exit.unwrap_or_else(|| panic!("{number} told no exit"));
    assert_eq!(exit.status, ExitStatus::Code(code), "{number}: {exit:?}");
    bytes
}

/// Moments that look random and are the same for the same seed.
#[derive(Debug)]
pub(super) struct Moments(u64);

impl Moments {
    pub(super) fn new() -> Self {
        let seed = std::process::id().into();
        eprintln!("moments from seed {seed}");
        Self(seed)
    }

    /// Waits for a while, at most `longest`.
    pub(super) async fn next(&mut self, longest: Duration) {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let part = u32::try_from(self.0 >> 33).unwrap();
        tokio::time::sleep(longest * (part % 1000) / 1000).await;
    }
}

/// How many commands and how often something is done to them.
pub(super) fn sizes() -> (usize, usize) {
    (scaled(200, 60), scaled(20, 5))
}

/// A daemon whose sessions keep a whole crowd.
pub(super) async fn roomy() -> Daemon {
    Daemon::start_with(DaemonOptions {
        configuration: "[limits]\nprocesses_per_session = 2000\n".into(),
        ..DaemonOptions::default()
    })
    .await
}

fn bash(session: &Session, text: &str) -> Command {
    session.command(text).with_shell(Shell::Bash)
}
