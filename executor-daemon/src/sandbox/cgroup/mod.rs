//! One cgroup v2 of its own for each command, all below one directory of the
//! engine's (cgroups(7)).
//!
//! ```text
//! <our cgroup>/executor-<epoch>/c0, c1, …      free ⇄ in use → removed
//! ```
//!
//! 1. A cgroup is used by one command at a time. It is given to another only
//!    after `cgroup.events` said that nobody is in it and nothing is frozen, and
//!    never after `cgroup.kill`: kernels have been seen (6.18) that kill
//!    whatever is cloned into a cgroup that was killed once.
//! 2. No descriptor is kept per cgroup, one for the engine's directory.
//! 3. No controller is enabled, so that processes may live beside these
//!    directories.

#![expect(
    clippy::disallowed_methods,
    reason = "files of the kernel's control file systems, at names of our own making"
)]

mod files;
mod handover;
mod own;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{AtFlags, Mode, OFlags};

use crate::process::exit::SpawnStage;
use crate::sys::spawn::{Program, Stdio, spawn};
use crate::sys::wait;
use files::{
    DEPTH, collect_pids, events, lines, open_directory, read_at, remove_nested, subdirectories,
    write_at,
};
pub use handover::{CgroupState, PoolState};
pub use own::own_directory;

/// Cgroups kept for reuse: making and removing one costs more than a start.
const FREE_KEPT: usize = 64;

/// The engine's directory and the cgroups in it.
#[derive(Debug)]
pub struct CgroupPool {
    parent: PathBuf,
    /// `executor-<epoch>`: also how a process in it is recognised.
    name: String,
    directory: OwnedFd,
    next: AtomicU64,
    /// Held for a push or pop only.
    free: Mutex<Vec<Cgroup>>,
    /// Could not be removed when they were given back.
    lingering: Mutex<Vec<Cgroup>>,
    /// Commands' cgroups have no `memory.peak`, as one look has shown.
    no_peak: AtomicBool,
}

/// The cgroup of one command. Its name, not a descriptor.
#[derive(Debug)]
pub struct Cgroup {
    name: String,
    killed: AtomicBool,
}

impl CgroupPool {
    /// Makes `executor-<epoch>` in our own cgroup and finds out whether it
    /// serves: that cgroups can be made in it and have `cgroup.kill`
    /// (Linux 5.14).
    ///
    /// # Errors
    /// It does not; nothing is left then.
    pub fn create(epoch: &str) -> io::Result<Self> {
        let parent = own_directory()?;
        let name = engine_name(epoch);
        let path = parent.join(&name);
        rustix::fs::mkdir(&path, Mode::from_raw_mode(0o755))?;
        let opened = rustix::fs::open(
            &path,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        );
        let directory = match opened {
            Ok(directory) => directory,
            Err(error) => {
                let _ = rustix::fs::rmdir(&path);
                return Err(error.into());
            }
        };
        let pool = Self {
            parent,
            name,
            directory,
            next: AtomicU64::new(0),
            free: Mutex::default(),
            lingering: Mutex::default(),
            no_peak: AtomicBool::new(false),
        };
        match pool.try_out() {
            Ok(()) => Ok(pool),
            Err(error) => {
                pool.remove();
                Err(error)
            }
        }
    }

    fn try_out(&self) -> io::Result<()> {
        let cgroup = self.take()?;
        let starts = can_start_in(self.open(&cgroup)?.as_fd());
        let kills = self.kill(&cgroup);
        self.give_back(cgroup);
        if starts {
            kills
        } else {
            Err(io::Error::from(io::ErrorKind::PermissionDenied))
        }
    }

    /// Where the engine's directory is.
    #[must_use]
    pub fn parent(&self) -> &Path {
        &self.parent
    }

    /// The engine's directory's name below [`Self::parent`].
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A cgroup that nobody is in.
    ///
    /// # Errors
    /// What mkdir(2) says; `EAGAIN` at `cgroup.max.descendants`.
    pub fn take(&self) -> io::Result<Cgroup> {
        if let Some(cgroup) = locked(&self.free).pop() {
            return Ok(cgroup);
        }
        let name = format!("c{}", self.next.fetch_add(1, Ordering::Relaxed));
        rustix::fs::mkdirat(&self.directory, &name, Mode::from_raw_mode(0o755))?;
        Ok(Cgroup {
            name,
            killed: AtomicBool::new(false),
        })
    }

