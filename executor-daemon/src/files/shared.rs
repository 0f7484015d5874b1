//! What all sessions of a daemon share where files are changed.

use std::path::Path;
use std::time::Duration;

use executor_proto::id::SessionId;

use super::error::FileError;
use super::instance::{Instance, InstanceError, millis_now};
use super::receipts::Receipts;
use super::turn::Turns;
use super::undo::Undos;
use crate::limits::Limits;

/// See the module's documentation. One a state directory and process; its
/// methods block and may be called from any number of threads.
#[derive(Debug)]
pub struct Files {
    state: Result<State, InstanceError>,
    pub(super) turns: Turns,
    pub(super) undos: Undos,
    patience: Duration,
    #[cfg(test)]
    pub(super) hooks: super::hooks::Hooks,
}

/// What is on disk.
#[derive(Debug)]
pub(super) struct State {
    pub(super) instance: Instance,
    pub(super) receipts: Receipts,
}

impl Files {
    /// Recovers what dead instances left below `state`, and begins a new one.
    /// A state directory that cannot be used costs the mutations only: each
    /// says why.
    #[must_use]
    pub fn open(state: &Path) -> Self {
        Self::with_limits(state, &Limits::default())
    }

    /// As [`Files::open`], within `limits`.
    #[must_use]
    pub fn with_limits(state: &Path, limits: &Limits) -> Self {
        let opened = Instance::open_with(state, limits).and_then(|instance| {
            let receipts = Receipts::open(state)?;
            Ok(State { instance, receipts })
        });
        if let Err(error) = &opened {
            tracing::error!(%error, "no file can be changed");
        }
        Self {
            state: opened,
            turns: Turns::default(),
            undos: Undos::new(limits),
            patience: Duration::from_secs(limits.file_wait_seconds as u64),
            #[cfg(test)]
            hooks: super::hooks::Hooks::default(),
        }
    }

    /// Why no file can be changed, if so.
    #[must_use]
    pub fn problem(&self) -> Option<&InstanceError> {
        self.state.as_ref().err()
    }

    /// Forgets what is kept of a session that is over: its results and what
    /// could be undone.
    pub fn end_session(&self, session: SessionId) {
        self.forget_undo(session);
        if let Ok(state) = &self.state {
            state.receipts.end(session);
        }
    }

    /// Forgets what could be undone of a session. Its results stay.
    pub fn forget_undo(&self, session: SessionId) {
        let saved = self.undos.end(session);
        if let Ok(state) = &self.state {
            saved.iter().for_each(|name| state.instance.remove(name));
        }
    }

    /// As [`Files::end_session`], for one of which nothing is known any more, if
    /// it did nothing for a week.
    pub fn end_session_if_abandoned(&self, session: SessionId) {
        if let Ok(state) = &self.state {
            state.receipts.end_if_abandoned(session, millis_now());
        }
    }

    /// Sessions of which something is kept in this life.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionId> {
        let mut all = self.undos.sessions();
        if let Ok(state) = &self.state {
            all.extend(state.receipts.sessions());
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Sessions of which results are on disk, also those of earlier lives and
    /// of other daemons with the same state directory. Blocks.
    #[must_use]
    pub fn recorded_sessions(&self) -> Vec<SessionId> {
        let Ok(state) = &self.state else {
            return Vec::new();
        };
        state.receipts.recorded().unwrap_or_else(|errno| {
            tracing::warn!(%errno, "results of earlier sessions cannot be listed");
            Vec::new()
        })
    }

    /// Mutations wait for their turn at most this long.
    #[cfg(test)]
    pub(super) fn be_patient(&mut self, patience: Duration) {
        self.patience = patience;
    }

    pub(super) fn state(&self) -> Result<&State, FileError> {
        self.state
            .as_ref()
            .map_err(|error| FileError::StateUnusable(error.clone()))
    }

    /// As on a file system without renameat2(2)'s flags.
    #[cfg(test)]
    pub(super) fn exchange_is_missing(&self) -> bool {
        self.hooks.has_no_exchange()
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "tests ask it")]
    pub(super) fn exchange_is_missing(&self) -> bool {
        false
    }

    pub(super) fn patience(&self) -> Duration {
        self.patience
    }
}
