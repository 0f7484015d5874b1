//! A file gets a whole new content, or is made.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Files;
use super::cancel::Cancel;
use super::content::Content;
use super::entry::{Entry, Last};
use super::error::FileError;
use super::in_place::Overwrite;
use super::make_directory::{make_parents, without_parent};
use super::mutation::{
    Caller, Described, Durability, Outcome, Precondition, Reply, Step, check, keys, location, look,
    request,
};
use super::object::{Facts, FileKind, Object};
use super::outcome::{Check, id, seen};
use super::replace::{Replaced, Replacement};
use super::text::elision;
use super::turn::Turn;
use super::undo::Undo;
use super::version::Digest;

/// How often a mutation starts over because others changed what it is about.
pub(super) const ATTEMPTS: usize = 16;
/// A longer content is nothing that a model wrote line by line.
const ELISION_BYTES: u64 = 8 << 20;
/// Any bit that lets anybody write.
const WRITE_BITS: u32 = 0o222;

/// What is to be written where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WriteSpec {
    /// As the caller names it.
    #[serde(with = "crate::path_bytes")]
    pub path: PathBuf,
    /// `None`: the last write wins.
    pub precondition: Option<Precondition>,
    /// Within `0o777`. `None`: the file's own; of a new one 0666 less the
    /// umask.
    pub mode: Option<u32>,
    /// Make missing directories above it.
    pub parents: bool,
    /// Write into the file where replacing it would lose something.
    pub in_place: bool,
    /// Accept a line that stands for text left out.
    pub allow_elision: bool,
}

impl WriteSpec {
    /// A write without conditions.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            precondition: None,
            mode: None,
            parents: false,
            in_place: false,
            allow_elision: false,
        }
    }
}

/// What a write left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// The file.
    pub file: Described,
    /// Of its content.
    pub digest: Digest,
    /// It was made.
    pub created: bool,
    /// How.
    pub durability: Durability,
    /// To take it back; `None`: it cannot be.
    pub undo_token: Option<String>,
}

impl Outcome for Written {
    fn found(&mut self, facts: Facts) {
        self.file.facts = facts;
    }

    fn without_undo(&mut self) {
        self.undo_token = None;
    }
}

impl Files {
    /// Writes a whole content. Blocks; waits for its turn on the file.
    ///
    /// # Errors
    /// Every refusal of the name; [`FileError::IsADirectory`],
    /// [`FileError::NotARegularFile`], [`FileError::PreconditionFailed`],
    /// [`FileError::Elision`], [`FileError::ReadOnly`], the reasons why a file
    /// cannot be replaced, [`FileError::NoSpace`], [`FileError::Io`],
    /// [`FileError::Busy`]. The file is as it was then.
    pub fn write(
        &self,
        caller: Caller<'_>,
        spec: &WriteSpec,
        content: &Content,
    ) -> Result<Reply<Written>, FileError> {
        if spec.mode.is_some_and(|mode| mode > 0o777) {
            return Err(FileError::InvalidArgument {
                field: "mode",
                why: "it must lie within 0777".to_owned(),
            });
        }
        let asked = request("write", spec, content.digest().as_bytes());
        self.once(caller, &spec.path, asked, |step| {
            let changed = || FileError::Changed {
                given: spec.path.clone(),
            };
            let mut last = changed();
            for _ in 0..ATTEMPTS {
                match attempt(step, spec, content) {
                    Err(FileError::Changed { .. } | FileError::Exists { .. }) => last = changed(),
                    // Another call that failed took away what it had made.
                    Err(error @ FileError::NotFound { .. }) if spec.parents => last = error,
                    done => return done,
                }
            }
            Err(last)
        })
    }
}

/// One attempt. That the file was changed meanwhile ends it: the next one
/// checks the precondition again.
fn attempt(step: &Step<'_>, spec: &WriteSpec, content: &Content) -> Result<Written, FileError> {
    let makes_parents =
        spec.parents && matches!(spec.precondition, None | Some(Precondition::MustNotExist));
    if !makes_parents {
        let fence = step.caller.fence;
        return put(step, spec, content).map_err(|error| without_parent(fence, &spec.path, error));
    }
    let parents = make_parents(step.caller.fence, &spec.path)?;
    parents.after(step, put(step, spec, content))
}

