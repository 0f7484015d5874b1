//! Sessions of the engine: open, contact, lease, end.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use executor_proto::id::SessionId;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Engine;
use crate::process::control::Target;
use crate::process::error::ProcessError;
use crate::process::lifecycle::Intent;
use crate::process::record::Process;
use crate::process::table::{Table, TableLimits};
use crate::process::tree::EndMode;
use crate::session::lease::Lease;
use crate::session::record::{SessionCounts, SessionRecord};

/// Ended sessions whose ids are remembered, and refused.
const ENDED_REMEMBERED: usize = 65_536;
/// How long an ending session waits for exits to be published once every tree
/// is empty.
const EXIT_PUBLISHED: Duration = Duration::from_secs(2);

/// One open session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) record: SessionRecord,
    /// The working directory, then the roots.
    directories: Vec<Arc<OwnedFd>>,
    lease: Mutex<Lease>,
    table: Mutex<Table>,
}

impl Session {
    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lease(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counts(&self) -> SessionCounts {
        let table = self.table();
        let kept = table.kept();
        let running = kept.iter().filter(|process| !process.is_finished()).count();
        SessionCounts {
            running,
            kept: kept.len(),
        }
    }
}

/// Open sessions by id, and the ids of ended ones.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    open: HashMap<SessionId, Arc<Session>>,
    ended: HashMap<SessionId, [u8; 32]>,
    ended_order: VecDeque<SessionId>,
}

impl Sessions {
    pub(super) fn get(&self, id: SessionId) -> Result<Arc<Session>, ProcessError> {
        match self.open.get(&id) {
            Some(session) => Ok(Arc::clone(session)),
            None if self.ended.contains_key(&id) => Err(ProcessError::SessionEnded(id)),
            None => Err(ProcessError::SessionNotFound(id)),
        }
    }

    fn take(&mut self, id: SessionId) -> Option<Arc<Session>> {
        let session = self.open.remove(&id)?;
        self.ended.insert(id, session.record.secret_hash);
        self.ended_order.push_back(id);
        if self.ended_order.len() > ENDED_REMEMBERED
            && let Some(oldest) = self.ended_order.pop_front()
        {
            self.ended.remove(&oldest);
        }
        Some(session)
    }
}

/// A session as it is, with its directories.
pub(crate) type Opened = (SessionRecord, SessionCounts, Vec<Arc<OwnedFd>>);

/// What the end of a session did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Processes that ran or had left something running.
    pub(crate) ended: usize,
    /// Pids that could not be ended.
    pub(crate) survivors: Vec<u32>,
}

impl Engine {
    /// Makes a session or finds it; says which.
    pub(crate) fn open_session(
        &self,
        record: SessionRecord,
        directories: Vec<Arc<OwnedFd>>,
    ) -> Result<(Opened, bool), ProcessError> {
        self.check_open()?;
        let mut sessions = self.sessions();
        match sessions.get(record.id) {
            Ok(session) if session.record.secret_hash == record.secret_hash => {
                drop(sessions);
                session.lease().touch(Instant::now());
                return Ok((opened(&session), false));
            }
            Ok(_) => return Err(ProcessError::SessionSecretMismatch(record.id)),
            Err(ProcessError::SessionNotFound(_)) => {}
            Err(error) => return Err(error),
        }
        let limit = self.shared.limits.sessions;
        if sessions.open.len() >= limit {
            return Err(ProcessError::SessionLimit { limit });
        }
        let limits = TableLimits {
            kept: self.shared.limits.processes_per_session,
            receipts: self.shared.limits.receipts_per_session,
        };
        let session = Arc::new(Session {
            lease: Mutex::new(Lease::new(record.lease, Instant::now())),
            table: Mutex::new(Table::new(limits, record.lease.is_none())),
            directories,
            record,
        });
        sessions
            .open
            .insert(session.record.id, Arc::clone(&session));
        drop(sessions);
        self.shared.leases.notify_one();
        Ok((opened(&session), true))
    }

    pub(crate) fn get_session(&self, id: SessionId) -> Result<Opened, ProcessError> {
        let session = self.sessions().get(id)?;
        Ok(opened(&session))
    }

    /// The session's client was heard of.
    pub(crate) fn contact(&self, id: SessionId) -> Result<(), ProcessError> {
        let session = self.sessions().get(id)?;
        session.lease().touch(Instant::now());
        Ok(())
    }

    /// Ends a session with its processes and what they left. Ending an ended
    /// session succeeds.
    pub(crate) async fn end_session(
        &self,
        id: SessionId,
        grace: Duration,
    ) -> Result<Ended, ProcessError> {
        let session = match self.sessions().get(id) {
            Ok(session) => session,
            Err(ProcessError::SessionEnded(_)) => return Ok(Ended::default()),
            Err(error) => return Err(error),
        };
        self.sessions().take(id);
        let engine = self.clone();
        self.shared
            .tasks
            .spawn(async move { engine.end_and_forget(&session, grace).await })
            .await
            .map_err(|_| ProcessError::EngineGone)
    }

