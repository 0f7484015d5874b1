//! Roots: the directories that a session may use, each opened once.
//!
//! A root is its handle. Its names (the one that was given and the one the
//! kernel knows) only say where an absolute path enters it, and whether what
//! stands there now is still the same directory.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use super::resolve::ResolveError;
use crate::session::record::Access;

/// Which file this is, on this machine, while it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    device: (u32, u32),
    inode: u64,
}

/// One root.
#[derive(Debug, Clone)]
pub struct Root {
    path: PathBuf,
    canonical: PathBuf,
    access: Access,
    handle: Arc<OwnedFd>,
    identity: Identity,
}

impl Root {
    /// Opens the directory at `path`, following links: the name is the
    /// operator's or was resolved inside the operator's roots before.
    ///
    /// # Errors
    /// As the kernel refuses it; `path` must be absolute and without `..`.
    pub fn open(path: &Path, access: Access) -> Result<Self, ResolveError> {
        let handle = rustix::fs::open(
            path,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|errno| ResolveError::from_errno(errno, path.as_os_str()))?;
        Self::from_handle(path, access, Arc::new(handle))
    }

    /// A root that was opened before, under the name it was opened by.
    ///
    /// # Errors
    /// When `path` is not absolute or has `..`, or the handle cannot be
    /// examined.
    pub fn from_handle(
        path: &Path,
        access: Access,
        handle: Arc<OwnedFd>,
    ) -> Result<Self, ResolveError> {
        let path = cleaned(path).ok_or_else(|| ResolveError::NotAbsolute {
            given: path.to_owned(),
        })?;
        let identity = identity_of(&handle)
            .map_err(|errno| ResolveError::from_errno(errno, path.as_os_str()))?;
        let canonical = name_of(&handle).unwrap_or_else(|| path.clone());
        Ok(Self {
            path,
            canonical,
            access,
            handle,
            identity,
        })
    }

    /// The name it was given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What may be done.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// The directory itself.
    #[must_use]
    pub fn handle(&self) -> &Arc<OwnedFd> {
        &self.handle
    }

    /// The name that the kernel gave when it was opened.
    pub(super) fn canonical(&self) -> &Path {
        &self.canonical
    }

    /// The root is the whole file system: nothing lies outside.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.canonical.as_os_str() == "/"
    }

    /// Does its name still lead to this directory?
    ///
    /// # Errors
    /// [`ResolveError::RootReplaced`] when it does not.
    pub fn still_there(&self) -> Result<(), ResolveError> {
        if self.is_everything() {
            return Ok(());
        }
        let now = rustix::fs::statx(
            rustix::fs::CWD,
            &self.path,
            AtFlags::empty(),
            StatxFlags::INO,
        )
        .map(|stat| Identity::from(&stat));
        if now == Ok(self.identity) {
            Ok(())
        } else {
            Err(ResolveError::RootReplaced {
                root: self.path.clone(),
            })
        }
    }
}

/// The roots of one session, or of the daemon's configuration.
#[derive(Debug, Clone)]
pub struct Roots {
    all: Vec<Root>,
}

impl Roots {
    /// These roots, in this order.
    #[must_use]
    pub fn new(all: Vec<Root>) -> Self {
        Self { all }
    }

    /// One after another.
    pub fn iter(&self) -> std::slice::Iter<'_, Root> {
        self.all.iter()
    }

    /// The first one.
    #[must_use]
    pub fn first(&self) -> Option<&Root> {
        self.all.first()
    }

    /// The root that `path` lies in by its names alone, the innermost, and the
    /// rest of the path below it.
    pub(crate) fn containing<'a>(&'a self, path: &'a Path) -> Option<(&'a Root, &'a Path)> {
        self.all
            .iter()
            .flat_map(|root| [(root, root.path()), (root, root.canonical())])
            .filter_map(|(root, name)| {
                let rest = path.strip_prefix(name).ok()?;
                Some((name.components().count(), root, rest))
            })
            .max_by_key(|(depth, ..)| *depth)
            .map(|(_, root, rest)| (root, rest))
    }

    /// The root whose name is exactly `path`.
    pub(super) fn at(&self, path: &Path) -> Option<&Root> {
        self.all
            .iter()
            .find(|root| root.path() == path || root.canonical() == path)
    }

    /// Going on from `path` by more names can still reach a root.
    pub(super) fn lies_above(&self, path: &Path) -> bool {
        self.all
            .iter()
            .any(|root| root.path().starts_with(path) || root.canonical().starts_with(path))
    }

    /// The root that shares most of its name with `path`.
    pub(super) fn nearest(&self, path: &Path) -> Option<&Root> {
        self.all.iter().max_by_key(|root| {
            root.path()
                .components()
                .zip(path.components())
                .take_while(|(a, b)| a == b)
                .count()
        })
    }
}

impl From<&rustix::fs::Statx> for Identity {
    fn from(stat: &rustix::fs::Statx) -> Self {
        Self {
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
        }
    }
}

/// `false` once the directory was removed. Asks no server: what the kernel
/// remembers of a network file system is good enough here and cannot hang.
pub(super) fn is_linked(handle: &OwnedFd) -> bool {
    rustix::fs::statx(
        handle,
        c"",
        AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC,
        StatxFlags::NLINK,
    )
    .is_ok_and(|stat| stat.stx_nlink > 0)
}

fn identity_of(handle: &OwnedFd) -> Result<Identity, Errno> {
    rustix::fs::statx(handle, c"", AtFlags::EMPTY_PATH, StatxFlags::INO)
        .map(|stat| Identity::from(&stat))
}

/// The name that the kernel knows a directory by (`/proc/self/fd` in proc(5)).
/// `None` where it has none, or procfs is not there.
pub(super) fn name_of(handle: &OwnedFd) -> Option<PathBuf> {
    use std::os::fd::AsRawFd as _;
    let link = format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd());
    let name = rustix::fs::readlink(link, Vec::new()).ok()?.into_bytes();
    if !name.starts_with(b"/") || name.ends_with(b" (deleted)") {
        return None;
    }
    Some(PathBuf::from(std::ffi::OsString::from_vec(name)))
}

/// An absolute name without `.` and doubled slashes; `None` for any other.
fn cleaned(path: &Path) -> Option<PathBuf> {
    if !path.is_absolute() || path.as_os_str().as_bytes().contains(&0) {
        return None;
    }
    let mut clean = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => clean.push(name),
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(clean)
}

/// The components of a path as the kernel sees them: `.` and empty ones
/// included only where they matter (a trailing one asks for a directory).
pub(super) fn components(path: &OsStr) -> impl DoubleEndedIterator<Item = &OsStr> {
    path.as_bytes()
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
        .map(OsStr::from_bytes)
}
