//! The engine: sessions, and in each its processes. What the seam's requests
//! ask for is done here.
//!
//! - `sessions`: open, lease, end
//! - `start`: from a checked spec to a supervised process
//! - `control`: stop, signal, input, readers
//!
//! Every call may be dropped at any await: what has a lasting effect (a
//! launch, ending a tree) runs in a task of its own that the engine tracks.
//!
//! Locks are `std`'s, held for map operations only. Order where two are taken:
//! sessions, then a table, then a process.

mod control;
mod sessions;
mod start;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use executor_proto::id::Epoch;
use tokio::sync::{Notify, OnceCell, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use self::sessions::Opened;
use self::sessions::Sessions;
use super::env::{Account, Sources, Variables};
use super::error::ProcessError;
use super::log::{Geometry, LogStore};
use super::tree::Containment;
use crate::limits::Limits;

/// Programs that may be on their way into execve(2) at once. Most take well
/// under a millisecond; one on a file system that does not answer holds its
/// place for as long as that lasts.
const LAUNCHES: usize = 16;

/// What an engine needs to begin.
#[derive(Debug)]
pub(crate) struct EngineConfig {
    pub(crate) epoch: Epoch,
    pub(crate) limits: Limits,
    /// The daemon's own environment.
    pub(crate) environment: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) account: Account,
    pub(crate) containment: Containment,
    /// Between SIGTERM and SIGKILL where no call says otherwise.
    pub(crate) grace: Duration,
}

/// See the module's documentation. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Engine {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    epoch: Epoch,
    limits: Limits,
    sources: Sources,
    login: OnceCell<Option<Variables>>,
    containment: Containment,
    logs: LogStore,
    grace: Duration,
    launches: Arc<Semaphore>,
    tasks: TaskTracker,
    sessions: Mutex<Sessions>,
    /// A lease began or was renewed to an earlier end.
    leases: Notify,
    closing: AtomicBool,
    /// Ends are not graceful any more.
    hurry: CancellationToken,
}

impl Engine {
    /// An engine without sessions. Its leases are watched by
    /// [`Engine::watch_leases`].
    pub(crate) fn new(config: EngineConfig) -> Self {
        let own: Variables = config.environment.into_iter().collect();
        Self {
            shared: Arc::new(Shared {
                epoch: config.epoch,
                sources: Sources::new(own, config.account),
                login: OnceCell::new(),
                containment: config.containment,
                logs: LogStore::new(Geometry::PRODUCTION, config.limits.log_total_bytes),
                limits: config.limits,
                grace: config.grace,
                launches: Arc::new(Semaphore::new(LAUNCHES)),
                tasks: TaskTracker::new(),
                sessions: Mutex::new(Sessions::default()),
                leases: Notify::new(),
                closing: AtomicBool::new(false),
                hurry: CancellationToken::new(),
            }),
        }
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.shared.epoch
    }

    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.shared.tasks
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.shared
            .sessions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn check_open(&self) -> Result<(), ProcessError> {
        if self.shared.closing.load(Ordering::Acquire) {
            return Err(ProcessError::ShuttingDown);
        }
        Ok(())
    }
}