fn put(step: &Step<'_>, spec: &WriteSpec, content: &Content) -> Result<Written, FileError> {
    let Held {
        entry,
        before,
        turn,
    } = hold(step, &spec.path, Last::Follow)?;
    let before = before.as_ref();
    if entry.must_be_directory()
        || before.is_some_and(|one| one.facts().kind == FileKind::Directory)
    {
        return Err(FileError::IsADirectory {
            given: spec.path.clone(),
        });
    }
    check(spec.precondition, &entry, before, step.caller.cancel)?;
    regular(before)?;
    if !spec.allow_elision {
        no_elision(&entry, before, content, step.caller.cancel)?;
    }
    let outcome = |facts: &Facts, durability| Written {
        file: Described::new(entry.path(), *facts),
        digest: content.digest(),
        created: before.is_none(),
        durability,
        undo_token: None,
    };
    let put = Put {
        entry: &entry,
        before,
        content,
        mode: spec.mode,
        in_place: spec.in_place,
        read: match spec.precondition {
            Some(Precondition::Digest(digest)) => Some(digest),
            _ => None,
        },
    };
    let (replaced, undo_token) = put.run(step, &outcome)?;
    drop(turn);
    Ok(Written {
        undo_token,
        ..outcome(&replaced.facts, replaced.durability)
    })
}

/// What a mutation acts on, in its turn.
pub(super) struct Held<'a> {
    pub(super) entry: Entry,
    pub(super) before: Option<Object>,
    pub(super) turn: Turn<'a>,
}

/// Waits for the turn on what `given` names; that is resolved again then, and
/// the turn taken anew if it is another one.
pub(super) fn hold<'a>(
    step: &'a Step<'_>,
    given: &Path,
    last: Last,
) -> Result<Held<'a>, FileError> {
    let find = || {
        let entry = step.caller.fence.entry(given.as_os_str(), last)?;
        step.caller.fence.writable(&entry)?;
        let before = look(&entry)?;
        let keys = keys(&entry, before.as_ref())?;
        Ok::<_, FileError>((entry, before, keys))
    };
    let (_, _, mut wanted) = find()?;
    for _ in 0..ATTEMPTS {
        let turn = step.turn(wanted.clone(), given)?;
        let (entry, before, keys) = find()?;
        if keys == wanted {
            return Ok(Held {
                entry,
                before,
                turn,
            });
        }
        wanted = keys;
    }
    Err(FileError::Changed {
        given: given.to_owned(),
    })
}

/// # Errors
/// For what has no content that could be replaced.
pub(super) fn regular(before: Option<&Object>) -> Result<(), FileError> {
    let Some(object) = before else {
        return Ok(());
    };
    let given = object.given().to_owned();
    match object.facts().kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(FileError::IsADirectory { given }),
        kind => Err(FileError::NotARegularFile { given, kind }),
    }
}

/// A content that is put into a file.
pub(super) struct Put<'a> {
    pub(super) entry: &'a Entry,
    pub(super) before: Option<&'a Object>,
    pub(super) content: &'a Content,
    pub(super) mode: Option<u32>,
    pub(super) in_place: bool,
    /// The content that the new one was made from.
    pub(super) read: Option<Digest>,
}

