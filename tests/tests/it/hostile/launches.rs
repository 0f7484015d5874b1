//! Programs whose execve(2) does not come back.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use executor_client::{ExitStatus, Process, v1};
use executor_daemon::config::StopMeansSetting;
use executor_tests::{Here, in_time, is_alive};

/// An executable that somebody holds a lease on (fcntl(2), `F_SETLEASE`): who
/// wants to execute it waits until it is given back, which takes the holder
/// as long as the kernel lets it (45 s by default).
struct Leased {
    path: PathBuf,
    holder: Child,
    lines: BufReader<ChildStdout>,
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
    fn new(directory: &Path) -> Self {
        let path = directory.join("program");
        fs::write(&path, "#!/bin/sh\ntouch \"$0.ran\"\nexec sleep 1000\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        let mut holder = Command::new("python3")
            .args(["-c", HOLD])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(holder.stdout.take().unwrap());
        let mut leased = Self {
            path,
            holder,
            lines,
        };
        leased.wait_for("held");
        leased
    }

    fn wait_for(&mut self, expected: &str) {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), expected);
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

/// Starts the program, and returns once its launch hangs.
async fn hanging(here: &Here, leased: &mut Leased) -> Process {
    let argv = vec![leased.path.display().to_string()];
    let process = in_time("the start", here.session.program(argv).spawn());
    let process = process.await.unwrap();
    tokio::task::block_in_place(|| leased.wait_for("wanted"));
    assert_eq!(
        process.info().await.unwrap().state(),
        v1::ProcessState::Starting
    );
    process
}

async fn machines() -> Vec<Here> {
    let mut machines = Vec::new();
    for means in [
        StopMeansSetting::Cgroup,
        StopMeansSetting::Reaper,
        StopMeansSetting::BestEffort,
    ] {
        machines.push(Here::with(|config| config.stop_means = means).await);
    }
    machines
}

#[tokio::test(flavor = "multi_thread")]
async fn a_launch_that_hangs_is_ended_by_a_stop() {
    let directory = tempfile::tempdir().unwrap();
    for here in machines().await {
        for gracefully in [true, false] {
            let mut leased = Leased::new(directory.path());
            let process = hanging(&here, &mut leased).await;
            let stop = async {
                match gracefully {
                    true => process.stop(Duration::from_secs(2)).await,
                    false => process.kill().await,
                }
            };
            let stopped = in_time("the stop", stop).await.unwrap();
            assert_eq!(stopped.survivors, Vec::<u32>::new());
            let exit = in_time("the exit", process.wait()).await.unwrap();
            assert_eq!(exit.status, ExitStatus::Signal(9), "{exit:?}");
            assert!(!leased.has_run());
        }
        here.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_launch_that_hangs_is_ended_with_its_session() {
    let directory = tempfile::tempdir().unwrap();
    for here in machines().await {
        let mut leased = Leased::new(directory.path());
        hanging(&here, &mut leased).await;
        let ended = in_time("the end", here.session.end(Duration::from_secs(2)))
            .await
            .unwrap();
        assert_eq!(ended.survivors, Vec::<u32>::new());
        assert_eq!(
            executor_tests::alive_with(&leased.path.display().to_string()),
            [leased.holder.id()]
        );
        assert!(!leased.has_run());
        assert!(is_alive(leased.holder.id()), "a stranger was hit");
        here.end().await;
    }
}
