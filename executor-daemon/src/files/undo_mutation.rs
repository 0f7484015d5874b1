//! A mutation is taken back, if the file is still as it was left.

use std::path::{Path, PathBuf};

use rustix::fs::RenameFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::Files;
use super::aside::Aside;
use super::content::Content;
use super::entry::{Entry, Last};
use super::error::FileError;
use super::instance::millis_now;
use super::make_directory::make;
use super::mutation::{Caller, Described, Outcome, Reply, Step, keys, location, look, request};
use super::object::{Facts, FileKind, Object};
use super::outcome::{Check, id};
use super::rename::{Moved, may_move, move_entry};
use super::turn::Turn;
use super::undo::{self, Saved, Undo};
use super::version::Version;
use super::write::{Put, hold};

/// What is there after a mutation was taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undone {
    /// The absolute name.
    #[serde(with = "crate::path_bytes")]
    pub path: PathBuf,
    /// What has it; `None`: nothing.
    pub file: Option<Described>,
}

impl Outcome for Undone {
    fn found(&mut self, facts: Facts) {
        self.file = Some(Described::new(&self.path, facts));
    }

    fn without_undo(&mut self) {}
}

impl Files {
    /// Takes a write, an edit, a removal or a rename back. Blocks; waits for
    /// its turn on the file.
    ///
    /// # Errors
    /// [`FileError::UndoForgotten`], [`FileError::UndoConflict`]; else as the
    /// mutation that it is.
    pub fn undo(&self, caller: Caller<'_>, token: &str) -> Result<Reply<Undone>, FileError> {
        let asked = request("undo", &token, &[]);
        let known = self.undos.get(caller.session, token);
        let given = known.as_ref().map_or(Path::new("undo"), |(path, _)| path);
        self.once(caller, given, asked, |step| {
            let Some((path, undo)) = &known else {
                return Err(FileError::UndoForgotten {
                    token: token.chars().take(64).collect(),
                });
            };
            let undone = take_back(step, path, undo)?;
            if let Some(saved) = self.undos.remove(caller.session, token) {
                self.state()?.instance.remove(&saved);
            }
            Ok(undone)
        })
    }
}

fn take_back(step: &Step<'_>, path: &Path, undo: &Undo) -> Result<Undone, FileError> {
    let undone = match undo {
        Undo::Content {
            left,
            before,
            saved,
        } => content(step, path, *left, saved).inspect(|undone| {
            if let Some(file) = &undone.file {
                let (undos, now) = (&step.files.undos, file.facts.version());
                undos.is_again(step.caller.session, path, *before, now);
            }
        }),
        Undo::Created { left } => created(step, path, *left),
        Undo::Removed { saved } => removed(step, path, saved),
        Undo::RemovedLink { text } => in_free_name(step, path, |entry| {
            use std::os::unix::ffi::OsStrExt as _;
            let text = std::ffi::OsStr::from_bytes(text);
            rustix::fs::symlinkat(text, entry.parent(), entry.name())
                .map_err(|errno| refused(errno, path))
        }),
        Undo::RemovedDirectory { mode } => in_free_name(step, path, |entry| {
            make(entry, Some(mode & 0o777)).map(|_| ())
        }),
        Undo::Renamed {
            to,
            dev,
            ino,
            displaced,
        } => renamed(step, path, to, (*dev, *ino), displaced.as_ref()),
    };
    undone.map_err(|error| match error {
        FileError::NotFound { .. } => conflict(path, "it, or a directory above it, is gone"),
        FileError::Changed { .. } => conflict(path, "it was changed meanwhile"),
        FileError::Exists { .. } => conflict(path, "something else has its name"),
        error => error,
    })
}

fn content(
    step: &Step<'_>,
    path: &Path,
    left: Version,
    saved: &Saved,
) -> Result<Undone, FileError> {
    let (entry, before, _turn) = as_left(step, path, left)?;
    let instance = &step.files.state()?.instance;
    let failed = |errno| FileError::from_errno(errno, "reading what was kept of", path);
    let file = undo::open(instance, saved).map_err(failed)?;
    let content = Content::of_file(file, saved.length, step.caller.cancel).map_err(failed)?;
    let outcome = |facts: &Facts, _| Undone {
        path: entry.path().to_owned(),
        file: Some(Described::new(entry.path(), *facts)),
    };
    let put = Put {
        entry: &entry,
        before: Some(&before),
        content: &content,
        mode: Some(saved.mode),
        // It was written so, if it could not be replaced.
        in_place: true,
        read: None,
    };
    let replaced = put.without_undo(step, &outcome)?;
    Ok(outcome(&replaced.facts, replaced.durability))
}

fn created(step: &Step<'_>, path: &Path, left: Version) -> Result<Undone, FileError> {
    let (entry, before, _turn) = as_left(step, path, left)?;
    let undone = Undone {
        path: entry.path().to_owned(),
        file: None,
    };
    let check = Check::Removed {
        target: location(step.caller.fence, &entry)?,
        id: id(before.facts()),
    };
    step.begins(check, &undone, path)?;
    #[cfg(test)]
    step.files.hooks.commit(entry.path());
    Aside::take(step, &entry, before.facts(), false)?.remove()?;
    Ok(undone)
}

