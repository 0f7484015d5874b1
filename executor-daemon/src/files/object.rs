//! What an entry is: a handle to the thing itself, and what the file system
//! says of it.
//!
//! The thing is opened `O_PATH | O_NOFOLLOW`, which neither waits nor disturbs
//! a FIFO's writer nor acts on a device (open(2)); content is opened from that
//! handle, and only of a regular file. So what was examined is what is read.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;

use super::entry::Entry;
use super::error::FileError;
use super::resolve::Directory;
use super::version::Version;

/// What a name can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum FileKind {
    /// A file with content.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// Something that this program does not know.
    Unknown,
}

impl FileKind {
    pub(super) fn of(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::Regular,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Link,
            FileType::Fifo => Self::Fifo,
            FileType::Socket => Self::Socket,
            FileType::CharacterDevice => Self::CharacterDevice,
            FileType::BlockDevice => Self::BlockDevice,
            FileType::Unknown => Self::Unknown,
        }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Regular => "regular file",
            Self::Directory => "directory",
            Self::Link => "symbolic link",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::CharacterDevice => "character device",
            Self::BlockDevice => "block device",
            Self::Unknown => "unknown kind",
        })
    }
}

/// What the file system says of a thing (statx(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Facts {
    /// What it is.
    pub kind: FileKind,
    /// Bytes of content; of a link, the length of its text.
    pub size: u64,
    /// Permission bits with setuid, setgid and sticky: `0o7777`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that it has.
    pub links: u64,
    /// Last change of the content: seconds since 1970 and nanoseconds.
    pub mtime: (i64, u32),
    /// Last change of content or inode.
    pub ctime: (i64, u32),
    /// The file system.
    pub dev: u64,
    /// The inode on it.
    pub ino: u64,
}

impl Facts {
    /// What the file system says of an opened thing.
    ///
    /// # Errors
    /// As statx(2).
    pub fn of(handle: impl AsFd) -> Result<Self, Errno> {
        let stat = rustix::fs::statx(
            handle,
            c"",
            AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW,
            StatxFlags::BASIC_STATS,
        )?;
        Ok(Self::from(&stat))
    }

    /// What the file system says of `name` in `directory`, a link itself and
    /// not what it leads to.
    ///
    /// # Errors
    /// As statx(2).
    pub fn at(directory: impl AsFd, name: &std::ffi::OsStr) -> Result<Self, Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let stat = rustix::fs::statx(directory, name, flags, StatxFlags::BASIC_STATS)?;
        Ok(Self::from(&stat))
    }

    /// The version of the content.
    #[must_use]
    pub fn version(&self) -> Version {
        Version::of(self)
    }

    /// Both are of one file.
    #[must_use]
    pub fn is_same_file(&self, other: &Self) -> bool {
        (self.dev, self.ino) == (other.dev, other.ino)
    }
}

impl From<&Statx> for Facts {
    fn from(stat: &Statx) -> Self {
        let mode = u32::from(stat.stx_mode);
        Self {
            kind: FileKind::of(FileType::from_raw_mode(mode)),
            size: stat.stx_size,
            mode: mode & 0o7777,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            links: u64::from(stat.stx_nlink),
            mtime: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
            ctime: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
            dev: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
            ino: stat.stx_ino,
        }
    }
}

/// A thing that a name led to, whatever has the name now.
#[derive(Debug, Clone)]
pub struct Object {
    handle: Arc<OwnedFd>,
    facts: Facts,
    path: PathBuf,
    given: PathBuf,
}

impl Object {
    /// What has the entry's name now. A link is itself: the entry was resolved
    /// as far as it was to be.
    ///
    /// # Errors
    /// [`FileError::NotFound`] (without candidates; see
    /// [`Fence::object`](super::fence::Fence::object)) and as the system
    /// refuses.
    pub fn look(entry: &Entry) -> Result<Self, FileError> {
        let refused = |errno| FileError::from_errno(errno, "opening", entry.given());
        let handle = rustix::fs::openat(
            entry.parent(),
            entry.name(),
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(refused)?;
        let facts = Facts::of(&handle).map_err(refused)?;
        if entry.must_be_directory() && facts.kind != FileKind::Directory {
            return Err(refused(Errno::NOTDIR));
        }
        Ok(Self {
            handle: Arc::new(handle),
            facts,
            path: entry.path().to_owned(),
            given: entry.given().to_owned(),
        })
    }

    /// A directory that was opened before.
    ///
    /// # Errors
    /// As the system refuses to describe it.
    pub fn of_directory(directory: &Directory, given: &Path) -> Result<Self, FileError> {
        let facts = Facts::of(&directory.handle)
            .map_err(|errno| FileError::from_errno(errno, "examining", given))?;
        Ok(Self {
            handle: Arc::clone(&directory.handle),
            facts,
            path: directory.name.clone(),
            given: given.to_owned(),
        })
    }

    /// What the file system said when it was opened.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// What the file system says now.
    ///
    /// # Errors
    /// As the system refuses.
    pub fn facts_now(&self) -> Result<Facts, FileError> {
        Facts::of(&self.handle)
            .map_err(|errno| FileError::from_errno(errno, "examining", &self.given))
    }

    /// Opened `O_PATH`.
    #[must_use]
    pub fn handle(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// Its absolute name without links, as it was resolved.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name as the caller gave it.
    #[must_use]
    pub fn given(&self) -> &Path {
        &self.given
    }

    /// The text of a link; `None` for anything else.
    ///
    /// # Errors
    /// As the system refuses.
    pub fn link_target(&self) -> Result<Option<OsString>, FileError> {
        if self.facts.kind != FileKind::Link {
            return Ok(None);
        }
        // An empty name reads the link that the handle is (readlink(2)).
        let text = rustix::fs::readlinkat(&self.handle, c"", Vec::new())
            .map_err(|errno| FileError::from_errno(errno, "reading", &self.given))?;
        Ok(Some(OsString::from_vec(text.into_bytes())))
    }

    /// Its content, to be read from the start. Never waits for another program:
    /// only a regular file is opened, and that without blocking.
    ///
    /// # Errors
    /// [`FileError::IsADirectory`], [`FileError::NotARegularFile`], and as the
    /// system refuses.
    pub fn content(&self) -> Result<File, FileError> {
        self.reopen(OFlags::RDONLY)
    }

    /// The regular file opened once more, with other rights. `flags` say which
    /// (`RDONLY`, `WRONLY`, `RDWR`); it is neither made nor truncated.
    ///
    /// # Errors
    /// As [`Object::content`].
    pub fn reopen(&self, flags: OFlags) -> Result<File, FileError> {
        let given = self.given.clone();
        match self.facts.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(FileError::IsADirectory { given }),
            kind => return Err(FileError::NotARegularFile { given, kind }),
        }
        // The way to open what an O_PATH handle is (open(2), proc(5)).
        let link = format!("/proc/self/fd/{}", self.handle.as_raw_fd());
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        rustix::fs::open(link, flags, Mode::empty())
            .map(File::from)
            .map_err(|errno| FileError::from_errno(errno, "opening", &self.given))
    }
}
