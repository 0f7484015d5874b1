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
//! What was taken from a name to be removed is removed, if it is that; something
//! else gets its name back, if nothing has it. Of two names that were exchanged
//! the first is removed if both are as the exchange left them.
//!
//! A file that was being written in place is written again from its redo image,
//! if it is as an interrupted write leaves it (`interrupted`). Otherwise somebody
//! else wrote since, or it is no longer there: it is left alone and told, and the
//! record, the new content and the old stay for a look for [`KEPT_SECONDS`].

use std::collections::HashSet;
use std::ffi::{CString, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, StatxFlags};
use rustix::io::Errno;

use super::interrupted::is_interrupted;
use super::location::FileId;
use super::record::{Exchanged, InPlace, Record, Seen, Temporary, millis_now};
use super::{lock, names, slot};
use crate::files::object::Facts;

/// Clocks of file systems tick coarsely: a file may seem this much older than
/// a record that was written before it was made.
const TICK_MILLIS: u64 = 100;
/// How long is kept what could not be finished: a week.
const KEPT_SECONDS: u64 = 7 * 24 * 3600;

/// Recovers all dead instances. One that cannot be recovered keeps its
/// directory for the next start.
pub(crate) fn recover(all: &OwnedFd, path: &Path) -> Result<(), Errno> {
    for name in names(all)? {
        let name = OsStr::from_bytes(name.as_bytes());
        let Some(directory) = lock(all, name)? else {
            continue;
        };
        let Some(kept) = instance(&directory, &path.join(name)) else {
            continue;
        };
        let mut gone = empty_but(&directory, &kept);
        if kept.is_empty() {
            gone = gone.and_then(|()| rustix::fs::unlinkat(all, name, AtFlags::REMOVEDIR));
        }
        if let Err(errno) = gone {
            tracing::warn!(instance = ?path.join(name), %errno, "a dead instance's directory stays");
        }
    }
    Ok(())
}

/// Names in an instance's directory.
type Names = HashSet<Vec<u8>>;

/// What is to be kept for a look; `None` when there is something left to do at
/// the next start.
fn instance(directory: &OwnedFd, path: &Path) -> Option<Names> {
    let found = match names(directory) {
        Ok(found) => found,
        Err(errno) => {
            tracing::warn!(instance = ?path, %errno, "a dead instance cannot be read");
            return None;
        }
    };
    let mut whole = true;
    let mut kept = Names::new();
    for name in &found {
        let done = if name.as_bytes().starts_with(b"slot-") {
            recover_slot(directory, path, name)
        } else if name.as_bytes().starts_with(b"conflict-") {
            conflict(directory, path, name)
        } else {
            continue;
        };
        match done {
            Ok(names) => kept.extend(names),
            Err(errno) => {
                tracing::warn!(instance = ?path, slot = ?name, %errno, "not recovered; tried again at the next start");
                whole = false;
            }
        }
    }
    whole.then_some(kept)
}

fn read(directory: &OwnedFd, name: &CString) -> Result<Option<(Record, Option<FileId>)>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    slot::read(&file)
}

/// What is to be kept of it.
fn recover_slot(directory: &OwnedFd, path: &Path, name: &CString) -> Result<Names, Errno> {
    match read(directory, name)? {
        None => Ok(Names::new()),
        Some((Record::Temporary(record), made)) => {
            temporary(&record, made)?;
            Ok(Names::new())
        }
        Some((Record::Aside(record), _)) => {
            aside(&record)?;
            Ok(Names::new())
        }
        Some((Record::Exchanged(record), _)) => {
            exchanged(&record)?;
            Ok(Names::new())
        }
        Some((Record::InPlace(record), _)) => {
            if let Some(why) = in_place(directory, &record)? {
                tracing::warn!(path = ?record.place.path(), why, "a write in place was interrupted and is not finished");
                // Under another name: what it is then is nothing to be finished.
                let slot = name.to_string_lossy();
                let number = slot.trim_start_matches("slot-");
                let renamed =
                    CString::new(format!("conflict-{number}")).map_err(|_| Errno::INVAL)?;
                rustix::fs::renameat(directory, name, directory, &renamed)?;
                return conflict(directory, path, &renamed);
            }
            Ok(Names::new())
        }
    }
}

