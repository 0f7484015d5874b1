//! The atomic replacement of a file's content, and the making of a new file.
//!
//! ```text
//!  recorded ─► made ─► written, fsynced ─► exchanged ─► checked ─► displaced file kept or removed
//!     │          │            │                │           └ not what was read: exchanged back
//!     └──────────┴────────────┴── any failure: removed, the file is as it was
//! ```
//!
//! A temporary in the same directory takes over what the file is, and changes
//! places with it (renameat2(2) with `RENAME_EXCHANGE`). The file that was
//! displaced is then looked at: if it is not the one that was read, somebody
//! else wrote meanwhile, and the two change back. Where the file system has no
//! exchange a plain rename does it, after a last look, and the result says that
//! the check was not atomic.
//!
//! 1. Readers see the old content or the new.
//! 2. What somebody else wrote between the look at the file and the exchange is
//!    never lost.
//! 3. Whatever fails, no temporary is left, and nobody may read one who may not
//!    read the file.

use std::ffi::OsStr;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::aside::is_what_was_read;
use super::attributes::take_over;
use super::cancel::Cancel;
use super::content::{Content, digest_of};
use super::entry::Entry;
use super::error::FileError;
use super::instance::{FileId, Location, Record, Slot, Temporary, millis_now, random_name};
use super::mutation::Durability;
use super::object::{Facts, Object};
use super::outcome::{id, seen};
use super::shared::State;
use super::undo::{self, Saved};
use super::version::Digest;

/// Mode of a new file, less the umask (open(2)).
const NEW: u32 = 0o666;
/// A file that was changed within this time may be changed again without a
/// sign of it.
const TICK_SECONDS: u64 = 2;
/// How often two writers may change a name back and forth.
const SWAPS: usize = 16;

/// What is to be done.
pub(super) struct Replacement<'a> {
    pub(super) state: &'a State,
    pub(super) entry: &'a Entry,
    pub(super) location: &'a Location,
    pub(super) content: &'a Content,
    /// What has the name; `None`: nothing, and nothing is displaced.
    pub(super) before: Option<&'a Object>,
    /// `None`: as the file's, or as a new one's.
    pub(super) mode: Option<u32>,
    /// The content that was read, where the new one was made from it.
    pub(super) read: Option<Digest>,
    /// Looked at until it begins.
    pub(super) cancel: &'a Cancel,
    #[cfg(test)]
    pub(super) hooks: &'a super::hooks::Hooks,
}

/// What was done.
#[derive(Debug)]
pub(super) struct Replaced {
    pub(super) facts: Facts,
    pub(super) durability: Durability,
    pub(super) saved: Option<Saved>,
}

/// A temporary at its name. Removed when dropped, unless something else is
/// there.
struct Made<'a> {
    directory: BorrowedFd<'a>,
    name: String,
    file: OwnedFd,
    id: FileId,
    slot: Option<Slot<'a>>,
    /// What is at the name is ours to remove.
    ours: bool,
}

impl<'a> Replacement<'a> {
    /// Does it. `begins` is told of the new file just before it gets the name.
    ///
    /// # Errors
    /// Every refusal of the write; [`FileError::Changed`] when the file is not
    /// the one that was read, [`FileError::Exists`] when a new file's name was
    /// taken meanwhile.
    pub(super) fn run(
        self,
        begins: &mut dyn FnMut(&Facts) -> Result<(), FileError>,
    ) -> Result<Replaced, FileError> {
        let mut made = self.make()?;
        self.content
            .write_to(&made.file, self.cancel)
            .map_err(|errno| self.failed(errno))?;
        self.describe(&made)?;
        self.cancel.check()?;
        rustix::fs::fsync(&made.file).map_err(|errno| self.failed(errno))?;
        let facts = Facts::of(&made.file).map_err(|errno| self.failed(errno))?;
        begins(&facts)?;
        let (checked, saved) = match self.before {
            None => (self.take_name(&mut made)?, None),
            Some(before) => self.displace(&mut made, before)?,
        };
        let mut facts = Facts::of(&made.file).map_err(|errno| self.failed(errno))?;
        drop(made);
        // Taking the temporary's name away can have changed it once more.
        if let Ok(now) = Facts::at(self.entry.parent(), self.entry.name())
            && now.is_same_file(&facts)
        {
            facts = now;
        }
        self.sync_directory()?;
        Ok(Replaced {
            facts,
            durability: Durability {
                atomic: true,
                checked,
            },
            saved,
        })
    }

