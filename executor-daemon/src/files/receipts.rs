//! What the mutations of a session did, by the id that the client gave each: a
//! repeat of a call whose reply was lost gets the first result.
//!
//! One file a session, `$STATE/operations/<session>`, to which records are
//! appended: what is about to be done, just before it is; what came of it,
//! just after. Not fsynced: they survive the death of the daemon, not a power
//! cut.
//!
//! ```text
//!  unknown ──begin──► begun ──finish──► done ──1,024 newer, or 24 h──► forgotten
//!     ▲                 │ found again after a death: the caller looks at the
//!     └─────────────────┘ file system and finishes it or begins it anew
//! ```
//!
//! 1. An id that is done is never unknown again: its result is given, or that
//!    it is forgotten.
//! 2. A record that was cut short is none, and neither is what follows it.
//! 3. File I/O happens in the session's turn, with no lock held.
//!
//! A call that failed before it began leaves no record: it did nothing, and a
//! repeat tries it.

mod over;

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use executor_proto::id::{OperationId, SessionId};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::instance::{InstanceError, millis_now, read_at, write_all_at};
use super::turn::{Busy, Key, Turn, Turns};
use crate::socket::private_directory;

/// Results that are kept of one session.
pub const RESULTS: usize = 1_024;
/// How long a result is kept, in milliseconds.
pub const KEPT_MILLIS: u64 = 24 * 3600 * 1000;
/// Largest result, in bytes; who makes one cuts what can be cut.
pub const RESULT_BYTES: usize = 256 << 10;
/// Ids of which is remembered that they were used, beyond the results.
const FORGOTTEN: usize = 65_536;
/// Sessions whose index is held in memory; another one's is read again.
const SESSIONS: usize = 512;
/// A file may have this much beyond twice what is in use.
const SLACK: u64 = 1 << 20;

const CHECKSUM: usize = 16;
const HEAD: usize = 4 + CHECKSUM;

/// Why an operation is not begun.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReceiptError {
    /// Its result is no longer kept.
    #[error("forgotten")]
    Forgotten,
    /// The id was given to another request.
    #[error("conflict")]
    Conflict,
    /// Others use the session's file.
    #[error("busy")]
    Busy,
    /// The file cannot be used.
    #[error("{0}")]
    Errno(#[from] Errno),
}

impl From<Busy> for ReceiptError {
    fn from(_: Busy) -> Self {
        Self::Busy
    }
}

/// What is known of an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing: it may be begun.
    Nothing,
    /// It was begun, and whether it was done has to be looked at.
    Begun(Vec<u8>),
    /// It was done, with this result.
    Done(Vec<u8>),
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Receipts {
    directory: OwnedFd,
    // Std: held for a look-up.
    sessions: Mutex<HashMap<SessionId, Arc<Mutex<Index>>>>,
}

/// Which operation of which session, and the BLAKE3 of what it asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operation {
    pub(crate) session: SessionId,
    pub(crate) id: OperationId,
    pub(crate) request: [u8; 32],
}

/// Where in the file what is. Read or changed in the session's turn; its lock
/// is held for that alone.
#[derive(Debug, Default, Clone)]
struct Index {
    loaded: bool,
    end: u64,
    in_use: u64,
    kept: HashMap<OperationId, Kept>,
    order: VecDeque<OperationId>,
    forgotten: Forgotten,
}

#[derive(Debug, Clone, Copy)]
struct Kept {
    request: [u8; 32],
    at: u64,
    done: bool,
    offset: u64,
    length: u32,
}