/// What is to be kept of a write in place that could not be finished.
fn conflict(directory: &OwnedFd, path: &Path, name: &CString) -> Result<Names, Errno> {
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    // When it was renamed.
    let since = u64::try_from(stat.st_ctime).unwrap_or(0);
    let Some((Record::InPlace(record), _)) = read(directory, name)? else {
        return Ok(Names::new());
    };
    if since.saturating_add(KEPT_SECONDS) < millis_now() / 1000 {
        return Ok(Names::new());
    }
    tracing::warn!(
        path = ?record.place.path(),
        content = ?path.join(&record.image),
        old = ?path.join(&record.old),
        "a write in place was not finished; what was to be written and what was there are kept for a week",
    );
    let names = [
        name.to_bytes(),
        record.image.as_bytes(),
        record.old.as_bytes(),
    ];
    Ok(names.map(<[u8]>::to_vec).into())
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

fn aside(record: &Temporary) -> Result<(), Errno> {
    let path = record.place.path();
    let Some(directory) = record.place.directory()? else {
        tracing::warn!(?path, "was to be removed and is no longer to be found");
        return Ok(());
    };
    let name = record.place.name();
    let Some(there) = look(&directory, &name)? else {
        return Ok(());
    };
    if record.displaces == Some(there) {
        return remove(&directory, &name);
    }
    let target = OsStr::from_bytes(&record.target);
    let flags = RenameFlags::NOREPLACE;
    match rustix::fs::renameat_with(&directory, &name, &directory, target, flags) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST | Errno::INVAL | Errno::NOSYS) => {
            tracing::warn!(?path, ?target, "holds what somebody else wrote; left alone");
            Ok(())
        }
        Err(errno) => Err(errno),
    }
}

fn exchanged(record: &Exchanged) -> Result<(), Errno> {
    let (Some(from), Some(to)) = (record.from.directory()?, record.to.directory()?) else {
        return Ok(());
    };
    let moved = look(&to, &record.to.name())?;
    let left = look(&from, &record.from.name())?;
    if moved.is_none_or(|moved| moved.id != record.moved) {
        return Ok(());
    }
    match left {
        Some(left) if left == record.displaces => remove(&from, &record.from.name()),
        Some(_) => {
            let path = record.from.path();
            tracing::warn!(
                ?path,
                "was being renamed, and somebody else wrote meanwhile; left alone"
            );
            Ok(())
        }
        None => Ok(()),
    }
}

/// Finishes it; else why not. The redo image is whole: it was fsynced before the
/// record was written.
fn in_place(instance: &OwnedFd, record: &InPlace) -> Result<Option<&'static str>, Errno> {
    let Some(directory) = record.place.directory()? else {
        return Ok(Some("its directory is no longer to be found"));
    };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = match rustix::fs::openat(&directory, record.place.name(), flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(Some("it was removed since")),
        opened => opened?,
    };
    if FileId::of(&handle)? != record.before.id {
        return Ok(Some("another file has its name"));
    }
    let kept = |name: &str| {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(instance, name, flags, Mode::empty())
    };
    let (image, old) = match (kept(&record.image), kept(&record.old)) {
        // Removed before the record was taken back: it was finished.
        (Err(Errno::NOENT), _) => return Ok(None),
        (image, old) => (image?, old?),
    };
    let file = crate::files::in_place::reopen_for_writing(&handle)?;
    let now = Facts::of(&file)?;
    if !is_interrupted(&file, now.size, &image, &old, record)?
        || Facts::of(&file)?.version() != now.version()
    {
        return Ok(Some("somebody else changed it since"));
    }
    crate::files::in_place::copy_over(&image, &file, record.length)?;
    if rustix::fs::fstat(&file)?.st_mode & 0o7777 != record.mode {
        rustix::fs::fchmod(&file, Mode::from_raw_mode(record.mode))?;
    }
    rustix::fs::fsync(&file)?;
    tracing::info!(path = ?record.place.path(), "a write in place that was interrupted is finished");
    Ok(None)
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
    empty_but(directory, &Names::new())
}

fn empty_but(directory: &OwnedFd, kept: &Names) -> Result<(), Errno> {
    for name in names(directory)? {
        if kept.contains(name.as_bytes()) {
            continue;
        }
        rustix::fs::unlinkat(directory, &name, AtFlags::empty())?;
    }
    Ok(())
}
