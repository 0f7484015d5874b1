//! Sessions of the engine: open, contact, lease, end.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use executor_proto::id::SessionId;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Engine;
use super::grant::Places;
use crate::process::control::Target;
use crate::process::error::ProcessError;
use crate::process::lifecycle::Intent;
use crate::process::record::Process;
use crate::process::table::Table;
use crate::process::tree::EndMode;
use crate::session::lease::Lease;
use crate::session::record::{SessionCounts, SessionRecord};

/// Ended sessions whose ids are remembered, and refused.
const ENDED_REMEMBERED: usize = 65_536;

/// One open session.
#[derive(Debug)]
pub(super) struct Session {
    /// As it was opened; its roots now are among the places.
    pub(super) record: SessionRecord,
    /// Std: held to copy or change it.
    places: Mutex<Places>,
    lease: Mutex<Lease>,
    table: Mutex<Table>,
}

impl Session {
    pub(super) fn new(
        record: SessionRecord,
        directories: Vec<Arc<OwnedFd>>,
        lease: Lease,
        table: Table,
    ) -> Self {
        let places = Places {
            roots: record.roots.clone(),
            directories,
        };
        Self {
            record,
            places: Mutex::new(places),
            lease: Mutex::new(lease),
            table: Mutex::new(table),
        }
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lease(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn opened(&self) -> Opened {
        let Places { roots, directories } = self.places().clone();
        let record = SessionRecord {
            roots,
            ..self.record.clone()
        };
        (record, self.counts(), directories)
    }

    fn counts(&self) -> SessionCounts {
        let table = self.table();
        let running = table.kept().filter(|process| !process.is_finished());
        SessionCounts {
            running: running.count(),
            kept: table.kept().len(),
        }
    }
}

/// Open sessions by id, and the ids of ended ones.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    pub(super) open: HashMap<SessionId, Arc<Session>>,
    /// Those whose processes are being ended.
    pub(super) ending: HashMap<SessionId, Ending>,
    pub(super) ended: HashMap<SessionId, [u8; 32]>,
    pub(super) ended_order: VecDeque<SessionId>,
}

/// A session whose processes are being ended.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) session: Arc<Session>,
    pub(super) grace: Duration,
    /// What comes of it.
    outcome: watch::Receiver<Option<Ended>>,
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
                return Ok((session.opened(), false));
            }
            Ok(_) => return Err(ProcessError::SessionSecretMismatch(record.id)),
            Err(ProcessError::SessionNotFound(_)) => {}
            Err(error) => return Err(error),
        }
        let settings = self.settings();
        let limit = settings.limits.sessions;
        if sessions.open.len() >= limit {
            return Err(ProcessError::SessionLimit { limit });
        }
        let lease = Lease::new(record.lease, Instant::now());
        let table = Table::new(settings.table(), record.lease.is_none());
        let session = Arc::new(Session::new(record, directories, lease, table));
        sessions
            .open
            .insert(session.record.id, Arc::clone(&session));
        drop(sessions);
        self.shared.leases.notify_one();
        Ok((session.opened(), true))
    }

    pub(crate) fn get_session(&self, id: SessionId) -> Result<Opened, ProcessError> {
        let session = self.sessions().get(id)?;
        Ok(session.opened())
    }

    /// The session's client was heard of.
    pub(crate) fn contact(&self, id: SessionId) -> Result<(), ProcessError> {
        let session = self.sessions().get(id)?;
        session.lease().touch(Instant::now());
        Ok(())
    }

    /// No daemon is there any more: leases stand still, and whoever reads
    /// without loss has to come again.
    pub(crate) fn daemon_gone(&self) {
        self.leases_stand_still();
        let now = Instant::now();
        for session in self.all_sessions() {
            for process in session.table().kept() {
                if let Some(flow) = &mut process.lock().flow {
                    flow.lost(now);
                    process.wake.notify_one();
                }
            }
        }
    }

    /// No client can be heard: leases do not run.
    pub(crate) fn leases_stand_still(&self) {
        let now = Instant::now();
        for session in self.all_sessions() {
            session.lease().stand_still(now);
        }
        self.shared.leases.notify_one();
    }

    /// Clients can be heard again.
    pub(crate) fn leases_go_on(&self) {
        let now = Instant::now();
        for session in self.all_sessions() {
            session.lease().go_on(now);
        }
        self.shared.leases.notify_one();
    }

    /// The engine was asked to end.
    pub(crate) fn is_closing(&self) -> bool {
        self.shared.closing.load(Ordering::Acquire)
    }

    /// A session is open, or being ended.
    pub(crate) fn holds_sessions(&self) -> bool {
        let sessions = self.sessions();
        !(sessions.open.is_empty() && sessions.ending.is_empty())
    }

    pub(super) fn all_sessions(&self) -> Vec<Arc<Session>> {
        self.sessions().open.values().cloned().collect()
    }

    /// Ends a session with its processes and what they left. Ending an ended
    /// session succeeds.
    pub(crate) async fn end_session(
        &self,
        id: SessionId,
        grace: Duration,
    ) -> Result<Ended, ProcessError> {
        let mut ending = match self.begin_to_end(id, grace) {
            Ok(Some(ending)) => ending,
            Ok(None) => return Ok(Ended::default()),
            Err(error) => return Err(error),
        };
        let ended = ending.wait_for(Option::is_some).await;
        ended
            .ok()
            .and_then(|ended| ended.clone())
            .ok_or(ProcessError::EngineGone)
    }

    /// Begins to end a session, or finds that somebody has; `None` when it has
    /// ended. It goes on whoever still waits for it.
    fn begin_to_end(
        &self,
        id: SessionId,
        grace: Duration,
    ) -> Result<Option<watch::Receiver<Option<Ended>>>, ProcessError> {
        let session = {
            let mut sessions = self.sessions();
            if let Some(ending) = sessions.ending.get(&id) {
                return Ok(Some(ending.outcome.clone()));
            }
            let Some(session) = sessions.take(id) else {
                return match sessions.get(id) {
                    Err(ProcessError::SessionEnded(_)) => Ok(None),
                    Err(error) => Err(error),
                    Ok(_) => Err(ProcessError::EngineGone),
                };
            };
            session
        };
        Ok(Some(self.end_taken(session, grace)))
    }

    /// Ends a session that is not open any more.
    pub(super) fn end_taken(
        &self,
        session: Arc<Session>,
        grace: Duration,
    ) -> watch::Receiver<Option<Ended>> {
        let id = session.record.id;
        let (tell, outcome) = watch::channel(None);
        let ending = Ending {
            session: Arc::clone(&session),
            grace,
            outcome: outcome.clone(),
        };
        self.sessions().ending.insert(id, ending);
        let engine = self.clone();
        self.shared.tasks.spawn(async move {
            let ended = engine.end_and_forget(&session, grace).await;
            engine.sessions().ending.remove(&id);
            tell.send_replace(Some(ended));
        });
        outcome
    }

    /// Ends what every session has. New work is refused from the first moment
    /// on; how processes ended can be asked until the engine is gone.
    pub(crate) async fn shut_down(&self, grace: Duration) {
        self.shared.closing.store(true, Ordering::Release);
        let sessions = self.all_sessions();
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
            let sessions = self.all_sessions();
            for session in sessions.iter().filter(|one| one.lease().is_over(now)) {
                let id = session.record.id;
                tracing::info!(session = %id, "the lease is over; ending the session");
                // One that somebody else has ended by now has ended.
                let _ = self.begin_to_end(id, self.grace());
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
            .flat_map(|session| session.table().kept().cloned().collect::<Vec<_>>())
            .collect())
    }
}

/// Ends one process and its residue. Says whether there was anything to end.
async fn end_one(
    process: &Process,
    intent: Intent,
    grace: Duration,
    hurry: &CancellationToken,
) -> (bool, Vec<u32>) {
    let lived = !process.is_finished() || process.has_tree();
    let for_good = intent == Intent::HostShutdown;
    process.lock().lifecycle.intend(intent);
    process.notify();
    let report = tokio::select! {
        report = process.end_tree(EndMode::Terminate { grace }) => report,
        () = hurry.cancelled() => process.end_tree(EndMode::Kill).await,
    };
    if for_good {
        // What is left of its output fits beside what a reader has not consumed;
        // one that does not go on does not keep the engine.
        process.lock().flow = None;
        process.notify();
    }
    process.wait_exit_published().await;
    process.has_tree();
    (lived, report.survivors)
}
