//! Writing into a file instead of replacing it: not atomic, and only where a
//! replacement would lose something and the caller asked for it.

//!
//! The new content is first fsynced in the instance's directory (a redo image)
//! and recorded, and its space is reserved. So an interrupted write is finished
//! at the next start, and a full disk is told before the first byte.

use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use super::content::Content;
use super::error::FileError;
use super::instance::{InPlace, Instance, Location, Record, write_all_at};
use super::mutation::Durability;
use super::object::{Facts, Object};
use super::outcome::seen;
use super::replace::Replaced;
use super::shared::State;
use super::undo;

/// What is to be done.
pub(super) struct Overwrite<'a> {
    pub(super) state: &'a State,
    pub(super) location: &'a Location,
    pub(super) content: &'a Content,
    pub(super) before: &'a Object,
    /// `None`: as it is.
    pub(super) mode: Option<u32>,
    #[cfg(test)]
    pub(super) hooks: &'a super::hooks::Hooks,
}

impl Overwrite<'_> {
    /// Does it. `begins` is told just before the first byte.
    ///
    /// # Errors
    /// [`FileError::NoSpace`] with the file as it was; [`FileError::Io`] after
    /// the first byte leaves the rest to the next start.
    pub(super) fn run(
        self,
        begins: &mut dyn FnMut(&Facts) -> Result<(), FileError>,
    ) -> Result<Replaced, FileError> {
        let instance = &self.state.instance;
        let file: OwnedFd = self.before.reopen(OFlags::WRONLY)?.into();
        let saved = undo::copy(instance, self.before);
        let done = self.prepared(instance, &file, begins);
        if done.is_err()
            && let Some(saved) = &saved
        {
            instance.remove(&saved.name);
        }
        Ok(Replaced {
            facts: done?,
            durability: Durability {
                atomic: false,
                checked: false,
            },
            saved,
        })
    }

    fn prepared(
        &self,
        instance: &Instance,
        file: &OwnedFd,
        begins: &mut dyn FnMut(&Facts) -> Result<(), FileError>,
    ) -> Result<Facts, FileError> {
        let failed = |errno| FileError::from_errno(errno, "writing", self.before.given());
        let (name, image) = instance.file("redo-").map_err(failed)?;
        let written = self.with_image(instance, file, &name, &image, begins);
        match written {
            Ok(facts) => {
                instance.remove(&name);
                Ok(facts)
            }
            // Its record stays, and so does the image.
            Err((error, true)) => Err(error),
            Err((error, false)) => {
                instance.remove(&name);
                Err(error)
            }
        }
    }

    /// With an error: is it to be finished at the next start?
    fn with_image(
        &self,
        instance: &Instance,
        file: &OwnedFd,
        name: &str,
        image: &OwnedFd,
        begins: &mut dyn FnMut(&Facts) -> Result<(), FileError>,
    ) -> Result<Facts, (FileError, bool)> {
        let refused = |errno| {
            (
                FileError::from_errno(errno, "writing", self.before.given()),
                false,
            )
        };
        let before = self.before.facts();
        let mode = self.mode.unwrap_or(before.mode);
        let length = self.content.length();
        self.content.write_to(image).map_err(refused)?;
        rustix::fs::fsync(image).map_err(refused)?;
        // Reserving changes the file's times, so this look comes first.
        if Facts::of(file).map_err(refused)?.version() != before.version() {
            return Err((self.changed(), false));
        }
        reserve(file, length).map_err(refused)?;
        let reserved = Facts::of(file).map_err(refused)?;
        let record = Record::InPlace(InPlace {
            place: self.location.clone(),
            before: seen(&reserved),
            image: name.to_owned(),
            length,
            digest: *self.content.digest().as_bytes(),
            mode,
        });
        let slot = instance.record(&record).map_err(refused)?;
        slot.sync().map_err(refused)?;
        begins(&reserved).map_err(|error| (error, false))?;
        #[cfg(test)]
        self.hooks.commit(self.before.path());
        // The last look: a foreign write up to here is seen.
        if Facts::of(file).map_err(refused)?.version() != reserved.version() {
            slot.clear_for_good().map_err(refused)?;
            return Err((self.changed(), false));
        }
        let written = copy_over(image, file, length)
            .and_then(|()| with_mode(file, mode))
            .and_then(|()| rustix::fs::fsync(file));
        if let Err(errno) = written {
            slot.keep();
            return Err((refused(errno).0, true));
        }
        // A record that came back after a power cut would undo later writes.
        slot.clear_for_good().map_err(refused)?;
        Facts::of(file).map_err(refused)
    }

    fn changed(&self) -> FileError {
        FileError::Changed {
            given: self.before.given().to_owned(),
        }
    }
}

/// Reserves the space of `length` bytes; the file's size stays (fallocate(2)).
fn reserve(file: &OwnedFd, length: u64) -> Result<(), Errno> {
    if length == 0 {
        return Ok(());
    }
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, length) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        reserved => reserved,
    }
}

/// Writing takes setuid and setgid away (chmod(2)).
fn with_mode(file: &OwnedFd, mode: u32) -> Result<(), Errno> {
    if Facts::of(file)?.mode == mode {
        return Ok(());
    }
    rustix::fs::fchmod(file, Mode::from_raw_mode(mode))
}

/// Bytes that are copied at a time.
const CHUNK: usize = 256 << 10;

/// The regular file that an `O_PATH` handle is, opened to be written; neither
/// made nor truncated.
pub(super) fn reopen_for_writing(handle: &OwnedFd) -> Result<OwnedFd, Errno> {
    if rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(handle)?.st_mode)
        != rustix::fs::FileType::RegularFile
    {
        return Err(Errno::INVAL);
    }
    // The way to open what an O_PATH handle is (open(2), proc(5)).
    let link = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match rustix::fs::open(&link, flags, Mode::empty()) {
        Err(Errno::ACCESS) => {
            let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            rustix::fs::open(link, flags, Mode::empty())
        }
        opened => opened,
    }
}

/// Makes the first `length` bytes of `image` the whole content of `file`.
pub(super) fn copy_over(image: &OwnedFd, file: &OwnedFd, length: u64) -> Result<(), Errno> {
    copy(image, file, length)?;
    rustix::fs::ftruncate(file, length)
}

/// Copies the first `length` bytes; both files may be anywhere.
pub(super) fn copy(from: &OwnedFd, to: &OwnedFd, length: u64) -> Result<(), Errno> {
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    while at < length {
        let want = usize::try_from(length - at).map_or(CHUNK, |left| left.min(CHUNK));
        let part = buffer.get_mut(..want).unwrap_or_default();
        match rustix::io::pread(from, &mut *part, at) {
            // Shorter than it was said to be.
            Ok(0) => return Err(Errno::IO),
            Ok(count) => {
                write_all_at(to, part.get(..count).unwrap_or_default(), at)?;
                at += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
