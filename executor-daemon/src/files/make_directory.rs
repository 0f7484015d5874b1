//! A directory is made, with `parents` also those above it.

use std::ffi::OsStr;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::Files;
use super::entry::{Entry, Last, Place};
use super::error::FileError;
use super::fence::Fence;
use super::instance::millis_now;
use super::mutation::{Caller, Described, Outcome, Reply, Step, keys, location, look, request};
use super::object::{Facts, FileKind, Object};
use super::outcome::Check;
use super::write::ATTEMPTS;

/// Mode of a directory whose mode nobody named, less the umask (mkdir(2)).
const NEW: u32 = 0o777;

/// What is to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MakeDirectorySpec {
    /// As the caller names it.
    #[serde(with = "crate::path_bytes")]
    pub path: PathBuf,
    /// Make missing directories above it, and take one that is there.
    pub parents: bool,
    /// Within `0o777`. `None`: 0777 less the umask.
    pub mode: Option<u32>,
}

/// What is there now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeDirectory {
    /// The directory.
    pub file: Described,
    /// It was made.
    pub created: bool,
}

impl Outcome for MadeDirectory {
    fn found(&mut self, facts: Facts) {
        self.file.facts = facts;
    }

    fn without_undo(&mut self) {}
}

impl Files {
    /// Makes a directory. Blocks; waits for its turn on the name.
    ///
    /// # Errors
    /// [`FileError::Exists`] when the name is taken, with `parents` only by
    /// something else than a directory; every refusal of the name.
    pub fn make_directory(
        &self,
        caller: Caller<'_>,
        spec: &MakeDirectorySpec,
    ) -> Result<Reply<MadeDirectory>, FileError> {
        if spec.mode.is_some_and(|mode| mode > 0o777) {
            return Err(FileError::InvalidArgument {
                field: "mode",
                why: "it must lie within 0777".to_owned(),
            });
        }
        let asked = request("make_directory", spec, &[]);
        self.once(caller, &spec.path, asked, |step| {
            for _ in 1..ATTEMPTS {
                match run(step, spec) {
                    // Another call that failed took away what it had made.
                    Err(FileError::NotFound { .. }) if spec.parents => {}
                    done => return done,
                }
            }
            run(step, spec)
        })
    }
}

fn run(step: &Step<'_>, spec: &MakeDirectorySpec) -> Result<MadeDirectory, FileError> {
    let fence = step.caller.fence;
    let parents = if spec.parents {
        make_parents(fence, &spec.path)?
    } else {
        Parents::default()
    };
    parents.after(step, make_last(step, spec))
}

fn make_last(step: &Step<'_>, spec: &MakeDirectorySpec) -> Result<MadeDirectory, FileError> {
    let fence = step.caller.fence;
    let there = |object: &Object| {
        if spec.parents && object.facts().kind == FileKind::Directory {
            return Ok(MadeDirectory {
                file: Described::of(object)?,
                created: false,
            });
        }
        Err(FileError::Exists {
            given: spec.path.clone(),
            kind: object.facts().kind,
        })
    };
    // Through a link that leads to nothing no directory is made.
    let place = fence.place(spec.path.as_os_str(), Last::Follow);
    let entry = match place.map_err(|error| {
        if spec.parents {
            error
        } else {
            without_parent(fence, &spec.path, error)
        }
    })? {
        Place::Entry(entry) => entry,
        Place::Directory(directory) => {
            return there(&Object::of_directory(&directory, &spec.path)?);
        }
    };
    let turn = step.turn(keys(&entry, None)?, &spec.path)?;
    if let Some(object) = look(&entry)? {
        return there(&object);
    }
    if entry.through_link() {
        return Err(FileError::Exists {
            given: spec.path.clone(),
            kind: FileKind::Link,
        });
    }
    fence.writable(&entry)?;
    let check = Check::Made {
        target: location(fence, &entry)?,
        at: millis_now(),
        directory: true,
    };
    let before = Facts::of(entry.parent())
        .map_err(|errno| FileError::from_errno(errno, "examining", &spec.path))?;
    let outcome = |facts| MadeDirectory {
        file: Described::new(entry.path(), facts),
        created: true,
    };
    step.begins(check, &outcome(before), &spec.path)?;
    let facts = make(&entry, spec.mode)?;
    drop(turn);
    Ok(outcome(facts))
}

/// Makes the directory that an entry names.
pub(super) fn make(entry: &Entry, mode: Option<u32>) -> Result<Facts, FileError> {
    let failed = |errno| match errno {
        Errno::EXIST => FileError::Exists {
            given: entry.given().to_owned(),
            kind: Facts::at(entry.parent(), entry.name())
                .map_or(FileKind::Unknown, |facts| facts.kind),
        },
        errno => FileError::from_errno(errno, "making", entry.given()),
    };
    let first = Mode::from_raw_mode(mode.unwrap_or(NEW));
    rustix::fs::mkdirat(entry.parent(), entry.name(), first).map_err(failed)?;
    let object = Object::look(entry)?;
    if let Some(mode) = mode
        && object.facts().kind == FileKind::Directory
        && object.facts().mode & 0o777 != mode
    {
        // What the umask took away. By the link in procfs: an O_PATH handle
        // takes no fchmod(2). A setgid that was inherited stays.
        let link = format!("/proc/self/fd/{}", object.handle().as_raw_fd());
        let mode = mode | (object.facts().mode & 0o7000);
        rustix::fs::chmod(link, Mode::from_raw_mode(mode)).map_err(failed)?;
    }
    object.facts_now()
}

