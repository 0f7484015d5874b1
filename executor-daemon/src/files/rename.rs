//! An entry gets another name, in its directory or another one on the same
//! file system.
//!
//! A file that has the new name changes places with the one that is renamed
//! (renameat2(2) with `RENAME_EXCHANGE`). Both are then looked at: if they are
//! not the ones that were seen before, somebody else wrote meanwhile, and they
//! change back. What was displaced is then taken from the old name. Where the
//! file system has no exchange a plain rename does it, after a last look, and
//! the result says that the check was not atomic.

mod exchange;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use self::exchange::exchange_names;
pub(super) use self::exchange::{Moved, move_entry};
use super::Files;
use super::entry::{Entry, Last};
use super::error::FileError;
use super::fence::Fence;
use super::make_directory::{make_parents, without_parent};
use super::mutation::{
    Caller, Described, Durability, Outcome, Reply, Step, keys, location, look, request,
};
use super::object::{Facts, FileKind, Object};
use super::outcome::{Check, id};
use super::remove::not_a_root;
use super::undo::Undo;
use super::write::ATTEMPTS;

/// What is to get which name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RenameSpec {
    /// As the caller names it. A link is itself.
    #[serde(with = "crate::path_bytes")]
    pub from: PathBuf,
    /// The new name. A link that has it is not followed.
    #[serde(with = "crate::path_bytes")]
    pub to: PathBuf,
    /// Take the place of a regular file or link that has the new name.
    pub replace: bool,
    /// Make missing directories above the new name.
    pub parents: bool,
}

impl RenameSpec {
    /// Without replacing anything.
    #[must_use]
    pub fn new(from: impl Into<PathBuf>, to: impl Into<PathBuf>) -> Self {
        Self {
            from: from.into(),
            to: to.into(),
            replace: false,
            parents: false,
        }
    }
}

/// What has the new name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renamed {
    /// It.
    pub file: Described,
    /// Both names are the same entry: nothing had to be done.
    pub unchanged: bool,
    /// To take it back; `None`: it cannot be.
    pub undo_token: Option<String>,
    /// How.
    #[serde(default = "atomic")]
    pub durability: Durability,
}

/// Also of a result that was kept without it.
fn atomic() -> Durability {
    Durability {
        atomic: true,
        checked: true,
    }
}

impl Outcome for Renamed {
    fn found(&mut self, facts: Facts) {
        self.file.facts = facts;
    }

    fn without_undo(&mut self) {
        self.undo_token = None;
    }
}

impl Files {
    /// Renames. Blocks; waits for its turn on both names.
    ///
    /// # Errors
    /// [`FileError::Exists`] when the new name is taken (with `replace`: by
    /// anything but a regular file or link, or by another name of the same
    /// file), [`FileError::CrossesFileSystems`], [`FileError::IsARoot`],
    /// [`FileError::Secret`] for a directory with a secret file's name in it,
    /// every refusal of the names. Nothing was changed then.
    pub fn rename(
        &self,
        caller: Caller<'_>,
        spec: &RenameSpec,
    ) -> Result<Reply<Renamed>, FileError> {
        let asked = request("rename", spec, &[]);
        self.once(caller, &spec.from, asked, |step| {
            let mut last = changed(spec);
            for _ in 0..ATTEMPTS {
                match attempt(step, spec) {
                    Err(FileError::Changed { .. }) => last = changed(spec),
                    // Another call that failed took away what it had made.
                    Err(error @ FileError::NotFound { .. }) if spec.parents => last = error,
                    done => return done,
                }
            }
            Err(last)
        })
    }
}

/// Both ends, as they are.
struct Ends {
    from: Entry,
    object: Object,
    to: Entry,
    there: Option<Object>,
}

impl Ends {
    fn find(step: &Step<'_>, spec: &RenameSpec) -> Result<Self, FileError> {
        let fence = step.caller.fence;
        let from = fence.entry(spec.from.as_os_str(), Last::Keep)?;
        let object = match look(&from)? {
            Some(object) => object,
            // With the names that look like it.
            None => fence.object(spec.from.as_os_str(), Last::Keep)?,
        };
        fence.writable(&from)?;
        let to = fence.entry(spec.to.as_os_str(), Last::Keep);
        let to = to.map_err(|error| {
            if spec.parents {
                error
            } else {
                without_parent(fence, &spec.to, error)
            }
        })?;
        fence.writable(&to)?;
        // A directory gets its name as one: `to/` need not be there.
        let there = match look(&to) {
            Err(_) if to.must_be_directory() => {
                return Err(FileError::Exists {
                    given: spec.to.clone(),
                    kind: Facts::at(to.parent(), to.name())
                        .map_or(FileKind::Unknown, |facts| facts.kind),
                });
            }
            there => there?,
        };
        Ok(Self {
            from,
            object,
            to,
            there,
        })
    }

    fn keys(&self) -> Result<Vec<super::turn::Key>, FileError> {
        let mut all = keys(&self.from, Some(&self.object))?;
        all.extend(keys(&self.to, self.there.as_ref())?);
        Ok(all)
    }
}

