//! An instance: one daemon, or one program that embeds it, and what it would
//! leave behind if it were killed.
//!
//! ```text
//!  $STATE/instances/<random>/     held by flock(2) for as long as it lives
//!     slot-N      what one mutation is about to leave in a directory
//!     redo-…      the new content of a file that is written in place
//!     old-…       its old content, where `undo-…` has it not
//!     undo-…      what a file was before a mutation
//!     conflict-N  a dead one's slot whose write in place could not be finished
//! ```
//!
//! 1. A temporary's directory and random name are recorded before it is made,
//!    its inode after. Not fsynced: a record survives the death of a process,
//!    not a power cut.
//! 2. A directory whose lock is held is touched by nobody else; one whose lock
//!    is free belongs to the dead, and the next start recovers it (`recovery`).
//! 3. What is not recorded is never removed: nothing is found by a pattern.

pub(in crate::files) mod interrupted;
mod location;
mod record;
pub(crate) mod recovery;
mod slot;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

pub(crate) use location::{FileId, Location};
pub(crate) use record::{Exchanged, InPlace, Record, Seen, Temporary, millis_now};
pub(crate) use slot::{Slot, read_at, write_all_at};

use crate::limits::Limits;
use crate::socket::private_directory::{self, DirectoryError};

/// How often a directory is made again when another start took it for a dead
/// one's before it was locked.
const ATTEMPTS: usize = 16;

/// Why there is no instance: nothing can be changed without one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InstanceError {
    /// The state directory cannot be used.
    #[error("the daemon's state directory cannot be used: {0}")]
    Directory(#[from] DirectoryError),
    /// The kernel refuses.
    #[error("{path:?} in the daemon's state directory cannot be used: {errno}")]
    Unusable {
        /// Which.
        path: PathBuf,
        /// Why.
        errno: Errno,
    },
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Instance {
    path: PathBuf,
    all: OwnedFd,
    name: String,
    /// Held: flock(2) belongs to this open directory.
    directory: OwnedFd,
    undo_file_bytes: u64,
    // Std: held for a push or a pop.
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    free: Vec<slot::SlotFile>,
    made: u32,
    /// Slots whose record has to outlive this instance.
    kept: usize,
}

impl Instance {
    /// As `open_with`, within the default limits.
    #[cfg(test)]
    pub(crate) fn open(state: &Path) -> Result<Self, InstanceError> {
        Self::open_with(state, &Limits::default())
    }

    /// Recovers what dead instances left below `state`, and makes a new one.
    ///
    /// # Errors
    /// When the directory cannot be used. What could not be recovered is
    /// logged, and tried again at the next start.
    pub(crate) fn open_with(state: &Path, limits: &Limits) -> Result<Self, InstanceError> {
        let path = state.join("instances");
        let all = private_directory::open(&path)?;
        let unusable = |errno| InstanceError::Unusable {
            path: path.clone(),
            errno,
        };
        recovery::recover(&all, &path).map_err(unusable)?;
        for _ in 0..ATTEMPTS {
            let name = random_name("").map_err(unusable)?;
            rustix::fs::mkdirat(&all, &name, Mode::RWXU).map_err(unusable)?;
            if let Some(directory) = lock(&all, OsStr::new(&name)).map_err(unusable)? {
                return Ok(Self {
                    path: path.join(&name),
                    all,
                    name,
                    directory,
                    undo_file_bytes: limits.undo_file_bytes,
                    slots: Mutex::default(),
                });
            }
        }
        Err(unusable(Errno::AGAIN))
    }

    /// Its directory's name.
    #[cfg(test)]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes an empty file of ours in the instance's directory.
    pub(crate) fn file(&self, prefix: &str) -> Result<(String, OwnedFd), Errno> {
        let name = random_name(prefix)?;
        let file = rustix::fs::openat(
            &self.directory,
            &name,
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::RUSR | Mode::WUSR,
        )?;
        Ok((name, file))
    }

    /// Removes such a file. One that is left is removed by the recovery.
    pub(crate) fn remove(&self, name: &str) {
        if let Err(errno) = rustix::fs::unlinkat(&self.directory, name, AtFlags::empty())
            && errno != Errno::NOENT
        {
            tracing::debug!(instance = ?self.path, name, %errno, "a file was left for the recovery");
        }
    }

    /// The directory, to move things into and out of.
    pub(crate) fn directory(&self) -> &OwnedFd {
        &self.directory
    }

    /// Largest file that is kept for an undo.
    pub(in crate::files) fn undo_file_bytes(&self) -> u64 {
        self.undo_file_bytes
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Instance {
    /// An orderly end leaves nothing.
    fn drop(&mut self) {
        if self.slots().kept > 0 {
            return;
        }
        let gone = recovery::empty(&self.directory)
            .and_then(|()| rustix::fs::unlinkat(&self.all, &self.name, AtFlags::REMOVEDIR));
        if let Err(errno) = gone {
            tracing::debug!(instance = ?self.path, %errno, "left for the recovery at the next start");
        }
    }
}

/// Opens and locks an instance's directory; `None` while somebody else has it,
/// or when it was removed meanwhile.
fn lock(all: &OwnedFd, name: &OsStr) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match rustix::fs::openat(all, name, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        opened => opened?,
    };
    match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(None),
        locked => locked?,
    }
    // It was free for a moment: is it still the one with this name?
    let now = rustix::fs::statat(all, name, AtFlags::SYMLINK_NOFOLLOW);
    let still =
        now.is_ok_and(|now| FileId::of(&directory).is_ok_and(|id| id == FileId::from(&now)));
    Ok(still.then_some(directory))
}

/// `prefix` and 128 random bits.
pub(crate) fn random_name(prefix: &str) -> Result<String, Errno> {
    let mut bytes = [0u8; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(format!("{prefix}{:032x}", u128::from_ne_bytes(bytes)))
}

/// The names in a directory of ours, without `.` and `..`.
fn names(directory: impl AsFd) -> Result<Vec<std::ffi::CString>, Errno> {
    let mut found = Vec::new();
    for entry in Dir::read_from(directory)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.as_bytes(), b"." | b"..") {
            found.push(name);
        }
    }
    Ok(found)
}
