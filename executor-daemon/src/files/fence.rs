//! The fence of a session: a name becomes an entry in an opened directory, or
//! a typed refusal.
//!
//! 1. The directory above the last component is resolved by handles (see
//!    [`resolve`]); the last component is looked at in that
//!    directory. A link that is to be followed is read and its text is resolved
//!    the same way from that directory, at most 40 times.
//! 2. An entry's directory is inside a root, and its innermost root says
//!    whether it may be written.
//! 3. The name given, each name that a link leads through and the name resolved
//!    are compared with the secret files. Hard links are not names that can be
//!    seen here: a file that has another name outside can be read by the one
//!    inside.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

use super::entry::{Entry, Last, Place, Split, split};
use super::error::FileError;
use super::object::Object;
use super::resolve::{self, Directory, PATH_BYTES, ResolveError, Resolver, shortened};
use super::secret::SecretFiles;
use super::{similar_names, walk};
use crate::limits::Limits;
use crate::session::record::Access;

/// See the module's documentation.
#[derive(Debug, Clone)]
pub struct Fence {
    resolver: Resolver,
    secrets: Arc<SecretFiles>,
    unsized_bytes: u64,
}

impl Fence {
    /// Names resolve as `resolver` says; `secrets` are kept from all of them.
    #[must_use]
    pub fn new(resolver: Resolver, secrets: Arc<SecretFiles>) -> Self {
        Self {
            resolver,
            secrets,
            unsized_bytes: Limits::default().file_unsized_bytes,
        }
    }

    /// Of a file that says it has no bytes at most so many are read.
    #[must_use]
    pub fn reading_at_most(self, unsized_bytes: u64) -> Self {
        Self {
            unsized_bytes,
            ..self
        }
    }

    pub(super) fn unsized_bytes(&self) -> u64 {
        self.unsized_bytes
    }

    /// Resolves directories, without regard to secret files: for working
    /// directories of commands.
    #[must_use]
    pub fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// What the operator keeps from agents.
    #[must_use]
    pub fn secrets(&self) -> &SecretFiles {
        &self.secrets
    }

    /// The entry that `given` names. Nothing need have that name; the directory
    /// above it must exist.
    ///
    /// # Errors
    /// [`FileError::IsARoot`] for a root and for a name that ends in `.` or
    /// `..`; else as [`Fence::place`].
    pub fn entry(&self, given: &OsStr, last: Last) -> Result<Entry, FileError> {
        match self.place(given, last)? {
            Place::Entry(entry) => Ok(entry),
            Place::Directory(_) => Err(FileError::IsARoot {
                given: given.into(),
            }),
        }
    }

    /// What `given` names: an entry, or a directory that is a root or is named
    /// from within.
    ///
    /// # Errors
    /// [`FileError::InvalidPath`], [`FileError::Secret`],
    /// [`FileError::NotFound`] (a part above is missing, with candidates), and
    /// every [`FileError::Resolve`]. With [`Last::Keep`] a name that ends in
    /// `/` and is a link's is refused: neither the link nor what it leads to is
    /// clearly meant.
    pub fn place(&self, given: &OsStr, last: Last) -> Result<Place, FileError> {
        usable(given)?;
        let found = self.follow(given, last);
        found.map_err(|error| self.with_candidates(error, given))
    }

    /// What has the name `given`, a link itself with [`Last::Keep`].
    ///
    /// # Errors
    /// [`FileError::NotFound`], with the names that look like it; else as
    /// [`Fence::place`].
    pub fn object(&self, given: &OsStr, last: Last) -> Result<Object, FileError> {
        let found = match self.place(given, last)? {
            Place::Entry(entry) => Object::look(&entry),
            Place::Directory(directory) => Object::of_directory(&directory, Path::new(given)),
        };
        found.map_err(|error| self.with_candidates(error, given))
    }

