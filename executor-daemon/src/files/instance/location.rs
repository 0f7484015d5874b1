//! Where something is, written down so that a later process finds it again, or
//! finds out that it is no longer there.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::files::roots::Roots;

/// Which file, while it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct FileId {
    /// Of the file system.
    pub(crate) device: u64,
    /// In it.
    pub(crate) inode: u64,
}

impl FileId {
    /// Of what is open.
    pub(crate) fn of(file: impl AsFd) -> Result<Self, Errno> {
        rustix::fs::fstat(file).map(|stat| Self::from(&stat))
    }
}

impl From<&Stat> for FileId {
    fn from(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
        }
    }
}

/// A name in a directory below a root: names to find it by, and inodes to know
/// it by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Location {
    #[serde(with = "crate::path_bytes")]
    root: PathBuf,
    root_id: FileId,
    /// From the root to the directory; empty for the root itself.
    #[serde(with = "crate::path_bytes")]
    below: PathBuf,
    directory: FileId,
    #[serde(with = "serde_bytes")]
    name: Vec<u8>,
}

impl Location {
    /// The name `name` in `directory`, which was resolved inside `roots` as
    /// `path`.
    ///
    /// # Errors
    /// `ENOENT` when `path` is in no root; else as the kernel refuses.
    pub(crate) fn new(
        roots: &Roots,
        directory: &OwnedFd,
        path: &Path,
        name: &OsStr,
    ) -> Result<Self, Errno> {
        let (root, below) = roots.containing(path).ok_or(Errno::NOENT)?;
        Ok(Self {
            root: root.canonical().to_owned(),
            root_id: FileId::of(root.handle())?,
            below: below.to_owned(),
            directory: FileId::of(directory)?,
            name: name.as_bytes().to_vec(),
        })
    }

    /// The same directory, another name.
    pub(crate) fn with_name(&self, name: &OsStr) -> Self {
        Self {
            name: name.as_bytes().to_vec(),
            ..self.clone()
        }
    }

    /// The name in its directory.
    pub(crate) fn name(&self) -> OsString {
        OsString::from_vec(self.name.clone())
    }

    /// The whole name, for messages.
    pub(crate) fn path(&self) -> PathBuf {
        self.root.join(&self.below).join(self.name())
    }

    /// The directory, if root and directory are still what they were; `None`
    /// otherwise. Links are not followed: the name was one without any.
    pub(crate) fn directory(&self) -> Result<Option<OwnedFd>, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let absent = |errno| match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::XDEV => Ok(None),
            errno => Err(errno),
        };
        let root = match rustix::fs::openat(CWD, &self.root, flags, Mode::empty()) {
            Ok(root) => root,
            Err(errno) => return absent(errno),
        };
        if FileId::of(&root)? != self.root_id {
            return Ok(None);
        }
        let directory = match beneath(&root, &self.below) {
            Ok(directory) => directory,
            Err(errno) => return absent(errno),
        };
        Ok((FileId::of(&directory)? == self.directory).then_some(directory))
    }
}

/// The directory at `below`, without following a link.
fn beneath(root: &OwnedFd, below: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let name = if below.as_os_str().is_empty() {
        Path::new(".")
    } else {
        below
    };
    let fence = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    for _ in 0..16 {
        match rustix::fs::openat2(root, name, flags, Mode::empty(), fence) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::NOSYS | Errno::PERM) => break,
            opened => return opened,
        }
    }
    // Without openat2(2): one component after another.
    let mut here = rustix::fs::openat(root, c".", flags, Mode::empty())?;
    for component in below.components() {
        let name = component.as_os_str();
        here = rustix::fs::openat(&here, name, flags, Mode::empty())?;
    }
    Ok(here)
}
