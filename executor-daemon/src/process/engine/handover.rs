//! The engine as a value: what an image of this program needs that replaces it
//! and goes on.
//!
//! ```text
//! running ──freeze──► frozen ──export──► EngineState ──execve──► import ──► running
//! ```
//!
//! 1. What is exported does not change any more: no launch is under way, no
//!    supervisor moves, no request is taken.
//! 2. Nothing is ended, reaped or given back by what is left of the engine here.
//! 3. What was under way goes on: trees and sessions that were being ended are
//!    ended, from the beginning of their grace.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use executor_proto::id::{Epoch, ProcessId, SessionId};
use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::sessions::Session;
use super::{Engine, EngineConfig};
use crate::process::env::Variables;
use crate::process::handover::{Files, Place, ProcessState};
use crate::process::log::{LogStore, StoreState};
use crate::process::record::Process;
use crate::process::supervisor::Work;
use crate::process::table::{Table, TableState};
use crate::process::tree::{Containment, ContainmentState};
use crate::session::lease::Lease;
use crate::session::record::SessionRecord;

/// Between two looks at launches that are under way.
const LOOK: Duration = Duration::from_millis(2);

/// See the module's documentation.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EngineState {
    epoch: Epoch,
    containment: (ContainmentState, Vec<Place>),
    logs: (StoreState, Vec<Place>),
    login: Option<Option<Variables>>,
    sessions: Vec<SessionState>,
    ended: Vec<(SessionId, [u8; 32])>,
    /// Processes that nobody can ask for any more and whose output is still held
    /// open.
    #[serde(default)]
    orphans: Vec<ProcessState>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SessionState {
    record: SessionRecord,
    directories: Vec<Place>,
    lease: Lease,
    table: TableState,
    /// It is being ended, with this grace.
    ending: Option<Duration>,
}

/// Commands are on their way into execve(2) and do not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} commands are being started and do not get on; try again when they have")]
pub(crate) struct NotFrozen(usize);

type Works = HashMap<(SessionId, ProcessId), Work>;

impl Engine {
    /// Stops everything where it is. The caller lets no request in meanwhile
    /// and none afterwards.
    ///
    /// # Errors
    /// [`NotFrozen`] after `patience`; everything goes on then.
    pub(crate) async fn freeze(&self, patience: Duration) -> Result<(), NotFrozen> {
        let last = Instant::now() + patience;
        loop {
            match self.shared.starting.load(Ordering::Acquire) {
                0 => break,
                starting if Instant::now() >= last => return Err(NotFrozen(starting)),
                _ => tokio::time::sleep(LOOK).await,
            }
        }
        self.shared.frozen.cancel();
        self.shared.supervisors.close();
        self.shared.supervisors.wait().await;
        Ok(())
    }

