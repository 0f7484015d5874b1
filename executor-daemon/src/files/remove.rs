//! A file, a link, an empty directory loses its name; with `recursive` a
//! directory with all that is in it. Content is never read.

use std::path::PathBuf;

use rustix::fs::AtFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::Files;
use super::aside::Aside;
use super::entry::{Entry, Last};
use super::error::FileError;
use super::fence::Fence;
use super::mutation::{Caller, Outcome, Precondition, Reply, Step, check, location, request};
use super::object::{Facts, FileKind, Object};
use super::outcome::{Check, id};
use super::remove_tree;
use super::undo::Undo;
use super::write::{ATTEMPTS, Held, hold};

/// What is to be removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RemoveSpec {
    /// As the caller names it. A link is itself.
    #[serde(with = "crate::path_bytes")]
    pub path: PathBuf,
    /// A directory with all that is in it.
    pub recursive: bool,
    /// Something that is not there is no error.
    pub missing_ok: bool,
    /// Not [`Precondition::MustNotExist`].
    pub precondition: Option<Precondition>,
}

impl RemoveSpec {
    /// This one, without conditions.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            recursive: false,
            missing_ok: false,
            precondition: None,
        }
    }
}

/// What was removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// Its absolute name.
    #[serde(with = "crate::path_bytes")]
    pub path: PathBuf,
    /// Entries; 0: there was nothing.
    pub removed: u64,
    /// To take it back; `None`: it cannot be.
    pub undo_token: Option<String>,
}

impl Outcome for Removed {
    fn found(&mut self, _: Facts) {}

    fn without_undo(&mut self) {
        self.undo_token = None;
    }
}

impl Files {
    /// Removes what has a name. Blocks; waits for its turn on the name.
    ///
    /// # Errors
    /// [`FileError::NotFound`], [`FileError::DirectoryNotEmpty`],
    /// [`FileError::IsARoot`], [`FileError::PreconditionFailed`], every refusal
    /// of the name. Nothing was removed then, but of a recursive removal what
    /// came before the entry that is named.
    pub fn remove(
        &self,
        caller: Caller<'_>,
        spec: &RemoveSpec,
    ) -> Result<Reply<Removed>, FileError> {
        if spec.precondition == Some(Precondition::MustNotExist) {
            return Err(FileError::InvalidArgument {
                field: "precondition",
                why: "what does not exist cannot be removed; set `missing_ok`".to_owned(),
            });
        }
        let asked = request("remove", spec, &[]);
        self.once(caller, &spec.path, asked, |step| {
            for _ in 0..ATTEMPTS {
                match attempt(step, spec) {
                    Err(FileError::Changed { .. }) => {}
                    done => return done,
                }
            }
            Err(FileError::Changed {
                given: spec.path.clone(),
            })
        })
    }
}

fn attempt(step: &Step<'_>, spec: &RemoveSpec) -> Result<Removed, FileError> {
    let fence = step.caller.fence;
    let Held {
        entry,
        before,
        turn,
    } = match hold(step, &spec.path, Last::Keep) {
        // A part above it is missing, and so is it.
        Err(FileError::NotFound { .. }) if spec.missing_ok && spec.precondition.is_none() => {
            return Ok(Removed {
                path: fence.resolver().cwd().name.join(&spec.path),
                removed: 0,
                undo_token: None,
            });
        }
        held => held?,
    };
    let mut outcome = Removed {
        path: entry.path().to_owned(),
        removed: 0,
        undo_token: None,
    };
    check(
        spec.precondition,
        &entry,
        before.as_ref(),
        step.caller.cancel,
    )?;
    let Some(before) = before else {
        if spec.missing_ok {
            return Ok(outcome);
        }
        // With the names that look like it.
        fence.object(spec.path.as_os_str(), Last::Keep)?;
        return Err(changed(&entry));
    };
    not_a_root(fence, &entry)?;
    outcome.removed = 1;
    let begins = |outcome: &Removed| {
        let check = Check::Removed {
            target: location(fence, &entry)?,
            id: id(before.facts()),
        };
        step.begins(check, outcome, &spec.path)
    };
    let undo = if before.facts().kind == FileKind::Directory {
        if spec.recursive {
            outcome.removed = remove_tree::count(fence, &entry, &before, step.caller.cancel)?;
            begins(&outcome)?;
            outcome.removed = remove_tree::remove(fence, &entry, &before)?;
            // What was in it is not kept.
            (outcome.removed == 1).then_some(Undo::RemovedDirectory {
                mode: before.facts().mode,
            })
        } else {
            begins(&outcome)?;
            remove_directory(&entry, &before)?
        }
    } else {
        begins(&outcome)?;
        remove_other(step, spec, &entry, &before)?
    };
    drop(turn);
    outcome.undo_token = undo.and_then(|undo| step.keeps(entry.path(), undo));
    Ok(outcome)
}

fn remove_directory(entry: &Entry, before: &Object) -> Result<Option<Undo>, FileError> {
    let removed = rustix::fs::unlinkat(entry.parent(), entry.name(), AtFlags::REMOVEDIR);
    match removed {
        Ok(()) => Ok(Some(Undo::RemovedDirectory {
            mode: before.facts().mode,
        })),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Err(FileError::DirectoryNotEmpty {
            given: entry.given().to_owned(),
        }),
        Err(Errno::NOENT | Errno::NOTDIR) => Err(changed(entry)),
        Err(errno) => Err(failed(errno, entry)),
    }
}

fn remove_other(
    step: &Step<'_>,
    spec: &RemoveSpec,
    entry: &Entry,
    before: &Object,
) -> Result<Option<Undo>, FileError> {
    let facts = before.facts();
    let text = before.link_target()?;
    #[cfg(test)]
    step.files.hooks.commit(entry.path());
    // A file that somebody writes to all the time can be removed, unless what it
    // holds was a condition.
    let aside = Aside::take(step, entry, facts, spec.precondition.is_none())?;
    let saved = aside.keep_or_remove(facts)?;
    let link = text.map(|text| Undo::RemovedLink {
        text: text.into_encoded_bytes(),
    });
    Ok(saved.map(|saved| Undo::Removed { saved }).or(link))
}

/// # Errors
/// [`FileError::IsARoot`] where a root of the session lies in the directory.
pub(super) fn not_a_root(fence: &Fence, entry: &Entry) -> Result<(), FileError> {
    let within = fence.resolver().roots().iter().any(|root| {
        root.canonical().starts_with(entry.path()) || root.path().starts_with(entry.path())
    });
    if within {
        return Err(FileError::IsARoot {
            given: entry.given().to_owned(),
        });
    }
    Ok(())
}

fn changed(entry: &Entry) -> FileError {
    FileError::Changed {
        given: entry.given().to_owned(),
    }
}

pub(super) fn failed(errno: Errno, entry: &Entry) -> FileError {
    FileError::from_errno(errno, "removing", entry.given())
}