impl Put<'_> {
    /// Replaces the file, or writes in place where that was asked for and
    /// needed. With it, the token to take it back.
    pub(super) fn run<T: Outcome>(
        &self,
        step: &Step<'_>,
        outcome: &dyn Fn(&Facts, Durability) -> T,
    ) -> Result<(Replaced, Option<String>), FileError> {
        let replaced = self.put(step, outcome)?;
        let left = replaced.facts.version();
        let undo = match (&replaced.saved, self.before) {
            (Some(saved), Some(before)) => Some(Undo::Content {
                left,
                before: before.facts().version(),
                saved: saved.clone(),
            }),
            (None, None) => Some(Undo::Created { left }),
            _ => None,
        };
        let token = undo.and_then(|undo| step.keeps(self.entry.path(), undo));
        Ok((replaced, token))
    }

    /// As [`Put::run`], for what cannot be taken back.
    pub(super) fn without_undo<T: Outcome>(
        &self,
        step: &Step<'_>,
        outcome: &dyn Fn(&Facts, Durability) -> T,
    ) -> Result<Replaced, FileError> {
        let replaced = self.put(step, outcome)?;
        if let Some(saved) = &replaced.saved {
            step.files.state()?.instance.remove(&saved.name);
        }
        Ok(replaced)
    }

    fn put<T: Outcome>(
        &self,
        step: &Step<'_>,
        outcome: &dyn Fn(&Facts, Durability) -> T,
    ) -> Result<Replaced, FileError> {
        match self.replaced(step, outcome) {
            Err(
                FileError::WouldBreakLinks { .. }
                | FileError::WouldChangeOwner { .. }
                | FileError::WouldLoseAttributes { .. }
                | FileError::CannotReplace { .. },
            ) if self.in_place => self.overwritten(step, outcome),
            done => done,
        }
    }

    fn replaced<T: Outcome>(
        &self,
        step: &Step<'_>,
        outcome: &dyn Fn(&Facts, Durability) -> T,
    ) -> Result<Replaced, FileError> {
        let given = self.entry.given();
        if let Some(facts) = self.before.map(Object::facts) {
            if facts.mode & WRITE_BITS == 0 {
                return Err(FileError::ReadOnly {
                    given: given.to_owned(),
                    mode: facts.mode,
                });
            }
            if facts.links > 1 {
                return Err(FileError::WouldBreakLinks {
                    given: given.to_owned(),
                    links: facts.links,
                });
            }
        }
        let location = location(step.caller.fence, self.entry)?;
        let replacement = Replacement {
            state: step.files.state()?,
            entry: self.entry,
            location: &location,
            content: self.content,
            before: self.before,
            mode: self.mode,
            read: self.read,
            cancel: step.caller.cancel,
            #[cfg(test)]
            hooks: &step.files.hooks,
        };
        replacement.run(&mut |made| {
            let check = Check::Replaced {
                target: location.clone(),
                made: seen(made),
                before: self.before.map(|before| id(before.facts())),
            };
            let durability = Durability {
                atomic: true,
                checked: true,
            };
            step.begins(check, &outcome(made, durability), given)
        })
    }

    fn overwritten<T: Outcome>(
        &self,
        step: &Step<'_>,
        outcome: &dyn Fn(&Facts, Durability) -> T,
    ) -> Result<Replaced, FileError> {
        let given = self.entry.given();
        let Some(before) = self.before else {
            return Err(FileError::Changed {
                given: given.to_owned(),
            });
        };
        let location = location(step.caller.fence, self.entry)?;
        let overwrite = Overwrite {
            state: step.files.state()?,
            location: &location,
            content: self.content,
            before,
            mode: self.mode,
            cancel: step.caller.cancel,
            #[cfg(test)]
            hooks: &step.files.hooks,
        };
        overwrite.run(&mut |reserved| {
            let check = Check::InPlace {
                target: location.clone(),
                before: seen(reserved),
                digest: *self.content.digest().as_bytes(),
            };
            let durability = Durability {
                atomic: false,
                checked: false,
            };
            step.begins(check, &outcome(reserved, durability), given)
        })
    }
}

impl Step<'_> {
    /// Keeps how to take a mutation back; the token for it.
    pub(super) fn keeps(&self, path: &Path, undo: Undo) -> Option<String> {
        let (token, dropped) = self.files.undos.put(self.caller.session, path, undo);
        if let Ok(state) = self.files.state() {
            dropped.iter().for_each(|name| state.instance.remove(name));
        }
        token
    }
}

/// # Errors
/// [`FileError::Elision`] for a line that stands for text left out, in a file
/// that is there.
fn no_elision(
    entry: &Entry,
    before: Option<&Object>,
    content: &Content,
    cancel: &Cancel,
) -> Result<(), FileError> {
    let Some(before) = before.filter(|_| content.length() <= ELISION_BYTES) else {
        return Ok(());
    };
    let Some(new) = content.text() else {
        return Ok(());
    };
    // The old content is read only where a line looks like it.
    if elision::find("", &new).is_none() || before.facts().size > super::edit::EDIT_BYTES {
        return Ok(());
    }
    let old = super::edit::read_all(before, cancel)?;
    match elision::find(&String::from_utf8_lossy(&old), &new) {
        None => Ok(()),
        Some(found) => Err(FileError::Elision {
            given: entry.given().to_owned(),
            line: found.line,
            text: found.text,
        }),
    }
}

/// A path's name as bytes, for messages of a diff.
pub(super) fn shown(name: &OsStr) -> String {
    super::resolve::shown(name.as_encoded_bytes())
}