/// Directories that a call made above what it is about.
#[derive(Debug, Default)]
#[must_use]
pub(super) struct Parents {
    /// From the top down.
    made: Vec<(Entry, Facts)>,
}

impl Parents {
    /// Removes them where the call failed: only those, and only while nothing
    /// is in them. They stay where whether it was done is still to be found out
    /// by what is there.
    pub(super) fn after<T>(
        self,
        step: &Step<'_>,
        done: Result<T, FileError>,
    ) -> Result<T, FileError> {
        if done.as_ref().is_err_and(|error| !step.is_open(error)) {
            self.remove();
        }
        done
    }

    fn remove(self) {
        for (entry, made) in self.made.iter().rev() {
            let now = Facts::at(entry.parent(), entry.name());
            if !now.is_ok_and(|now| now.is_same_file(made)) {
                return;
            }
            // Fails where something is in it (rmdir(2)), and then so it would
            // for those above.
            if rustix::fs::unlinkat(entry.parent(), entry.name(), AtFlags::REMOVEDIR).is_err() {
                return;
            }
        }
    }
}

/// Makes the directories above `path` that are missing, one after another,
/// each through the fence.
///
/// # Errors
/// As the fence or the system refuses one; those before it are removed again.
pub(super) fn make_parents(fence: &Fence, path: &Path) -> Result<Parents, FileError> {
    let mut parents = Parents::default();
    match make_missing(fence, path, &mut parents) {
        Ok(()) => Ok(parents),
        Err(error) => {
            parents.remove();
            Err(error)
        }
    }
}

fn make_missing(fence: &Fence, path: &Path, parents: &mut Parents) -> Result<(), FileError> {
    let mut missing = Vec::new();
    let mut above = parent(path.as_os_str());
    while let Some(directory) = above {
        match fence.directory(directory) {
            Ok(_) => break,
            Err(FileError::NotFound { .. }) => missing.push(directory),
            Err(error) => return Err(with_given(error, path)),
        }
        above = parent(directory);
    }
    for directory in missing.into_iter().rev() {
        // `x/..` is there once `x` is.
        let Place::Entry(entry) = fence.place(directory, Last::Follow)? else {
            continue;
        };
        fence.writable(&entry)?;
        match make(&entry, None) {
            // Somebody else made it, or it is a link that leads to nothing,
            // which the next step meets.
            Ok(facts) => parents.made.push((entry, facts)),
            Err(FileError::Exists { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// `error`, which says that `given` cannot be found though it need not exist:
/// what is missing is above it.
pub(super) fn without_parent(fence: &Fence, given: &Path, error: FileError) -> FileError {
    let FileError::NotFound { candidates, .. } = error else {
        return error;
    };
    let mut missing = None;
    let mut above = parent(given.as_os_str());
    while let Some(directory) = above {
        if !matches!(fence.directory(directory), Err(FileError::NotFound { .. })) {
            break;
        }
        missing = Some(directory);
        above = parent(directory);
    }
    let given = given.to_owned();
    match missing {
        Some(missing) => FileError::NoParent {
            given,
            missing: missing.into(),
            candidates,
        },
        // It is a link, and what is missing is on its way.
        None => FileError::NotFound { given, candidates },
    }
}

fn with_given(error: FileError, given: &Path) -> FileError {
    use super::resolve::ResolveError;
    match error {
        FileError::Resolve(ResolveError::NotADirectory { .. }) => {
            FileError::Resolve(ResolveError::NotADirectory {
                given: given.to_owned(),
            })
        }
        error => error,
    }
}

/// What is above the last component, as bytes; `None` where that is where
/// names start.
fn parent(path: &OsStr) -> Option<&OsStr> {
    let bytes = path.as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/')? + 1;
    let slash = bytes.get(..end)?.iter().rposition(|byte| *byte == b'/')?;
    let above = bytes.get(..slash)?;
    let above = above.iter().rposition(|byte| *byte != b'/')? + 1;
    bytes.get(..above).map(OsStr::from_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_above_a_path() {
        for (path, above) in [
            ("a/b", Some("a")),
            ("a//b//", Some("a")),
            ("/a/b", Some("/a")),
            ("a", None),
            ("/a", None),
            ("a/../b", Some("a/..")),
            ("", None),
            ("/", None),
        ] {
            assert_eq!(parent(OsStr::new(path)), above.map(OsStr::new), "{path}");
        }
    }
}
