//! A directory is removed with all that is in it: by handles, never through a
//! link, in bounded memory and with few descriptors however deep it is.
//!
//! One directory is open at a time, beside the first. The way back up is `..`,
//! and it has to be the directory that we came from: if somebody moved one
//! meanwhile, that is where it ends.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use super::cancel::Cancel;
use super::entry::Entry;
use super::error::FileError;
use super::fence::Fence;
use super::instance::FileId;
use super::object::Object;
use super::remove::failed;
use super::resolve::Directory;

/// Names that are taken from a directory at a time.
const BATCH: usize = 1_024;
/// Names of directories that are remembered while a tree is counted.
const DIRECTORIES: usize = 1_000_000;
/// Directories below one another: more than any path can name, as a tree that
/// was moved together piece by piece can have.
const DEPTH: usize = 65_536;

/// Entries that [`remove`] would remove, itself included.
///
/// # Errors
/// [`FileError::SecretWithin`] where a secret file is among them,
/// [`FileError::Mounted`] where something is mounted on one of them: nothing is
/// removed then.
pub(super) fn count(
    fence: &Fence,
    entry: &Entry,
    top: &Object,
    cancel: &Cancel,
) -> Result<u64, FileError> {
    let mut walk = Walk::new(fence, entry, top)?;
    let mut count = 1;
    // Depth first; of each level its names that are still to be seen. What has
    // no directory in it takes no memory.
    let mut levels: Vec<Vec<OsString>> = vec![walk.look(&mut count, cancel)?];
    let mut pending: usize = levels.iter().map(Vec::len).sum();
    while let Some(level) = levels.last_mut() {
        match level.pop() {
            Some(name) => {
                pending -= 1;
                if walk.down(&name)? {
                    let found = walk.look(&mut count, cancel)?;
                    pending += found.len();
                    if pending > DIRECTORIES {
                        return Err(walk.too_many());
                    }
                    levels.push(found);
                }
            }
            None => {
                levels.pop();
                if !levels.is_empty() {
                    walk.up()?;
                }
            }
        }
    }
    Ok(count)
}

/// Removes the directory; the entries that were removed, itself included.
///
/// # Errors
/// As the system refuses; what was removed before stays so.
pub(super) fn remove(fence: &Fence, entry: &Entry, top: &Object) -> Result<u64, FileError> {
    let mut walk = Walk::new(fence, entry, top)?;
    let mut removed = 0;
    loop {
        match walk.clear(&mut removed)? {
            Some(name) => {
                walk.down(&name)?;
            }
            None => match walk.leave()? {
                Some(name) => {
                    walk.unlink(&name, AtFlags::REMOVEDIR)?;
                    removed += 1;
                }
                None => break,
            },
        }
    }
    match rustix::fs::unlinkat(entry.parent(), entry.name(), AtFlags::REMOVEDIR) {
        Ok(()) => Ok(removed + 1),
        Err(errno) => Err(failed(errno, entry)),
    }
}

/// Is something mounted there, also of the same file system (statx(2))? What it
/// holds has another name elsewhere.
fn is_mounted(directory: &OwnedFd, name: impl rustix::path::Arg) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    rustix::fs::statx(directory, name, flags, StatxFlags::empty())
        .is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

fn mounted(entry: &Entry, at: &Path) -> FileError {
    FileError::Mounted {
        given: entry.given().to_owned(),
        at: at.to_owned(),
    }
}

struct Walk<'a> {
    fence: &'a Fence,
    entry: &'a Entry,
    here: Directory,
    /// The directories above `here`, down from the first, with the name that
    /// leads on.
    above: Vec<(FileId, OsString)>,
    device: u64,
}

impl<'a> Walk<'a> {
    fn new(fence: &'a Fence, entry: &'a Entry, top: &Object) -> Result<Self, FileError> {
        let handle = open(entry.parent(), entry.name()).map_err(|errno| failed(errno, entry))?;
        if is_mounted(&handle, c"") {
            return Err(mounted(entry, entry.path()));
        }
        let id = FileId::of(&handle).map_err(|errno| failed(errno, entry))?;
        if (id.device, id.inode) != (top.facts().dev, top.facts().ino) {
            return Err(FileError::Changed {
                given: entry.given().to_owned(),
            });
        }
        Ok(Self {
            fence,
            entry,
            here: Directory {
                handle: Arc::new(handle),
                name: entry.path().to_owned(),
            },
            above: Vec::new(),
            device: id.device,
        })
    }

