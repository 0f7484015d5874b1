//! One process as the engine keeps it: facts that never change, and a small
//! state behind a mutex.
//!
//! The mutex is `std`'s: it is held for a few assignments or one non-blocking
//! system call, never across an await. Callers change the state and wake the
//! supervisor; whoever waits for a change is told through `changed`.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use executor_proto::id::{ProcessId, SessionId};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::error::ExitedAs;
use super::exit::{Exit, State, Usage, WaitStatus};
use super::flow::LosslessReader;
use super::lifecycle::Lifecycle;
use super::log::{LogReader, LogStatus, RetiredLog};
use super::snapshot::{Snapshot, StopMeans};
use super::spec::{SpecDigest, TerminalSize};
use super::stdin::StdinQueue;
use super::tree::{Attempt, EndMode, EndReport, Tree};

/// How long whoever has emptied a tree waits for the exit to be published.
const EXIT_PUBLISHED: Duration = Duration::from_secs(2);

/// A launch that takes longer is killed when its process is to end.
const LAUNCHED: Duration = Duration::from_secs(1);
/// How long that is tried, from the beginning, and between two tries.
const LAUNCH_KILLED: Duration = Duration::from_secs(5);
const KILL_PAUSE: Duration = Duration::from_millis(50);

/// What never changes.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Facts {
    pub(crate) id: ProcessId,
    pub(crate) session: SessionId,
    pub(crate) digest: SpecDigest,
    pub(crate) label: String,
    #[serde(with = "crate::path_bytes")]
    pub(crate) cwd: PathBuf,
    pub(crate) created_at: SystemTime,
    pub(crate) means: StopMeans,
}

/// What changes, under the mutex.
#[derive(Debug)]
pub(crate) struct Mutable {
    pub(crate) lifecycle: Lifecycle,
    pub(crate) stdin: StdinQueue,
    /// `None` for `flow: drain`.
    pub(crate) flow: Option<LosslessReader>,
    pub(crate) size: Option<TerminalSize>,
    /// The master of a terminal, while it is open.
    pub(crate) master: Option<Arc<OwnedFd>>,
    /// Present from the launch until the tree is known to be empty.
    pub(crate) tree: Option<Tree>,
    /// Somebody ends the tree, in this way.
    pub(crate) ending: Option<EndMode>,
    /// Present once no more output can come: gives the log back when dropped.
    pub(crate) retired: Option<RetiredLog>,
    /// Nobody can ask for it any more.
    pub(crate) forgotten: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) facts: Facts,
    pub(crate) log: LogReader,
    /// Wakes the supervisor.
    pub(crate) wake: Arc<Notify>,
    /// To start it; nothing once it was launched.
    pub(crate) attempt: Arc<Attempt>,
    changed: Notify,
    mutable: Mutex<Mutable>,
}

impl Process {
    pub(crate) fn new(facts: Facts, log: LogReader, wake: Arc<Notify>, mutable: Mutable) -> Self {
        Self {
            facts,
            log,
            wake,
            attempt: Arc::default(),
            changed: Notify::new(),
            mutable: Mutex::new(mutable),
        }
    }

    /// A panic while the lock was held cannot leave the state half changed:
    /// every change is a single assignment.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Mutable> {
        self.mutable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whoever waits that something changed.
    pub(crate) fn notify(&self) {
        self.changed.notify_waiters();
    }

