//! The built daemon on a socket in a private directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use executor_client::{Machine, Session, SessionOptions};
use tempfile::TempDir;

use crate::{eventually, in_time, program};

/// How a daemon is started.
#[derive(Debug, Default)]
pub struct DaemonOptions {
    /// Put before the program, as `nohup` or `setpriv --reuid 1000`.
    pub under: Vec<String>,
    /// Lines of the configuration file.
    pub configuration: String,
    /// Its whole environment; `None`: PATH and HOME.
    pub environment: Option<Vec<(String, String)>>,
    /// Who owns the directories, when `under` drops to another user.
    pub owner: Option<u32>,
}

/// See the module's documentation. Killed when dropped, with its process host
/// and all that this holds.
#[derive(Debug)]
pub struct Daemon {
    child: tokio::process::Child,
    directory: TempDir,
    words: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Daemon {
    /// A daemon with the default configuration.
    pub async fn start() -> Self {
        Self::start_with(DaemonOptions::default()).await
    }

    /// Starts a daemon and waits until it answers.
    pub async fn start_with(options: DaemonOptions) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        for name in ["run", "state", "work"] {
            let path = root.join(name);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700))
                .unwrap();
            std::os::unix::fs::chown(&path, options.owner, None).unwrap();
        }
        fs::set_permissions(root, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let configuration = root.join("daemon.toml");
        let text = format!(
            "socket = {:?}\nstate_dir = {:?}\n{}",
            root.join("run/daemon.sock"),
            root.join("state"),
            options.configuration
        );
        fs::write(&configuration, text).unwrap();
        let mut words = options.under;
        words.push(program("executor-daemon").display().to_string());
        words.extend([
            "serve".into(),
            "--config".into(),
            configuration.display().to_string(),
        ]);
        let environment = options.environment.unwrap_or_else(|| {
            vec![
                ("PATH".into(), std::env::var("PATH").unwrap()),
                ("HOME".into(), root.join("work").display().to_string()),
            ]
        });
        let child = spawn(&words, &environment, root);
        let mut daemon = Self {
            child,
            directory,
            words,
            environment,
        };
        daemon.wait_until_it_answers().await;
        daemon
    }

    /// Kills the daemon, and nothing else, with SIGKILL.
    pub async fn kill(&mut self) {
        self.child.start_kill().unwrap();
        in_time("the daemon's death", self.child.wait())
            .await
            .unwrap();
    }

    /// Starts it again where it was, after its end, and waits until it answers.
    pub async fn start_again(&mut self) {
        self.child = spawn(&self.words, &self.environment, self.directory.path());
        self.wait_until_it_answers().await;
    }

    /// Kills it and starts it again, and waits until it answers.
    pub async fn restart(&mut self) {
        self.kill().await;
        self.start_again().await;
    }

    /// Runs one of the daemon's commands (`stop`, `upgrade`) on it.
    pub async fn command(&self, words: &[&str]) -> std::process::Output {
        let command = tokio::process::Command::new(program("executor-daemon"))
            .args(words)
            .arg("--config")
            .arg(self.directory.path().join("daemon.toml"))
            .stdin(Stdio::null())
            .output();
        in_time(words[0], command).await.unwrap()
    }

    /// Waits until the daemon has ended by itself.
    pub async fn ended(&mut self) -> std::process::ExitStatus {
        self.child.wait().await.unwrap()
    }

    /// The pid of its process host.
    #[must_use]
    pub fn host_pid(&self) -> Option<u32> {
        let record = self.directory.path().join("run/daemon.sock.host.json");
        let text = fs::read_to_string(record).ok()?;
        let number = text.split("\"pid\":").nth(1)?;
        let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    }

    async fn wait_until_it_answers(&mut self) {
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the daemon ended with {status}: {}", self.log());
            }
            if let Ok(machine) = Machine::connect(&self.address()).await
                && machine.info().await.is_ok()
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// `unix://…` of its socket.
    #[must_use]
    pub fn address(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Its socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("run/daemon.sock")
    }

    /// A directory for commands.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.directory.path().join("work")
    }

    /// Its private directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// What it logged.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("daemon.log")).unwrap_or_default()
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// A client of it.
    pub async fn machine(&self) -> Machine {
        in_time("the daemon", Machine::connect(&self.address()))
            .await
            .unwrap()
    }

    /// A session in [`Daemon::work`].
    pub async fn session(&self) -> Session {
        let options = SessionOptions {
            working_directory: Some(self.work()),
            ..SessionOptions::default()
        };
        in_time("a session", self.machine().await.open_session(options))
            .await
            .unwrap()
    }

    /// Ends the process host and all that it holds.
    fn end_host(&self) {
        // What the record says is the host's number in its own namespace, which
        // may be somebody else's in ours.
        let pid = self.host_pid().filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let socket = self.socket().display().to_string();
            String::from_utf8_lossy(&line).contains(&socket)
        });
        let pid = pid.and_then(|pid| i32::try_from(pid).ok());
        let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) else {
            return;
        };
        let flags = rustix::process::PidfdFlags::empty();
        let Ok(host) = rustix::process::pidfd_open(pid, flags) else {
            return;
        };
        // The second one means: at once.
        for _ in 0..2 {
            let _ = rustix::process::pidfd_send_signal(&host, rustix::process::Signal::TERM);
            let mut ended = [rustix::event::PollFd::new(
                &host,
                rustix::event::PollFlags::IN,
            )];
            let wait = rustix::event::Timespec {
                tv_sec: 5,
                tv_nsec: 0,
            };
            if rustix::event::poll(&mut ended, Some(&wait)).is_ok_and(|ready| ready > 0) {
                return;
            }
        }
    }

    /// Asks it to end, and waits until it has.
    pub async fn stop(mut self) -> std::process::ExitStatus {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        in_time("the daemon's end", self.child.wait())
            .await
            .unwrap()
    }

    /// Descriptors it has open now.
    pub async fn descriptors(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.pid());
        eventually("descriptors", || async { fs::read_dir(&folder).ok() })
            .await
            .count()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // A daemon that still runs would start another host.
        let _ = self.child.start_kill();
        self.end_host();
    }
}

fn spawn(words: &[String], environment: &[(String, String)], root: &Path) -> tokio::process::Child {
    let log = fs::File::options()
        .create(true)
        .append(true)
        .open(root.join("daemon.log"))
        .unwrap();
    tokio::process::Command::new(&words[0])
        .args(&words[1..])
        .env_clear()
        .envs(environment.iter().cloned())
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}
