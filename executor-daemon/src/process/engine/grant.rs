//! The roots of a session, which can become more while it is open.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use executor_proto::id::SessionId;

use super::Engine;
use super::sessions::Opened;
use crate::process::error::ProcessError;
use crate::session::record::{ROOTS_MAX, RootRecord};

/// The roots and the directories of a session.
#[derive(Debug, Clone)]
pub(super) struct Places {
    pub(super) roots: Vec<RootRecord>,
    /// The working directory, then the roots.
    pub(super) directories: Vec<Arc<OwnedFd>>,
}

impl Places {
    /// Adds a root, or puts it in the place of one with the same name. Says
    /// whether there was anything to do; `None`: there is no room.
    fn grant(&mut self, root: RootRecord, directory: Arc<OwnedFd>) -> Option<bool> {
        let known = self.roots.iter().position(|one| one.path == root.path);
        let Some(at) = known else {
            if self.roots.len() >= ROOTS_MAX {
                return None;
            }
            self.roots.push(root);
            self.directories.push(directory);
            return Some(true);
        };
        let same = self.roots.get(at) == Some(&root);
        if let (Some(record), Some(handle)) =
            (self.roots.get_mut(at), self.directories.get_mut(at + 1))
        {
            *record = root;
            // What the name leads to now: it may have been made again.
            *handle = directory;
        }
        Some(!same)
    }
}

impl Engine {
    /// Adds a root to a session; says whether it changed anything.
    pub(crate) fn grant_root(
        &self,
        id: SessionId,
        root: RootRecord,
        directory: Option<Arc<OwnedFd>>,
    ) -> Result<(Opened, bool), ProcessError> {
        let directory =
            directory.ok_or_else(|| ProcessError::MissingDescriptor(root.path.clone()))?;
        let session = self.sessions().get(id)?;
        let granted = session.places().grant(root, directory);
        let added = granted.ok_or(ProcessError::RootLimit { limit: ROOTS_MAX })?;
        Ok((session.opened(), added))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::record::Access;

    #[test]
    fn a_root_is_added_once_changed_in_place_and_bounded() {
        let directory = || {
            let handle = std::fs::OpenOptions::new().read(true).open("/").unwrap();
            Arc::new(OwnedFd::from(handle))
        };
        let root = |name: &str, access| RootRecord {
            path: name.into(),
            access,
        };
        let mut places = Places {
            roots: vec![root("/a", Access::ReadOnly)],
            directories: vec![directory(), directory()],
        };
        let mut grant = |one: RootRecord| {
            let granted = places.grant(one, directory());
            assert_eq!(places.directories.len(), places.roots.len() + 1);
            (granted, places.roots.clone())
        };
        assert_eq!(grant(root("/b", Access::ReadOnly)).0, Some(true));
        assert_eq!(grant(root("/b", Access::ReadOnly)).0, Some(false));
        let (granted, roots) = grant(root("/a", Access::ReadWrite));
        assert_eq!(granted, Some(true));
        assert_eq!(
            roots,
            [root("/a", Access::ReadWrite), root("/b", Access::ReadOnly)]
        );
        for n in roots.len()..ROOTS_MAX {
            assert_eq!(
                grant(root(&format!("/{n}"), Access::ReadOnly)).0,
                Some(true)
            );
        }
        assert_eq!(grant(root("/more", Access::ReadOnly)).0, None);
        assert_eq!(grant(root("/b", Access::ReadWrite)).0, Some(true));
    }
}
