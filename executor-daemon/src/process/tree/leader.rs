//! The leader of a command as our own child: signalled and reaped.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use tokio::io::Interest;

use super::child_signals::{ChildSignals, Followed};
use super::{LeaderState, proc};
use crate::process::control::SignalTarget;
use crate::process::exit::{Usage, WaitStatus};
use crate::sys::readiness::Watched;
use crate::sys::{signal, wait};

/// The end of a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderExit {
    /// How.
    pub status: WaitStatus,
    /// What it and the children it had waited for used.
    pub usage: Usage,
    /// When we learned of it.
    pub ended_at: SystemTime,
}

impl LeaderExit {
    /// Its reaper was killed. What lived of the tree then has been ended by
    /// SIGKILL; whoever ended by itself in the same moment told nobody how.
    pub(super) fn with_its_reaper() -> Self {
        Self {
            status: WaitStatus::Signal(libc::SIGKILL),
            ..Self::lost()
        }
    }

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
///     └──handover──→ HandedOver   reaped by a later image of this program
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
    Unreaped(Handle),
    HandedOver(Handle),
    Reaped(LeaderExit),
}

/// How an unreaped child is reached.
#[derive(Debug)]
enum Handle {
    /// In a program that may reap it behind our back.
    Pidfd(Arc<OwnedFd>),
    /// In a process that is all our own: by its pid.
    Pid,
}

/// What a later image of this program needs to know of a [`Child`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct ChildState {
    pid: u32,
    /// `None` while it is unreaped.
    exit: Option<LeaderExit>,
}

impl Child {
    /// False once it is reaped.
    pub(super) fn signal(&self, to: SignalTarget, number: i32) -> bool {
        let state = self.state();
        let (State::Unreaped(handle) | State::HandedOver(handle)) = &*state else {
            return false;
        };
        match (handle, to) {
            (Handle::Pidfd(pidfd), SignalTarget::Leader) => {
                signal::send(pidfd.as_fd(), number).is_ok()
            }
            // Asking by pidfd first: if it was reaped behind our back, the
            // number is nobody's to use.
            (Handle::Pidfd(pidfd), SignalTarget::Group) => {
                signal::send(pidfd.as_fd(), 0).is_ok()
                    && signal::send_to_group(self.pid, number).is_ok()
            }
            (Handle::Pid, SignalTarget::Leader) => signal::send_to_child(self.pid, number).is_ok(),
            (Handle::Pid, SignalTarget::Group) => signal::send_to_group(self.pid, number).is_ok(),
        }
    }

    /// So far, or in all.
    pub(super) fn usage(&self) -> Usage {
        let so_far = proc::stat(self.pid).map(|stat| stat.usage());
        // Looked at after the file: while it is unreaped the file was its own.
        match &*self.state() {
            State::Reaped(exit) => exit.usage,
            State::Unreaped(_) | State::HandedOver(_) => so_far.unwrap_or_default(),
        }
    }

    /// From now on it is not reaped here.
    pub(super) fn export(&self) -> ChildState {
        let mut state = self.state();
        let pidfd = match &*state {
            State::Reaped(exit) => {
                return ChildState {
                    pid: self.pid,
                    exit: Some(*exit),
                };
            }
            State::Unreaped(handle) | State::HandedOver(handle) => match handle {
                Handle::Pidfd(pidfd) => Handle::Pidfd(Arc::clone(pidfd)),
                Handle::Pid => Handle::Pid,
            },
        };
        *state = State::HandedOver(pidfd);
        ChildState {
            pid: self.pid,
            exit: None,
        }
    }

