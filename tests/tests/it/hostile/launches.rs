//! Programs whose execve(2) does not come back.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use executor_client::{ExitStatus, Process, v1};
use executor_daemon::config::StopMeansSetting;
use executor_tests::{Here, alive_with, in_time};
use tempfile::TempDir;
use tokio::task::JoinSet;

/// An executable that somebody holds a lease on (fcntl(2), `F_SETLEASE`): who
/// wants to execute it waits until it is given back, which takes the holder
/// as long as the kernel lets it (45 s by default).
struct Leased {
    _directory: TempDir,
    path: PathBuf,
    holder: Child,
    lines: Mutex<mpsc::Receiver<String>>,
}

const HOLD: &str = "
import fcntl, os, signal, sys
file = os.open(sys.argv[1], os.O_WRONLY)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('held', flush=True)
signal.sigwait([signal.SIGIO])
print('wanted', flush=True)
sys.stdin.read()
";

impl Leased {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        fs::write(&path, "#!/bin/sh\ntouch \"$0.ran\"\nexec sleep 1000\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        let mut holder = Command::new("python3")
            .args(["-c", HOLD])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(holder.stdout.take().unwrap());
        let (tell, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        let leased = Self {
            _directory: directory,
            path,
            holder,
            lines: Mutex::new(lines),
        };
        leased.wait_for("held");
        leased
    }

    fn wait_for(&self, expected: &str) {
        let line = self
            .lines
            .lock()
            .unwrap()
            .recv_timeout(Duration::from_secs(30));
        assert_eq!(line.as_deref(), Ok(expected));
    }

    fn has_run(&self) -> bool {
        self.path.with_extension("ran").exists()
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Starts such a program, and returns once its launch hangs.
async fn hanging(here: &Here) -> (Leased, Process) {
    let leased = Leased::new();
    let argv = vec![leased.path.display().to_string()];
    let process = in_time("the start", here.session.program(argv).spawn());
    let process = process.await.unwrap();
    tokio::task::block_in_place(|| leased.wait_for("wanted"));
    assert_eq!(
        process.info().await.unwrap().state(),
        v1::ProcessState::Starting
    );
    (leased, process)
}

/// On a machine of each means of stopping, all at once: a start is waited for
/// some seconds before it is told that it hangs.
async fn with_each<F: Future<Output = ()> + Send + 'static>(test: fn(Here) -> F) {
    let mut tests = JoinSet::new();
    for means in [
        StopMeansSetting::Cgroup,
        StopMeansSetting::Reaper,
        StopMeansSetting::BestEffort,
    ] {
        let here = Here::with(|config| config.stop_means = means).await;
        tests.spawn(test(here));
    }
    tests.join_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_launch_that_hangs_is_ended_by_a_stop() {
    with_each(|here| async move {
        let (leased, process) = hanging(&here).await;
        let stopped = in_time("the stop", process.stop(Duration::from_secs(2))).await;
        ended(&process, stopped.unwrap(), &leased).await;
        here.end().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_launch_that_hangs_is_ended_by_a_kill() {
    with_each(|here| async move {
        let (leased, process) = hanging(&here).await;
        let stopped = in_time("the kill", process.kill()).await;
        ended(&process, stopped.unwrap(), &leased).await;
        here.end().await;
    })
    .await;
}

async fn ended(process: &Process, stopped: v1::StopProcessResponse, leased: &Leased) {
    assert_eq!(stopped.survivors, Vec::<u32>::new());
    let exit = in_time("the exit", process.wait()).await.unwrap();
    assert_eq!(exit.status, ExitStatus::Signal(9), "{exit:?}");
    assert!(!leased.has_run());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_launch_that_hangs_is_ended_with_its_session() {
    with_each(|here| async move {
        let (leased, _) = hanging(&here).await;
        let ended = here.session.end(Duration::from_secs(2));
        let ended = in_time("the end", ended).await.unwrap();
        assert_eq!(ended.survivors, Vec::<u32>::new());
        // Whoever holds the lease has the path among its arguments too, and is a
        // stranger.
        let path = leased.path.display().to_string();
        assert_eq!(alive_with(&path), [leased.holder.id()]);
        assert!(!leased.has_run());
        here.end().await;
    })
    .await;
}
