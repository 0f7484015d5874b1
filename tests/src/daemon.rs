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

/// See the module's documentation. Killed when dropped.
#[derive(Debug)]
pub struct Daemon {
    child: tokio::process::Child,
    directory: TempDir,
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
        let log = fs::File::create(root.join("daemon.log")).unwrap();
        let environment = options.environment.unwrap_or_else(|| {
            vec![
                ("PATH".into(), std::env::var("PATH").unwrap()),
                ("HOME".into(), root.join("work").display().to_string()),
            ]
        });
        let child = tokio::process::Command::new(&words[0])
            .args(&words[1..])
            .env_clear()
            .envs(environment)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut daemon = Self { child, directory };
        daemon.wait_until_it_answers().await;
        daemon
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
