//! Containment and trees as values: for a later image of this program, which
//! is executed in place with its children and the descriptors kept open, and
//! for a successor that finds out what was left.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use super::best_effort::{BestEffort, Known};
use super::containment::{Containment, Force, GuardState};
use super::in_cgroup::InCgroup;
use super::leader::{ChildState, ChildWait};
use super::means::Means;
use super::reaper::{self, HeldState, ReaperProgram};
use super::{Leader, LeaderState, Tree};
use crate::sandbox::cgroup::{CgroupPool, CgroupState, PoolState};

/// What an engine writes down while it lives, so that its successor can end
/// what it left ([`left_overs`](super::left_overs())).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainmentRecord {
    /// Commands live below the directory `name` in `parent`.
    Cgroup {
        /// A directory of the cgroup v2 file system.
        #[serde(with = "crate::path_bytes")]
        parent: PathBuf,
        /// `executor-<epoch>`.
        name: String,
    },
    /// Each has a reaper, which ends it when its engine is gone.
    Reaper,
    /// Only the tag in their environment says that they are ours.
    BestEffort,
}

/// A [`Containment`] for a later image of this program. Opaque; both images
/// may be different builds, so that it is checked when it is read.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ContainmentState(ForceState);

#[derive(Debug, Clone, Serialize, Deserialize)]
enum ForceState {
    Cgroup(PoolState),
    Reaper(ReaperProgram),
    BestEffort,
}

/// A [`Tree`] with its leader for a later image of this program. Opaque, as
/// [`ContainmentState`] is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TreeState(pub(super) MeansState);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum MeansState {
    Cgroup {
        leader: ChildState,
        /// `None` once it was given back.
        cgroup: Option<CgroupState>,
    },
    /// Its socket is beside it while the reaper lives.
    Reaper(HeldState),
    BestEffort {
        leader: ChildState,
        known: Known,
    },
}

impl Containment {
    /// What is to be written down for a successor.
    #[must_use]
    pub fn record(&self) -> ContainmentRecord {
        match &self.inner.force {
            Force::Cgroup { pool, .. } => ContainmentRecord::Cgroup {
                parent: pool.parent().to_owned(),
                name: pool.name().to_owned(),
            },
            Force::Reaper(_) => ContainmentRecord::Reaper,
            Force::BestEffort => ContainmentRecord::BestEffort,
        }
    }

    /// What a later image of this program needs, to be executed in place of it
    /// with its pid and children, and the descriptors to keep open for it (none
    /// so far). Each tree is exported beside it ([`Tree::export`]), after the
    /// last launch. Does not block.
    ///
    /// From now on [`close`](Self::close) and dropping it leave everything on
    /// the machine as it is. Where the execution fails, this image goes on as
    /// the later one would, once nobody follows its trees
    /// ([`following`](Self::following)).
    #[must_use]
    pub fn export(&self) -> (ContainmentState, Vec<Arc<OwnedFd>>) {
        self.inner.handed_over.store(true, Ordering::Release);
        let state = match &self.inner.force {
            Force::Cgroup { pool, .. } => ForceState::Cgroup(pool.export()),
            Force::Reaper(program) => ForceState::Reaper(program.clone()),
            Force::BestEffort => ForceState::BestEffort,
        };
        (ContainmentState(state), Vec::new())
    }

    /// Tasks that still follow trees or children. After an export of all trees
    /// it falls to 0 (1 where SIGCHLD is read) as the runtime runs; from then
    /// on this image too could resume them.
    #[must_use]
    pub fn following(&self) -> usize {
        self.inner.tasks.len()
    }

    /// Goes on as an earlier image of this program has said. For a process
    /// that is all our own. Blocks for less than a millisecond.
    ///
    /// # Errors
    /// The engine's cgroup cannot be opened.
    pub fn import(state: ContainmentState, _files: &[Arc<OwnedFd>]) -> io::Result<Self> {
        let force = match state.0 {
            ForceState::Cgroup(pool) => Force::Cgroup {
                pool: Arc::new(CgroupPool::import(pool)?),
                guard: Mutex::new(GuardState::NotNeeded),
            },
            ForceState::Reaper(program) => Force::Reaper(program),
            ForceState::BestEffort => Force::BestEffort,
        };
        Ok(Self::with(force, false))
    }

    /// Goes on with a tree of the earlier image, with the descriptors that its
    /// export named. A leader that was reaped there tells the same exit again;
    /// one that has ended meanwhile is reaped now. Must be called inside a
    /// runtime. Does not block.
    ///
    /// # Errors
    /// `InvalidData` when it was held by other means than this engine has, a
    /// descriptor is missing, or its reaper is of another version; what
    /// pidfd_open(2) and epoll(7) fail with. The tree is as it was, and a
    /// reaper kills it when its socket is closed.
    pub fn resume(&self, state: TreeState, files: &[Arc<OwnedFd>]) -> io::Result<(Leader, Tree)> {
        let inner = &self.inner;
        match (state.0, &inner.force) {
            (MeansState::Cgroup { leader, cgroup }, Force::Cgroup { pool, .. }) => {
                let (child, state) = ChildWait::resume(leader, inner.signals())?;
                let means = InCgroup::resume(child, Arc::clone(pool), cgroup);
                Ok(resumed(state, Arc::new(means)))
            }
            (MeansState::Reaper(held), Force::Reaper(_)) => {
                reaper::resume(held, files, &inner.tasks)
            }
            (MeansState::BestEffort { leader, known }, Force::BestEffort) => {
                let (child, state) = ChildWait::resume(leader, inner.signals())?;
                let means = BestEffort::resume(child, known);
                Ok(resumed(state, Arc::new(means)))
            }
            _ => Err(invalid("another means held this tree")),
        }
    }
}

fn resumed(mut state: LeaderState, means: Arc<dyn Means>) -> (Leader, Tree) {
    if let LeaderState::Ended(exit) = &mut state {
        exit.usage.cgroup_peak = means.peak();
    }
    let leader = Leader {
        state,
        means: Arc::clone(&means),
    };
    (leader, Tree { means })
}

pub(super) fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
