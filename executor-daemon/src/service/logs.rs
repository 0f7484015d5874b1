//! Readers of logs that were asked for before: a page then needs no word with
//! the engine. Bounded; a reader whose log was given back is asked for again,
//! and the engine says what became of the process.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use executor_proto::id::{ProcessId, SessionId};
use executor_proto::reason::Failure;

use super::failure::Call;
use super::{Caller, Core};
use crate::host::message::{Descriptor, Request, Target};
use crate::process::error::ProcessError;
use crate::process::log::LogReader;

/// Readers kept.
const CAPACITY: usize = 256;

/// A process as a caller may see it: the session is part of the key, so that
/// what an administrator read is not thereby another session's.
type Key = (Option<SessionId>, ProcessId);

/// The readers.
#[derive(Debug, Default)]
pub(super) struct Logs {
    /// Std: held for one look-up or change, never across an await.
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    readers: HashMap<Key, (LogReader, u64)>,
    clock: u64,
}

impl Logs {
    fn get(&self, target: Target) -> Option<LogReader> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clock += 1;
        let now = kept.clock;
        let (reader, used) = kept.readers.get_mut(&key(target))?;
        *used = now;
        let reader = reader.clone();
        if reader.status().is_err() {
            kept.readers.remove(&key(target));
            return None;
        }
        Some(reader)
    }

    /// Keeps a reader; the one that was not used for the longest time goes.
    pub(super) fn keep(&self, target: Target, reader: LogReader) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clock += 1;
        let now = kept.clock;
        if kept.readers.len() >= CAPACITY && !kept.readers.contains_key(&key(target)) {
            let oldest = kept.readers.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                kept.readers.remove(&oldest);
            }
        }
        kept.readers.insert(key(target), (reader, now));
    }
}

fn key(target: Target) -> Key {
    (target.session, target.process)
}

impl Core {
    /// The log of a process.
    pub(super) async fn log(&self, caller: &Caller, target: Target) -> Result<LogReader, Failure> {
        if let Some(reader) = self.logs.get(target) {
            return Ok(reader);
        }
        let (_, descriptors) = self
            .ask(caller, Request::OpenLog(target), Vec::new())
            .await?;
        let reader = log_of(descriptors).ok_or_else(|| {
            let errno = libc::EMFILE;
            self.refusal(&ProcessError::OutOfResources { errno }, Call::Other)
        })?;
        self.logs.keep(target, reader.clone());
        Ok(reader)
    }
}

/// The log among what came beside a reply.
pub(super) fn log_of(descriptors: Vec<Descriptor>) -> Option<LogReader> {
    descriptors.into_iter().find_map(|one| match one {
        Descriptor::Log(reader) => Some(reader),
        Descriptor::Directory(_) => None,
    })
}
