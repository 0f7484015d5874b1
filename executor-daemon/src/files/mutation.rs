//! What all mutations have in common: who asks, what must hold, what is said
//! of the result, and that each is done once.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;

use executor_proto::id::{OperationId, SessionId};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Files;
use super::cancel::Cancel;
use super::entry::Entry;
use super::error::FileError;
use super::fence::Fence;
use super::instance::{Location, millis_now};
use super::object::{Facts, Object};
use super::outcome::{Check, Decision, decide};
use super::receipts::{Known, Operation, ReceiptError};
use super::turn::{Key, Turn};
use super::version::{Digest, Version};

/// Largest file whose content is compared with a digest: as much as a write
/// takes. A larger one is told by its version.
const DIGEST_BYTES: u64 = 256 << 20;

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// Whose results and undo tokens.
    pub session: SessionId,
    /// What may be touched.
    pub fence: &'a Fence,
    /// The client's id of this mutation: with the same one and the same request
    /// it is done once.
    pub operation: OperationId,
    /// Raised when the caller has gone: what has not begun then is not done. A
    /// change that has begun is carried through.
    pub cancel: &'a Cancel,
}

/// What must hold of a file for a mutation to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Precondition {
    /// Nothing has the name: a dangling link counts as something.
    MustNotExist,
    /// The content is this.
    Digest(Digest),
    /// The file is this one, unchanged.
    Version(Version),
}

/// What has a name now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Described {
    /// Absolute, without links.
    #[serde(with = "crate::path_bytes")]
    pub path: PathBuf,
    /// What the file system says of it.
    pub facts: Facts,
    /// Of a link: its text, as bytes.
    #[serde(with = "serde_bytes")]
    pub link_target: Option<Vec<u8>>,
}

impl Described {
    /// Of a file or directory.
    #[must_use]
    pub fn new(path: &Path, facts: Facts) -> Self {
        Self {
            path: path.to_owned(),
            facts,
            link_target: None,
        }
    }

    pub(super) fn of(object: &Object) -> Result<Self, FileError> {
        let target = object.link_target()?;
        Ok(Self {
            path: object.path().to_owned(),
            facts: *object.facts(),
            link_target: target.map(OsString::into_encoded_bytes),
        })
    }
}

/// How a new content came to its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Durability {
    /// Readers saw the old content or the new, never a mixture.
    pub atomic: bool,
    /// Nobody else's write between our look and the exchange could be lost.
    pub checked: bool,
}

/// What a mutation did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply<T> {
    /// Its result.
    pub value: T,
    /// Of an earlier call with the same operation id.
    pub replayed: bool,
}

/// A result that can be kept and told again.
pub(super) trait Outcome: Serialize + DeserializeOwned {
    /// What has the name, found again after a death.
    fn found(&mut self, facts: Facts);
    /// It is a new life: what could be undone is forgotten.
    fn without_undo(&mut self);
    /// Cut to what is kept.
    fn shortened(&self) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }
}

/// An operation that is being done.
pub(super) struct Step<'a> {
    pub(super) files: &'a Files,
    pub(super) caller: Caller<'a>,
    pub(super) deadline: Instant,
    operation: Operation,
    begun: std::cell::Cell<bool>,
}

#[derive(Serialize, Deserialize)]
struct Intent {
    check: Check,
    #[serde(with = "serde_bytes")]
    outcome: Vec<u8>,
}

