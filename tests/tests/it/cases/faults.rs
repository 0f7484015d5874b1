//! Connections that break: what was asked for is done once.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use executor_client::v1::{self, Shell};
use executor_client::{Command, ExitStatus, Machine, Process, Session, SessionOptions};
use executor_tests::{Daemon, DaemonOptions, Fault, Proxy, eventually, in_time, scaled};
use tokio::task::JoinSet;

use super::everything;
use crate::hostile::dice::Dice;

/// A daemon, and a session that reaches it through a proxy.
pub(crate) struct Behind {
    pub(crate) daemon: Daemon,
    pub(crate) proxy: Proxy,
    pub(crate) session: Session,
}

impl Behind {
    pub(crate) async fn new() -> Self {
        let daemon = Daemon::start_with(DaemonOptions {
            configuration: "[limits]\nprocesses_per_session = 2000\n".into(),
            ..DaemonOptions::default()
        })
        .await;
        let proxy = Proxy::new(&daemon.socket());
        let session = open(&proxy, &daemon.work()).await;
        Self {
            daemon,
            proxy,
            session,
        }
    }

    /// Does something while `fault` strikes once.
    pub(crate) async fn struck<T>(
        &self,
        fault: Fault,
        what: &str,
        call: impl Future<Output = T>,
    ) -> T {
        let before = self.proxy.struck();
        self.proxy.fault(fault);
        let done = in_time(what, call).await;
        let struck = self.proxy.struck() - before;
        assert_eq!(struck, 1, "{what}: {fault:?} has to strike it");
        done
    }

    /// Lines of a file in the working directory; none where there is no file.
    fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.daemon.work().join(name));
        let text = text.unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

pub(super) async fn open(proxy: &Proxy, work: &Path) -> Session {
    let address = proxy.address();
    let machine = in_time("the daemon", Machine::connect(&address))
        .await
        .unwrap();
    let options = SessionOptions {
        working_directory: Some(work.to_owned()),
        ..SessionOptions::default()
    };
    in_time("a session", machine.open_session(options))
        .await
        .unwrap()
}

/// Different in each run; what it was is told.
pub(crate) fn dice() -> Dice {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let seed = std::env::var("EXECUTOR_TEST_SEED").ok();
    let seed = seed.map_or(now.as_nanos() as u64, |seed| seed.parse().unwrap());
    eprintln!("EXECUTOR_TEST_SEED={seed}");
    Dice(seed)
}

pub(crate) fn bash(session: &Session, text: impl Into<Vec<u8>>) -> Command {
    session.command(text).with_shell(Shell::Bash)
}

/// A process that notes each SIGTERM and SIGUSR1 in the file `signals`, and
/// ends some time after the first of SIGTERM.
async fn noting(session: &Session, signals: &str) -> Process {
    let text = format!(
        "trap 'echo term >> {signals}; ends=1' TERM; trap 'echo usr1 >> {signals}' USR1; \
         echo ready; until [ $ends ]; do sleep 0.02; done; sleep 0.1; exit 3"
    );
    let process = in_time("start", bash(session, text).spawn()).await.unwrap();
    eventually("the traps", || async {
        let read = process.read_output(0, 10, Duration::from_secs(1)).await;
        (read.unwrap().page.unwrap().end > 0).then_some(())
    })
    .await;
    process
}