    /// Waits until `done` holds or the deadline has passed; says whether it
    /// holds. Cancel safe.
    pub(crate) async fn wait_until(
        &self,
        deadline: Instant,
        mut done: impl FnMut(&mut Mutable) -> bool,
    ) -> bool {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Listening begins before the look, so that no change is missed.
            changed.as_mut().enable();
            if done(&mut self.lock()) {
                return true;
            }
            if tokio::time::timeout_at(deadline, changed).await.is_err() {
                return done(&mut self.lock());
            }
        }
    }

    /// Ends the whole tree, or the launch that has not come so far. That it is
    /// being ended is noted meanwhile, for whoever has to go on with it. Where
    /// somebody ends it already, SIGTERM is not sent again. Cancel safe: it goes
    /// no further then.
    pub(crate) async fn end_tree(&self, mode: EndMode) -> EndReport {
        if let Err(hanging) = self.end_launch().await {
            return EndReport {
                survivors: hanging.into_iter().collect(),
                ..EndReport::default()
            };
        }
        let (tree, before) = {
            let mut mutable = self.lock();
            let Some(tree) = mutable.tree.clone() else {
                return EndReport::default();
            };
            (tree, mutable.ending.replace(mode))
        };
        let report = match before {
            Some(_) => tree.end_too(mode).await,
            None => tree.end(mode).await,
        };
        self.lock().ending = None;
        report
    }

    /// Waits until its launch is over: one that is just being launched has no
    /// tree yet. Says whether it is. Cancel safe.
    pub(crate) async fn wait_launched(&self, deadline: Instant) -> bool {
        self.wait_until(deadline, |mutable| {
            mutable.lifecycle.ran().is_some() || mutable.state().is_final()
        })
        .await
    }

    /// Waits until its launch is over, and kills what hangs in execve(2). If
    /// even that does not help in time, the pid of what hangs is the error, or
    /// nothing where it is the launching thread that hangs, before there is a
    /// process; the intent that has been noted meets what comes of it later.
    async fn end_launch(&self) -> Result<(), Option<u32>> {
        let begin = Instant::now();
        if self.wait_launched(begin + LAUNCHED).await {
            return Ok(());
        }
        while begin.elapsed() < LAUNCH_KILLED {
            self.attempt.kill();
            if self.wait_launched(Instant::now() + KILL_PAUSE).await {
                return Ok(());
            }
        }
        Err(self.attempt.pid())
    }

    /// Waits until the exit of a leader that has ended is published. Cancel
    /// safe.
    pub(crate) async fn wait_exit_published(&self) {
        let deadline = Instant::now() + EXIT_PUBLISHED;
        self.wait_until(deadline, |mutable| mutable.state().is_final())
            .await;
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.lock().lifecycle.state().is_final()
    }

    /// As it is now.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let log = self.log.status().unwrap_or(LogStatus {
            ended: true,
            ..LogStatus::default()
        });
        let mutable = self.lock();
        let state = mutable.lifecycle.state();
        let exit = mutable.lifecycle.exit().cloned();
        let ran = mutable.lifecycle.ran();
        let tree = mutable.tree.clone();
        let stdin_writers = mutable.stdin.writers().to_vec();
        let stdin_open = mutable.stdin.is_open();
        let terminal = mutable.size;
        drop(mutable);
        // These look into /proc: not under the lock.
        let held_open_by = match &tree {
            Some(tree) if state.is_final() && !log.ended => tree
                .members()
                .into_iter()
                .map(|member| member.pid)
                .take(Exit::RESIDUE_TOLD)
                .collect(),
            _ => Vec::new(),
        };
        let usage = match (&exit, &tree) {
            (Some(exit), _) => exit.usage,
            (None, Some(tree)) => tree.usage(),
            (None, None) => Usage::default(),
        };
        Snapshot {
            id: self.facts.id,
            session: self.facts.session,
            label: self.facts.label.clone(),
            cwd: self.facts.cwd.clone(),
            state,
            exit,
            pid: ran.map(|(pid, _)| pid),
            created_at: self.facts.created_at,
            started_at: ran.map(|(_, since)| since),
            terminal,
            output_end: log.end,
            output_dropped: log.dropped,
            output_ended: log.ended,
            held_open_by,
            stdin_writers,
            stdin_open,
            means: self.facts.means,
            usage,
        }
    }
}

impl From<WaitStatus> for ExitedAs {
    fn from(status: WaitStatus) -> Self {
        match status {
            WaitStatus::Code(code) => Self::Code(code),
            WaitStatus::Signal(signal) => Self::Signal(signal),
            WaitStatus::Lost => Self::Unknown,
        }
    }
}

impl Mutable {
    pub(crate) fn state(&self) -> State {
        self.lifecycle.state()
    }
}