    /// Counts what is here; the names of directories.
    fn look(&self, count: &mut u64, cancel: &Cancel) -> Result<Vec<OsString>, FileError> {
        let mut directories = Vec::new();
        for entry in self.names()? {
            cancel.check()?;
            let entry = entry.map_err(|errno| self.failed(errno))?;
            let Some((name, kind)) = real(&entry) else {
                continue;
            };
            self.allowed(name)?;
            if is_mounted(&self.here.handle, name) {
                return Err(mounted(self.entry, &self.here.name.join(name)));
            }
            *count += 1;
            if matches!(kind, FileType::Directory | FileType::Unknown) {
                if directories.len() >= DIRECTORIES {
                    return Err(self.too_many());
                }
                directories.push(name.to_owned());
            }
        }
        Ok(directories)
    }

    /// Removes what is no directory; the name of the first directory that is
    /// met.
    fn clear(&self, removed: &mut u64) -> Result<Option<OsString>, FileError> {
        loop {
            let mut batch = Vec::new();
            for entry in self.names()?.take(BATCH) {
                let entry = entry.map_err(|errno| self.failed(errno))?;
                if let Some((name, kind)) = real(&entry) {
                    batch.push((name.to_owned(), kind));
                }
            }
            if batch.is_empty() {
                return Ok(None);
            }
            for (name, kind) in batch {
                self.allowed(&name)?;
                if kind == FileType::Directory {
                    return Ok(Some(name));
                }
                match rustix::fs::unlinkat(&self.here.handle, &name, AtFlags::empty()) {
                    Ok(()) => *removed += 1,
                    Err(Errno::NOENT) => {}
                    // EISDIR: it is a directory after all (unlink(2)).
                    Err(Errno::ISDIR) => return Ok(Some(name)),
                    Err(errno) => return Err(self.failed(errno)),
                }
            }
        }
    }

    /// Enters a directory; `false`: it is none, or gone.
    fn down(&mut self, name: &OsStr) -> Result<bool, FileError> {
        if self.above.len() >= DEPTH {
            return Err(self.failed(Errno::NAMETOOLONG));
        }
        let handle = match open(&self.here.handle, name) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
            opened => opened.map_err(|errno| self.failed(errno))?,
        };
        let id = FileId::of(&handle).map_err(|errno| self.failed(errno))?;
        if id.device != self.device || is_mounted(&handle, c"") {
            return Err(mounted(self.entry, &self.here.name.join(name)));
        }
        let from = FileId::of(&self.here.handle).map_err(|errno| self.failed(errno))?;
        self.above.push((from, name.to_owned()));
        self.here = Directory {
            handle: Arc::new(handle),
            name: self.here.name.join(name),
        };
        Ok(true)
    }

    /// Goes back to where it came from; the name it came through.
    fn leave(&mut self) -> Result<Option<OsString>, FileError> {
        let Some((id, name)) = self.above.pop() else {
            return Ok(None);
        };
        let handle = open(&self.here.handle, "..".as_ref()).map_err(|errno| self.failed(errno))?;
        if FileId::of(&handle) != Ok(id) {
            return Err(FileError::Changed {
                given: self.entry.given().to_owned(),
            });
        }
        let mut above = self.here.name.clone();
        above.pop();
        self.here = Directory {
            handle: Arc::new(handle),
            name: above,
        };
        Ok(Some(name))
    }

    fn up(&mut self) -> Result<(), FileError> {
        self.leave().map(|_| ())
    }

    fn unlink(&self, name: &OsStr, flags: AtFlags) -> Result<(), FileError> {
        match rustix::fs::unlinkat(&self.here.handle, name, flags) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.failed(errno)),
        }
    }

    fn names(&self) -> Result<Dir, FileError> {
        Dir::read_from(&self.here.handle).map_err(|errno| self.failed(errno))
    }

    /// Is a secret file's name among those that go?
    fn allowed(&self, name: &OsStr) -> Result<(), FileError> {
        let given = self.entry.given();
        match self.fence.child(&self.here, name, given) {
            Err(FileError::Secret { rule, .. }) => {
                let here = self.here.name.strip_prefix(self.entry.path());
                Err(FileError::SecretWithin {
                    given: given.to_owned(),
                    secret: given.join(here.unwrap_or(Path::new(""))).join(name),
                    rule,
                })
            }
            child => child.map(|_| ()),
        }
    }

    fn too_many(&self) -> FileError {
        FileError::InvalidArgument {
            field: "recursive",
            why: format!("more than {DIRECTORIES} directories; remove it part by part"),
        }
    }

    fn failed(&self, errno: Errno) -> FileError {
        FileError::from_errno(errno, "removing what is in", self.entry.given())
    }
}

fn real(entry: &rustix::fs::DirEntry) -> Option<(&OsStr, FileType)> {
    let name = entry.file_name().to_bytes();
    (!matches!(name, b"." | b"..")).then(|| (OsStr::from_bytes(name), entry.file_type()))
}

fn open(directory: impl std::os::fd::AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}