    /// The directory that `given` names; an empty name is the working
    /// directory.
    ///
    /// # Errors
    /// As [`Fence::place`]; [`ResolveError::NotADirectory`] in it.
    pub fn directory(&self, given: &OsStr) -> Result<Directory, FileError> {
        if !given.is_empty() {
            usable(given)?;
        }
        let base = &self.resolver.cwd().name;
        let found = self.enter(base, given, given);
        found.map_err(|error| self.with_candidates(error, given))
    }

    /// The entry `name` of a directory that came through this fence. Errors
    /// speak of `given`.
    ///
    /// # Errors
    /// [`FileError::Secret`]; [`FileError::Resolve`] where the directory has
    /// left the roots.
    pub fn child(
        &self,
        directory: &Directory,
        name: &OsStr,
        given: &Path,
    ) -> Result<Entry, FileError> {
        let secret = |rule: &str| FileError::Secret {
            given: given.to_owned(),
            rule: rule.to_owned(),
        };
        let path = directory.name.join(name);
        if let Some(rule) = self.secrets.rule_of_child(&path) {
            return Err(secret(rule));
        }
        if let Some(rule) = self.secrets.rule_in_procfs(directory, name) {
            return Err(secret(rule));
        }
        let access = self.access(&path, given.as_os_str())?;
        Ok(Entry {
            directory: directory.clone(),
            name: name.to_owned(),
            path,
            given: given.to_owned(),
            access,
            through_link: false,
            must_be_directory: false,
        })
    }

    /// May the entry be made, changed or taken away?
    ///
    /// # Errors
    /// [`FileError::RootReadOnly`].
    pub fn writable(&self, entry: &Entry) -> Result<(), FileError> {
        if entry.access() == Access::ReadWrite {
            return Ok(());
        }
        let root = self.resolver.roots().containing(entry.path());
        Err(FileError::RootReadOnly {
            given: entry.given().to_owned(),
            resolved: entry.path().to_owned(),
            root: root
                .map(|(root, _)| root.path().to_owned())
                .unwrap_or_default(),
        })
    }

    fn follow(&self, given: &OsStr, last: Last) -> Result<Place, FileError> {
        let mut base = self.resolver.cwd().name.clone();
        let mut path = given.to_owned();
        let (mut through_link, mut must_be_directory) = (false, false);
        for _ in 0..=walk::LINKS {
            let Split::Name { above, name, slash } = split(&path) else {
                return self.enter(&base, &path, given).map(Place::Directory);
            };
            must_be_directory |= slash;
            let full = base.join(&path);
            if self.resolver.roots().at(&full).is_some() {
                return self.enter(&base, &path, given).map(Place::Directory);
            }
            self.not_secret(&full, given)?;
            let directory = match self.resolver.directory_from(&base, above, given) {
                Ok(directory) => directory,
                // What is above lies outside; the whole may be a root.
                Err(ResolveError::OutsideRoots { .. }) => {
                    return self.enter(&base, &path, given).map(Place::Directory);
                }
                Err(error) => return Err(error.into()),
            };
            let mut entry = self.checked(directory, name, given)?;
            if self.resolver.roots().at(&entry.path).is_some() {
                let found = self.enter(Path::new("/"), entry.path.as_os_str(), given);
                return found.map(Place::Directory);
            }
            entry.through_link = through_link;
            entry.must_be_directory = must_be_directory;
            if last == Last::Keep && !must_be_directory {
                return Ok(Place::Entry(entry));
            }
            let Some(text) = link_text(&entry)? else {
                return Ok(Place::Entry(entry));
            };
            if last == Last::Keep {
                let given = given.into();
                return Err(ResolveError::NotADirectory { given }.into());
            }
            through_link = true;
            base = entry.directory.name;
            path = text;
        }
        Err(ResolveError::from_errno(Errno::LOOP, given).into())
    }

