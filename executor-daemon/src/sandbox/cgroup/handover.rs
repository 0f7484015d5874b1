//! The pool and its cgroups as values, for a later image of this program.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::{Cgroup, CgroupPool, locked};

/// A [`CgroupPool`] without the cgroups in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolState {
    parent: PathBuf,
    name: String,
    next: u64,
    free: Vec<CgroupState>,
    lingering: Vec<CgroupState>,
}

/// A [`Cgroup`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupState {
    name: String,
    killed: bool,
}

impl Cgroup {
    /// As a value.
    #[must_use]
    pub fn export(&self) -> CgroupState {
        CgroupState {
            name: self.name.clone(),
            killed: self.killed.load(Ordering::Relaxed),
        }
    }
}

impl From<CgroupState> for Cgroup {
    fn from(state: CgroupState) -> Self {
        Self {
            name: state.name,
            killed: AtomicBool::new(state.killed),
        }
    }
}

impl CgroupPool {
    /// As a value. The pool must not be used any more.
    #[must_use]
    pub fn export(&self) -> PoolState {
        let states = |list: &Mutex<Vec<Cgroup>>| locked(list).iter().map(Cgroup::export).collect();
        PoolState {
            parent: self.parent.clone(),
            name: self.name.clone(),
            next: self.next.load(Ordering::Relaxed),
            free: states(&self.free),
            lingering: states(&self.lingering),
        }
    }

    /// The engine's directory, opened again.
    ///
    /// # Errors
    /// It is not there, or cannot be opened.
    pub fn import(state: PoolState) -> std::io::Result<Self> {
        let directory: OwnedFd =
            super::open_directory(rustix::fs::CWD, state.parent.join(&state.name))?;
        let cgroups = |list: Vec<CgroupState>| list.into_iter().map(Cgroup::from).collect();
        Ok(Self {
            parent: state.parent,
            name: state.name,
            directory,
            next: AtomicU64::new(state.next),
            free: Mutex::new(cgroups(state.free)),
            lingering: Mutex::new(cgroups(state.lingering)),
            no_peak: AtomicBool::new(false),
        })
    }
}