    fn make(&self) -> Result<Made<'a>, FileError> {
        let name = random_name(".executor-").map_err(|errno| self.failed(errno))?;
        let record = Record::Temporary(Temporary {
            place: self.location.with_name(OsStr::new(&name)),
            owner: rustix::process::geteuid().as_raw(),
            at: millis_now(),
            target: self.entry.name().as_encoded_bytes().to_vec(),
            displaces: self.before.map(|before| seen(before.facts())),
        });
        let slot = self.state.instance.record(&record);
        let slot = slot.map_err(|errno| self.failed(errno))?;
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // A new file whose mode nobody named gets it from the kernel, which
        // knows the umask and the directory's default ACL.
        let mode = match (self.before, self.mode) {
            (None, None) => NEW,
            _ => 0o600,
        };
        let opened =
            rustix::fs::openat(self.entry.parent(), &name, flags, Mode::from_raw_mode(mode));
        let file = opened.map_err(|errno| match errno {
            Errno::ACCESS | Errno::PERM | Errno::ROFS if self.before.is_some() => self.cannot(
                format!("its directory does not let us make a file ({errno})"),
            ),
            errno => self.failed(errno),
        })?;
        let id = FileId::of(&file).map_err(|errno| self.failed(errno))?;
        let made = Made {
            directory: self.entry.parent(),
            name,
            file,
            id,
            slot: Some(slot),
            ours: true,
        };
        if let Some(slot) = &made.slot {
            slot.made(id).map_err(|errno| self.failed(errno))?;
        }
        Ok(made)
    }

    /// Gives the temporary what the file is but for its content.
    fn describe(&self, made: &Made<'_>) -> Result<(), FileError> {
        match (self.before, self.mode) {
            (Some(before), mode) => {
                take_over(before, &made.file, mode.unwrap_or(before.facts().mode))
            }
            (None, Some(mode)) => rustix::fs::fchmod(&made.file, Mode::from_raw_mode(mode))
                .map_err(|errno| self.failed(errno)),
            (None, None) => Ok(()),
        }
    }

    /// Gives the temporary a name that nothing has. `true` when that was
    /// checked by the kernel.
    fn take_name(&self, made: &mut Made<'_>) -> Result<bool, FileError> {
        #[cfg(test)]
        self.hooks.commit(self.entry.path());
        let (directory, name) = (self.entry.parent(), self.entry.name());
        let renamed = if self.exchange_is_missing() {
            Err(Errno::INVAL)
        } else {
            let flags = RenameFlags::NOREPLACE;
            rustix::fs::renameat_with(directory, &made.name, directory, name, flags)
        };
        match renamed {
            Ok(()) => {
                made.ours = false;
                Ok(true)
            }
            Err(Errno::EXIST) => Err(self.taken()),
            Err(Errno::INVAL | Errno::NOSYS) => {
                // link(2) replaces nothing either.
                let flags = AtFlags::empty();
                match rustix::fs::linkat(directory, &made.name, directory, name, flags) {
                    Ok(()) => Ok(true),
                    Err(Errno::EXIST) => Err(self.taken()),
                    Err(Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK) => {
                        if Facts::at(directory, name).is_ok() {
                            return Err(self.taken());
                        }
                        rustix::fs::renameat(directory, &made.name, directory, name)
                            .map_err(|errno| self.failed(errno))?;
                        made.ours = false;
                        Ok(false)
                    }
                    Err(errno) => Err(self.failed(errno)),
                }
            }
            Err(errno) => Err(self.failed(errno)),
        }
    }

    /// Puts the temporary in the place of `before`.
    fn displace(
        &self,
        made: &mut Made<'_>,
        before: &Object,
    ) -> Result<(bool, Option<Saved>), FileError> {
        let (directory, name) = (self.entry.parent(), self.entry.name());
        let last = Facts::at(directory, name);
        if !last.is_ok_and(|now| now == *before.facts()) {
            return Err(self.changed());
        }
        #[cfg(test)]
        self.hooks.commit(self.entry.path());
        let exchanged = if self.exchange_is_missing() {
            Err(Errno::INVAL)
        } else {
            let flags = RenameFlags::EXCHANGE;
            rustix::fs::renameat_with(directory, &made.name, directory, name, flags)
        };
        match exchanged {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::NOSYS) => return self.rename_over(made, before),
            Err(Errno::NOENT) => return Err(self.changed()),
            Err(Errno::BUSY) => {
                return Err(self.cannot("something is mounted on it".to_owned()));
            }
            Err(errno @ (Errno::PERM | Errno::ACCESS)) => {
                return Err(self.cannot(format!("the system does not let us rename it ({errno})")));
            }
            Err(errno) => return Err(self.failed(errno)),
        }
        made.ours = false;
        let displaced = Facts::at(directory, OsStr::new(&made.name));
        if !displaced.is_ok_and(|displaced| is_what_was_read(&displaced, before.facts()))
            || !self.has_content_read(before)
        {
            self.exchange_back(made)?;
            return Err(self.changed());
        }
        // From here on it is what we were to replace, under our name.
        made.ours = true;
        let saved = undo::save(&self.state.instance, directory, &made.name, before.facts());
        Ok((true, saved))
    }

    /// For file systems without an exchange.
    fn rename_over(
        &self,
        made: &mut Made<'_>,
        before: &Object,
    ) -> Result<(bool, Option<Saved>), FileError> {
        let (directory, name) = (self.entry.parent(), self.entry.name());
        let saved = undo::copy(&self.state.instance, before, Cancel::never());
        let last = Facts::at(directory, name);
        if !last.is_ok_and(|now| now == *before.facts()) || !self.has_content_read(before) {
            if let Some(saved) = saved {
                self.state.instance.remove(&saved.name);
            }
            return Err(self.changed());
        }
        rustix::fs::renameat(directory, &made.name, directory, name).map_err(
            |errno| match errno {
                Errno::BUSY => self.cannot("something is mounted on it".to_owned()),
                Errno::PERM | Errno::ACCESS => {
                    self.cannot(format!("the system does not let us rename it ({errno})"))
                }
                errno => self.failed(errno),
            },
        )?;
        made.ours = false;
        Ok((false, saved))
    }

    /// A write within one tick of the file system's clock after another leaves
    /// the same time: where the file is as young as that, its content tells.
    fn has_content_read(&self, before: &Object) -> bool {
        let Some(read) = self.read else {
            return true;
        };
        let young = u64::try_from(before.facts().mtime.0)
            .is_ok_and(|seconds| (seconds + TICK_SECONDS) * 1000 > millis_now());
        !young || digest_of(before, Cancel::never()).is_ok_and(|now| now == read)
    }

    /// Gives its name back to what was displaced. Whoever replaces the file
    /// again meanwhile is the newest: what is taken out of the name instead of
    /// our temporary goes back to it.
    fn exchange_back(&self, made: &mut Made<'_>) -> Result<(), FileError> {
        let (directory, name) = (self.entry.parent(), self.entry.name());
        let temporary = OsStr::new(&made.name);
        let look = || Facts::at(directory, temporary).map(|facts| id(&facts));
        let mut expected = made.id;
        let mut newest = look().map_err(|errno| self.failed(errno))?;
        for _ in 0..SWAPS {
            let flags = RenameFlags::EXCHANGE;
            match rustix::fs::renameat_with(directory, temporary, directory, name, flags) {
                Ok(()) => {}
                // Removed by somebody: the name is free for what was displaced.
                Err(Errno::NOENT) => {
                    let flags = RenameFlags::NOREPLACE;
                    let back =
                        rustix::fs::renameat_with(directory, temporary, directory, name, flags);
                    match back {
                        Ok(()) => return Ok(()),
                        Err(Errno::EXIST) => continue,
                        Err(errno) => return Err(self.failed(errno)),
                    }
                }
                Err(errno) => return Err(self.failed(errno)),
            }
            let taken = look().map_err(|errno| self.failed(errno))?;
            if taken == expected {
                made.ours = true;
                return Ok(());
            }
            (expected, newest) = (newest, taken);
        }
        tracing::error!(path = ?self.entry.path(), ?newest, temporary = ?made.name,
            "could not be given back what others wrote; it is beside it");
        Err(self.changed())
    }

    /// Makes the names outlast a power cut.
    fn sync_directory(&self) -> Result<(), FileError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(self.entry.parent(), c".", flags, Mode::empty()) {
            Ok(directory) => match rustix::fs::fsync(directory) {
                // The file system knows no such thing.
                Ok(()) | Err(Errno::INVAL) => Ok(()),
                Err(errno) => Err(self.failed(errno)),
            },
            // It may be written and not be read: nothing to be done.
            Err(Errno::ACCESS) => Ok(()),
            Err(errno) => Err(self.failed(errno)),
        }
    }

    #[cfg(test)]
    fn exchange_is_missing(&self) -> bool {
        self.hooks.has_no_exchange()
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "tests ask it")]
    fn exchange_is_missing(&self) -> bool {
        false
    }

    fn failed(&self, errno: Errno) -> FileError {
        FileError::from_errno(errno, "writing", self.entry.given())
    }

    fn changed(&self) -> FileError {
        FileError::Changed {
            given: self.entry.given().to_owned(),
        }
    }

    fn taken(&self) -> FileError {
        let kind = Facts::at(self.entry.parent(), self.entry.name());
        FileError::Exists {
            given: self.entry.given().to_owned(),
            kind: kind.map_or(super::object::FileKind::Unknown, |facts| facts.kind),
        }
    }

    fn cannot(&self, why: String) -> FileError {
        FileError::CannotReplace {
            given: self.entry.given().to_owned(),
            why,
        }
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else {
            return;
        };
        let there = match Facts::at(self.directory, OsStr::new(&self.name)) {
            Err(Errno::NOENT) => return,
            there => there,
        };
        if self.ours
            && there.is_ok()
            && rustix::fs::unlinkat(self.directory, &self.name, AtFlags::empty()).is_ok()
        {
            return;
        }
        // The next start finds out what it is.
        slot.keep();
    }
}