    fn checked(
        &self,
        directory: Directory,
        name: &OsStr,
        given: &OsStr,
    ) -> Result<Entry, FileError> {
        self.not_secret(&directory.name, given)?;
        self.child(&directory, name, Path::new(given))
    }

    /// As a directory, by its whole name.
    fn enter(&self, base: &Path, path: &OsStr, given: &OsStr) -> Result<Directory, FileError> {
        self.not_secret(&base.join(path), given)?;
        let directory = self.resolver.directory_from(base, path, given)?;
        self.not_secret(&directory.name, given)?;
        self.access(&directory.name, given)?;
        if let (Some(above), Some(name)) = (directory.name.parent(), directory.name.file_name()) {
            // The directory itself stands for the one above: what matters is
            // the type of its file system.
            let above = Directory {
                handle: Arc::clone(&directory.handle),
                name: above.to_owned(),
            };
            if let Some(rule) = self.secrets.rule_in_procfs(&above, name) {
                return Err(FileError::Secret {
                    given: given.into(),
                    rule: rule.to_owned(),
                });
            }
        }
        Ok(directory)
    }

    /// Says nothing of names outside the roots: those are refused as such.
    fn not_secret(&self, full: &Path, given: &OsStr) -> Result<(), FileError> {
        if self.resolver.roots().containing(full).is_none() {
            return Ok(());
        }
        match self.secrets.rule(full) {
            None => Ok(()),
            Some(rule) => Err(FileError::Secret {
                given: given.into(),
                rule: rule.to_owned(),
            }),
        }
    }

    /// What the innermost root around `path` allows. A directory that was
    /// moved out of the roots while it was opened is in none.
    fn access(&self, path: &Path, given: &OsStr) -> Result<Access, ResolveError> {
        let roots = self.resolver.roots();
        roots
            .containing(path)
            .map(|(root, _)| root.access())
            .ok_or_else(|| resolve::outside(roots, given, path))
    }

    fn with_candidates(&self, error: FileError, given: &OsStr) -> FileError {
        let FileError::NotFound {
            given: shown,
            candidates,
        } = error
        else {
            return error;
        };
        let candidates = if candidates.is_empty() {
            similar_names::of_path(given, |path| self.directory_quietly(path))
        } else {
            candidates
        };
        let base = &self.resolver.cwd().name;
        let candidates = candidates
            .into_iter()
            .filter(|path| self.secrets.rule(&base.join(path)).is_none())
            .collect();
        FileError::NotFound {
            given: shown,
            candidates,
        }
    }

    fn directory_quietly(&self, path: &OsStr) -> Option<Directory> {
        self.enter(&self.resolver.cwd().name, path, path).ok()
    }
}

/// # Errors
/// For what no file system could have.
fn usable(given: &OsStr) -> Result<(), FileError> {
    let bytes = given.as_bytes();
    let why = if bytes.is_empty() {
        "it is empty"
    } else if bytes.contains(&0) {
        "it has a NUL byte"
    } else if bytes.len() > PATH_BYTES {
        "it has more than 4,095 bytes"
    } else {
        return Ok(());
    };
    Err(FileError::InvalidPath {
        given: shortened(Path::new(given)),
        why,
    })
}

/// `None`: the entry is no link, or nothing.
fn link_text(entry: &Entry) -> Result<Option<OsString>, FileError> {
    match rustix::fs::readlinkat(entry.parent(), entry.name(), Vec::new()) {
        Ok(text) => {
            let text = OsString::from_vec(text.into_bytes());
            if walk::is_magic(entry.parent(), &text) {
                return Err(ResolveError::MagicLink {
                    given: entry.given.clone(),
                }
                .into());
            }
            Ok(Some(text))
        }
        // EINVAL: it is no link (readlink(2)).
        Err(Errno::INVAL | Errno::NOENT) => Ok(None),
        Err(errno) => Err(FileError::from_errno(errno, "examining", entry.given())),
    }
}
