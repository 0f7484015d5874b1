//! A name becomes an opened directory inside the roots, or a typed refusal.
//!
//! Never "check the name, then open the name": the kernel resolves beneath a
//! root's handle (openat2(2) with `RESOLVE_BENEATH`), and where that cannot
//! tell (`EXDEV` also for links that are legal) or is missing, `walk`
//! goes component by component, by handles. `..` has the kernel's meaning.
//!
//! A relative name starts at the working directory, and the working directory
//! is itself a name below a root: so a working directory that was moved out of
//! the root, or removed and made again, gives what stands there now, never a
//! handle that has left the roots.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::roots::{Root, Roots, is_linked, name_of};
use super::walk;

/// How often openat2(2) is asked again when a rename raced it.
const ATTEMPTS: usize = 16;
/// Longest path that the kernel takes, without its NUL (`PATH_MAX`).
pub const PATH_BYTES: usize = 4095;

/// Why a name gives no directory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// A part of it does not exist.
    #[error("{given:?} does not exist")]
    NotFound {
        /// As it was given.
        given: PathBuf,
    },
    /// A part of it, or what it names, is something else.
    #[error("{given:?} is not a directory")]
    NotADirectory {
        /// As it was given.
        given: PathBuf,
    },
    /// A permission is missing on it, or search permission on a part of it.
    #[error("the system denies access to {given:?}")]
    PermissionDenied {
        /// As it was given.
        given: PathBuf,
    },
    /// It leads out of the roots.
    #[error(
        "{given:?} leads to {resolved:?}, which is outside this session's roots; the nearest root is {nearest:?}"
    )]
    OutsideRoots {
        /// As it was given.
        given: PathBuf,
        /// Where it left the roots.
        resolved: PathBuf,
        /// The root with the most similar name.
        nearest: PathBuf,
    },
    /// The root's name leads to another directory, or to none.
    #[error(
        "the root {root:?} was removed or replaced since the session was opened; open a new session"
    )]
    RootReplaced {
        /// Its name.
        root: PathBuf,
    },
    /// More than 40 links, as a loop of links has.
    #[error(
        "{given:?} goes through more than 40 links, as where links lead round in a circle; name the thing itself, or mend the links"
    )]
    Links {
        /// As it was given.
        given: PathBuf,
    },
    /// A link that the kernel makes up itself (`/proc/PID/root`, `fd/N`).
    #[error(
        "{given:?} goes through a link that the kernel makes up itself, as /proc/self/root and /proc/self/fd/0; such links are never followed; name the file by its own path"
    )]
    MagicLink {
        /// As it was given.
        given: PathBuf,
    },
    /// A component above 255 bytes, or a path above 4,095.
    #[error("{given:?} is longer than a name or a path may be")]
    TooLong {
        /// As it was given, shortened.
        given: PathBuf,
    },
    /// A root or a session's first directory is given from `/`.
    #[error("{given:?} must be an absolute path without \"..\"")]
    NotAbsolute {
        /// As it was given.
        given: PathBuf,
    },
    /// Anything else that the kernel says.
    #[error("{given:?} cannot be opened: {errno}")]
    Other {
        /// As it was given.
        given: PathBuf,
        /// errno(3).
        errno: Errno,
    },
}

impl ResolveError {
    pub(super) fn from_errno(errno: Errno, given: &OsStr) -> Self {
        let given = PathBuf::from(given);
        match errno {
            Errno::NOENT => Self::NotFound { given },
            Errno::NOTDIR => Self::NotADirectory { given },
            Errno::ACCESS | Errno::PERM => Self::PermissionDenied { given },
            Errno::LOOP => Self::Links { given },
            Errno::NAMETOOLONG => Self::TooLong {
                given: shortened(&given),
            },
            errno => Self::Other { given, errno },
        }
    }
}

/// A directory inside the roots.
#[derive(Debug, Clone)]
pub struct Directory {
    /// Opened `O_PATH`; it can be searched.
    pub handle: Arc<OwnedFd>,
    /// Its name from `/`, without links, as of when it was opened.
    pub name: PathBuf,
}

/// How names are resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// openat2(2) where it can tell, else the walk.
    Kernel,
    /// Only the walk, as where openat2(2) is missing.
    Walk,
}

/// Resolves names for one session.
#[derive(Debug, Clone)]
pub struct Resolver {
    roots: Roots,
    cwd: Directory,
    means: Means,
}

impl Resolver {
    /// Names start at `cwd`, which was resolved inside `roots` before.
    #[must_use]
    pub fn new(roots: Roots, cwd: Directory, means: Means) -> Self {
        Self { roots, cwd, means }
    }

    /// The roots.
    #[must_use]
    pub fn roots(&self) -> &Roots {
        &self.roots
    }

    /// The working directory as it was when the session was opened.
    #[must_use]
    pub fn cwd(&self) -> &Directory {
        &self.cwd
    }