    /// The frozen engine as a value, and its descriptors.
    pub(crate) fn export(&self, files: &mut Files) -> EngineState {
        let left = std::mem::take(
            &mut *self
                .shared
                .left
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        let mut works: Works = left
            .into_iter()
            .map(|work| ((work.process.facts.session, work.process.facts.id), work))
            .collect();
        let shared = &self.shared;
        let (containment, beside) = shared.containment.export();
        let containment = (containment, files.put_all(&beside));
        let sessions = {
            let sessions = self.sessions();
            let open = sessions.open.values().map(|session| (session, None));
            let ending = sessions
                .ending
                .values()
                .map(|ending| (&ending.session, Some(ending.grace)));
            open.chain(ending)
                .map(|(session, ending)| export_session(session, ending, &mut works, files))
                .collect()
        };
        let orphans = works.into_values().map(|work| {
            let process = Arc::clone(&work.process);
            ProcessState::of(&process, Some(work), files)
        });
        let orphans = orphans.collect();
        // After the writers have stopped.
        let (logs, beside) = shared.logs.export();
        let logs = (logs, files.put_all(&beside));
        let sessions_known = self.sessions();
        let ended = sessions_known.ended_order.iter().filter_map(|id| {
            let hash = sessions_known.ended.get(id)?;
            Some((*id, *hash))
        });
        EngineState {
            epoch: shared.epoch,
            containment,
            logs,
            login: shared.login.get().cloned(),
            sessions,
            ended: ended.collect(),
            orphans,
        }
    }

    /// Goes on as an earlier image has said. Must be called inside a runtime.
    ///
    /// # Errors
    /// A descriptor is missing, or the kernel refuses to watch one.
    pub(crate) fn import(
        state: EngineState,
        files: &Files,
        config: impl FnOnce(Epoch, Containment) -> EngineConfig,
    ) -> io::Result<Self> {
        let (containment, places) = state.containment;
        let containment = Containment::import(containment, &files.get_all(&places)?)?;
        let config = config(state.epoch, containment);
        let (logs, places) = state.logs;
        let memory = places.iter().map(|place| files.duplicate(*place));
        let memory = memory.collect::<io::Result<Vec<_>>>()?;
        let logs = LogStore::import(logs, memory, config.limits.log_total_bytes)?;
        let engine = Self::with(config, logs, OnceCell::new_with(state.login));
        for session in state.sessions {
            engine.resume_session(session, files)?;
        }
        let mut works = Vec::new();
        for process in state.orphans {
            engine.resume_process(process, files, &mut works);
        }
        engine.supervise_all(works);
        {
            let mut sessions = engine.sessions();
            for (id, hash) in state.ended {
                sessions.ended.insert(id, hash);
                sessions.ended_order.push_back(id);
            }
        }
        engine.shared.logs.sweep();
        Ok(engine)
    }

    fn resume_session(&self, state: SessionState, files: &Files) -> io::Result<()> {
        let mut works = Vec::new();
        let table = Table::import(
            self.settings().table(),
            state.record.lease.is_none(),
            state.table,
            |process| self.resume_process(process, files, &mut works),
        );
        let directories = files.get_all(&state.directories)?;
        let id = state.record.id;
        let session = Session::new(state.record, directories, state.lease, table);
        let session = Arc::new(session);
        self.supervise_all(works);
        match state.ending {
            None => {
                self.sessions().open.insert(id, session);
            }
            Some(grace) => {
                self.end_taken(session, grace);
            }
        }
        Ok(())
    }

    fn resume_process(
        &self,
        state: ProcessState,
        files: &Files,
        works: &mut Vec<Work>,
    ) -> Option<Arc<Process>> {
        let (id, _) = state.identity();
        let resumed = state.resume(&self.shared.containment, &self.shared.logs, files);
        let (process, work) = resumed
            .inspect_err(|error| tracing::error!(process = %id, %error, "a process is lost"))
            .ok()?;
        works.extend(work);
        self.resume_end(&process);
        Some(process)
    }

    fn supervise_all(&self, works: Vec<Work>) {
        for work in works {
            let engine = self.clone();
            self.shared
                .supervisors
                .spawn(async move { engine.supervise(Box::new(work)).await });
        }
    }

    /// Goes on with ending a tree.
    fn resume_end(&self, process: &Arc<Process>) {
        let ending = process.lock().ending;
        if let Some(mode) = ending {
            let process = Arc::clone(process);
            self.shared.tasks.spawn(async move {
                process.end_tree(mode).await;
                process.notify();
            });
        }
    }
}

fn export_session(
    session: &Session,
    ending: Option<Duration>,
    works: &mut Works,
    files: &mut Files,
) -> SessionState {
    let lease = *session.lease();
    let (record, _, directories) = session.opened();
    let directories = files.put_all(&directories);
    let table = session.table().export(|process| {
        let work = works.remove(&(process.facts.session, process.facts.id));
        ProcessState::of(process, work, files)
    });
    SessionState {
        record,
        directories,
        lease,
        table,
        ending,
    }
}