impl Files {
    /// Does `run` unless it was done before. `request` is the BLAKE3 of what is
    /// asked for.
    pub(super) fn once<T: Outcome>(
        &self,
        caller: Caller<'_>,
        given: &Path,
        request: [u8; 32],
        run: impl FnOnce(&Step<'_>) -> Result<T, FileError>,
    ) -> Result<Reply<T>, FileError> {
        let step = Step {
            files: self,
            caller,
            deadline: Instant::now() + self.patience(),
            operation: Operation {
                session: caller.session,
                id: caller.operation,
                request,
            },
            begun: std::cell::Cell::new(false),
        };
        let key = Key::Operation(caller.session, caller.operation);
        let _turn = step.turn(vec![key], given)?;
        if let Some(value) = step.known(given)? {
            return Ok(Reply {
                value,
                replayed: true,
            });
        }
        match run(&step) {
            Ok(value) => {
                step.done(&value);
                Ok(Reply {
                    value,
                    replayed: false,
                })
            }
            Err(error) => {
                if !step.is_open(&error) {
                    step.cancelled();
                }
                Err(error)
            }
        }
    }
}

impl Step<'_> {
    /// Waits for a turn.
    pub(super) fn turn(&self, keys: Vec<Key>, given: &Path) -> Result<Turn<'_>, FileError> {
        let cancel = self.caller.cancel;
        let turn = self.files.turns.take_unless(keys, self.deadline, cancel);
        turn.map_err(|_| match cancel.check() {
            Err(cancelled) => cancelled,
            Ok(()) => FileError::Busy {
                given: given.to_owned(),
                waited: self.files.patience(),
            },
        })
    }

    /// Records what is about to be done: how to find out whether it was, and
    /// its result, so that far.
    pub(super) fn begins<T: Outcome>(
        &self,
        check: Check,
        outcome: &T,
        given: &Path,
    ) -> Result<(), FileError> {
        let outcome = packed(outcome).map_err(|errno| failed(errno, given))?;
        let intent = Intent { check, outcome };
        let bytes = rmp_serde::to_vec(&intent).map_err(|_| failed(Errno::INVAL, given))?;
        self.write(false, bytes)
            .map_err(|error| self.refused(error, given))?;
        self.begun.set(true);
        Ok(())
    }

    fn known<T: Outcome>(&self, given: &Path) -> Result<Option<T>, FileError> {
        let receipts = &self.files.state()?.receipts;
        let turns = &self.files.turns;
        let known = receipts
            .look(&self.operation, turns, self.deadline, millis_now())
            .map_err(|error| self.refused(error, given))?;
        let unknown = || FileError::OperationOutcomeUnknown {
            operation: self.operation.id.to_string(),
        };
        match known {
            Known::Nothing => Ok(None),
            Known::Done(bytes) => {
                let value = rmp_serde::from_slice(&bytes).map_err(|_| unknown())?;
                Ok(Some(value))
            }
            Known::Begun(bytes) => {
                let intent: Intent = rmp_serde::from_slice(&bytes).map_err(|_| unknown())?;
                match decide(&intent.check).map_err(|_| unknown())? {
                    Decision::NotDone => Ok(None),
                    Decision::Unknown => Err(unknown()),
                    Decision::Done(facts) => {
                        let mut value: T =
                            rmp_serde::from_slice(&intent.outcome).map_err(|_| unknown())?;
                        if let Some(facts) = facts {
                            value.found(facts);
                        }
                        value.without_undo();
                        self.done(&value);
                        Ok(Some(value))
                    }
                }
            }
        }
    }

    fn done<T: Outcome>(&self, value: &T) {
        let written = packed(value)
            .map_err(ReceiptError::from)
            .and_then(|bytes| self.write(true, bytes));
        // It is done; a repeat will find that out by looking.
        if let Err(error) = written {
            tracing::warn!(operation = %self.operation.id, %error, "a result is not kept");
        }
    }

    /// What the disk refused may have been done before it did: a repeat looks.
    pub(super) fn is_open(&self, error: &FileError) -> bool {
        let by_the_disk = matches!(error, FileError::Io { .. } | FileError::NoSpace { .. });
        by_the_disk && self.begun.get()
    }

    /// It was begun and taken back: a repeat may try it.
    fn cancelled(&self) {
        if !self.begun.get() {
            return;
        }
        let intent = Intent {
            check: Check::Nothing,
            outcome: Vec::new(),
        };
        let written = rmp_serde::to_vec(&intent)
            .map_err(|_| Errno::INVAL.into())
            .and_then(|bytes| self.write(false, bytes));
        if let Err(error) = written {
            tracing::warn!(operation = %self.operation.id, %error, "a failure is not recorded");
        }
    }

    fn write(&self, done: bool, bytes: Vec<u8>) -> Result<(), ReceiptError> {
        let receipts = match self.files.state() {
            Ok(state) => &state.receipts,
            Err(_) => return Err(Errno::IO.into()),
        };
        // Not the mutation's deadline: what was done is to be recorded.
        let deadline = Instant::now() + self.files.patience();
        receipts.write(&self.operation, done, bytes, &self.files.turns, deadline)
    }

    fn refused(&self, error: ReceiptError, given: &Path) -> FileError {
        let operation = self.operation.id.to_string();
        match error {
            ReceiptError::Forgotten => FileError::OperationForgotten { operation },
            ReceiptError::Conflict => FileError::OperationConflict { operation },
            ReceiptError::Busy => FileError::Busy {
                given: given.to_owned(),
                waited: self.files.patience(),
            },
            ReceiptError::Errno(errno) => failed(errno, given),
        }
    }
}

