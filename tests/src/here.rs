//! A machine inside the test: the daemon embedded, one session, a private
//! directory.

use std::path::Path;
use std::time::Duration;

use executor_client::{Command, Completed, Machine, Session, SessionOptions};
use executor_daemon::{Config, Embedded, embed};
use tempfile::TempDir;

use crate::in_time;

/// See the module's documentation.
#[derive(Debug)]
pub struct Here {
    /// The machine.
    pub machine: Machine,
    /// A session whose working directory is [`Here::path`].
    pub session: Session,
    embedded: Embedded,
    work: TempDir,
    _state: TempDir,
}

impl Here {
    /// A machine with the default configuration.
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// A machine with a configuration of the test's own.
    pub async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let state = tempfile::tempdir().unwrap();
        let work = tempfile::tempdir().unwrap();
        let mut config = Config::for_embedding();
        config.state_dir = state.path().to_owned();
        // This test program's `main` is not ours.
        config.reaper = Some(crate::program("executor-daemon"));
        change(&mut config);
        let embedded = embed(config).unwrap();
        let connector = embedded.connector();
        let machine = Machine::from_connector(move || {
            let connector = connector.clone();
            async move { connector.connect().await }
        });
        let session = open(&machine, work.path()).await;
        Self {
            machine,
            session,
            embedded,
            work,
            _state: state,
        }
    }

    /// Another session on the same machine, in the same directory.
    pub async fn another_session(&self) -> Session {
        open(&self.machine, self.work.path()).await
    }

    /// The session's working directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.work.path()
    }

    /// A text for bash.
    pub fn bash(&self, text: impl Into<Vec<u8>>) -> Command {
        self.session
            .command(text)
            .with_shell(executor_client::v1::Shell::Bash)
    }

    /// Runs a text in bash to its exit.
    pub async fn run(&self, text: &str) -> Completed {
        in_time(text, self.bash(text).run()).await.unwrap()
    }

    /// Ends the machine and whatever runs on it.
    pub async fn end(self) {
        in_time(
            "the end of the session",
            self.session.end(Duration::from_millis(100)),
        )
        .await
        .unwrap();
        in_time("the end of the machine", self.embedded.shutdown()).await;
    }
}

async fn open(machine: &Machine, directory: &Path) -> Session {
    let options = SessionOptions {
        working_directory: Some(directory.to_owned()),
        ..SessionOptions::default()
    };
    in_time("a session", machine.open_session(options))
        .await
        .unwrap()
}
