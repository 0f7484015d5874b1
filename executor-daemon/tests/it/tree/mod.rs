//! One suite for every means of holding a tree together.
//!
//! Each test runs over all means that this machine has; a means that is not to
//! be had is named on stderr and skipped.

pub(crate) mod embedding;
mod handover;
mod launch;
mod leaks;
mod left_overs;
mod own_process;
mod stop;

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use executor_daemon::process::backend::pipe;
use executor_daemon::process::exit::{SpawnFailure, WaitStatus};
use executor_daemon::process::snapshot::StopMeans;
use executor_daemon::process::tree::{
    Containment, ContainmentSettings, LaunchPlan, Launched, Preferred,
};
use executor_proto::id::Epoch;

/// Long enough for a busy machine; no test waits for it to pass.
const DEADLINE: Duration = Duration::from_secs(60);

const NOBODY: [u32; 0] = [];

fn daemon() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_executor-daemon"))
}

fn containment(epoch: Epoch, preferred: Preferred) -> Containment {
    Containment::probe(&ContainmentSettings {
        epoch,
        preferred,
        reaper: Some(daemon()),
        embedded: false,
    })
}

/// Runs `test` with each means, in a runtime of its own.
fn with_each<F: Future<Output = ()>>(test: impl Fn(Fixture) -> F) {
    with(
        &[Preferred::Cgroup, Preferred::Reaper, Preferred::BestEffort],
        test,
    );
}

fn with<F: Future<Output = ()>>(means: &[Preferred], test: impl Fn(Fixture) -> F) {
    for preferred in means {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let epoch = Epoch::random();
            let containment = containment(epoch, *preferred);
            let wanted = match preferred {
                Preferred::Auto | Preferred::Cgroup => StopMeans::Cgroup,
                Preferred::Reaper => StopMeans::Reaper,
                Preferred::BestEffort => StopMeans::BestEffort,
            };
            if containment.means() != wanted {
                assert_eq!(*preferred, Preferred::Cgroup, "a reaper can always be had");
                eprintln!("not on this machine: {preferred:?}");
                return;
            }
            eprintln!("with {preferred:?}");
            own_process::prepare();
            let fixture = Fixture {
                containment: containment.clone(),
                directory: Arc::new(tempfile::tempdir().unwrap()),
            };
            tokio::time::timeout(DEADLINE, test(fixture))
                .await
                .expect("within the deadline");
            containment.close();
            if let Ok(directory) = executor_daemon::sandbox::cgroup::own_directory() {
                let left = directory.join(format!("executor-{epoch}"));
                assert!(std::fs::metadata(left).is_err(), "a cgroup was left behind");
            }
        });
    }
}

#[derive(Clone)]
struct Fixture {
    containment: Containment,
    directory: Arc<tempfile::TempDir>,
}

/// A program that runs, and the end of its output.
struct Run {
    launched: Launched,
    output: File,
}

fn strings(texts: &[&str]) -> Vec<CString> {
    texts.iter().map(|t| CString::new(*t).unwrap()).collect()
}

fn plan(programs: &[&str], argv: &[&str], cwd: &Path) -> (LaunchPlan, File) {
    let pipes = pipe::open(false, false).unwrap();
    let plan = LaunchPlan {
        programs: strings(programs),
        argv: strings(argv),
        envp: strings(&["PATH=/usr/local/bin:/usr/bin:/bin"]),
        cwd: Arc::new(File::open(cwd).unwrap().into()),
        stdio: pipes.child,
        attempt: Arc::default(),
    };
    let flags = rustix::fs::fcntl_getfl(&pipes.stdout).unwrap();
    let flags = flags - rustix::fs::OFlags::NONBLOCK;
    rustix::fs::fcntl_setfl(&pipes.stdout, flags).unwrap();
    (plan, pipes.stdout.into())
}

impl Fixture {
    /// Launches on a blocking thread inside the runtime, as the engine does.
    async fn launch(&self, plan: LaunchPlan) -> Result<Launched, SpawnFailure> {
        let containment = self.containment.clone();
        let launched = tokio::task::spawn_blocking(move || containment.launch(plan))
            .await
            .unwrap()?;
        own_process::check(self.containment.means());
        Ok(launched)
    }

    /// `sh -c script` in the fixture's directory.
    async fn sh(&self, script: &str) -> Run {
        let (plan, output) = plan(&["/bin/sh"], &["sh", "-c", script], self.directory.path());
        let launched = self.launch(plan).await.unwrap();
        Run { launched, output }
    }

    /// Its output up to the end of file, and its status.
    async fn run(&self, script: &str) -> (String, WaitStatus) {
        let mut run = self.sh(script).await;
        let status = run.launched.leader.wait().await.status;
        let output = run.all_output().await;
        run.launched.tree.release();
        (output, status)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The pids that a script has written to the file, one a line, once there
    /// are `count`.
    async fn pids(&self, name: &str, count: usize) -> Vec<u32> {
        loop {
            let text = std::fs::read_to_string(self.path(name)).unwrap_or_default();
            let pids: Vec<u32> = text.lines().filter_map(|l| l.trim().parse().ok()).collect();
            if pids.len() >= count && text.ends_with('\n') {
                return pids;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Run {
    async fn all_output(&mut self) -> String {
        let mut output = self.output.try_clone().unwrap();
        tokio::task::spawn_blocking(move || {
            let mut text = Vec::new();
            output.read_to_end(&mut text).unwrap();
            String::from_utf8_lossy(&text).into_owned()
        })
        .await
        .unwrap()
    }

    /// The next bytes of output.
    async fn some_output(&mut self) -> String {
        let mut output = self.output.try_clone().unwrap();
        tokio::task::spawn_blocking(move || {
            let mut text = vec![0; 65_536];
            let length = output.read(&mut text).unwrap();
            String::from_utf8_lossy(&text[..length]).into_owned()
        })
        .await
        .unwrap()
    }
}

/// The process exists and is no zombie.
fn lives(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat[stat.rfind(')').unwrap()..].starts_with(") Z"))
}

/// Waits, by polling, for what another process does.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let last = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < last, "not within the deadline: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
