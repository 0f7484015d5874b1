//! A directory that is walked: its handle, and its names in order.

use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::super::cancel::Cancel;
use super::super::error::FileError;
use super::super::ignore_files::{IgnoreRules, Present};
use super::super::resolve::Directory;

/// Handles that one search keeps open, and as many again of every
/// [`STRIDE`]th level. Others are opened again from the last one above that is
/// open, name by name.
const KEPT: usize = 64;
const STRIDE: u32 = 32;
/// Names of one directory that are kept at a time. Of a larger one the rest is
/// read again.
pub(super) const NAMES: usize = 1 << 16;
/// Flags of every directory that is opened.
const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

/// A directory on the way.
#[derive(Debug)]
pub(super) struct Walked {
    above: Option<Arc<Walked>>,
    name: OsString,
    handle: Option<Kept>,
    identity: (u64, u64),
    /// Its absolute name.
    pub(super) path: PathBuf,
    /// What results in it begin with: the path that was given, what is below,
    /// and a `/`.
    pub(super) prefix: Vec<u8>,
    /// Where in `prefix` the part begins that is relative to the path given.
    pub(super) relative: usize,
    /// 1: it was given.
    pub(super) depth: u32,
    /// It belongs to a procfs.
    pub(super) procfs: bool,
    /// What its ignore files and those above say.
    pub(super) rules: IgnoreRules,
}

/// A handle that counts.
#[derive(Debug)]
struct Kept {
    handle: Arc<OwnedFd>,
    count: Arc<AtomicUsize>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A directory that has just been opened.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) handle: Arc<OwnedFd>,
    identity: (u64, u64),
    pub(super) device: u64,
}

impl Opened {
    /// Opens `name` in a directory: never a link, never anything else.
    pub(super) fn at(directory: &OwnedFd, name: &OsStr) -> Result<Self, Errno> {
        let handle = rustix::fs::openat(directory, name, DIRECTORY, Mode::empty())?;
        let stat = rustix::fs::fstat(&handle)?;
        Ok(Self {
            handle: Arc::new(handle),
            identity: (stat.st_dev, stat.st_ino),
            device: stat.st_dev,
        })
    }
}

/// What a directory is besides its handle.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) path: PathBuf,
    pub(super) prefix: Vec<u8>,
    pub(super) relative: usize,
    pub(super) procfs: bool,
    pub(super) rules: IgnoreRules,
}

impl Walked {
    /// `above`: where it has the name `name`.
    pub(super) fn new(
        opened: &Opened,
        above: Option<(Arc<Self>, OsString)>,
        named: Named,
        kept: &Arc<AtomicUsize>,
    ) -> Self {
        let depth = above.as_ref().map_or(1, |(above, _)| above.depth + 1);
        let before = kept.fetch_add(1, Ordering::Relaxed);
        let counted = Kept {
            handle: Arc::clone(&opened.handle),
            count: Arc::clone(kept),
        };
        // The first one cannot be opened again. Another one over the number is
        // dropped, and counted off by that.
        let keep = before < KEPT || (depth.is_multiple_of(STRIDE) && before < 2 * KEPT);
        let handle = (keep || above.is_none()).then_some(counted);
        let (above, name) = above.map_or((None, OsString::new()), |(a, name)| (Some(a), name));
        Self {
            above,
            name,
            handle,
            identity: opened.identity,
            path: named.path,
            prefix: named.prefix,
            relative: named.relative,
            depth,
            procfs: named.procfs,
            rules: named.rules,
        }
    }

    /// The directory, opened.
    ///
    /// # Errors
    /// `ESTALE` where another directory has its name by now.
    pub(super) fn handle(&self) -> Result<Arc<OwnedFd>, Errno> {
        let mut way = Vec::new();
        let mut from = self;
        let mut handle = loop {
            if let Some(kept) = &from.handle {
                break Arc::clone(&kept.handle);
            }
            way.push(from);
            from = from.above.as_deref().ok_or(Errno::STALE)?;
        };
        for below in way.into_iter().rev() {
            let opened = Opened::at(&handle, &below.name)?;
            if opened.identity != below.identity {
                return Err(Errno::STALE);
            }
            handle = opened.handle;
        }
        Ok(handle)
    }

    pub(super) fn device(&self) -> u64 {
        self.identity.0
    }

    /// As the fence has it.
    pub(super) fn as_directory(&self, handle: Arc<OwnedFd>) -> Directory {
        Directory {
            handle,
            name: self.path.clone(),
        }
    }
}

/// Names of a directory, in one piece of memory.
#[derive(Debug, Default)]
pub(super) struct Names {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    start: usize,
    length: usize,
    kind: FileType,
}

impl Names {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// One after the other.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], FileType)> {
        self.entries
            .iter()
            .map(|entry| (self.name(entry), entry.kind))
    }

    pub(super) fn push(&mut self, name: &[u8], kind: FileType) {
        self.entries.push(Entry {
            start: self.bytes.len(),
            length: name.len(),
            kind,
        });
        self.bytes.extend_from_slice(name);
    }

    fn name(&self, entry: &Entry) -> &[u8] {
        let end = entry.start + entry.length;
        self.bytes.get(entry.start..end).unwrap_or_default()
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        let name = |entry: &Entry| bytes.get(entry.start..entry.start + entry.length);
        self.entries.sort_unstable_by(|a, b| name(a).cmp(&name(b)));
    }

    /// Keeps the first ones, in order; `true`: there were more.
    fn keep_first(&mut self, count: usize) -> bool {
        self.sort();
        if self.len() <= count {
            return false;
        }
        let mut kept = Self::default();
        for (name, kind) in self.iter().take(count) {
            kept.push(name, kind);
        }
        *self = kept;
        true
    }
}

/// What a directory holds.
#[derive(Debug)]
pub(super) struct Content {
    /// In the order of their bytes; the first [`NAMES`] of them.
    pub(super) names: Names,
    /// The last name in `names`, where there are more behind it.
    pub(super) more_after: Option<OsString>,
    pub(super) present: Present,
    /// What ended the reading too early.
    pub(super) error: Option<Errno>,
}

/// Bytes for entries of one getdents64(2).
pub(super) type EntryBuffer = Box<[MaybeUninit<u8>]>;

pub(super) fn entry_buffer() -> EntryBuffer {
    Box::new_uninit_slice(64 << 10)
}

/// Reads the names that come behind `after`, at most `count` of them.
pub(super) fn read(
    handle: &OwnedFd,
    after: Option<&OsStr>,
    count: usize,
    buffer: &mut EntryBuffer,
    cancel: &Cancel,
) -> Result<Content, FileError> {
    let mut names = Names::default();
    let mut present = Present::default();
    let (mut more, mut error) = (false, None);
    let mut entries = RawDir::new(handle, buffer);
    while let Some(entry) = entries.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(errno) => {
                error = Some(errno);
                break;
            }
        };
        cancel.check()?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        present.see(name);
        if after.is_some_and(|after| name <= after.as_bytes()) {
            continue;
        }
        if names.len() >= count.saturating_mul(2) {
            more |= names.keep_first(count);
        }
        names.push(name, entry.file_type());
    }
    more |= names.keep_first(count);
    let last = names.entries.last().filter(|_| more);
    let more_after = last.map(|entry| OsStr::from_bytes(names.name(entry)).to_owned());
    Ok(Content {
        names,
        more_after,
        present,
        error,
    })
}
