//! The content of a regular file, read at offsets in pieces that have a bound.
//!
//! Where a file ends is where reading says so: the files of procfs and sysfs
//! have content that their size does not tell. Of a file that says it has no
//! bytes at most so many are read as the fence allows.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use super::cancel::Cancel;
use super::error::FileError;
use super::object::{Facts, Object};
use super::version::Digest;

/// Bytes that are read at a time where all is looked through.
pub(super) const CHUNK_BYTES: usize = 256 << 10;

/// An opened regular file.
#[derive(Debug)]
pub(super) struct Content {
    file: File,
    object: Object,
    limit: Option<u64>,
}

impl Content {
    /// Of one whose size is 0 at most `unsized_bytes` are read.
    pub(super) fn open(object: Object, unsized_bytes: u64) -> Result<Self, FileError> {
        let file = object.content()?;
        let limit = (object.facts().size == 0).then_some(unsized_bytes);
        Ok(Self {
            file,
            object,
            limit,
        })
    }

    pub(super) fn object(&self) -> &Object {
        &self.object
    }

    pub(super) fn given(&self) -> PathBuf {
        self.object.given().to_owned()
    }

    /// As it was when it was opened.
    pub(super) fn facts(&self) -> &Facts {
        self.object.facts()
    }

    /// Has it still the version that it was opened with?
    pub(super) fn is_unchanged(&self) -> Result<bool, FileError> {
        Ok(self.object.facts_now()?.version() == self.facts().version())
    }

    /// Fills `buffer` from `at`; what is returned is shorter only where the
    /// file ends.
    pub(super) fn read<'a>(&self, at: u64, buffer: &'a mut [u8]) -> Result<&'a [u8], FileError> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, at.saturating_add(filled as u64)) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(FileError::from_io(&error, "reading", self.object.given()));
                }
            }
        }
        if let Some(limit) = self.limit
            && at.saturating_add(filled as u64) > limit
        {
            return Err(FileError::UnsizedTooLarge {
                given: self.given(),
                limit,
            });
        }
        Ok(buffer.get(..filled).unwrap_or_default())
    }

    /// Reads all of it, in pieces of [`CHUNK_BYTES`]; `take` gets them in order
    /// with where they begin. Returns the length.
    pub(super) fn read_through(
        &self,
        cancel: &Cancel,
        mut take: impl FnMut(u64, &[u8]),
    ) -> Result<u64, FileError> {
        let size = usize::try_from(self.facts().size).unwrap_or(usize::MAX);
        // One byte more than the file has shows its end at the first try.
        let mut buffer = vec![0; size.saturating_add(1).clamp(4096, CHUNK_BYTES)];
        let mut at = 0;
        loop {
            cancel.check()?;
            let chunk = self.read(at, &mut buffer)?;
            take(at, chunk);
            at += chunk.len() as u64;
            if chunk.len() < buffer.len() {
                return Ok(at);
            }
        }
    }

    /// The digest of all of it, in constant memory.
    pub(super) fn digest(&self, cancel: &Cancel) -> Result<Digest, FileError> {
        let mut hasher = blake3::Hasher::new();
        self.read_through(cancel, |_, chunk| {
            hasher.update(chunk);
        })?;
        Ok(hasher.finalize().into())
    }
}