    /// The working directory, without any call that could block; `None` when
    /// only [`Resolver::directory`] can tell.
    ///
    /// Where the whole file system is a root the handle cannot have left it.
    #[must_use]
    pub fn cwd_at_once(&self) -> Option<Directory> {
        let everything = self.roots.iter().any(Root::is_everything);
        (everything && is_linked(&self.cwd.handle)).then(|| self.cwd.clone())
    }

    /// The directory that `given` names: relative to the working directory, or
    /// absolute inside a root. May block on a slow file system.
    ///
    /// # Errors
    /// See [`ResolveError`]. Nothing is left open.
    pub fn directory(&self, given: &OsStr) -> Result<Directory, ResolveError> {
        self.directory_from(&self.cwd.name, given, given)
    }

    /// The directory that `path` names, where a relative one starts at `base`,
    /// an absolute name inside a root. Errors speak of `given`.
    pub(super) fn directory_from(
        &self,
        base: &Path,
        path: &OsStr,
        given: &OsStr,
    ) -> Result<Directory, ResolveError> {
        resolve(&self.roots, base, path, given, self.means)
    }
}

/// The directory that `given` names; `base` is where a relative name starts,
/// itself an absolute name inside a root. May block on a slow file system.
///
/// # Errors
/// See [`ResolveError`]. Nothing is left open.
pub fn directory(
    roots: &Roots,
    base: &Path,
    given: &OsStr,
    means: Means,
) -> Result<Directory, ResolveError> {
    resolve(roots, base, given, given, means)
}

fn resolve(
    roots: &Roots,
    base: &Path,
    path: &OsStr,
    given: &OsStr,
    means: Means,
) -> Result<Directory, ResolveError> {
    if path.len() > PATH_BYTES {
        return Err(ResolveError::from_errno(Errno::NAMETOOLONG, given));
    }
    let full = base.join(path);
    let Some((root, below)) = roots.containing(&full) else {
        // By its names alone it is outside. It is never looked at: what is
        // there is none of the session's business.
        return Err(outside(roots, given, &full));
    };
    root.still_there()?;
    if means == Means::Kernel
        && let Some(result) = by_kernel(root, below, given)
    {
        return result;
    }
    walk::directory(roots, root, below.as_os_str(), given)
}

pub(super) fn outside(roots: &Roots, given: &OsStr, resolved: &Path) -> ResolveError {
    ResolveError::OutsideRoots {
        given: given.into(),
        resolved: resolved.to_owned(),
        nearest: roots
            .nearest(resolved)
            .map(|root| root.path().to_owned())
            .unwrap_or_default(),
    }
}

/// `None`: the kernel cannot tell, walk.
fn by_kernel(root: &Root, below: &Path, given: &OsStr) -> Option<Result<Directory, ResolveError>> {
    // Below `/` an absolute link is as good as any; `RESOLVE_BENEATH` would
    // refuse it.
    let fence = if root.is_everything() {
        ResolveFlags::IN_ROOT
    } else {
        ResolveFlags::BENEATH
    };
    // The final "." makes the kernel ask for search permission on the
    // directory itself, which opening it with O_PATH does not.
    let mut name = OsString::from(below);
    name.push(if name.is_empty() { "." } else { "/." });
    for _ in 0..ATTEMPTS {
        let opened = rustix::fs::openat2(
            root.handle(),
            name.as_os_str(),
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
            fence | ResolveFlags::NO_MAGICLINKS,
        );
        match opened {
            Ok(handle) => {
                // Without the kernel's name for it (no procfs, or removed at
                // this moment) only the walk knows where it is.
                let name = name_of(&handle)?;
                let handle = Arc::new(handle);
                return Some(Ok(Directory { handle, name }));
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            // EXDEV: it left the root, which a link into a root may do.
            // ELOOP: too many links or one of the kernel's own.
            // The others: no openat2(2), or a filter forbids it; the walk
            // gives the true answer.
            Err(Errno::XDEV | Errno::LOOP | Errno::NOSYS | Errno::INVAL | Errno::PERM) => {
                return None;
            }
            Err(errno) => return Some(Err(ResolveError::from_errno(errno, given))),
        }
    }
    None
}

/// Shortens `path` for a message and shows bytes that are no text.
#[must_use]
pub fn shown(path: &[u8]) -> String {
    let text = OsStr::from_bytes(path).to_string_lossy();
    text.chars().take(512).collect()
}

/// Bytes of a name in a message.
const SHOWN_BYTES: usize = 512;

/// `path`, or its first 512 bytes (a character is not cut) and an ellipsis.
pub(super) fn shortened(path: &Path) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() <= SHOWN_BYTES {
        return path.to_owned();
    }
    let mut end = SHOWN_BYTES;
    // A continuation byte of UTF-8; a character has at most three.
    while end > SHOWN_BYTES - 4 && bytes.get(end).is_some_and(|byte| byte & 0xC0 == 0x80) {
        end -= 1;
    }
    let mut short = OsStr::from_bytes(bytes.get(..end).unwrap_or_default()).to_owned();
    short.push("\u{2026}");
    short.into()
}
