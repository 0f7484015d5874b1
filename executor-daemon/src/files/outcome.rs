//! Was a mutation done that was begun before this life? Its inodes tell.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::cancel::Cancel;
use super::instance::{FileId, Location, Seen};
use super::object::{Facts, FileKind};

/// A directory may seem this much older than a record made before it.
const TICK_MILLIS: u64 = 100;

/// How to find out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Check {
    /// It was not done.
    Nothing,
    /// `made` was to take the name, in place of `before`.
    Replaced {
        target: Location,
        made: Seen,
        before: Option<FileId>,
    },
    /// The file was to get a content.
    InPlace {
        target: Location,
        before: Seen,
        digest: [u8; 32],
    },
    /// It was to lose its name.
    Removed { target: Location, id: FileId },
    /// It was to get another name.
    Renamed {
        from: Location,
        to: Location,
        id: FileId,
    },
    /// Something was to be made, at this time.
    Made {
        target: Location,
        at: u64,
        directory: bool,
    },
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// It was, and this has the name.
    Done(Option<Facts>),
    /// It was not: it can be done now.
    NotDone,
    /// Somebody else changed what would tell.
    Unknown,
}

/// # Errors
/// As the system refuses to say.
pub(super) fn decide(check: &Check) -> Result<Decision, Errno> {
    use Decision::{Done, NotDone, Unknown};
    Ok(match check {
        Check::Nothing => NotDone,
        Check::Replaced {
            target,
            made,
            before,
        } => match at(target)? {
            Found::Lost => Unknown,
            Found::Nothing if before.is_none() => NotDone,
            Found::Nothing => Unknown,
            Found::Facts(facts) if seen(&facts) == *made => Done(Some(facts)),
            Found::Facts(facts) if *before == Some(id(&facts)) => NotDone,
            Found::Facts(_) => Unknown,
        },
        Check::InPlace {
            target,
            before,
            digest,
        } => match at(target)? {
            Found::Facts(facts) if id(&facts) == before.id => {
                if content_is(target, before.id, digest)? {
                    Done(Some(facts))
                } else if seen(&facts) == *before {
                    NotDone
                } else {
                    Unknown
                }
            }
            _ => Unknown,
        },
        Check::Removed { target, id: before } => match at(target)? {
            Found::Nothing => Done(None),
            Found::Facts(facts) if id(&facts) == *before => NotDone,
            _ => Unknown,
        },
        Check::Renamed {
            from,
            to,
            id: before,
        } => match (at(from)?, at(to)?) {
            (Found::Facts(facts), _) if id(&facts) == *before => NotDone,
            (_, Found::Facts(facts)) if id(&facts) == *before => Done(Some(facts)),
            _ => Unknown,
        },
        Check::Made {
            target,
            at: time,
            directory,
        } => match at(target)? {
            Found::Nothing => NotDone,
            Found::Facts(facts)
                if (facts.kind == FileKind::Directory || !directory)
                    && changed_since(&facts, *time) =>
            {
                Done(Some(facts))
            }
            _ => Unknown,
        },
    })
}

enum Found {
    /// Its directory is no longer where it was.
    Lost,
    Nothing,
    Facts(Facts),
}

fn at(location: &Location) -> Result<Found, Errno> {
    let Some(directory) = location.directory()? else {
        return Ok(Found::Lost);
    };
    match Facts::at(&directory, &location.name()) {
        Ok(facts) => Ok(Found::Facts(facts)),
        Err(Errno::NOENT) => Ok(Found::Nothing),
        Err(errno) => Err(errno),
    }
}

/// Which file these facts are of.
pub(super) fn id(facts: &Facts) -> FileId {
    FileId {
        device: facts.dev,
        inode: facts.ino,
    }
}

/// What a later process knows the file by.
pub(super) fn seen(facts: &Facts) -> Seen {
    Seen {
        id: id(facts),
        size: facts.size,
        modified: (facts.mtime.0, u64::from(facts.mtime.1)),
    }
}

fn changed_since(facts: &Facts, millis: u64) -> bool {
    let seconds = u64::try_from(facts.ctime.0).unwrap_or(0);
    seconds * 1000 + u64::from(facts.ctime.1 / 1_000_000) + TICK_MILLIS >= millis
}

fn content_is(location: &Location, id: FileId, digest: &[u8; 32]) -> Result<bool, Errno> {
    let Some(directory) = location.directory()? else {
        return Ok(false);
    };
    let file = regular(&directory, &location.name())?;
    if FileId::of(&file)? != id {
        return Ok(false);
    }
    Ok(super::content::hash_of(&file, Cancel::never())?.as_bytes() == digest)
}

/// Opens a file that is known to be a regular one; never waits.
fn regular(directory: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}
