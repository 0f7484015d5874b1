//! The daemon under test: the release binary in a private directory.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use executor_client::v1::StopMeans;
use executor_client::{Machine, Session, SessionOptions};
use tempfile::TempDir;

/// Longer than any start takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Killed when dropped.
pub(crate) struct Daemon {
    child: Child,
    directory: TempDir,
    machine: Machine,
    /// From its start to its first answer.
    pub(crate) ready_after: Duration,
}

impl Daemon {
    /// Starts it, with more lines of configuration, and waits for its first
    /// answer.
    pub(crate) async fn start(means: &str, more: &str) -> anyhow::Result<Self> {
        let program = program()?;
        let directory = tempfile::tempdir()?;
        let root = directory.path();
        for name in ["run", "state"] {
            fs::create_dir(root.join(name))?;
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o700))?;
        }
        let socket = root.join("run/daemon.sock");
        let configuration = root.join("daemon.toml");
        let text = format!(
            "socket = {socket:?}\nstate_dir = {:?}\nstop_means = {means:?}\n{more}\n",
            root.join("state")
        );
        fs::write(&configuration, text)?;
        let log = root.join("daemon.log");
        let begin = Instant::now();
        let mut child = Command::new(&program)
            .args(["serve", "--config"])
            .arg(&configuration)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .with_context(|| program.display().to_string())?;
        if let Err(error) = until_it_listens(&mut child, &socket) {
            end(&mut child);
            let log = fs::read_to_string(&log).unwrap_or_default();
            bail!("the daemon does not answer ({error}); it said:\n{log}");
        }
        let machine = Machine::connect(&format!("unix://{}", socket.display())).await?;
        Ok(Self {
            child,
            directory,
            machine,
            ready_after: begin.elapsed(),
        })
    }

    /// A session in a directory of the benchmark's own.
    pub(crate) async fn session(&self) -> anyhow::Result<Session> {
        let options = SessionOptions {
            working_directory: Some(self.directory.path().to_owned()),
            ..SessionOptions::default()
        };
        Ok(self.machine.open_session(options).await?)
    }

    /// How it stops trees here.
    pub(crate) async fn means(&self) -> anyhow::Result<String> {
        let info = self.machine.info().await?;
        let means = info.capabilities.unwrap_or_default().stop_means();
        Ok(match means {
            StopMeans::Cgroup => "`cgroup`",
            StopMeans::Reaper => "`reaper`",
            StopMeans::BestEffort => "`best_effort`",
            StopMeans::Unspecified => "not told",
        }
        .into())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to end and waits for that.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        let pid = i32::try_from(self.child.id())?;
        let pid = rustix::process::Pid::from_raw(pid).context("a pid")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let begin = Instant::now();
        while self.child.try_wait()?.is_none() {
            anyhow::ensure!(begin.elapsed() < PATIENCE, "the daemon does not end");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Kills and reaps; nothing to be done when it has ended.
pub(crate) fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Returns when somebody accepts connections at the socket.
pub(crate) fn until_it_listens(child: &mut Child, socket: &Path) -> anyhow::Result<()> {
    let begin = Instant::now();
    loop {
        if UnixStream::connect(socket).is_ok() {
            return Ok(());
        }
        if let Some(status) = child.try_wait()? {
            bail!("it ended with {status}");
        }
        anyhow::ensure!(begin.elapsed() < PATIENCE, "it is silent for {PATIENCE:?}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// `target/release/executor-daemon`, beside the benchmark.
fn program() -> anyhow::Result<PathBuf> {
    let mut folder = std::env::current_exe()?;
    folder.pop();
    if folder.ends_with("deps") {
        folder.pop();
    }
    let program = folder.join("executor-daemon");
    anyhow::ensure!(
        program.is_file(),
        "{} is not there: run `cargo build --release --workspace` first",
        program.display()
    );
    Ok(program)
}