fn attempt(step: &Step<'_>, spec: &RenameSpec) -> Result<Renamed, FileError> {
    if spec.parents {
        // Not before it is known that there is something to rename.
        step.caller
            .fence
            .object(spec.from.as_os_str(), Last::Keep)?;
        let parents = make_parents(step.caller.fence, &spec.to)?;
        return parents.after(step, rename(step, spec));
    }
    rename(step, spec)
}

fn rename(step: &Step<'_>, spec: &RenameSpec) -> Result<Renamed, FileError> {
    let wanted = Ends::find(step, spec)?.keys()?;
    let turn = step.turn(wanted.clone(), &spec.from)?;
    let ends = Ends::find(step, spec)?;
    if ends.keys()? != wanted {
        return Err(changed(spec));
    }
    let outcome = |facts, unchanged| Renamed {
        file: Described {
            path: ends.to.path().to_owned(),
            facts,
            link_target: None,
        },
        unchanged,
        undo_token: None,
        durability: atomic(),
    };
    let facts = *ends.object.facts();
    let text = ends.object.link_target()?;
    let with_text = |mut renamed: Renamed| {
        renamed.file.link_target = text.clone().map(std::ffi::OsString::into_encoded_bytes);
        renamed
    };
    if is_same_entry(&ends)? {
        return Ok(with_text(outcome(facts, true)));
    }
    let fence = step.caller.fence;
    allowed(step, spec, &ends)?;
    let check = Check::Renamed {
        from: location(fence, &ends.from)?,
        to: location(fence, &ends.to)?,
        id: id(&facts),
    };
    step.begins(check, &with_text(outcome(facts, false)), &spec.from)?;
    #[cfg(test)]
    step.files.hooks.commit(ends.from.path());
    let (displaced, checked) = exchange_names(step, spec, &ends)?;
    let now = Facts::at(ends.to.parent(), ends.to.name()).unwrap_or(facts);
    drop(turn);
    let undo = match (&ends.there, displaced) {
        // What it displaced could not be brought back.
        (Some(_), None) => None,
        (_, displaced) => Some(Undo::Renamed {
            to: ends.to.path().to_owned(),
            dev: facts.dev,
            ino: facts.ino,
            displaced,
        }),
    };
    Ok(Renamed {
        undo_token: undo.and_then(|undo| step.keeps(ends.from.path(), undo)),
        durability: Durability {
            atomic: true,
            checked,
        },
        ..with_text(outcome(now, false))
    })
}

/// The same name in the same directory, however both are spelled.
fn is_same_entry(ends: &Ends) -> Result<bool, FileError> {
    let above = |entry: &Entry| {
        Facts::of(entry.parent())
            .map_err(|errno| FileError::from_errno(errno, "examining", entry.given()))
    };
    Ok(ends.from.name() == ends.to.name() && above(&ends.from)?.is_same_file(&above(&ends.to)?))
}

/// May what is `from`, and all that is reached through it, be reached as `to`?
/// A directory, or a link to one, that gets a name on the way to a secret file
/// would make one, and one that loses it would lay it bare.
pub(super) fn may_move(
    fence: &Fence,
    kind: FileKind,
    from: &Entry,
    to: &Entry,
) -> Result<(), FileError> {
    if !matches!(kind, FileKind::Directory | FileKind::Link) {
        return Ok(());
    }
    if kind == FileKind::Directory {
        not_a_root(fence, from)?;
    }
    for entry in [from, to] {
        if fence.secrets().leads_to_secret(entry.path()) {
            return Err(FileError::Secret {
                given: entry.given().to_owned(),
                rule: "a name on the way to a secret file".to_owned(),
            });
        }
    }
    Ok(())
}

fn allowed(step: &Step<'_>, spec: &RenameSpec, ends: &Ends) -> Result<(), FileError> {
    let fence = step.caller.fence;
    let is_directory = ends.object.facts().kind == FileKind::Directory;
    may_move(fence, ends.object.facts().kind, &ends.from, &ends.to)?;
    if is_directory {
        if ends.to.path().starts_with(ends.from.path()) {
            return Err(FileError::InvalidArgument {
                field: "to",
                why: "a directory cannot be moved into itself".to_owned(),
            });
        }
    } else if ends.to.must_be_directory() {
        return Err(FileError::Resolve(
            super::resolve::ResolveError::NotADirectory {
                given: spec.to.clone(),
            },
        ));
    }
    let Some(there) = ends.there.as_ref().map(Object::facts) else {
        return Ok(());
    };
    // rename(2) of one name of a file onto another does nothing and says that
    // it did.
    let replaceable = matches!(there.kind, FileKind::Regular | FileKind::Link)
        && matches!(ends.object.facts().kind, FileKind::Regular | FileKind::Link)
        && !there.is_same_file(ends.object.facts());
    if spec.replace && replaceable {
        return Ok(());
    }
    Err(FileError::Exists {
        given: spec.to.clone(),
        kind: there.kind,
    })
}

fn changed(spec: &RenameSpec) -> FileError {
    FileError::Changed {
        given: spec.from.clone(),
    }
}
