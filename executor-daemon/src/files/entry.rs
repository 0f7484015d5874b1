//! A name in an opened directory: what operations on files act on.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::resolve::Directory;
use crate::session::record::Access;

/// What becomes of a link that the last component of a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Last {
    /// It is followed: the entry is where it leads.
    Follow,
    /// It is the entry.
    Keep,
}

/// A name in a directory, inside the fence. Made by
/// [`Fence`](super::fence::Fence) only, which saw to it that neither the name
/// given nor this one is a secret file's.
///
/// Nothing need have the name. What has it can change at any moment; the
/// directory is the one that was opened, wherever it is moved.
#[derive(Debug, Clone)]
pub struct Entry {
    pub(super) directory: Directory,
    pub(super) name: OsString,
    pub(super) path: PathBuf,
    pub(super) given: PathBuf,
    pub(super) access: Access,
    pub(super) through_link: bool,
    pub(super) must_be_directory: bool,
}

impl Entry {
    /// The directory, opened `O_PATH`.
    #[must_use]
    pub fn parent(&self) -> BorrowedFd<'_> {
        self.directory.handle.as_fd()
    }

    /// The directory with its name.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The name in it: one component, never `.` or `..`.
    #[must_use]
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// The whole name from `/`, without links, as of when it was resolved. To
    /// be shown and compared; never to be opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name as the caller gave it.
    #[must_use]
    pub fn given(&self) -> &Path {
        &self.given
    }

    /// What the innermost root allows.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// The name that was given is a link, which was followed: something has
    /// that name even when nothing has this one.
    #[must_use]
    pub fn through_link(&self) -> bool {
        self.through_link
    }

    /// The name that was given ends in `/`: it can only be a directory's.
    #[must_use]
    pub fn must_be_directory(&self) -> bool {
        self.must_be_directory
    }
}

/// What a name leads to: an entry, or a directory that is reached in another
/// way than by its name in the one above.
#[derive(Debug, Clone)]
pub enum Place {
    /// See there.
    Entry(Entry),
    /// A root, or what `.` or `..` led to. It cannot be replaced, renamed or
    /// removed.
    Directory(Directory),
}

/// The last component of a path and what is above it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Split<'a> {
    /// `name` in `above` (empty: where relative paths start).
    Name {
        above: &'a OsStr,
        name: &'a OsStr,
        /// It ends in `/`.
        slash: bool,
    },
    /// It has none: `/`, or it ends in `.` or `..`, or is empty.
    Directory,
}

pub(super) fn split(path: &OsStr) -> Split<'_> {
    let bytes = path.as_bytes();
    let end = bytes
        .iter()
        .rposition(|byte| *byte != b'/')
        .map_or(0, |last| last + 1);
    let (trimmed, slashes) = bytes.split_at(end);
    let start = trimmed
        .iter()
        .rposition(|byte| *byte == b'/')
        .map_or(0, |slash| slash + 1);
    let (above, name) = trimmed.split_at(start);
    match name {
        b"" | b"." | b".." => Split::Directory,
        name => Split::Name {
            above: OsStr::from_bytes(above),
            name: OsStr::from_bytes(name),
            slash: !slashes.is_empty(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_at_its_last_component() {
        for (path, above, name, slash) in [
            ("a", "", "a", false),
            ("a/", "", "a", true),
            ("a//b//", "a//", "b", true),
            ("/a", "/", "a", false),
            ("../..a", "../", "..a", false),
            (" ", "", " ", false),
        ] {
            let (above, name) = (OsStr::new(above), OsStr::new(name));
            let expected = Split::Name { above, name, slash };
            assert_eq!(split(OsStr::new(path)), expected, "{path:?}");
        }
        for path in ["", "/", "//", ".", "..", "a/.", "a/..", "./", "a/../"] {
            assert_eq!(split(OsStr::new(path)), Split::Directory, "{path:?}");
        }
    }
}
