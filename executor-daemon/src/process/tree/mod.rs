//! A command's whole tree of processes: started, watched, signalled, ended.
//!
//! ```text
//! launch ─→ Launched { leader, tree }
//!   leader: running ──wait──→ reaped (LeaderExit)
//!   tree:   populated ──end, or by itself──→ empty ──release──→ forgotten
//! ```
//!
//! Three means hold a tree together, strongest first: a cgroup of its own
//! ([`StopMeans::Cgroup`]), a small subreaper between us and the leader
//! ([`StopMeans::Reaper`]), and what `/proc` shows ([`StopMeans::BestEffort`]).
//! One suite of tests runs over all three.
//!
//! A command that runs costs, beside its pipes or terminal: with a cgroup or
//! best effort one descriptor in an embedding program (a pidfd) and none in a
//! process that is all our own ([`block_child_signals`]); with a reaper always
//! two (its socket and its pidfd).
//!
//! Invariants:
//! 1. No signal reaches a process that is not of the tree: the leader is
//!    signalled by pidfd, its group only while the leader is unreaped, others
//!    by a pidfd that was opened first and verified afterwards.
//! 2. [`Tree::end`] returns when the tree is verified empty, or says what is
//!    left, at most 5 seconds after the grace.
//! 3. Nothing of the program around us is changed or used: no subreaper, no
//!    SIGCHLD handler, no wait for "any child", no limit, no mask. In a process
//!    that is all our own SIGCHLD is read; still each child is reaped by its
//!    pid.
//! 4. When the program around us dies, so do its trees: the reaper sees its
//!    socket close; for cgroups in an embedding program a guard does. What a
//!    lost daemon left is ended by its successor ([`left_overs()`]).
//! 5. A later image of this program, executed in place, goes on with every
//!    tree ([`Tree::export`], [`Containment::resume`]): an exit before, during
//!    or after is told once, by one of the two.
//!
//! [`block_child_signals`]: crate::sys::signal::block_child_signals

mod attempt;
mod best_effort;
mod child_signals;
mod containment;
mod guard;
mod handover;
mod in_cgroup;
mod leader;
mod left_overs;
mod means;
mod proc;
pub mod reaper;

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::sync::watch;

pub use attempt::Attempt;
pub use containment::{Containment, ContainmentSettings, Preferred};
pub use handover::{ContainmentRecord, ContainmentState, TreeState};
pub use leader::LeaderExit;
pub use left_overs::{LeftOvers, LostEpoch, left_overs};
pub use means::{EndMode, EndReport};
pub use reaper::VERSION as REAPER_VERSION;

use crate::process::control::SignalTarget;
use crate::process::exit::{Member, Usage};
#[cfg(doc)]
use crate::process::snapshot::StopMeans;
use leader::ChildWait;
use means::Means;

/// A program to launch, with everything that it is given.
#[derive(Debug)]
pub struct LaunchPlan {
    /// Candidate paths, tried in order as execvp(3) does with `PATH`: a missing
    /// one lets the next be tried, one without permission is remembered.
    pub programs: Vec<CString>,
    /// The arguments, the program's name first.
    pub argv: Vec<CString>,
    /// `NAME=value`.
    pub envp: Vec<CString>,
    /// The working directory, opened `O_PATH`.
    pub cwd: Arc<OwnedFd>,
    /// Descriptors 0 to 2.
    pub stdio: ChildStdio,
    /// Reaches what is launched before it is.
    pub attempt: Arc<Attempt>,
}

/// Descriptors 0 to 2 of a program.
#[derive(Debug)]
pub enum ChildStdio {
    /// These, closed on our side once the program runs.
    Pipe {
        /// 0
        stdin: OwnedFd,
        /// 1
        stdout: OwnedFd,
        /// 2
        stderr: OwnedFd,
    },
    /// A terminal, which becomes the controlling one of the program's session.
    Terminal {
        /// As `/dev/pts/7`.
        path: CString,
    },
}

