//! The daemon under test, with its process host: the release binary in a
//! private directory.

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

use crate::host::Host;

/// Longer than any start takes, and any end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Killed when dropped, and its process host ended.
pub(crate) struct Daemon {
    child: Child,
    /// There from the first answer on.
    host: Option<Host>,
    directory: TempDir,
    machine: Machine,
    /// From its start to its first answer; it starts its host meanwhile.
    pub(crate) ready_after: Duration,
}

impl Daemon {
    /// Starts it, with more lines of configuration, and waits for its first
    /// answer.
    pub(crate) async fn start(means: &str, more: &str) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let root = directory.path();
        for name in ["run", "state"] {
            fs::create_dir(root.join(name))?;
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o700))?;
        }
        let socket = socket(root);
        let text = format!(
            "socket = {socket:?}\nstate_dir = {:?}\nstop_means = {means:?}\n{more}\n",
            root.join("state")
        );
        fs::write(root.join("daemon.toml"), text)?;
        let machine = Machine::connect_lazy(&address(&socket))?;
        let begin = Instant::now();
        let mut daemon = Self {
            child: spawn(root)?,
            host: None,
            directory,
            machine,
            ready_after: Duration::ZERO,
        };
        if let Err(error) = daemon.first_answer().await {
            let log = fs::read_to_string(daemon.directory.path().join("daemon.log"));
            let log = log.unwrap_or_default();
            bail!("the daemon does not answer ({error}); it said:\n{log}");
        }
        daemon.ready_after = begin.elapsed();
        daemon.host = Some(Host::beside(&socket)?);
        Ok(daemon)
    }

    async fn first_answer(&mut self) -> anyhow::Result<()> {
        until_it_listens(&mut self.child, &socket(self.directory.path()))?;
        self.machine.info().await?;
        Ok(())
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

    /// Of the daemon and of its process host: all that serves.
    pub(crate) fn pids(&self) -> [u32; 2] {
        [self.pid(), self.host_pid()]
    }

    /// Of the daemon alone.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Of the process host.
    pub(crate) fn host_pid(&self) -> u32 {
        self.host.as_ref().map_or(0, Host::pid)
    }

    /// Kills the daemon, and nothing else, and starts it again at once. Does
    /// not wait for an answer.
    pub(crate) fn kill_and_start(&mut self) -> anyhow::Result<()> {
        end(&mut self.child);
        self.child = spawn(self.directory.path())?;
        Ok(())
    }

    /// A client of its own, made as soon as somebody listens.
    pub(crate) async fn new_client(&mut self) -> anyhow::Result<Machine> {
        let socket = socket(self.directory.path());
        until_it_listens(&mut self.child, &socket)?;
        Ok(Machine::connect(&address(&socket)).await?)
    }

    /// The host that the daemon names now.
    pub(crate) fn host_now(&self) -> anyhow::Result<Host> {
        Host::beside(&socket(self.directory.path()))
    }

    /// Asks it to end and waits until it and its host have.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        let pid = i32::try_from(self.child.id())?;
        let pid = rustix::process::Pid::from_raw(pid).context("a pid")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let begin = Instant::now();
        while self.child.try_wait()?.is_none() {
            anyhow::ensure!(begin.elapsed() < PATIENCE, "the daemon does not end");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if let Some(host) = &self.host {
            host.ended().await?;
        }
        self.host = None;
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // First the daemon, which would start another host.
        end(&mut self.child);
        // Without a record it never had one, or that has ended.
        let host = self.host.take().or_else(|| self.host_now().ok());
        if let Some(Err(error)) = host.map(|host| host.end()) {
            // Nobody is left to hand it to.
            let _ = crate::progress(&format!("{error:#}"));
        }
    }
}

fn socket(root: &Path) -> PathBuf {
    root.join("run/daemon.sock")
}

fn address(socket: &Path) -> String {
    format!("unix://{}", socket.display())
}

fn spawn(root: &Path) -> anyhow::Result<Child> {
    let program = program()?;
    let log = File::options()
        .create(true)
        .append(true)
        .open(root.join("daemon.log"))?;
    Command::new(&program)
        .args(["serve", "--config"])
        .arg(root.join("daemon.toml"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .with_context(|| program.display().to_string())
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
