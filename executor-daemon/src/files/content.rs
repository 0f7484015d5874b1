//! A content that is to be written: in memory while it is small, in a file of
//! the instance's directory when it is not.

use std::borrow::Cow;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::io::Errno;

use super::Files;
use super::cancel::Cancel;
use super::error::FileError;
use super::in_place::copy;
use super::instance::{read_at, write_all_at};
use super::object::Object;
use super::version::Digest;

/// Bytes that one content may have.
pub const CONTENT_BYTES: u64 = 256 << 20;
/// A larger one goes to a file.
const IN_MEMORY: usize = 1 << 20;
const CHUNK: usize = 256 << 10;

/// A whole content, and its digest.
#[derive(Debug)]
pub struct Content {
    inner: Inner,
    length: u64,
    digest: Digest,
}

#[derive(Debug)]
enum Inner {
    Memory(Vec<u8>),
    File(OwnedFd),
}

impl Content {
    /// A content that is in memory already.
    #[must_use]
    pub fn of(bytes: Vec<u8>) -> Self {
        Self {
            length: bytes.len() as u64,
            digest: Digest::of(&bytes),
            inner: Inner::Memory(bytes),
        }
    }

    /// The first `length` bytes of a file of ours.
    pub(super) fn of_file(file: OwnedFd, length: u64, cancel: &Cancel) -> Result<Self, Errno> {
        let digest = hash_of(&file, cancel)?.into();
        Ok(Self {
            inner: Inner::File(file),
            length,
            digest,
        })
    }

    /// Bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// BLAKE3.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// All of it as text, what is none replaced. `None`: it cannot be read
    /// again.
    pub(super) fn text(&self) -> Option<Cow<'_, str>> {
        match &self.inner {
            Inner::Memory(bytes) => Some(String::from_utf8_lossy(bytes)),
            Inner::File(file) => {
                let mut bytes = vec![0; usize::try_from(self.length).ok()?];
                let filled = read_at(file, &mut bytes, 0).ok()?;
                if filled < bytes.len() {
                    return None;
                }
                Some(Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()))
            }
        }
    }

    /// Writes all of it to the beginning of `file`.
    pub(super) fn write_to(&self, file: &OwnedFd, cancel: &Cancel) -> Result<(), Errno> {
        match &self.inner {
            Inner::Memory(bytes) => write_all_at(file, bytes, 0),
            Inner::File(from) => copy(from, file, self.length, cancel),
        }
    }
}

/// Takes a content piece by piece. Blocks.
#[derive(Debug)]
pub struct ContentWriter {
    files: Arc<Files>,
    given: PathBuf,
    memory: Vec<u8>,
    file: Option<OwnedFd>,
    length: u64,
    hasher: blake3::Hasher,
}

impl Files {
    /// Begins to take a content for the file that the caller calls `given`.
    #[must_use]
    pub fn content(self: &Arc<Self>, given: PathBuf) -> ContentWriter {
        ContentWriter {
            files: Arc::clone(self),
            given,
            memory: Vec::new(),
            file: None,
            length: 0,
            hasher: blake3::Hasher::new(),
        }
    }
}

impl ContentWriter {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`FileError::TooLarge`] above [`CONTENT_BYTES`]; [`FileError::NoSpace`]
    /// where the state directory has none.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let length = self.length + bytes.len() as u64;
        if length > CONTENT_BYTES {
            return Err(FileError::TooLarge {
                given: self.given.clone(),
                size: length,
                limit: CONTENT_BYTES,
            });
        }
        if self.file.is_none() && self.memory.len() + bytes.len() > IN_MEMORY {
            let file = self.spill()?;
            self.file = Some(file);
        }
        match &self.file {
            None => self.memory.extend_from_slice(bytes),
            Some(file) => write_all_at(file, bytes, self.length).map_err(|e| self.failed(e))?,
        }
        self.hasher.update(bytes);
        self.length = length;
        Ok(())
    }

    /// The whole content.
    #[must_use]
    pub fn finish(self) -> Content {
        Content {
            length: self.length,
            digest: self.hasher.finalize().into(),
            inner: match self.file {
                None => Inner::Memory(self.memory),
                Some(file) => Inner::File(file),
            },
        }
    }

    fn spill(&mut self) -> Result<OwnedFd, FileError> {
        let instance = &self.files.state()?.instance;
        let (name, file) = instance.file("content-").map_err(|e| self.failed(e))?;
        // It lives as long as it is open.
        instance.remove(&name);
        write_all_at(&file, &self.memory, 0).map_err(|e| self.failed(e))?;
        self.memory = Vec::new();
        Ok(file)
    }

    fn failed(&self, errno: Errno) -> FileError {
        FileError::from_errno(errno, "keeping the content for", &self.given)
    }
}

/// The digest of a regular file's content.
pub(super) fn digest_of(object: &Object, cancel: &Cancel) -> Result<Digest, FileError> {
    let file = object.content()?;
    let hash = hash_of(&file, cancel)
        .map_err(|errno| FileError::from_errno(errno, "reading", object.given()))?;
    Ok(hash.into())
}

/// BLAKE3 of a file from its beginning to its end, in constant memory.
pub(super) fn hash_of(file: impl AsFd, cancel: &Cancel) -> Result<blake3::Hash, Errno> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    loop {
        cancel.errno()?;
        match rustix::io::pread(&file, &mut *buffer, at) {
            Ok(0) => return Ok(hasher.finalize()),
            Ok(count) => {
                hasher.update(buffer.get(..count).unwrap_or_default());
                at += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}