/// A program that runs.
#[derive(Debug)]
pub struct Launched {
    /// Of the leader.
    pub pid: u32,
    /// To wait for it. Must be waited for, or a zombie stays.
    pub leader: Leader,
    /// To signal and end all of it.
    pub tree: Tree,
}

/// Waits for the end of a leader.
#[derive(Debug)]
pub struct Leader {
    state: LeaderState,
    means: Arc<dyn Means>,
}

#[derive(Debug)]
enum LeaderState {
    /// Our child.
    Child(ChildWait),
    /// The child of a reaper, which tells.
    Told(watch::Receiver<Option<LeaderExit>>),
    /// On the heap: most leaders have not ended.
    Ended(Box<LeaderExit>),
}

impl Leader {
    /// Waits until the leader has ended, reaps it, and returns how it ended;
    /// the same again when it is called again. Cancel safe.
    pub async fn wait(&mut self) -> LeaderExit {
        let exit = match &mut self.state {
            LeaderState::Ended(exit) => return **exit,
            LeaderState::Child(child) => child.wait(|| self.means.leader_ended()).await,
            LeaderState::Told(told) => match Box::pin(told.wait_for(Option::is_some)).await {
                Ok(exit) => Box::new(exit.unwrap_or_else(LeaderExit::lost)),
                Err(_) => Box::new(LeaderExit::lost()),
            },
        };
        let mut exit = exit;
        exit.usage.cgroup_peak = self.means.peak();
        let told = *exit;
        // Closes the descriptor, if there was one.
        self.state = LeaderState::Ended(exit);
        told
    }
}

/// A command's tree. Cheap to clone; all clones mean the same tree.
#[derive(Debug, Clone)]
pub struct Tree {
    means: Arc<dyn Means>,
}

impl Tree {
    /// Sends one signal, 1 to 64, once. Does not block. False when the leader
    /// was already reaped, so that nobody could be signalled safely.
    #[must_use]
    pub fn signal(&self, to: SignalTarget, signal: i32) -> bool {
        self.means.signal(to, signal)
    }

    /// All of the tree that is alive; a leader that has ended is not among
    /// them. Reads `/proc` or a cgroup: tens of microseconds a member.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        self.means.members()
    }

    /// Nothing of the tree is alive. Certain with a cgroup or a reaper; without
    /// them a process that hides from two looks is missed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.means.is_empty()
    }

    /// What outlives the leader; asked once, when it has ended.
    #[must_use]
    pub fn residue(&self) -> Vec<Member> {
        self.means.residue()
    }

    /// What the leader has used so far, or in all once it was reaped.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.means.usage()
    }

    /// Ends the whole tree and returns when it is verified empty, or at the
    /// latest 5 seconds after the grace. Repeating is safe, also at the same
    /// time with another mode. Cancel safe: dropped at any point it has sent
    /// what it has sent and goes no further.
    pub async fn end(&self, mode: EndMode) -> EndReport {
        means::end(&*self.means, mode, false).await
    }

    /// As [`Tree::end`], where another end of it is under way, or was dropped:
    /// SIGTERM is not sent a second time, which many programs take for
    /// impatience.
    pub async fn end_too(&self, mode: EndMode) -> EndReport {
        means::end(&*self.means, mode, true).await
    }

    /// What a later image of this program needs to go on with the tree by
    /// [`Containment::resume`], and the descriptors to keep open for it (none,
    /// or the socket of its reaper). Does not block.
    ///
    /// From now on this image reaps nothing of it, learns of no end and gives
    /// nothing back: [`Leader::wait`] does not return unless the leader had been
    /// reaped. Signals still reach it.
    #[must_use]
    pub fn export(&self) -> (TreeState, Vec<Arc<OwnedFd>>) {
        let (state, files) = self.means.export();
        (TreeState(state), files)
    }

    /// The process is forgotten and its tree is empty: gives back what held
    /// it. Other clones find an empty tree from now on.
    pub fn release(self) {
        self.means.release();
    }
}