    /// Opens it, for a program to be started in it.
    ///
    /// # Errors
    /// What openat(2) says.
    pub fn open(&self, cgroup: &Cgroup) -> io::Result<OwnedFd> {
        open_directory(self.directory.as_fd(), &cgroup.name)
    }

    /// Takes a cgroup back that nobody uses any more: for the next command, or
    /// it is removed with those that a command made in it. One that is still
    /// populated is kept aside and tried again later.
    pub fn give_back(&self, cgroup: Cgroup) {
        let lingering = std::mem::take(&mut *locked(&self.lingering));
        let still: Vec<_> = std::iter::once(cgroup)
            .chain(lingering)
            .filter_map(|cgroup| self.recycle(cgroup))
            .collect();
        locked(&self.lingering).extend(still);
    }

    /// `Some` when it is still in use.
    fn recycle(&self, cgroup: Cgroup) -> Option<Cgroup> {
        let Ok(directory) = self.open(&cgroup) else {
            return None;
        };
        remove_nested(directory.as_fd(), DEPTH);
        let nested = subdirectories(directory.as_fd()).is_ok_and(|names| !names.is_empty());
        let clean = events(directory.as_fd()).is_ok_and(|e| !e.populated && !e.frozen);
        if clean && !nested && !cgroup.killed.load(Ordering::Relaxed) {
            let mut free = locked(&self.free);
            if free.len() < FREE_KEPT {
                free.push(cgroup);
                return None;
            }
        }
        match rustix::fs::unlinkat(&self.directory, &cgroup.name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => None,
            Err(_) => Some(cgroup),
        }
    }

    /// Pids in the cgroup and in those below it. Zombies are not among them.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn pids(&self, cgroup: &Cgroup) -> io::Result<Vec<u32>> {
        let mut pids = Vec::new();
        let directory = self.open(cgroup)?;
        collect_pids(directory.as_fd(), DEPTH, &mut pids)?;
        Ok(pids)
    }

    /// Whether the line `0::…` of a process's `/proc/PID/cgroup` says that it
    /// is in `cgroup` or below.
    #[must_use]
    pub fn contains(&self, cgroup: &Cgroup, groups: &[u8]) -> bool {
        let mut names = names_of(groups);
        names.any(|name| name == self.name.as_bytes())
            && names.next() == Some(cgroup.name.as_bytes())
    }

    /// Whether anything but zombies is in it or below.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn populated(&self, cgroup: &Cgroup) -> io::Result<bool> {
        Ok(events(self.open(cgroup)?.as_fd())?.populated)
    }

    /// Lets frozen members run again, so that they can act on a signal.
    pub fn thaw(&self, cgroup: &Cgroup) {
        if let Ok(directory) = self.open(cgroup)
            && events(directory.as_fd()).is_ok_and(|events| events.frozen)
        {
            let _ = write_at(directory.as_fd(), "cgroup.freeze", b"0");
        }
    }

    /// SIGKILL to everything in it and below, also to what is being forked,
    /// stopped or frozen.
    ///
    /// # Errors
    /// There is no `cgroup.kill`, or it may not be written.
    pub fn kill(&self, cgroup: &Cgroup) -> io::Result<()> {
        cgroup.killed.store(true, Ordering::Relaxed);
        write_at(self.open(cgroup)?.as_fd(), "cgroup.kill", b"1")
    }

    /// `memory.peak` in bytes, where there is a memory controller.
    #[must_use]
    pub fn memory_peak(&self, cgroup: &Cgroup) -> Option<u64> {
        if self.no_peak.load(Ordering::Relaxed) {
            return None;
        }
        let text = read_at(self.open(cgroup).ok()?.as_fd(), "memory.peak")
            .inspect_err(|error| {
                let none = error.kind() == io::ErrorKind::NotFound;
                self.no_peak.fetch_or(none, Ordering::Relaxed);
            })
            .ok()?;
        std::str::from_utf8(&text).ok()?.trim().parse().ok()
    }

    /// Removes the engine's directory and all cgroups below that nobody is in.
    /// Repeating is safe.
    pub fn remove(&self) {
        remove_engine(&self.parent, &self.name);
    }
}

