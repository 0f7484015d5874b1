//! Where a session may be: its roots within the operator's, and its first
//! directory. May block on a slow file system.

use std::path::{Path, PathBuf};

use super::record::Access;
use super::registry::SessionError;
use crate::files::resolve::{self, Directory, Means, ResolveError};
use crate::files::roots::{Root, Roots};

/// Where a session is.
pub(super) struct Place {
    pub(super) roots: Roots,
    pub(super) cwd: Directory,
}

/// The roots that a session asks for, within the operator's.
pub(super) fn granted(
    operator: &Roots,
    asked: Vec<(PathBuf, Option<Access>)>,
    means: Means,
) -> Result<Roots, SessionError> {
    if asked.is_empty() {
        for root in operator.iter() {
            root.still_there().map_err(|error| SessionError::Root {
                path: root.path().to_owned(),
                error,
            })?;
        }
        return Ok(operator.clone());
    }
    let mut roots = Vec::with_capacity(asked.len());
    for (path, access) in asked {
        let refused = |error| SessionError::Root {
            path: path.clone(),
            error,
        };
        let directory = absolute(operator, &path, means).map_err(refused)?;
        let limit = operator
            .containing(&directory.name)
            .map_or(Access::ReadOnly, |(root, _)| root.access());
        let access = access.unwrap_or(limit);
        if (limit, access) == (Access::ReadOnly, Access::ReadWrite) {
            return Err(SessionError::RootReadOnly { path });
        }
        roots.push(Root::from_handle(&path, access, directory.handle).map_err(refused)?);
    }
    Ok(Roots::new(roots))
}

/// The directory that a session begins in.
pub(super) fn first_directory(
    roots: &Roots,
    asked: Option<PathBuf>,
    home: Option<PathBuf>,
    means: Means,
) -> Result<Directory, SessionError> {
    let refused = |path: PathBuf, error| SessionError::WorkingDirectory { path, error };
    if let Some(path) = asked {
        return absolute(roots, &path, means).map_err(|error| refused(path, error));
    }
    if let Some(home) = home
        && let Ok(directory) = absolute(roots, &home, means)
    {
        return Ok(directory);
    }
    let first = roots.first().map_or(Path::new("/"), Root::path);
    absolute(roots, first, means).map_err(|error| refused(first.to_owned(), error))
}

fn absolute(roots: &Roots, path: &Path, means: Means) -> Result<Directory, ResolveError> {
    if !path.is_absolute() {
        return Err(ResolveError::NotAbsolute {
            given: path.to_owned(),
        });
    }
    resolve::directory(roots, Path::new("/"), path.as_os_str(), means)
}
