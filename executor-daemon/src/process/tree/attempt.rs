//! A launch under way, seen by those who do not want to wait for it.
//!
//! execve(2) may take as long as a file system does not answer. Until then
//! there is one process, which has run nothing of the command, and no tree to
//! end: it is reached by its pid.

use std::sync::atomic::{AtomicU32, Ordering};

use super::proc;

/// Between the thread that launches, asleep until execve(2) has succeeded or
/// failed, and everybody else. Serves one launch.
#[derive(Debug, Default)]
pub struct Attempt {
    /// 0 while there is none. A process that is pinned while it stands here,
    /// and has the parent that stands below, is the one.
    pub(super) child: AtomicU32,
    /// Its reaper's pid; 0: it is our own child.
    pub(super) reaper: AtomicU32,
}

impl Attempt {
    /// The process that is about to become the command, if there is one now.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        match self.child.load(Ordering::SeqCst) {
            0 => None,
            pid => Some(pid),
        }
    }

    /// Sends it SIGKILL. Where it does not die of that, the kernel waits for a
    /// device. Whether one was there.
    pub fn kill(&self) -> bool {
        let Some(pid) = self.pid() else {
            return false;
        };
        let parent = match self.reaper.load(Ordering::SeqCst) {
            0 => std::process::id(),
            reaper => reaper,
        };
        proc::send_if(pid, &[libc::SIGKILL], || {
            proc::stat(pid).is_ok_and(|stat| stat.parent == parent) && self.pid() == Some(pid)
        })
    }

    /// A reaper has told of its child.
    pub(super) fn begun(&self, reaper: u32, child: u32) {
        self.reaper.store(reaper, Ordering::SeqCst);
        self.child.store(child, Ordering::SeqCst);
    }

    pub(super) fn over(&self) {
        self.child.store(0, Ordering::SeqCst);
    }
}
