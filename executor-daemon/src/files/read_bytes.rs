//! A range of a file's bytes, all of one version.
//!
//! After each piece was read the file is compared with what it was when it was
//! opened, and only then is the piece given out. So whatever came out is of the
//! version that was told first.

use std::ffi::OsStr;
use std::path::Path;

use super::cancel::Cancel;
use super::entry::Last;
use super::error::FileError;
use super::fence::Fence;
use super::object::Facts;
use super::opened::Content;
use super::version::Version;

/// Bytes of one piece, at most.
pub const PIECE_BYTES: usize = 256 << 10;

/// A range that is being read.
#[derive(Debug)]
pub struct ReadBytes {
    content: Content,
    at: u64,
    end: u64,
}

impl ReadBytes {
    /// Opens a file to be read from `offset`, `length` bytes or to its end.
    /// `version` is what an earlier part was of.
    ///
    /// # Errors
    /// [`FileError::Changed`] when it has another version,
    /// [`FileError::InvalidArgument`] for an offset beyond its end,
    /// [`FileError::NotARegularFile`], and as [`Fence::object`].
    pub fn open(
        fence: &Fence,
        given: &OsStr,
        offset: u64,
        length: Option<u64>,
        version: Option<Version>,
    ) -> Result<Self, FileError> {
        let content = Content::open(fence.object(given, Last::Follow)?, fence.unsized_bytes())?;
        let facts = content.facts();
        if version.is_some_and(|version| version != facts.version()) {
            return Err(FileError::Changed {
                given: given.into(),
            });
        }
        // One of size 0 may have content for all that.
        if offset > facts.size && facts.size > 0 {
            return Err(FileError::InvalidArgument {
                field: "offset",
                why: format!(
                    "{offset} is beyond the end; the file has {} bytes",
                    facts.size
                ),
            });
        }
        Ok(Self {
            content,
            at: offset,
            end: length.map_or(u64::MAX, |length| offset.saturating_add(length)),
        })
    }

    /// What the file was when it was opened.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        self.content.facts()
    }

    /// Its absolute name, without links.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.content.object().path()
    }

    /// Where the next piece begins.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.at
    }

    /// The next piece, at most [`PIECE_BYTES`]; `None` at the end of the range
    /// or of the file.
    ///
    /// # Errors
    /// [`FileError::Changed`], [`FileError::Cancelled`], and as the system
    /// refuses; nothing more can be read then.
    pub fn next_piece(&mut self, cancel: &Cancel) -> Result<Option<Vec<u8>>, FileError> {
        cancel.check()?;
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let known = self.facts().size.saturating_sub(self.at);
        let room = match usize::try_from(known) {
            // The end, or a file that does not say how much it has.
            Ok(0) => PIECE_BYTES,
            Ok(known) => known.min(PIECE_BYTES),
            Err(_) => PIECE_BYTES,
        };
        let mut piece = vec![0; room.min(left)];
        let read = self.content.read(self.at, &mut piece)?.len();
        piece.truncate(read);
        if !self.content.is_unchanged()? {
            return Err(FileError::Changed {
                given: self.content.given(),
            });
        }
        self.at += read as u64;
        Ok((read > 0).then_some(piece))
    }
}