    /// Ends what every session has. New work is refused from the first moment
    /// on; how processes ended can be asked until the engine is gone.
    pub(crate) async fn shut_down(&self, grace: Duration) {
        self.shared.closing.store(true, Ordering::Release);
        let sessions: Vec<_> = self.sessions().open.values().cloned().collect();
        let mut ends = JoinSet::new();
        for session in sessions {
            let engine = self.clone();
            ends.spawn(async move { engine.end_all(&session, Intent::HostShutdown, grace).await });
        }
        while let Some(ended) = ends.join_next().await {
            if let Ok(ended) = ended
                && !ended.survivors.is_empty()
            {
                tracing::error!(survivors = ?ended.survivors, "processes survived the shutdown");
            }
        }
        let containment = self.shared.containment.clone();
        // Removes directories, and may wait for a helper process.
        let closed = tokio::task::spawn_blocking(move || containment.close()).await;
        if closed.is_err() {
            tracing::error!("the cgroups of this engine were not removed");
        }
    }

    /// Whatever is being ended is killed now.
    pub(crate) fn hurry(&self) {
        self.shared.hurry.cancel();
    }

    /// Watches the leases; never returns.
    pub(crate) async fn watch_leases(&self) {
        loop {
            let next = {
                let sessions = self.sessions();
                sessions
                    .open
                    .values()
                    .filter_map(|session| session.lease().deadline())
                    .min()
            };
            match next {
                None => self.shared.leases.notified().await,
                Some(deadline) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(deadline) => {}
                        () = self.shared.leases.notified() => continue,
                    }
                }
            }
            let now = Instant::now();
            let over: Vec<_> = {
                let mut sessions = self.sessions();
                let is_over = |session: &&Arc<Session>| session.lease().is_over(now);
                let ids: Vec<_> = sessions
                    .open
                    .values()
                    .filter(is_over)
                    .map(|session| session.record.id)
                    .collect();
                ids.into_iter().filter_map(|id| sessions.take(id)).collect()
            };
            for session in over {
                tracing::info!(session = %session.record.id, "the lease is over; ending the session");
                let (engine, grace) = (self.clone(), self.shared.grace);
                self.shared.tasks.spawn(async move {
                    engine.end_and_forget(&session, grace).await;
                });
            }
        }
    }

    async fn end_and_forget(&self, session: &Session, grace: Duration) -> Ended {
        let ended = self.end_all(session, Intent::SessionEnded, grace).await;
        session.table().clear();
        ended
    }

    async fn end_all(&self, session: &Session, intent: Intent, grace: Duration) -> Ended {
        let processes = {
            let mut table = session.table();
            // From here on no start is admitted, also none that has looked the
            // session up before.
            table.close(match intent {
                Intent::HostShutdown => ProcessError::ShuttingDown,
                _ => ProcessError::SessionEnded(session.record.id),
            });
            table.with_trees()
        };
        let mut ends = JoinSet::new();
        let mut result = Ended::default();
        for process in processes {
            let intent = intent.clone();
            let hurry = self.shared.hurry.clone();
            ends.spawn(async move { end_one(&process, intent, grace, &hurry).await });
        }
        while let Some(joined) = ends.join_next().await {
            let Ok((lived, survivors)) = joined else {
                continue;
            };
            result.ended += usize::from(lived);
            result.survivors.extend(survivors);
        }
        result
    }

    pub(super) fn find(&self, target: Target) -> Result<Arc<Process>, ProcessError> {
        let sessions = self.sessions();
        let Some(id) = target.session else {
            let open: Vec<_> = sessions.open.values().cloned().collect();
            drop(sessions);
            let mut result = Err(ProcessError::NotFound(target.process));
            for session in open {
                match session.table().find(target.process) {
                    Ok(process) => return Ok(process),
                    Err(error @ ProcessError::Forgotten(_)) => result = Err(error),
                    Err(_) => {}
                }
            }
            return result;
        };
        let session = sessions.get(id)?;
        drop(sessions);
        let table = session.table();
        table.find(target.process)
    }

    /// Processes of one session, or of all, in the order of their start.
    pub(crate) fn list(
        &self,
        session: Option<SessionId>,
    ) -> Result<Vec<Arc<Process>>, ProcessError> {
        let sessions = self.sessions();
        let open: Vec<_> = match session {
            Some(id) => vec![sessions.get(id)?],
            None => sessions.open.values().cloned().collect(),
        };
        drop(sessions);
        Ok(open
            .iter()
            .flat_map(|session| session.table().kept().to_vec())
            .collect())
    }
}

fn opened(session: &Session) -> Opened {
    (
        session.record.clone(),
        session.counts(),
        session.directories.clone(),
    )
}

/// Ends one process and its residue. Says whether there was anything to end.
async fn end_one(
    process: &Process,
    intent: Intent,
    grace: Duration,
    hurry: &CancellationToken,
) -> (bool, Vec<u32>) {
    let lived = !process.is_finished() || process.has_tree();
    process.lock().lifecycle.intend(intent);
    process.notify();
    let deadline = Instant::now() + grace + EXIT_PUBLISHED;
    // One that is just being launched has no tree yet.
    process
        .wait_until(deadline, |mutable| {
            mutable.lifecycle.ran().is_some() || mutable.state().is_final()
        })
        .await;
    let tree = process.lock().tree.clone();
    let Some(tree) = tree else {
        return (lived, Vec::new());
    };
    let report = tokio::select! {
        report = tree.end(EndMode::Terminate { grace }) => report,
        () = hurry.cancelled() => tree.end(EndMode::Kill).await,
    };
    let deadline = Instant::now() + EXIT_PUBLISHED;
    process
        .wait_until(deadline, |mutable| mutable.state().is_final())
        .await;
    process.has_tree();
    (lived, report.survivors)
}
