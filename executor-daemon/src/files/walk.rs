//! Resolving by handles, one component at a time.
//!
//! The position is either *inside* a root, with a handle for each directory on
//! the way from the root (`..` pops the last one), or *above* the roots, where
//! it is a name and nothing is opened: from there it goes on only while the
//! name still leads towards a root, and enters the root's handle when it
//! equals the root's name. Links are read and their text is taken in place of
//! the component, at most [`LINKS`] of them (as path_resolution(7) has it).

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::resolve::{Directory, ResolveError, outside};
use super::roots::{Root, Roots, components};

/// Links that one name may go through.
pub(super) const LINKS: usize = 40;
/// Directories between a root and where a name leads. A path has at most 4,095
/// bytes, but each of 40 links can add as many.
const DEPTH: usize = 4096;

enum Position<'a> {
    Inside {
        root: &'a Root,
        below: Vec<(OsString, OwnedFd)>,
    },
    Above(PathBuf),
}

impl<'a> Position<'a> {
    fn at_root(root: &'a Root) -> Self {
        Self::Inside {
            root,
            below: Vec::new(),
        }
    }

    /// The position of an absolute name, or of what is left after `..`.
    fn at_name(roots: &'a Roots, name: PathBuf) -> Self {
        match roots.at(&name) {
            Some(root) => Self::at_root(root),
            None => Self::Above(name),
        }
    }

    fn name(&self) -> PathBuf {
        match self {
            Self::Inside { root, below } => {
                let mut name = root.canonical().to_owned();
                name.extend(below.iter().map(|(component, _)| component));
                name
            }
            Self::Above(name) => name.clone(),
        }
    }
}

/// The directory at `path` (as the kernel reads it), starting in `root`.
pub(super) fn directory(
    roots: &Roots,
    root: &Root,
    path: &OsStr,
    given: &OsStr,
) -> Result<Directory, ResolveError> {
    let mut position = Position::at_root(root);
    let mut pending: VecDeque<OsString> = components(path).map(OsStr::to_owned).collect();
    let mut links = 0;
    while let Some(component) = pending.pop_front() {
        let step = if component == ".." {
            Step::To(parent(roots, position))
        } else {
            child(roots, position, &component)
                .map_err(|errno| ResolveError::from_errno(errno, given))?
        };
        position = match step {
            Step::To(position) => position,
            Step::Magic => {
                let given = given.into();
                return Err(ResolveError::MagicLink { given });
            }
            Step::Link(position, target) => {
                links += 1;
                if links > LINKS {
                    return Err(ResolveError::from_errno(Errno::LOOP, given));
                }
                for name in components(&target).rev() {
                    pending.push_front(name.to_owned());
                }
                if target.as_bytes().starts_with(b"/") {
                    Position::at_name(roots, PathBuf::from("/"))
                } else {
                    position
                }
            }
        };
        if let Position::Above(name) = &position
            && !roots.lies_above(name)
        {
            return Err(outside(roots, given, name));
        }
    }
    finish(roots, position, given)
}

enum Step<'a> {
    To(Position<'a>),
    /// A link found at this position, and its text.
    Link(Position<'a>, OsString),
    /// A link that nothing follows.
    Magic,
}

fn parent<'a>(roots: &'a Roots, position: Position<'a>) -> Position<'a> {
    match position {
        Position::Inside { root, mut below } => {
            if below.pop().is_some() || root.is_everything() {
                return Position::Inside { root, below };
            }
            let mut name = root.canonical().to_owned();
            name.pop();
            Position::at_name(roots, name)
        }
        Position::Above(mut name) => {
            name.pop();
            Position::at_name(roots, name)
        }
    }
}

fn child<'a>(
    roots: &'a Roots,
    position: Position<'a>,
    component: &OsStr,
) -> Result<Step<'a>, Errno> {
    match position {
        Position::Above(name) => Ok(Step::To(Position::at_name(roots, name.join(component)))),
        Position::Inside { root, mut below } => {
            if below.len() >= DEPTH {
                return Err(Errno::NAMETOOLONG);
            }
            let here = here(root, &below);
            let found = rustix::fs::openat(
                here,
                component,
                OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                Mode::empty(),
            )?;
            let stat = rustix::fs::fstat(&found)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => {
                    below.push((component.to_owned(), found));
                    Ok(Step::To(Position::Inside { root, below }))
                }
                FileType::Symlink => {
                    // An empty name reads the link that the handle is
                    // (readlink(2)), so it is the one that was looked at.
                    let text = rustix::fs::readlinkat(&found, c"", Vec::new())?;
                    let text = OsString::from_vec(text.into_bytes());
                    if is_magic(&found, &text) {
                        return Ok(Step::Magic);
                    }
                    Ok(Step::Link(Position::Inside { root, below }, text))
                }
                _ => Err(Errno::NOTDIR),
            }
        }
    }
}

/// Is the link one that the kernel makes up and follows without a name
/// (`/proc/PID/cwd`, `fd/N` and the like in proc(5))? Its text only describes
/// where it leads, so nothing follows it, as with `RESOLVE_NO_MAGICLINKS`.
///
/// The ordinary links of procfs (`self`, `mounts`) have relative texts.
pub(super) fn is_magic(handle: impl AsFd, text: &OsStr) -> bool {
    let text = text.as_bytes();
    let odd = text.starts_with(b"/") || text.contains(&b':');
    odd && is_procfs(handle)
}

/// Does the handle lead to a file of a procfs?
pub(super) fn is_procfs(handle: impl AsFd) -> bool {
    rustix::fs::fstatfs(handle).is_ok_and(|stat| stat.f_type == rustix::fs::PROC_SUPER_MAGIC)
}

fn here<'a>(root: &'a Root, below: &'a [(OsString, OwnedFd)]) -> BorrowedFd<'a> {
    below
        .last()
        .map_or_else(|| root.handle().as_fd(), |(_, handle)| handle.as_fd())
}

fn finish(roots: &Roots, position: Position<'_>, given: &OsStr) -> Result<Directory, ResolveError> {
    let name = position.name();
    let Position::Inside { root, below } = position else {
        return Err(outside(roots, given, &name));
    };
    // "." needs search permission on the directory itself, as entering it will.
    let handle = rustix::fs::openat(
        here(root, &below),
        c".",
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(|errno| ResolveError::from_errno(errno, given))?;
    let handle = Arc::new(handle);
    Ok(Directory { handle, name })
}
