//! The leader of a command as our own child: signalled and reaped.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use tokio::io::Interest;

use super::proc;
use crate::process::control::SignalTarget;
use crate::process::exit::{Usage, WaitStatus};
use crate::sys::readiness::Watched;
use crate::sys::{signal, wait};

/// The end of a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaderExit {
    /// How.
    pub status: WaitStatus,
    /// What it and the children it had waited for used.
    pub usage: Usage,
    /// When we learned of it.
    pub ended_at: SystemTime,
}

impl LeaderExit {
    /// Nobody knows how it ended.
    pub(super) fn lost() -> Self {
        Self {
            status: WaitStatus::Lost,
            usage: Usage::default(),
            ended_at: SystemTime::now(),
        }
    }
}

/// A leader that is our child.
///
/// ```text
/// Unreaped ──reap──→ Reaped
/// ```
///
/// The lock is held across the two short system calls that must not meet:
/// while the leader is unreaped its pid, and so the number of its group,
/// cannot belong to anybody else; `kill` on that number and the `waitid` that
/// frees it therefore exclude each other.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) pid: u32,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Unreaped(Arc<OwnedFd>),
    Reaped(Usage),
}

impl Child {
    pub(super) fn new(pid: u32, pidfd: Arc<OwnedFd>) -> Self {
        Self {
            pid,
            state: Mutex::new(State::Unreaped(pidfd)),
        }
    }

    /// False once it is reaped.
    pub(super) fn signal(&self, to: SignalTarget, number: i32) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State::Unreaped(pidfd) = &*state else {
            return false;
        };
        match to {
            SignalTarget::Leader => signal::send(pidfd.as_fd(), number).is_ok(),
            // Asking by pidfd first: a program that embeds us may have reaped
            // it behind our back, and then the number is nobody's to use.
            SignalTarget::Group => {
                signal::send(pidfd.as_fd(), 0).is_ok()
                    && signal::send_to_group(self.pid, number).is_ok()
            }
        }
    }

    /// So far, or in all.
    pub(super) fn usage(&self) -> Usage {
        let so_far = proc::stat(self.pid).map(|stat| stat.usage());
        // Looked at after the file: while it is unreaped the file was its own.
        match *self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Reaped(usage) => usage,
            State::Unreaped(_) => so_far.unwrap_or_default(),
        }
    }

    /// `None` while it runs.
    fn reap(&self) -> Option<LeaderExit> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let exit = match &*state {
            State::Reaped(_) => LeaderExit::lost(),
            State::Unreaped(pidfd) => match wait::reap(pidfd.as_fd()) {
                Ok(None) => return None,
                Ok(Some(reaped)) => LeaderExit {
                    status: reaped.status,
                    usage: reaped.usage,
                    ended_at: SystemTime::now(),
                },
                // ECHILD: somebody else took the status.
                Err(_) => LeaderExit::lost(),
            },
        };
        *state = State::Reaped(exit.usage);
        Some(exit)
    }
}

/// Waits for a [`Child`] by its pidfd.
#[derive(Debug)]
pub(super) struct ChildWait {
    child: Arc<Child>,
    pidfd: Watched,
}

impl ChildWait {
    /// Must be called inside a runtime.
    pub(super) fn new(child: Arc<Child>, pidfd: Arc<OwnedFd>) -> std::io::Result<Self> {
        Ok(Self {
            child,
            pidfd: Watched::new(pidfd, Interest::READABLE)?,
        })
    }

    /// Calls `before` when it has ended and its pid is still its own, then
    /// reaps it. Cancel safe.
    pub(super) async fn wait(&self, before: impl Fn()) -> LeaderExit {
        loop {
            // A pidfd is readable once the process has ended (pidfd_open(2)).
            let Ok(mut ready) = self.pidfd.readable().await else {
                // The runtime is ending, and nobody will wait any more.
                return LeaderExit::lost();
            };
            before();
            if let Some(exit) = self.child.reap() {
                return exit;
            }
            ready.clear_ready();
        }
    }
}