#[tokio::test]
async fn b140_a_call_whose_answer_is_lost_is_carried_out_once() {
    let here = Behind::new().await;
    for round in 0..scaled(200, 4) {
        for fault in [
            Fault::LoseAnswer,
            Fault::CutAfterRequest,
            Fault::CutAfter(20 + 5 * (round % 24)),
        ] {
            let name = format!("{round}-{fault:?}").replace(['(', ')'], "-");
            let text = format!("echo started >> {name}");
            let start = bash(&here.session, text)
                .wait(Duration::from_secs(20))
                .start();
            let started = here.struck(fault, "start", start).await.unwrap();
            let exit = in_time("exit", started.process.wait()).await.unwrap();
            assert_eq!(exit.status, ExitStatus::Code(0));
            assert_eq!(here.lines(&name), ["started"], "{fault:?}");
            if fault == Fault::LoseAnswer {
                assert!(!started.created, "it is the first one that is told of");
            }

            let cat = bash(&here.session, "cat").stdin_pipe().spawn();
            let cat = in_time("start", cat).await.unwrap();
            let mut stdin = cat.stdin();
            here.struck(fault, "write", stdin.write("one\n"))
                .await
                .unwrap();
            here.struck(fault, "write", stdin.write("two\n"))
                .await
                .unwrap();
            here.struck(fault, "close", stdin.close()).await.unwrap();
            assert_eq!(everything(&cat).await, b"one\ntwo\n", "{fault:?}");

            let signals = format!("{name}-signals");
            let process = noting(&here.session, &signals).await;
            let stop = process.stop(Duration::from_secs(30));
            let stopped = here.struck(fault, "stop", stop).await.unwrap();
            assert!(stopped.survivors.is_empty(), "{stopped:?}");
            let exit = in_time("exit", process.wait()).await.unwrap();
            assert_eq!(exit.status, ExitStatus::Code(3), "{fault:?}: {exit:?}");
            assert_eq!(exit.cause.name(), "stopped", "{fault:?}: {exit:?}");
            assert_eq!(here.lines(&signals), ["term"], "{fault:?}");

            let removed = here.struck(fault, "remove", process.remove()).await;
            removed.unwrap();
        }
    }
}

#[tokio::test]
async fn b140_a_signal_whose_answer_is_lost_is_sent_once_and_the_caller_is_told() {
    let here = Behind::new().await;
    let process = noting(&here.session, "signals").await;
    let signal = process.signal(
        rustix::process::Signal::USR1.as_raw(),
        v1::SignalTarget::Leader,
    );
    let answer = here.struck(Fault::LoseAnswer, "signal", signal).await;
    let error = answer.unwrap_err();
    assert!(
        matches!(
            error,
            executor_client::ClientError::Unreachable {
                never_sent: false,
                ..
            }
        ),
        "{error:?}"
    );
    in_time("stop", process.stop(Duration::from_secs(30)))
        .await
        .unwrap();
    assert_eq!(here.lines("signals"), ["usr1", "term"]);
}

/// Steps that one worker of a storm has done. Who holds it no more has ended.
#[derive(Clone, Default)]
struct Steps(Arc<AtomicU64>);

