//! What a mutation is about to leave in a directory, as it is written down.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::Stat;
use serde::{Deserialize, Serialize};

use super::location::{FileId, Location};

/// One mutation's record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Record {
    /// A temporary that will take a name.
    Temporary(Temporary),
    /// A file that is written in place.
    InPlace(InPlace),
    /// What is taken from a name to be removed, if it is what it displaces.
    Aside(Temporary),
    /// Two names that are exchanged, of which the first is then removed.
    Exchanged(Exchanged),
}

/// A rename that replaces a file: `from` takes the place of what has the name
/// `to`, and that is removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Exchanged {
    /// The name that is left.
    pub(crate) from: Location,
    /// The name that is taken.
    pub(crate) to: Location,
    /// What is renamed.
    pub(crate) moved: FileId,
    /// What is removed.
    pub(crate) displaces: Seen,
}

/// A temporary, and the name that it is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Temporary {
    /// Its directory and random name.
    pub(crate) place: Location,
    /// Who makes it.
    pub(crate) owner: u32,
    /// When it was written down, in milliseconds since 1970.
    pub(crate) at: u64,
    /// The name in the same directory that it is for.
    #[serde(with = "serde_bytes")]
    pub(crate) target: Vec<u8>,
    /// What is expected to be exchanged for it.
    pub(crate) displaces: Option<Seen>,
}

/// What has a name before a mutation takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// Which file.
    pub(crate) id: FileId,
    /// Bytes.
    pub(crate) size: u64,
    /// When its content was changed: seconds and nanoseconds.
    pub(crate) modified: (i64, u64),
}

impl From<&Stat> for Seen {
    #[expect(
        clippy::cast_sign_loss,
        clippy::unnecessary_cast,
        reason = "sizes and nanoseconds are never negative; their types differ between machines"
    )]
    fn from(stat: &Stat) -> Self {
        Self {
            id: FileId::from(stat),
            size: stat.st_size as u64,
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as u64),
        }
    }
}

/// A file that is written in place, and where its new content is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InPlace {
    /// The file's name.
    pub(crate) place: Location,
    /// What it was before.
    pub(crate) before: Seen,
    /// The whole new content: a file in the instance's directory.
    pub(crate) image: String,
    /// The old content, at least as much of it as is written over: likewise.
    pub(crate) old: String,
    /// BLAKE3 of the old content beyond the new one's length.
    pub(crate) tail: [u8; 32],
    /// Bytes of it.
    pub(crate) length: u64,
    /// BLAKE3 of it.
    pub(crate) digest: [u8; 32],
    /// Permission bits to be left.
    pub(crate) mode: u32,
}

/// Milliseconds since 1970.
pub(crate) fn millis_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or(Duration::ZERO).as_millis()).unwrap_or(u64::MAX)
}
