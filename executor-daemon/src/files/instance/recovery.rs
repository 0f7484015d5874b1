//! What a dead instance left is put right: at the next start, by whoever
//! starts, only in directories whose lock is free.
//!
//! Of a temporary that was recorded there may be, at its name:
//!
//! | at the temporary's name | at the target's | what is done |
//! |---|---|---|
//! | nothing | | nothing |
//! | the temporary | | removed: it was not committed |
//! | what it was to displace | | removed: it was committed |
//! | something else | the temporary | exchanged back, then removed: the check after the exchange did not come to its end |
//! | something else | something else | left alone, and told |
//! | no inode was recorded | | removed if empty, ours, and made after the record |
//!
//! A file that was being written in place is written again from its redo image.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, StatxFlags};
use rustix::io::Errno;

use super::location::FileId;
use super::record::{InPlace, Record, Seen, Temporary};
use super::{lock, names, slot};

/// Clocks of file systems tick coarsely: a file may seem this much older than
/// a record that was written before it was made.
const TICK_MILLIS: u64 = 100;

/// Recovers all dead instances. One that cannot be recovered keeps its
/// directory for the next start.
pub(crate) fn recover(all: &OwnedFd, path: &Path) -> Result<(), Errno> {
    for name in names(all)? {
        let name = OsStr::from_bytes(name.as_bytes());
        let Some(directory) = lock(all, name)? else {
            continue;
        };
        if !instance(&directory, &path.join(name)) {
            continue;
        }
        let gone =
            empty(&directory).and_then(|()| rustix::fs::unlinkat(all, name, AtFlags::REMOVEDIR));
        if let Err(errno) = gone {
            tracing::warn!(instance = ?path.join(name), %errno, "a dead instance's directory stays");
        }
    }
    Ok(())
}

/// `true` when nothing is left to do.
fn instance(directory: &OwnedFd, path: &Path) -> bool {
    let found = match names(directory) {
        Ok(found) => found,
        Err(errno) => {
            tracing::warn!(instance = ?path, %errno, "a dead instance cannot be read");
            return false;
        }
    };
    let mut whole = true;
    for name in found.iter().filter(|n| n.as_bytes().starts_with(b"slot-")) {
        let done = recover_slot(directory, OsStr::from_bytes(name.as_bytes()));
        if let Err(errno) = done {
            tracing::warn!(instance = ?path, slot = ?name, %errno, "not recovered; tried again at the next start");
            whole = false;
        }
    }
    whole
}

fn recover_slot(directory: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    match slot::read(&file)? {
        None => Ok(()),
        Some((Record::Temporary(record), made)) => temporary(&record, made),
        Some((Record::InPlace(record), _)) => in_place(directory, &record),
    }
}

fn temporary(record: &Temporary, made: Option<FileId>) -> Result<(), Errno> {
    let path = record.place.path();
    let Some(directory) = record.place.directory()? else {
        tracing::warn!(
            ?path,
            "the directory of a temporary is no longer there; it may be left"
        );
        return Ok(());
    };
    let name = record.place.name();
    let Some(there) = look(&directory, &name)? else {
        return Ok(());
    };
    let Some(made) = made else {
        if fits(&directory, &name, record)? {
            return remove(&directory, &name);
        }
        tracing::warn!(
            ?path,
            "has a temporary's name and is none of ours; left alone"
        );
        return Ok(());
    };
    if there.id == made || record.displaces.is_some_and(|old| old == there) {
        return remove(&directory, &name);
    }
    // It is neither: somebody replaced or changed the file between the last
    // look and the exchange. Theirs goes back to the name it was meant for.
    let target = OsStr::from_bytes(&record.target);
    if look(&directory, target)?.is_some_and(|target| target.id == made) {
        let exchange = RenameFlags::EXCHANGE;
        rustix::fs::renameat_with(&directory, &name, &directory, target, exchange)?;
        if look(&directory, &name)?.is_some_and(|there| there.id == made) {
            return remove(&directory, &name);
        }
    }
    tracing::warn!(?path, "holds what somebody else wrote; left alone");
    Ok(())
}

/// The redo image is whole: it was fsynced before the record was written.
fn in_place(instance: &OwnedFd, record: &InPlace) -> Result<(), Errno> {
    let path = record.place.path();
    let Some(directory) = record.place.directory()? else {
        tracing::warn!(?path, "was being written and is no longer to be found");
        return Ok(());
    };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = match rustix::fs::openat(&directory, record.place.name(), flags, Mode::empty()) {
        Err(Errno::NOENT) => {
            tracing::warn!(?path, "was being written and was removed since");
            return Ok(());
        }
        opened => opened?,
    };
    let now = Seen::from(&rustix::fs::fstat(&handle)?);
    if now.id != record.before.id || !interrupted_at(now.size, record) {
        tracing::warn!(
            ?path,
            "was being written and is another file now; left alone"
        );
        return Ok(());
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let image = match rustix::fs::openat(instance, &record.image, flags, Mode::empty()) {
        // Removed before the record was taken back: it was finished.
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    let file = crate::files::in_place::reopen_for_writing(&handle)?;
    crate::files::in_place::copy_over(&image, &file, record.length)?;
    if rustix::fs::fstat(&file)?.st_mode & 0o7777 != record.mode {
        rustix::fs::fchmod(&file, Mode::from_raw_mode(record.mode))?;
    }
    rustix::fs::fsync(&file)?;
    tracing::info!(?path, "a write in place that was interrupted is finished");
    Ok(())
}

/// A write that was interrupted may have left a file of this size: it grows to
/// its new size, and is cut to it at the end.
fn interrupted_at(size: u64, record: &InPlace) -> bool {
    let (old, new) = (record.before.size, record.length);
    size == old || size == new || (old..=new).contains(&size)
}

fn look(directory: &OwnedFd, name: &OsStr) -> Result<Option<Seen>, Errno> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(Seen::from(&stat))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn remove(directory: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// A file at a recorded name whose inode was not recorded: is it the one?
fn fits(directory: &OwnedFd, name: &OsStr, record: &Temporary) -> Result<bool, Errno> {
    let what = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let stat = rustix::fs::statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, what)?;
    let kind = FileType::from_raw_mode(u32::from(stat.stx_mode));
    // Where the time of birth is not kept: that of the last change cannot be
    // earlier.
    let time = if stat.stx_mask & StatxFlags::BTIME.bits() != 0 {
        stat.stx_btime
    } else {
        stat.stx_ctime
    };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let born = seconds * 1000 + u64::from(time.tv_nsec / 1_000_000);
    Ok(kind == FileType::RegularFile
        && stat.stx_uid == record.owner
        && stat.stx_nlink == 1
        && stat.stx_size == 0
        && born + TICK_MILLIS >= record.at)
}

/// Removes the files in an instance's directory.
pub(super) fn empty(directory: &OwnedFd) -> Result<(), Errno> {
    for name in names(directory)? {
        rustix::fs::unlinkat(directory, &name, AtFlags::empty())?;
    }
    Ok(())
}