fn removed(step: &Step<'_>, path: &Path, saved: &Saved) -> Result<Undone, FileError> {
    let state = step.files.state()?;
    in_free_name(step, path, |entry| {
        let directory = state.instance.directory();
        let flags = RenameFlags::NOREPLACE;
        rustix::fs::renameat_with(directory, &saved.name, entry.parent(), entry.name(), flags)
            .map_err(|errno| refused(errno, path))
    })
}

/// Makes something that has a name which nothing has.
fn in_free_name(
    step: &Step<'_>,
    path: &Path,
    make: impl FnOnce(&Entry) -> Result<(), FileError>,
) -> Result<Undone, FileError> {
    let held = hold(step, path, Last::Keep)?;
    if held.before.is_some() {
        return Err(conflict(path, "something else has its name"));
    }
    let check = Check::Made {
        target: location(step.caller.fence, &held.entry)?,
        at: millis_now(),
        directory: false,
    };
    let mut undone = Undone {
        path: held.entry.path().to_owned(),
        file: None,
    };
    step.begins(check, &undone, path)?;
    make(&held.entry)?;
    undone.file = Some(Described::of(&Object::look(&held.entry)?)?);
    Ok(undone)
}

fn renamed(
    step: &Step<'_>,
    from: &Path,
    to: &Path,
    file: (u64, u64),
    displaced: Option<&Saved>,
) -> Result<Undone, FileError> {
    let fence = step.caller.fence;
    let find = |path: &Path| {
        let entry = fence.entry(path.as_os_str(), Last::Keep)?;
        fence.writable(&entry)?;
        let object = look(&entry)?;
        Ok::<_, FileError>((entry, object))
    };
    let all = || {
        let ((from, there), (to, object)) = (find(from)?, find(to)?);
        let mut keys_of_both = keys(&from, there.as_ref())?;
        keys_of_both.extend(keys(&to, object.as_ref())?);
        Ok::<_, FileError>((from, there, to, object, keys_of_both))
    };
    let (.., wanted) = all()?;
    let _turn: Turn<'_> = step.turn(wanted.clone(), from)?;
    let (from_entry, there, to_entry, object, keys_now) = all()?;
    if keys_now != wanted {
        return Err(conflict(to, "it was changed meanwhile"));
    }
    let Some(object) = object.filter(|one| (one.facts().dev, one.facts().ino) == file) else {
        return Err(conflict(to, "it is another file now"));
    };
    if there.is_some() {
        return Err(conflict(from, "something else has its former name"));
    }
    // Roots and secret files may be others than at the rename.
    may_move(fence, object.facts().kind, &to_entry, &from_entry)?;
    let outcome = |facts| Undone {
        path: from_entry.path().to_owned(),
        file: Some(Described::new(from_entry.path(), facts)),
    };
    let check = Check::Renamed {
        from: location(fence, &to_entry)?,
        to: location(fence, &from_entry)?,
        id: id(object.facts()),
    };
    step.begins(check, &outcome(*object.facts()), from)?;
    #[cfg(test)]
    step.files.hooks.commit(to_entry.path());
    let moved = move_entry(step.files, &to_entry, &from_entry, object.facts());
    if moved.map_err(|errno| refused(errno, from))? == Moved::Another {
        return Err(conflict(to, "it was changed meanwhile"));
    }
    if let Some(saved) = displaced {
        let directory = step.files.state()?.instance.directory();
        let back = rustix::fs::renameat_with(
            directory,
            &saved.name,
            to_entry.parent(),
            to_entry.name(),
            RenameFlags::NOREPLACE,
        );
        if let Err(errno) = back {
            tracing::warn!(path = ?to, %errno, "what a rename displaced does not come back");
        }
    }
    let mut undone = outcome(*object.facts());
    undone.file = Some(Described::of(&Object::look(&from_entry)?)?);
    Ok(undone)
}

/// The file, if it is as it was left.
fn as_left<'a>(
    step: &'a Step<'_>,
    path: &Path,
    left: Version,
) -> Result<(Entry, Object, Turn<'a>), FileError> {
    let held = hold(step, path, Last::Keep)?;
    match held.before {
        Some(object)
            if object.facts().version() == left && object.facts().kind == FileKind::Regular =>
        {
            Ok((held.entry, object, held.turn))
        }
        Some(_) => Err(conflict(path, "it was changed since")),
        None => Err(conflict(path, "it was removed since")),
    }
}

fn conflict(path: &Path, why: &str) -> FileError {
    FileError::UndoConflict {
        given: path.to_owned(),
        why: why.to_owned(),
    }
}

fn refused(errno: Errno, path: &Path) -> FileError {
    match errno {
        Errno::EXIST => conflict(path, "something else has its name"),
        errno => FileError::from_errno(errno, "taking back", path),
    }
}