impl Steps {
    fn step(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn goes_on_from(&self, before: u64) -> bool {
        Arc::strong_count(&self.0) == 1 || self.0.load(Ordering::Relaxed) != before
    }
}

/// Returns when each has done one more step, however slow the machine is.
async fn everybody_goes_on(workers: &[Steps]) {
    let before: Vec<_> = workers
        .iter()
        .map(|steps| steps.0.load(Ordering::Relaxed))
        .collect();
    eventually(
        "a step of everybody while nothing is in the way",
        || async {
            let mut workers = workers.iter().zip(&before);
            workers
                .all(|(steps, before)| steps.goes_on_from(*before))
                .then_some(())
        },
    )
    .await;
}

/// Starts one after the other; each prints its line and adds it to `log`.
async fn starter(session: Session, number: usize, count: usize, steps: Steps) {
    for round in 0..count {
        let line = format!("{number}-{round}");
        let done = bash(&session, format!("echo {line} | tee -a log")).run();
        let done = in_time("run", done).await.unwrap();
        assert_eq!(done.exit.status, ExitStatus::Code(0));
        assert_eq!(String::from_utf8(done.output).unwrap(), format!("{line}\n"));
        steps.step();
    }
}

/// Types into one process, and reads it all back.
async fn typist(session: Session, count: usize, steps: Steps) {
    let cat = bash(&session, "cat").stdin_pipe().spawn();
    let cat = in_time("start", cat).await.unwrap();
    let mut stdin = cat.stdin();
    let reader = {
        let cat = cat.clone();
        tokio::spawn(async move { everything(&cat).await })
    };
    let mut expected = String::new();
    for line in 0..count {
        let line = format!("{line} {}\n", "x".repeat(line * 37 % 3000));
        expected.push_str(&line);
        in_time("write", stdin.write(line)).await.unwrap();
        steps.step();
    }
    in_time("close", stdin.close()).await.unwrap();
    let read = in_time("the output", reader).await.unwrap();
    assert!(
        read == expected.as_bytes(),
        "{} bytes of {}",
        read.len(),
        expected.len()
    );
}

/// Stops what it starts.
async fn stopper(session: Session, work: std::path::PathBuf, count: usize, steps: Steps) {
    for round in 0..count {
        let signals = format!("signals-{round}");
        let process = noting(&session, &signals).await;
        let stopped = in_time("stop", process.stop(Duration::from_secs(30)))
            .await
            .unwrap();
        assert!(stopped.survivors.is_empty(), "{stopped:?}");
        let exit = in_time("exit", process.wait()).await.unwrap();
        assert_eq!(
            (exit.status, exit.cause.name()),
            (ExitStatus::Code(3), "stopped")
        );
        let noted = std::fs::read_to_string(work.join(signals)).unwrap();
        assert_eq!(noted, "term\n");
        steps.step();
    }
}

/// One fault after the other until all are done; now and then the daemon dies.
async fn storm(deaths: bool) {
    let mut here = Behind::new().await;
    let mut dice = dice();
    let mut all = JoinSet::new();
    let (starters, starts) = (4, scaled(1000, 12));
    let workers: Vec<Steps> = std::iter::repeat_with(Steps::default)
        .take(starters + 3)
        .collect();
    for (number, steps) in workers.iter().cloned().enumerate() {
        let session = here.session.clone();
        match number.checked_sub(starters) {
            None => all.spawn(starter(session, number, starts, steps)),
            Some(0) => {
                let work = here.daemon.work();
                all.spawn(stopper(session, work, scaled(200, 3), steps))
            }
            Some(_) => all.spawn(typist(session, scaled(5000, 60), steps)),
        };
    }
    let mut faults = 0;
    loop {
        let bytes = (dice.next() % 2000) as usize;
        let slow = Duration::from_millis(dice.next() % 5);
        here.proxy.fault(dice.one(&[
            Fault::None,
            Fault::CutAfter(bytes),
            Fault::CutAfterRequest,
            Fault::LoseAnswer,
            Fault::LoseAnswer,
            Fault::Deaf,
            Fault::Refuse,
            Fault::Slow(slow),
        ]));
        faults += 1;
        let time = Duration::from_millis(dice.next() % 60);
        let done = tokio::time::timeout(time, all.join_next()).await;
        // Then quiet for a while: without, hardly a call would ever pass. On a
        // slow machine a while is not enough, and now and then all get through.
        here.proxy.fault(Fault::None);
        if dice.yes() {
            here.proxy.cut();
        }
        let quiet = Duration::from_millis(dice.next() % 60);
        match done {
            Ok(Some(done)) => done.unwrap(),
            Ok(None) => break,
            Err(_) => tokio::time::sleep(quiet).await,
        }
        if faults % 8 == 0 {
            everybody_goes_on(&workers).await;
        }
        if deaths && dice.next().is_multiple_of(12) {
            here.daemon.restart().await;
        }
    }
    let mut lines = here.lines("log");
    let count = lines.len();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(
        (count, lines.len()),
        (starters * starts, count),
        "each once"
    );
    assert!(here.proxy.struck() > 0, "none of {faults} faults struck");
}

#[tokio::test]
async fn b140_in_a_storm_of_faults_everything_is_done_once() {
    storm(false).await;
}

#[tokio::test]
async fn b140_in_a_storm_of_faults_and_deaths_of_the_daemon_everything_is_done_once() {
    storm(true).await;
}
