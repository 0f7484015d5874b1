//! The system calls of a rename: both names are given, and what has them is
//! looked at after the call, not only before it.

use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;

use super::super::Files;
use super::super::aside::{Aside, is_what_was_read, move_to_free_name};
use super::super::entry::Entry;
use super::super::error::FileError;
use super::super::instance::{Exchanged, Instance, Record, random_name};
use super::super::mutation::{Step, location};
use super::super::object::{Facts, Object};
use super::super::outcome::{id, seen};
use super::super::undo::{Saved, may_be_kept};
use super::{Ends, RenameSpec, changed};

/// What became of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::files) enum Moved {
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
pub(in crate::files) fn move_entry(
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
pub(super) fn exchange_names(
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
