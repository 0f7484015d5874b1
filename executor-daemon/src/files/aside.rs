//! What has a name is taken from it only if it is what was looked at.
//!
//! Between a look and unlink(2) or rename(2) somebody else can give the name to
//! another file. So the name is taken first, by a rename that replaces nothing,
//! and what came with it is looked at then, where nobody else knows it: if it is
//! another file, it goes back.
//!
//! ```text
//!  recorded ─► renamed ─► looked at ─► removed, or kept for an undo
//!                              └ another file: renamed back
//! ```
//!
//! A start after a death does the same by the record (`instance::recovery`).

use std::ffi::OsStr;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;

use super::Files;
use super::entry::Entry;
use super::error::FileError;
use super::instance::{Instance, Record, Slot, Temporary, millis_now, random_name};
use super::mutation::{Step, location};
use super::object::Facts;
use super::outcome::seen;
use super::undo::{self, Saved};

/// What was taken from an entry's name. Gets it back when dropped.
#[derive(Debug)]
pub(super) struct Aside<'a> {
    files: &'a Files,
    instance: &'a Instance,
    entry: &'a Entry,
    name: String,
    slot: Option<Slot<'a>>,
}

impl<'a> Aside<'a> {
    /// Takes what has the entry's name and is `expected`: the file that was
    /// looked at, and unless `whatever_it_holds` with the content and mode that
    /// it had then.
    ///
    /// # Errors
    /// [`FileError::Changed`] when it is not, or nothing has the name; else as
    /// the system refuses. Whatever has the name keeps it then.
    pub(super) fn take(
        step: &'a Step<'_>,
        entry: &'a Entry,
        expected: &Facts,
        whatever_it_holds: bool,
    ) -> Result<Self, FileError> {
        let failed = |errno| match errno {
            Errno::NOENT => changed(entry),
            errno => FileError::from_errno(errno, "removing", entry.given()),
        };
        let instance = &step.files.state()?.instance;
        let name = random_name(".executor-").map_err(failed)?;
        let record = Record::Aside(Temporary {
            place: location(step.caller.fence, entry)?.with_name(OsStr::new(&name)),
            owner: rustix::process::geteuid().as_raw(),
            at: millis_now(),
            target: entry.name().as_encoded_bytes().to_vec(),
            displaces: Some(seen(expected)),
        });
        let slot = instance.record(&record).map_err(failed)?;
        let (directory, target) = (entry.parent(), entry.name());
        move_to_free_name(step.files, directory, target, directory, OsStr::new(&name))
            .map_err(failed)?;
        let aside = Self {
            files: step.files,
            instance,
            entry,
            name,
            slot: Some(slot),
        };
        let is_expected = |now: Facts| {
            now.is_same_file(expected) && (whatever_it_holds || is_what_was_read(&now, expected))
        };
        match aside.look() {
            Ok(now) if is_expected(now) => Ok(aside),
            // Dropped, it goes back.
            Ok(_) => Err(changed(entry)),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Removes it.
    ///
    /// # Errors
    /// As the system refuses; it has its name again then.
    pub(super) fn remove(mut self) -> Result<(), FileError> {
        match rustix::fs::unlinkat(self.entry.parent(), &self.name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {
                self.slot = None;
                Ok(())
            }
            Err(errno) => Err(FileError::from_errno(errno, "removing", self.entry.given())),
        }
    }

    /// Keeps it for an undo, the very file, where it can be moved into the
    /// instance's directory; removes it otherwise.
    ///
    /// # Errors
    /// As [`Aside::remove`].
    pub(super) fn keep_or_remove(mut self, facts: &Facts) -> Result<Option<Saved>, FileError> {
        if undo::may_be_kept(self.instance, facts)
            && facts.links == 1
            && let Ok(saved) = undo::take(
                self.instance,
                self.entry.parent(),
                OsStr::new(&self.name),
                facts,
            )
        {
            self.slot = None;
            return Ok(Some(saved));
        }
        self.remove().map(|()| None)
    }

    fn look(&self) -> Result<Facts, Errno> {
        Facts::at(self.entry.parent(), OsStr::new(&self.name))
    }
}

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else {
            return;
        };
        let (directory, target) = (self.entry.parent(), self.entry.name());
        let name = OsStr::new(&self.name);
        match move_to_free_name(self.files, directory, name, directory, target) {
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => {
                // Yet another one has the name: neither is lost.
                tracing::error!(path = ?self.entry.path(), beside = ?self.name, %errno,
                    "could not be given its name back; it is beside it");
                slot.keep();
            }
        }
    }
}

/// Gives what has `name` a name that nothing has. `true` when the kernel saw to
/// that (renameat2(2) with `RENAME_NOREPLACE`).
///
/// # Errors
/// `EEXIST` when something has it; else as rename(2).
pub(super) fn move_to_free_name(
    files: &Files,
    from: impl AsFd,
    name: &OsStr,
    to: impl AsFd,
    new: &OsStr,
) -> Result<bool, Errno> {
    let moved = if files.exchange_is_missing() {
        Err(Errno::INVAL)
    } else {
        rustix::fs::renameat_with(&from, name, &to, new, RenameFlags::NOREPLACE)
    };
    match moved {
        Ok(()) => Ok(true),
        // The file system knows no such flag, or a directory is moved into
        // itself: the plain call tells the two apart.
        Err(Errno::INVAL | Errno::NOSYS) => {
            if Facts::at(&to, new).is_ok() {
                return Err(Errno::EXIST);
            }
            rustix::fs::renameat(from, name, to, new).map(|()| false)
        }
        Err(errno) => Err(errno),
    }
}

/// Is what was displaced what was read? Its ctime was changed by the rename
/// itself.
pub(super) fn is_what_was_read(displaced: &Facts, read: &Facts) -> bool {
    let without_ctime = |facts: &Facts| Facts {
        ctime: (0, 0),
        ..*facts
    };
    without_ctime(displaced) == without_ctime(read)
}

fn changed(entry: &Entry) -> FileError {
    FileError::Changed {
        given: entry.given().to_owned(),
    }
}