#[derive(Debug, Default, Clone)]
struct Forgotten {
    all: HashSet<u64>,
    order: VecDeque<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Written {
    One {
        id: OperationId,
        #[serde(with = "serde_bytes")]
        request: [u8; 32],
        at: u64,
        done: bool,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    Forgotten(Vec<u64>),
}

impl Receipts {
    /// Opens `$STATE/operations`, and removes what sessions of long ago left.
    ///
    /// # Errors
    /// When the directory cannot be used.
    pub(crate) fn open(state: &Path) -> Result<Self, InstanceError> {
        let path = state.join("operations");
        let directory = private_directory::open(&path)?;
        if let Err(errno) = over::sweep(&directory, millis_now()) {
            tracing::warn!(?path, %errno, "results of old sessions stay");
        }
        Ok(Self {
            directory,
            sessions: Mutex::default(),
        })
    }

    /// What is known of an operation. Blocks for the session's turn.
    ///
    /// # Errors
    /// See [`ReceiptError`].
    pub(crate) fn look(
        &self,
        operation: &Operation,
        turns: &Turns,
        deadline: Instant,
        now: u64,
    ) -> Result<Known, ReceiptError> {
        let turn = turns.take(vec![Key::Session(operation.session)], deadline)?;
        let index = self.index(operation.session);
        self.load(operation.session, &index, &turn)?;
        let kept = {
            let mut index = locked(&index);
            index.forget_older_than(now.saturating_sub(KEPT_MILLIS));
            if index.forgotten.has(operation.id) {
                return Err(ReceiptError::Forgotten);
            }
            match index.kept.get(&operation.id) {
                None => return Ok(Known::Nothing),
                Some(kept) if kept.request != operation.request => {
                    return Err(ReceiptError::Conflict);
                }
                Some(kept) => *kept,
            }
        };
        let file = self.file(operation.session)?;
        let frame = read_up_to(&file, kept.offset, kept.length as usize)?;
        match parse(&frame) {
            Some((Written::One { bytes, .. }, _)) if kept.done => Ok(Known::Done(bytes)),
            Some((Written::One { bytes, .. }, _)) => Ok(Known::Begun(bytes)),
            _ => Err(Errno::IO.into()),
        }
    }

    /// Records what is about to be done, or, when `done`, what came of it.
    ///
    /// # Errors
    /// See [`ReceiptError`]; then nothing is recorded.
    pub(crate) fn write(
        &self,
        operation: &Operation,
        done: bool,
        bytes: Vec<u8>,
        turns: &Turns,
        deadline: Instant,
    ) -> Result<(), ReceiptError> {
        if bytes.len() > RESULT_BYTES {
            return Err(Errno::TOOBIG.into());
        }
        let at = millis_now();
        let frame = framed(&Written::One {
            id: operation.id,
            request: operation.request,
            at,
            done,
            bytes,
        })?;
        let turn = turns.take(vec![Key::Session(operation.session)], deadline)?;
        let index = self.index(operation.session);
        self.load(operation.session, &index, &turn)?;
        let file = self.file(operation.session)?;
        let end = locked(&index).end;
        if let Err(errno) = write_all_at(&file, &frame, end) {
            // What was written of it is nothing, and is not to be followed.
            rustix::fs::ftruncate(&file, end)?;
            return Err(errno.into());
        }
        let too_long = {
            let mut index = locked(&index);
            let length = u32::try_from(frame.len()).map_err(|_| Errno::TOOBIG)?;
            index.end = end + u64::from(length);
            index.put(
                operation.id,
                Kept {
                    request: operation.request,
                    at,
                    done,
                    offset: end,
                    length,
                },
            );
            index.end > 2 * index.in_use + SLACK
        };
        if too_long && let Err(error) = self.compact(operation.session, &index, &turn) {
            tracing::warn!(session = %operation.session, %error, "results are not compacted");
        }
        Ok(())
    }

    fn index(&self, session: SessionId) -> Arc<Mutex<Index>> {
        let mut sessions = locked(&self.sessions);
        if sessions.len() >= SESSIONS && !sessions.contains_key(&session) {
            // One that nobody uses at the moment is read again when needed.
            let idle = sessions
                .iter()
                .find(|(_, index)| Arc::strong_count(index) == 1)
                .map(|(session, _)| *session);
            if let Some(idle) = idle {
                sessions.remove(&idle);
            }
        }
        Arc::clone(sessions.entry(session).or_default())
    }

    fn file(&self, session: SessionId) -> Result<OwnedFd, Errno> {
        private_directory::open_file(&self.directory, session.to_string().as_ref())
    }

    /// Reads the file once. The turn says that nobody else does.
    fn load(&self, session: SessionId, index: &Mutex<Index>, _: &Turn<'_>) -> Result<(), Errno> {
        if locked(index).loaded {
            return Ok(());
        }
        let file = self.file(session)?;
        let mut read = Index {
            loaded: true,
            ..Index::default()
        };
        let size = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
        // Frame by frame: what is in memory is one of them.
        while let Some((written, length)) = next_frame(&file, read.end, size)? {
            match written {
                Written::Forgotten(all) => all.into_iter().for_each(|id| read.forgotten.put(id)),
                Written::One {
                    id,
                    request,
                    at,
                    done,
                    ..
                } => {
                    let offset = read.end;
                    read.put(
                        id,
                        Kept {
                            request,
                            at,
                            done,
                            offset,
                            length,
                        },
                    );
                }
            }
            read.end += u64::from(length);
        }
        if size > read.end {
            rustix::fs::ftruncate(&file, read.end)?;
        }
        *locked(index) = read;
        Ok(())
    }

    /// Writes what is in use to a new file and puts it in place of the old.
    fn compact(
        &self,
        session: SessionId,
        index: &Mutex<Index>,
        _: &Turn<'_>,
    ) -> Result<(), ReceiptError> {
        let mut next = locked(index).clone();
        let old = self.file(session)?;
        let name = format!("{session}.new");
        let new = rustix::fs::openat(
            &self.directory,
            &name,
            OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::RUSR | Mode::WUSR,
        )?;
        let forgotten = next.forgotten.order.iter().copied().collect();
        let frame = framed(&Written::Forgotten(forgotten))?;
        write_all_at(&new, &frame, 0)?;
        next.end = frame.len() as u64;
        for id in &next.order {
            let Some(kept) = next.kept.get_mut(id) else {
                continue;
            };
            let frame = read_up_to(&old, kept.offset, kept.length as usize)?;
            write_all_at(&new, &frame, next.end)?;
            kept.offset = next.end;
            next.end += u64::from(kept.length);
        }
        rustix::fs::renameat(&self.directory, &name, &self.directory, session.to_string())?;
        *locked(index) = next;
        Ok(())
    }
}

impl Index {
    fn put(&mut self, id: OperationId, kept: Kept) {
        self.in_use += u64::from(kept.length);
        match self.kept.insert(id, kept) {
            Some(before) => self.in_use -= u64::from(before.length),
            None => self.order.push_back(id),
        }
        while self.order.len() > RESULTS {
            self.forget_first();
        }
    }

    fn forget_older_than(&mut self, limit: u64) {
        while self
            .order
            .front()
            .and_then(|id| self.kept.get(id))
            .is_some_and(|kept| kept.at < limit)
        {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        let Some(id) = self.order.pop_front() else {
            return;
        };
        if let Some(kept) = self.kept.remove(&id) {
            self.in_use -= u64::from(kept.length);
        }
        self.forgotten.put(short(id));
    }
}

impl Forgotten {
    fn put(&mut self, id: u64) {
        if self.all.insert(id) {
            self.order.push_back(id);
        }
        while self.order.len() > FORGOTTEN {
            if let Some(oldest) = self.order.pop_front() {
                self.all.remove(&oldest);
            }
        }
    }

    fn has(&self, id: OperationId) -> bool {
        self.all.contains(&short(id))
    }
}

/// 64 of an id's 130 random bits.
fn short(id: OperationId) -> u64 {
    let hash = blake3::hash(id.to_string().as_bytes());
    let first = hash.as_bytes().first_chunk::<8>();
    first.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn framed(written: &Written) -> Result<Vec<u8>, Errno> {
    let bytes = rmp_serde::to_vec(written).map_err(|_| Errno::INVAL)?;
    let length = u32::try_from(bytes.len()).map_err(|_| Errno::TOOBIG)?;
    Ok([&length.to_le_bytes()[..], &checksum(&bytes), &bytes].concat())
}

fn parse(frame: &[u8]) -> Option<(Written, u32)> {
    let (length, rest) = frame.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length);
    let (sum, rest) = rest.split_first_chunk::<CHECKSUM>()?;
    let bytes = rest.get(..usize::try_from(length).ok()?)?;
    if *sum != checksum(bytes) {
        return None;
    }
    let written = rmp_serde::from_slice(bytes).ok()?;
    Some((written, length + u32::try_from(HEAD).ok()?))
}

fn next_frame(file: &OwnedFd, at: u64, size: u64) -> Result<Option<(Written, u32)>, Errno> {
    /// Longest frame: a result, or the ids of those that are forgotten.
    const LONGEST: usize = HEAD + FORGOTTEN * 9 + RESULT_BYTES + 1024;
    let head = read_up_to(file, at, HEAD)?;
    let Some(length) = head.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_le_bytes(*length) as usize + HEAD;
    if length > LONGEST || at + length as u64 > size {
        return Ok(None);
    }
    Ok(parse(&read_up_to(file, at, length)?))
}

/// Up to `length` bytes: fewer where the file ends.
fn read_up_to(file: &OwnedFd, at: u64, length: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; length];
    let filled = read_at(file, &mut bytes, at)?;
    bytes.truncate(filled);
    Ok(bytes)
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    let hash = blake3::hash(bytes);
    hash.as_bytes().first_chunk().copied().unwrap_or_default()
}

/// Nothing panics half-way through a change of what is locked here.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
