//! Ends the cgroups of an embedding program that was killed.
//!
//! One small process per engine, started with its first command. It reads a
//! pipe whose other end the engine holds: end of file means that the engine is
//! gone, and then everything in the engine's cgroup is killed and the cgroups
//! are removed. It holds nothing else and knows no command.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::pipe::{PipeFlags, pipe_with};

use super::containment::{directory, null};
use crate::sandbox::cgroup;
use crate::sys::readiness::readable_within;
use crate::sys::signal::{self, block_all};
use crate::sys::spawn::{Program, Spawned, Stdio, spawn};
use crate::sys::wait;

/// What asks a program of ours to be a guard.
pub(super) const ARGUMENT: &str = "__guard";
/// How long a guard may take to say that it is one.
const READY_WITHIN: Duration = Duration::from_secs(5);
/// How long it may take to go once it is let go.
const GONE_WITHIN: Duration = Duration::from_secs(1);
/// How long a guard tries to empty the cgroup.
const PATIENCE: Duration = Duration::from_secs(30);

/// A guard that runs.
#[derive(Debug)]
pub(super) struct Guard {
    pidfd: OwnedFd,
    /// Its other end is read by the guard.
    alive: OwnedFd,
}

impl Guard {
    /// Starts `program` as a guard of the cgroup `name` below `parent`, and
    /// waits until it says that it watches.
    pub(super) fn start(program: &Path, parent: &Path, name: &str) -> io::Result<Self> {
        let (watched, alive) = pipe_with(PipeFlags::CLOEXEC)?;
        let (ready, says_ready) = pipe_with(PipeFlags::CLOEXEC)?;
        let (parent, null) = (directory(parent)?, null()?);
        let arguments = [b"executor-guard", ARGUMENT.as_bytes(), name.as_bytes()];
        let Spawned { pidfd, .. } = spawn(&Program {
            paths: &[CString::new(program.as_os_str().as_bytes())?],
            argv: &arguments
                .map(CString::new)
                .into_iter()
                .collect::<Result<Vec<_>, _>>()?,
            envp: &[],
            cwd: parent.as_fd(),
            stdio: Stdio::Descriptors([watched.as_fd(), says_ready.as_fd(), null.as_fd()]),
            cgroup: None,
        })
        .map_err(|failure| io::Error::from_raw_os_error(failure.errno))?;
        drop(says_ready);
        let guard = Self { pidfd, alive };
        let mut byte = [0];
        if readable_within(ready.as_fd(), READY_WITHIN) && rustix::io::read(&ready, &mut byte)? == 1
        {
            return Ok(guard);
        }
        guard.finish();
        Err(io::Error::other("the program is not a guard"))
    }

    /// Lets it go and reaps it.
    pub(super) fn finish(self) {
        drop(self.alive);
        if !readable_within(self.pidfd.as_fd(), GONE_WITHIN) {
            let _ = signal::send(self.pidfd.as_fd(), libc::SIGKILL);
        }
        let _ = wait::reap_blocking(self.pidfd.as_fd());
    }
}

/// The guard itself: in the directory above the cgroup, the pipe as descriptor
/// 0, the answer to 1. Returns when all is done.
pub(super) fn run(name: &OsStr) {
    block_all();
    let Some(name) = name.to_str().filter(|name| name.starts_with("executor-")) else {
        return;
    };
    if name.contains('/') {
        return;
    }
    let _ = rustix::thread::set_name(c"executor-guard");
    if rustix::io::write(rustix::stdio::stdout(), b"!").is_err() {
        return;
    }
    let mut byte = [0];
    loop {
        match rustix::io::read(rustix::stdio::stdin(), &mut byte) {
            Ok(0) => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
    let last = Instant::now() + PATIENCE;
    cgroup::kill_and_remove(Path::new("."), name, || {
        std::thread::sleep(Duration::from_millis(5));
        Instant::now() < last
    });
}