fn failed(errno: Errno, given: &Path) -> FileError {
    match errno {
        Errno::NOSPC | Errno::DQUOT => FileError::NoSpace {
            given: given.to_owned(),
        },
        errno => FileError::Io {
            given: given.to_owned(),
            doing: "recording what is done with",
            errno,
        },
    }
}

fn packed<T: Outcome>(value: &T) -> Result<Vec<u8>, Errno> {
    let shortened = value.shortened();
    let value = shortened.as_ref().unwrap_or(value);
    rmp_serde::to_vec(value).map_err(|_| Errno::INVAL)
}

/// BLAKE3 of what is asked for.
pub(super) fn request<T: Serialize>(kind: &str, spec: &T, content: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(kind.as_bytes());
    // A value that cannot be written down would be one that is equal to all:
    // there is none among the specifications.
    hasher.update(&rmp_serde::to_vec(spec).unwrap_or_default());
    hasher.update(content);
    *hasher.finalize().as_bytes()
}

/// Where an entry is, for a record.
pub(super) fn location(fence: &Fence, entry: &Entry) -> Result<Location, FileError> {
    let directory = entry.directory();
    Location::new(
        fence.resolver().roots(),
        &directory.handle,
        &directory.name,
        entry.name(),
    )
    .map_err(|errno| FileError::from_errno(errno, "examining", entry.given()))
}

/// What an entry is; `None` where nothing has the name.
pub(super) fn look(entry: &Entry) -> Result<Option<Object>, FileError> {
    match Object::look(entry) {
        Ok(object) => Ok(Some(object)),
        Err(FileError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What the turn of a mutation of this entry is about.
pub(super) fn keys(entry: &Entry, object: Option<&Object>) -> Result<Vec<Key>, FileError> {
    let above = Facts::of(entry.parent())
        .map_err(|errno| FileError::from_errno(errno, "examining", entry.given()))?;
    let mut keys = vec![Key::Name(above.dev, above.ino, entry.name().to_owned())];
    if let Some(facts) = object.map(Object::facts)
        && facts.links > 1
    {
        keys.push(Key::Inode(facts.dev, facts.ino));
    }
    Ok(keys)
}

/// Does the precondition hold of what has the name?
///
/// # Errors
/// [`FileError::PreconditionFailed`], [`FileError::Cancelled`].
pub(super) fn check(
    precondition: Option<Precondition>,
    entry: &Entry,
    object: Option<&Object>,
    cancel: &Cancel,
) -> Result<(), FileError> {
    let failed = |expected: String, digest| {
        let now = object.map(|object| Box::new((object.facts().version(), digest)));
        Err(FileError::PreconditionFailed {
            given: entry.given().to_owned(),
            expected,
            now,
        })
    };
    match precondition {
        None => Ok(()),
        Some(Precondition::MustNotExist) if object.is_none() && !entry.through_link() => Ok(()),
        Some(Precondition::MustNotExist) => failed("that nothing has this name".into(), None),
        Some(Precondition::Version(version)) => match object {
            Some(object) if object.facts().version() == version => Ok(()),
            _ => failed(format!("version {version}"), None),
        },
        Some(Precondition::Digest(digest)) => {
            let now = match object {
                Some(object) if object.facts().size > DIGEST_BYTES => {
                    return Err(FileError::TooLarge {
                        given: object.given().to_owned(),
                        size: object.facts().size,
                        limit: DIGEST_BYTES,
                    });
                }
                Some(object) => Some(super::content::digest_of(object, cancel)?),
                None => None,
            };
            if now == Some(digest) {
                return Ok(());
            }
            failed(format!("digest {digest}"), now)
        }
    }
}