/// Whether a program can begin in the cgroup `directory`. Starts one that has
/// no file: it fails after it has entered the cgroup, or before.
#[must_use]
pub fn can_start_in(directory: BorrowedFd<'_>) -> bool {
    let (Ok(null), Ok(root)) = (File::open("/dev/null"), File::open("/")) else {
        return false;
    };
    let started = spawn(&Program {
        paths: &[],
        argv: &[],
        envp: &[],
        cwd: root.as_fd(),
        stdio: Stdio::Descriptors([null.as_fd(); 3]),
        cgroup: Some(directory),
    });
    match started {
        Err(failure) => failure.stage == SpawnStage::Exec,
        // Nothing can have been executed: it was killed in the cgroup.
        Ok(spawned) => {
            let _ = wait::reap_blocking(spawned.pidfd.as_fd());
            false
        }
    }
}

/// The name of the directory of the engine with this epoch.
#[must_use]
pub fn engine_name(epoch: &str) -> String {
    format!("executor-{epoch}")
}

/// Whether the line `0::…` of a process's `/proc/PID/cgroup` says that it is
/// in the engine directory `name` or below.
#[must_use]
pub fn is_below(name: &str, groups: &[u8]) -> bool {
    // The epoch in the name is random: no other directory has it.
    names_of(groups).any(|part| part == name.as_bytes())
}

fn names_of(groups: &[u8]) -> impl Iterator<Item = &[u8]> {
    let path = lines(groups).find_map(|line| line.strip_prefix(b"0::"));
    path.unwrap_or_default().split(|byte| *byte == b'/')
}

/// Pids in the engine directory `name` below `parent` and in all below it.
/// Zombies are not among them. None when there is no such directory.
#[must_use]
pub fn pids_in(parent: &Path, name: &str) -> Vec<u32> {
    let mut pids = Vec::new();
    if let Ok(directory) = open_directory(rustix::fs::CWD, parent.join(name)) {
        let _ = collect_pids(directory.as_fd(), DEPTH, &mut pids);
    }
    pids
}

/// Kills everything in the engine directory `name` below `parent` and removes
/// it, trying for as long as `again` says.
pub fn kill_and_remove(parent: &Path, name: &str, mut again: impl FnMut() -> bool) {
    loop {
        if let Ok(directory) = open_directory(rustix::fs::CWD, parent.join(name)) {
            let _ = write_at(directory.as_fd(), "cgroup.kill", b"1");
        }
        if remove_engine(parent, name) || !again() {
            return;
        }
    }
}

/// True when it is gone.
fn remove_engine(parent: &Path, name: &str) -> bool {
    let path = parent.join(name);
    if let Ok(directory) = open_directory(rustix::fs::CWD, &path) {
        remove_nested(directory.as_fd(), DEPTH);
    }
    matches!(
        rustix::fs::rmdir(&path),
        Ok(()) | Err(rustix::io::Errno::NOENT)
    )
}

/// A poisoned list is whole: each change is one push, pop or exchange.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_in_its_cgroup_or_below_and_in_no_other() {
        let Ok(pool) = CgroupPool::create("unit-contains") else {
            return;
        };
        let cgroup = pool.take().unwrap();
        let name = &cgroup.name;
        let says = |line: String| pool.contains(&cgroup, line.as_bytes());
        assert!(says(format!("3:x:/\n0::/executor-unit-contains/{name}\n")));
        assert!(says(format!(
            "0::/a/executor-unit-contains/{name}/nested\n"
        )));
        assert!(!says(format!("0::/executor-unit-contains/{name}0\n")));
        assert!(!says(format!("0::/executor-unit-contains0/{name}\n")));
        assert!(!says("0::/\n".to_owned()));
        pool.give_back(cgroup);
        pool.remove();
        assert!(rustix::fs::stat(pool.parent().join(pool.name())).is_err());
    }
}
