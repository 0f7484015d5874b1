//! What a name means, told with path strings: slow, blind to races, and short
//! enough to be seen to be right.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::super::entry::Last;

/// The roots by their names, which are without links, and where relative names
/// start.
pub(super) struct Model {
    roots: Vec<PathBuf>,
    base: PathBuf,
}

/// What a name leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reached {
    Entry(PathBuf),
    Directory(PathBuf),
}

/// Why it leads nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    NotFound,
    NotADirectory,
    Outside,
    Links,
    Invalid,
}

/// A result and how it came about.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) result: Result<Reached, Refusal>,
    pub(super) links: usize,
    pub(super) went_above: bool,
    pub(super) steps: usize,
}

impl Model {
    pub(super) fn new(roots: Vec<PathBuf>, base: PathBuf) -> Self {
        Self { roots, base }
    }

    pub(super) fn is_inside(&self, path: &Path) -> bool {
        self.roots.iter().any(|root| path.starts_with(root))
    }

    fn is_above(&self, path: &Path) -> bool {
        self.roots.iter().any(|root| root.starts_with(path))
    }

    pub(super) fn resolve(&self, given: &OsStr, last: Last) -> Resolved {
        let mut resolved = Resolved {
            result: Err(Refusal::Invalid),
            links: 0,
            went_above: false,
            steps: 0,
        };
        if !given.is_empty() {
            resolved.result = self.walk(given, last, &mut resolved);
        }
        resolved
    }

    fn walk(&self, given: &OsStr, last: Last, told: &mut Resolved) -> Result<Reached, Refusal> {
        let full = self.base.join(given);
        if !self.is_inside(&full) {
            return Err(Refusal::Outside);
        }
        let mut here = PathBuf::from("/");
        let mut names = pieces(full.as_os_str());
        // Only a directory's name may end in one of these.
        let mut slash = ends_in_slash(given);
        while let Some(name) = names.pop_front() {
            told.steps += 1;
            let is_last = names.is_empty();
            if name == "." {
                if is_last {
                    return self.arrive(here);
                }
                continue;
            }
            if name == ".." {
                here.pop();
                self.stay(&here, told)?;
                if is_last {
                    return self.arrive(here);
                }
                continue;
            }
            let next = here.join(&name);
            if !self.is_inside(&here) || self.roots.contains(&next) {
                // By name alone; a root is entered as what it is.
                here = next;
                self.stay(&here, told)?;
                if is_last {
                    return self.arrive(here);
                }
                continue;
            }
            let meta = next.symlink_metadata();
            let is_link = meta.as_ref().is_ok_and(std::fs::Metadata::is_symlink);
            if is_last && (last == Last::Keep || !is_link) {
                if is_link && slash {
                    return Err(Refusal::NotADirectory);
                }
                return Ok(Reached::Entry(next));
            }
            let meta = meta.map_err(|_| Refusal::NotFound)?;
            if is_link {
                told.links += 1;
                if told.links > 40 {
                    return Err(Refusal::Links);
                }
                let text = next.read_link().unwrap();
                let text = text.as_os_str();
                if is_last {
                    slash |= ends_in_slash(text);
                    let from = here.join(text);
                    if !self.is_inside(&from) {
                        return Err(Refusal::Outside);
                    }
                }
                if text.as_bytes().starts_with(b"/") {
                    here = PathBuf::from("/");
                }
                let mut more = pieces(text);
                // A link's text that ends in `/` in the middle says no more.
                if !is_last {
                    more.retain(|name| name != ".");
                }
                more.append(&mut names);
                names = more;
                if names.is_empty() {
                    return self.arrive(here);
                }
            } else if meta.is_dir() {
                here = next;
            } else {
                return Err(Refusal::NotADirectory);
            }
        }
        self.arrive(here)
    }

    /// Above the roots only what leads to one may be gone through.
    fn stay(&self, here: &Path, told: &mut Resolved) -> Result<(), Refusal> {
        if self.is_inside(here) {
            return Ok(());
        }
        told.went_above = true;
        if self.is_above(here) {
            return Ok(());
        }
        Err(Refusal::Outside)
    }

    fn arrive(&self, here: PathBuf) -> Result<Reached, Refusal> {
        if self.is_inside(&here) {
            Ok(Reached::Directory(here))
        } else {
            Err(Refusal::Outside)
        }
    }
}

fn pieces(path: &OsStr) -> VecDeque<OsString> {
    let names = path.as_bytes().split(|byte| *byte == b'/');
    let names = names.filter(|name| !name.is_empty());
    names
        .map(|name| OsStr::from_bytes(name).to_owned())
        .collect()
}

fn ends_in_slash(path: &OsStr) -> bool {
    path.as_bytes().ends_with(b"/")
}
