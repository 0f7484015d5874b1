//! What one name leads to.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::cancel::Cancel;
use super::entry::Last;
use super::error::FileError;
use super::fence::Fence;
use super::line_index::LineIndexes;
use super::object::Facts;
use super::opened::Content;
use super::version::Digest;

/// How often a digest is computed again because the file changed meanwhile.
const ATTEMPTS: usize = 3;

/// See the module's documentation.
#[derive(Debug, Clone)]
pub struct Stat {
    /// What the file system says.
    pub facts: Facts,
    /// Absolute, without links.
    pub path: PathBuf,
    /// Of a link: its text.
    pub link_target: Option<OsString>,
    /// Of the content, if it was asked for.
    pub digest: Option<Digest>,
}

/// Describes what `given` names; a link itself with [`Last::Keep`]. Nothing is
/// opened but, for the digest, a regular file's content.
///
/// # Errors
/// As [`Fence::object`]; with a digest also [`FileError::NotARegularFile`],
/// [`FileError::IsADirectory`], and [`FileError::Changed`] for a file that is
/// always being written.
pub fn stat(
    fence: &Fence,
    given: &OsStr,
    last: Last,
    with_digest: bool,
    indexes: &LineIndexes,
    cancel: &Cancel,
) -> Result<Stat, FileError> {
    for _ in 0..ATTEMPTS {
        let object = fence.object(given, last)?;
        let mut stat = Stat {
            facts: *object.facts(),
            path: object.path().to_owned(),
            link_target: object.link_target()?,
            digest: None,
        };
        if !with_digest {
            return Ok(stat);
        }
        let content = Content::open(object, fence.unsized_bytes())?;
        let digest = content.digest(cancel)?;
        if content.is_unchanged()? {
            indexes.learn_digest(&stat.facts, digest);
            stat.digest = Some(digest);
            return Ok(stat);
        }
    }
    Err(FileError::Changed {
        given: given.into(),
    })
}
