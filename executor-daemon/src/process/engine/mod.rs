//! The engine: sessions, and in each its processes. What the seam's requests
//! ask for is done here.
//!
//! - `sessions`: open, lease, end
//! - `start`: from a checked spec to a supervised process
//! - `control`: stop, signal, input, readers
//! - `handover`: all of it as a value, for a later image of this program
//!
//! Every call may be dropped at any await: what has a lasting effect (a
//! launch, ending a tree) runs in a task of its own that the engine tracks.
//!
//! Locks are `std`'s, held for map operations only. Order where two are taken:
//! sessions, then a table, then a process.

mod control;
mod grant;
mod handover;
mod sessions;
mod start;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use executor_proto::id::Epoch;
use tokio::sync::{Notify, OnceCell, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use self::handover::EngineState;
pub(crate) use self::sessions::Opened;
use self::sessions::Sessions;
use super::env::{Account, Sources, Variables};
use super::error::ProcessError;
use super::log::{Geometry, LogStore};
use super::snapshot::StopMeans;
use super::supervisor::Work;
use super::table::TableLimits;
use super::tree::Containment;
use crate::limits::Limits;

/// Programs that may be on their way into execve(2) at once. Most take well
/// under a millisecond.
const LAUNCHES: usize = 16;
/// Programs that may hang there beside them, on file systems that do not
/// answer; each holds a thread. Only when so many do, they hold others up.
const HANGING: usize = 128;
/// How long what the engine cannot end is waited for when it ends itself.
const LAST_WAIT: Duration = Duration::from_secs(5);

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
    account: Account,
    /// Std: held to take or replace the reference.
    settings: Mutex<Arc<Settings>>,
    login: OnceCell<Option<Variables>>,
    containment: Containment,
    logs: LogStore,
    launches: Arc<Semaphore>,
    hanging: Arc<Semaphore>,
    /// Admitted and not launched yet, whatever became of their sessions.
    starting: AtomicUsize,
    tasks: TaskTracker,
    /// Launches, and supervisors of what was launched.
    supervisors: TaskTracker,
    sessions: Mutex<Sessions>,
    /// A lease began or was renewed to an earlier end.
    leases: Notify,
    closing: AtomicBool,
    /// Ends are not graceful any more.
    hurry: CancellationToken,
    /// Supervisors stop where they are.
    frozen: CancellationToken,
    /// What they had not finished.
    left: Mutex<Vec<Work>>,
}

/// What a daemon may change while the engine runs.
#[derive(Debug)]
struct Settings {
    limits: Limits,
    sources: Sources,
    grace: Duration,
}

impl Settings {
    fn new(
        limits: Limits,
        environment: Vec<(Vec<u8>, Vec<u8>)>,
        account: Account,
        grace: Duration,
    ) -> Self {
        Self {
            limits,
            sources: Sources::new(environment.into_iter().collect(), account),
            grace,
        }
    }

    fn table(&self) -> TableLimits {
        TableLimits {
            kept: self.limits.processes_per_session,
            receipts: self.limits.receipts_per_session,
        }
    }
}

impl Engine {
    /// An engine without sessions. Its leases are watched by
    /// [`Engine::watch_leases`].
    pub(crate) fn new(config: EngineConfig) -> Self {
        let logs = LogStore::new(Geometry::PRODUCTION, config.limits.log_total_bytes);
        Self::with(config, logs, OnceCell::new())
    }

    fn with(config: EngineConfig, logs: LogStore, login: OnceCell<Option<Variables>>) -> Self {
        let settings = Settings::new(
            config.limits,
            config.environment,
            config.account.clone(),
            config.grace,
        );
        Self {
            shared: Arc::new(Shared {
                epoch: config.epoch,
                account: config.account,
                settings: Mutex::new(Arc::new(settings)),
                login,
                containment: config.containment,
                logs,
                launches: Arc::new(Semaphore::new(LAUNCHES)),
                hanging: Arc::new(Semaphore::new(HANGING)),
                starting: AtomicUsize::new(0),
                tasks: TaskTracker::new(),
                supervisors: TaskTracker::new(),
                sessions: Mutex::new(Sessions::default()),
                leases: Notify::new(),
                closing: AtomicBool::new(false),
                hurry: CancellationToken::new(),
                frozen: CancellationToken::new(),
                left: Mutex::default(),
            }),
        }
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.shared.epoch
    }

    pub(crate) fn means(&self) -> StopMeans {
        self.shared.containment.means()
    }

    pub(crate) fn containment(&self) -> &Containment {
        &self.shared.containment
    }

    pub(crate) fn logs(&self) -> &LogStore {
        &self.shared.logs
    }

    /// Between SIGTERM and SIGKILL where no call says otherwise.
    pub(crate) fn grace(&self) -> Duration {
        self.settings().grace
    }

    /// Takes what a new daemon wants: bounds, variables, grace. What began
    /// under the ones before keeps them.
    pub(crate) fn reconfigure(
        &self,
        limits: Limits,
        environment: Vec<(Vec<u8>, Vec<u8>)>,
        grace: Duration,
    ) {
        let settings = Settings::new(limits, environment, self.shared.account.clone(), grace);
        *self
            .shared
            .settings
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    fn settings(&self) -> Arc<Settings> {
        let settings = &self.shared.settings;
        Arc::clone(&settings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns when nothing of it runs any more, or what does hangs in the
    /// kernel where nobody can end it. Cancel safe.
    pub(crate) async fn finished(&self) {
        let ended = async {
            for tasks in [&self.shared.supervisors, &self.shared.tasks] {
                tasks.close();
                tasks.wait().await;
            }
        };
        if tokio::time::timeout(LAST_WAIT, ended).await.is_err() {
            let starting = self.shared.starting.load(Ordering::Acquire);
            tracing::error!(starting, "commands that hang in the kernel are left to it");
        }
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
