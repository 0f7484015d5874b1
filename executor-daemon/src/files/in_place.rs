//! Writing into a file instead of replacing it: not atomic, and only where a
//! replacement would lose something and the caller asked for it.
//!
//! The new content is first fsynced in the instance's directory (a redo image)
//! and recorded, and its space is reserved. So an interrupted write is finished
//! at the next start, and a full disk is told before the first byte.
//!
//! Beside it the old bytes that are written over are kept, and the digest of
//! those that are cut off: from the two the next start knows whether the file is
//! as an interrupted write leaves it, or whether somebody else wrote since
//! (`instance::interrupted`). That holds for the death of a process; a power cut
//! may leave other states, which are left alone.

use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use super::cancel::Cancel;
use super::content::Content;
use super::error::FileError;
use super::instance::interrupted::digest_of_rest;
use super::instance::{InPlace, Instance, Location, Record, write_all_at};
use super::mutation::Durability;
use super::object::{Facts, Object};
use super::outcome::seen;
use super::replace::Replaced;
use super::shared::State;
use super::undo::{self, Saved};

/// What is to be done.
pub(super) struct Overwrite<'a> {
    pub(super) state: &'a State,
    pub(super) location: &'a Location,
    pub(super) content: &'a Content,
    pub(super) before: &'a Object,
    /// `None`: as it is.
    pub(super) mode: Option<u32>,
    /// Looked at until it begins.
    pub(super) cancel: &'a Cancel,
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
        let file: OwnedFd = self.before.reopen(OFlags::RDWR)?.into();
        let saved = undo::copy(instance, self.before, self.cancel);
        match self.prepared(instance, &file, saved.as_ref(), begins) {
            Ok(facts) => Ok(Replaced {
                facts,
                durability: Durability {
                    atomic: false,
                    checked: false,
                },
                saved,
            }),
            // Its record stays, and so does all that it names.
            Err((error, true)) => Err(error),
            Err((error, false)) => {
                if let Some(saved) = &saved {
                    instance.remove(&saved.name);
                }
                Err(error)
            }
        }
    }

    /// With an error: is it to be finished at the next start?
    fn prepared(
        &self,
        instance: &Instance,
        file: &OwnedFd,
        saved: Option<&Saved>,
        begins: &mut dyn FnMut(&Facts) -> Result<(), FileError>,
    ) -> Result<Facts, (FileError, bool)> {
        let (name, image) = instance.file("redo-").map_err(|e| self.refused(e))?;
        // What is kept for an undo is the whole old content.
        let copied = match saved {
            Some(_) => None,
            None => match instance.file("old-") {
                Ok(made) => Some(made),
                Err(errno) => {
                    instance.remove(&name);
                    return Err(self.refused(errno));
                }
            },
        };
        let old = match (saved, &copied) {
            (Some(saved), _) => saved.name.as_str(),
            (None, Some((name, _))) => name,
            (None, None) => "",
        };
        let into = copied.as_ref().map(|(_, file)| file);
        let images = Images {
            name: &name,
            image: &image,
            old,
            into,
        };
        let written = self.with_images(instance, file, &images, begins);
        if !matches!(written, Err((_, true))) {
            instance.remove(&name);
            if let Some((name, _)) = &copied {
                instance.remove(name);
            }
        }
        written
    }

    fn with_images(
        &self,
        instance: &Instance,
        file: &OwnedFd,
        images: &Images<'_>,
        begins: &mut dyn FnMut(&Facts) -> Result<(), FileError>,
    ) -> Result<Facts, (FileError, bool)> {
        let refused = |errno| self.refused(errno);
        let before = self.before.facts();
        let mode = self.mode.unwrap_or(before.mode);
        let length = self.content.length();
        self.content
            .write_to(images.image, self.cancel)
            .map_err(refused)?;
        rustix::fs::fsync(images.image).map_err(refused)?;
        let tail = match self.keep_old(file, images.into) {
            // Shorter than it was said to be.
            Err(Errno::IO) if self.was_changed(file) => return Err((self.changed(), false)),
            kept => kept.map_err(refused)?,
        };
        // Reserving changes the file's times, so this look comes first.
        if self.was_changed(file) {
            return Err((self.changed(), false));
        }
        reserve(file, length).map_err(refused)?;
        let reserved = Facts::of(file).map_err(refused)?;
        let record = Record::InPlace(InPlace {
            place: self.location.clone(),
            before: seen(&reserved),
            image: images.name.to_owned(),
            old: images.old.to_owned(),
            tail,
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
        let written = copy_over(images.image, file, length)
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

    /// Keeps the old bytes that are written over, where nothing else does; the
    /// digest of those that are cut off.
    fn keep_old(&self, file: &OwnedFd, into: Option<&OwnedFd>) -> Result<[u8; 32], Errno> {
        let (old, new) = (self.before.facts().size, self.content.length());
        if let Some(into) = into {
            copy(file, into, old.min(new), self.cancel)?;
        }
        digest_of_rest(file, old.min(new), old, self.cancel)
    }

    fn was_changed(&self, file: &OwnedFd) -> bool {
        let before = self.before.facts().version();
        !Facts::of(file).is_ok_and(|now| now.version() == before)
    }

    fn changed(&self) -> FileError {
        FileError::Changed {
            given: self.before.given().to_owned(),
        }
    }

    fn refused(&self, errno: Errno) -> (FileError, bool) {
        let given = self.before.given();
        (FileError::from_errno(errno, "writing", given), false)
    }
}

/// What the recovery would need, in the instance's directory.
struct Images<'a> {
    name: &'a str,
    image: &'a OwnedFd,
    old: &'a str,
    /// Where the old bytes are to be copied; `None`: `old` has them.
    into: Option<&'a OwnedFd>,
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

/// The regular file that an `O_PATH` handle is, opened to be read and written;
/// neither made nor truncated.
pub(super) fn reopen_for_writing(handle: &OwnedFd) -> Result<OwnedFd, Errno> {
    if rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(handle)?.st_mode)
        != rustix::fs::FileType::RegularFile
    {
        return Err(Errno::INVAL);
    }
    // The way to open what an O_PATH handle is (open(2), proc(5)).
    let link = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(link, flags, Mode::empty())
}

/// Makes the first `length` bytes of `image` the whole content of `file`.
pub(super) fn copy_over(image: &OwnedFd, file: &OwnedFd, length: u64) -> Result<(), Errno> {
    copy(image, file, length, Cancel::never())?;
    rustix::fs::ftruncate(file, length)
}

/// Copies the first `length` bytes; both files may be anywhere.
pub(super) fn copy(
    from: &OwnedFd,
    to: &OwnedFd,
    length: u64,
    cancel: &Cancel,
) -> Result<(), Errno> {
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    while at < length {
        cancel.errno()?;
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
