//! A tree held by a cgroup of its own.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use super::handover::MeansState;
use super::leader::Child;
use super::means::Means;
use super::proc;
use crate::process::control::SignalTarget;
use crate::process::exit::{Member, Usage};
use crate::sandbox::cgroup::{Cgroup, CgroupPool, CgroupState};

/// The tree and its cgroup.
///
/// The cgroup is taken out when it is given back to the pool. The lock is held
/// while one is looked at or signalled, so that a late stop never meets the
/// next command in it; all that happens under it are a few files of the
/// kernel's, each as short as a kill(2).
#[derive(Debug)]
pub(super) struct InCgroup {
    child: Arc<Child>,
    pool: Arc<CgroupPool>,
    cgroup: Mutex<Holding>,
}

#[derive(Debug)]
enum Holding {
    Held(Cgroup),
    /// A later image of this program gives it back.
    HandedOver(Cgroup),
    Released,
}

impl InCgroup {
    pub(super) fn new(child: Arc<Child>, pool: Arc<CgroupPool>, cgroup: Cgroup) -> Self {
        Self {
            child,
            pool,
            cgroup: Mutex::new(Holding::Held(cgroup)),
        }
    }

    /// As an earlier image of this program held it.
    pub(super) fn resume(
        child: Arc<Child>,
        pool: Arc<CgroupPool>,
        cgroup: Option<CgroupState>,
    ) -> Self {
        let cgroup = cgroup.map_or(Holding::Released, |state| Holding::Held(state.into()));
        Self {
            child,
            pool,
            cgroup: Mutex::new(cgroup),
        }
    }

    fn with<T>(&self, act: impl FnOnce(&CgroupPool, &Cgroup) -> T) -> Option<T> {
        let cgroup = self.cgroup.lock().unwrap_or_else(PoisonError::into_inner);
        match &*cgroup {
            Holding::Held(cgroup) | Holding::HandedOver(cgroup) => Some(act(&self.pool, cgroup)),
            Holding::Released => None,
        }
    }
}

impl Means for InCgroup {
    fn residue(&self) -> Vec<Member> {
        // Nearly always empty, which one file tells.
        if self.is_empty() {
            Vec::new()
        } else {
            self.members()
        }
    }

    fn peak(&self) -> Option<u64> {
        self.with(CgroupPool::memory_peak).flatten()
    }

    fn leader(&self) -> u32 {
        self.child.pid
    }

    fn look(&self) -> Vec<Member> {
        let pids = self.with(|pool, cgroup| pool.pids(cgroup).unwrap_or_default());
        pids.unwrap_or_default()
            .into_iter()
            .filter_map(|pid| proc::stat(pid).ok())
            .filter(proc::Stat::alive)
            .map(|stat| stat.member())
            .collect()
    }

    fn is_empty(&self) -> bool {
        // One that cannot be read is not empty, until its directory is gone.
        self.with(|pool, cgroup| match pool.populated(cgroup) {
            Ok(populated) => !populated,
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        })
        .unwrap_or(true)
    }

    fn terminate(&self) -> usize {
        self.with(|pool, cgroup| {
            pool.thaw(cgroup);
            let pids = pool.pids(cgroup).unwrap_or_default();
            // A stopped process acts on SIGTERM only when it is continued.
            let signals = [libc::SIGTERM, libc::SIGCONT];
            pids.into_iter()
                .filter(|pid| {
                    proc::send_if(*pid, &signals, || {
                        proc::cgroups(*pid).is_ok_and(|groups| pool.contains(cgroup, &groups))
                    })
                })
                .count()
        })
        .unwrap_or(0)
    }

    fn kill(&self) {
        self.with(|pool, cgroup| {
            if let Err(error) = pool.kill(cgroup) {
                tracing::warn!(%error, "cgroup.kill could not be written");
            }
        });
    }

    fn signal(&self, to: SignalTarget, number: i32) -> bool {
        self.child.signal(to, number)
    }

    fn usage(&self) -> Usage {
        Usage {
            cgroup_peak: self.peak(),
            ..self.child.usage()
        }
    }

    fn leader_ended(&self) {}

    fn release(&self) {
        let mut cgroup = self.cgroup.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *cgroup, Holding::Released) {
            Holding::Held(cgroup) => self.pool.give_back(cgroup),
            kept => *cgroup = kept,
        }
    }

    fn export(&self) -> (MeansState, Vec<Arc<OwnedFd>>) {
        let mut cgroup = self.cgroup.lock().unwrap_or_else(PoisonError::into_inner);
        let state = match std::mem::replace(&mut *cgroup, Holding::Released) {
            Holding::Held(held) | Holding::HandedOver(held) => {
                let state = held.export();
                *cgroup = Holding::HandedOver(held);
                Some(state)
            }
            Holding::Released => None,
        };
        let state = MeansState::Cgroup {
            leader: self.child.export(),
            cgroup: state,
        };
        (state, Vec::new())
    }
}

impl Drop for InCgroup {
    fn drop(&mut self) {
        self.release();
    }
}
