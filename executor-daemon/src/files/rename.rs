//! An entry gets another name, in its directory or another one on the same
//! file system.
//!
//! A file that has the new name changes places with the one that is renamed
//! (renameat2(2) with `RENAME_EXCHANGE`). Both are then looked at: if they are
//! not the ones that were seen before, somebody else wrote meanwhile, and they
//! change back. What was displaced is then taken from the old name. Where the
//! file system has no exchange a plain rename does it, after a last look, and
//! the result says that the check was not atomic.

use std::path::PathBuf;

use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::Files;
use super::aside::{Aside, is_what_was_read, move_to_free_name};
use super::entry::{Entry, Last};
use super::error::FileError;
use super::fence::Fence;
use super::instance::{Exchanged, Instance, Record, random_name};
use super::make_directory::{make_parents, without_parent};
use super::mutation::{
    Caller, Described, Durability, Outcome, Reply, Step, keys, location, look, request,
};
use super::object::{Facts, FileKind, Object};
use super::outcome::{Check, id, seen};
use super::remove::not_a_root;
use super::undo::{Saved, Undo, may_be_kept};
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

/// What became of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moved {
    /// It has the new name.
    Done {
        /// The kernel saw to it that nothing was replaced.
        checked: bool,
    },
    /// Somebody had given its name to something else, which has it again.
    Another,
}

/// Gives `object` a name that nothing has.
///
/// # Errors
/// `EEXIST` when something has it; else as rename(2).
pub(super) fn move_entry(
    files: &Files,
    from: &Entry,
    to: &Entry,
    object: &Facts,
) -> Result<Moved, Errno> {
    let (above, name) = (from.parent(), from.name());
    let checked = move_to_free_name(files, above, name, to.parent(), to.name())?;
    if has_name(to, object) {
        return Ok(Moved::Done { checked });
    }
    match move_to_free_name(files, to.parent(), to.name(), above, name) {
        // Gone: whoever took it away did so under its new name.
        Ok(_) | Err(Errno::NOENT) => Ok(Moved::Another),
        Err(errno) => {
            tracing::error!(from = ?from.path(), to = ?to.path(), %errno,
                "what somebody else had put there was renamed and does not come back");
            Ok(Moved::Another)
        }
    }
}

fn has_name(entry: &Entry, object: &Facts) -> bool {
    Facts::at(entry.parent(), entry.name()).is_ok_and(|now| now.is_same_file(object))
}

/// What was displaced, where it could be kept; was it checked by the kernel
/// that nothing else was?
fn exchange_names(
    step: &Step<'_>,
    spec: &RenameSpec,
    ends: &Ends,
) -> Result<(Option<Saved>, bool), FileError> {
    let (from, to) = (&ends.from, &ends.to);
    let object = ends.object.facts();
    let failed = |errno| match errno {
        Errno::XDEV => FileError::CrossesFileSystems {
            from: spec.from.clone(),
            to: spec.to.clone(),
        },
        Errno::EXIST | Errno::NOTEMPTY | Errno::ISDIR => changed(spec),
        Errno::INVAL => FileError::InvalidArgument {
            field: "to",
            why: "a directory cannot be moved into itself".to_owned(),
        },
        Errno::NOENT => changed(spec),
        errno => FileError::from_errno(errno, "renaming", from.given()),
    };
    let Some(there) = ends.there.as_ref().map(Object::facts) else {
        return match move_entry(step.files, from, to, object).map_err(failed)? {
            Moved::Done { checked } => Ok((None, checked)),
            Moved::Another => Err(changed(spec)),
        };
    };
    if step.files.exchange_is_missing() {
        return rename_over(step, spec, ends, there).map(|saved| (saved, false));
    }
    let record = Record::Exchanged(Exchanged {
        from: location(step.caller.fence, from)?,
        to: location(step.caller.fence, to)?,
        moved: id(object),
        displaces: seen(there),
    });
    let recorded = step.files.state()?.instance.record(&record);
    let _slot = recorded.map_err(failed)?;
    let flags = RenameFlags::EXCHANGE;
    match rustix::fs::renameat_with(from.parent(), from.name(), to.parent(), to.name(), flags) {
        Ok(()) => {}
        Err(Errno::INVAL | Errno::NOSYS) => {
            return rename_over(step, spec, ends, there).map(|saved| (saved, false));
        }
        Err(errno) => return Err(failed(errno)),
    }
    let displaced = Facts::at(from.parent(), from.name());
    if !has_name(to, object) || !displaced.is_ok_and(|now| is_what_was_read(&now, there)) {
        exchange_back(step.files, from, to);
        return Err(changed(spec));
    }
    match Aside::take(step, from, there, false).and_then(|aside| aside.keep_or_remove(there)) {
        Ok(saved) => Ok((saved, true)),
        // Somebody has given the name that was left to another file meanwhile.
        Err(FileError::Changed { .. }) => Ok((None, true)),
        Err(error) => {
            exchange_back(step.files, from, to);
            Err(error)
        }
    }
}

/// Both get their names back. Where one has none any more, the other does.
fn exchange_back(files: &Files, from: &Entry, to: &Entry) {
    let flags = RenameFlags::EXCHANGE;
    let back = rustix::fs::renameat_with(from.parent(), from.name(), to.parent(), to.name(), flags);
    let back = match back {
        Err(Errno::NOENT) => {
            let (one, other) = (from, to);
            let moved = |one: &Entry, other: &Entry| {
                move_to_free_name(
                    files,
                    one.parent(),
                    one.name(),
                    other.parent(),
                    other.name(),
                )
            };
            moved(one, other).or_else(|_| moved(other, one)).map(|_| ())
        }
        back => back,
    };
    if let Err(errno) = back {
        tracing::error!(from = ?from.path(), to = ?to.path(), %errno,
            "were exchanged and could not be exchanged back");
    }
}

/// Where the file system has no exchange: after a last look. A file that takes
/// the name between it and the rename is lost.
fn rename_over(
    step: &Step<'_>,
    spec: &RenameSpec,
    ends: &Ends,
    there: &Facts,
) -> Result<Option<Saved>, FileError> {
    let (from, to) = (&ends.from, &ends.to);
    let instance = &step.files.state()?.instance;
    let now = Facts::at(to.parent(), to.name());
    if !now.is_ok_and(|now| now == *there) || !has_name(from, ends.object.facts()) {
        return Err(changed(spec));
    }
    let saved = link_aside(instance, to, there);
    let renamed = rustix::fs::renameat(from.parent(), from.name(), to.parent(), to.name());
    if let Err(errno) = renamed {
        if let Some(saved) = saved {
            instance.remove(&saved.name);
        }
        return Err(FileError::from_errno(errno, "renaming", from.given()));
    }
    Ok(saved)
}

/// Another name for the file that is about to lose its own (link(2)).
fn link_aside(instance: &Instance, to: &Entry, facts: &Facts) -> Option<Saved> {
    if !may_be_kept(instance, facts) {
        return None;
    }
    let name = random_name("undo-").ok()?;
    rustix::fs::linkat(
        to.parent(),
        to.name(),
        instance.directory(),
        &name,
        AtFlags::empty(),
    )
    .ok()?;
    Some(Saved {
        name,
        length: facts.size,
        mode: facts.mode,
        itself: true,
    })
}

fn changed(spec: &RenameSpec) -> FileError {
    FileError::Changed {
        given: spec.from.clone(),
    }
}