    /// For one that cannot be watched. Blocks until it has ended.
    pub(super) fn kill_and_reap(&self) {
        self.signal(SignalTarget::Leader, libc::SIGKILL);
        let mut state = self.state();
        if let State::Unreaped(Handle::Pidfd(pidfd)) = &*state {
            let _ = wait::reap_blocking(pidfd.as_fd());
            *state = State::Reaped(LeaderExit::lost());
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` while it runs, and for good after a handover.
    fn reap(&self) -> Option<LeaderExit> {
        let mut state = self.state();
        let reaped = match &*state {
            State::Reaped(exit) => return Some(*exit),
            State::HandedOver(_) => return None,
            State::Unreaped(Handle::Pidfd(pidfd)) => wait::reap(pidfd.as_fd()),
            State::Unreaped(Handle::Pid) => wait::reap_child(self.pid),
        };
        let exit = match reaped {
            Ok(None) => return None,
            Ok(Some(reaped)) => LeaderExit {
                status: reaped.status,
                usage: reaped.usage,
                ended_at: SystemTime::now(),
            },
            // ECHILD: somebody else took the status.
            Err(_) => LeaderExit::lost(),
        };
        *state = State::Reaped(exit);
        Some(exit)
    }
}

/// Waits for a [`Child`].
#[derive(Debug)]
pub(super) struct ChildWait {
    child: Arc<Child>,
    follow: Follow,
}

#[derive(Debug)]
enum Follow {
    Pidfd(Watched),
    Signals(Followed),
}

impl ChildWait {
    /// Follows an unreaped child of ours: by the signals that this process
    /// gets, or where it gets none, by a pidfd. Must be called inside a
    /// runtime.
    ///
    /// # Errors
    /// The child cannot be watched, which only a pidfd can fail with.
    pub(super) fn new(
        pid: u32,
        pidfd: OwnedFd,
        signals: Option<&Arc<ChildSignals>>,
    ) -> (Arc<Child>, io::Result<Self>) {
        let pidfd = Arc::new(pidfd);
        let handle = match signals {
            Some(_) => Handle::Pid,
            None => Handle::Pidfd(Arc::clone(&pidfd)),
        };
        let child = Arc::new(Child {
            pid,
            state: Mutex::new(State::Unreaped(handle)),
        });
        let follow = match signals {
            Some(signals) => Ok(Follow::Signals(signals.follow(pid))),
            None => Watched::new(pidfd, Interest::READABLE).map(Follow::Pidfd),
        };
        let wait = follow.map(|follow| Self {
            child: Arc::clone(&child),
            follow,
        });
        (child, wait)
    }

    /// Goes on with a child of an earlier image of this program. Must be
    /// called inside a runtime.
    pub(super) fn resume(
        state: ChildState,
        signals: Option<&Arc<ChildSignals>>,
    ) -> io::Result<(Arc<Child>, LeaderState)> {
        if let Some(exit) = state.exit {
            let child = Arc::new(Child {
                pid: state.pid,
                state: Mutex::new(State::Reaped(exit)),
            });
            return Ok((child, LeaderState::Ended(Box::new(exit))));
        }
        // Unreaped: its pid is its own.
        let (child, wait) = Self::new(state.pid, proc::pin(state.pid)?, signals);
        Ok((child, LeaderState::Child(wait?)))
    }

    /// Calls `before` when it has ended and its pid is still its own, then
    /// reaps it. (On the heap: the future is part of a task for as long as the
    /// leader runs.) Never returns after a handover. Cancel safe.
    pub(super) async fn wait(&self, before: impl Fn()) -> Box<LeaderExit> {
        match &self.follow {
            Follow::Pidfd(pidfd) => loop {
                // Readable once the process has ended (pidfd_open(2)).
                let Ok(mut ready) = Box::pin(pidfd.readable()).await else {
                    // The runtime is ending, and nobody will wait any more.
                    return Box::new(LeaderExit::lost());
                };
                before();
                if let Some(exit) = self.child.reap() {
                    return Box::new(exit);
                }
                ready.clear_ready();
            },
            Follow::Signals(followed) => loop {
                followed.hint().await;
                // An error is for `reap` to tell.
                if !wait::has_ended(self.child.pid).unwrap_or(true) {
                    continue;
                }
                before();
                if let Some(exit) = self.child.reap() {
                    return Box::new(exit);
                }
            },
        }
    }
}
