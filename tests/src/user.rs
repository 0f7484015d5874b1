//! Somebody who is not root, with a home of their own and a copy of our
//! programs that they can reach.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::program;

/// uid and gid of `nobody` on Debian.
const NOBODY: u32 = 65_534;

/// See the module's documentation.
#[derive(Debug)]
pub struct User {
    directory: TempDir,
}

/// The user `nobody`. The tests that need it run as root.
#[must_use]
pub fn nobody() -> User {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["executor", "executor-daemon"] {
        let copy = directory.path().join(name);
        if fs::hard_link(program(name), &copy).is_err() {
            fs::copy(program(name), &copy).unwrap();
        }
    }
    let home = directory.path().join("home");
    fs::create_dir_all(home.join("run")).unwrap();
    fs::set_permissions(home.join("run"), fs::Permissions::from_mode(0o700)).unwrap();
    for path in [home.clone(), home.join("run")] {
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    User { directory }
}

impl User {
    /// Their home and working directory.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    /// A program under their uid, with an environment of its own; `prefix` is
    /// put before it, as `prlimit --nproc=100`.
    #[must_use]
    pub fn command(&self, program: &Path, prefix: &[&str]) -> Command {
        let id = format!("{NOBODY}");
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"])
            .args(prefix)
            .arg(program)
            .current_dir(self.home())
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.home())
            .env("XDG_RUNTIME_DIR", self.home().join("run"))
            .env("XDG_STATE_HOME", self.home().join("state"))
            .stdin(Stdio::null());
        command
    }

    /// The CLI under their uid.
    #[must_use]
    pub fn executor(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(&self.directory.path().join("executor"), &[]);
        command.args(arguments);
        command
    }

    /// Ends their daemon, and all that it holds.
    pub fn stop_daemon(&self) {
        let stopped = self
            .command(&self.daemon_program(), &[])
            .arg("stop")
            .output();
        let stopped = stopped.unwrap();
        assert!(stopped.status.success(), "{stopped:?}");
    }

    /// The daemon's program as they reach it.
    #[must_use]
    pub fn daemon_program(&self) -> PathBuf {
        self.directory.path().join("executor-daemon")
    }
}
