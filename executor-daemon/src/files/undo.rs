//! Undo tokens, and what they bring back.
//!
//! What a file was is kept in the instance's directory: moved there where that
//! is the same file system (the displaced file itself, at no cost), copied
//! otherwise. It lives as long as the instance.
//!
//! A mutation is taken back only if the file is still as the mutation left it,
//! or is so again because later ones were taken back.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use executor_proto::id::SessionId;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::cancel::Cancel;
use super::in_place;
use super::instance::{Instance, random_name};
use super::object::{Facts, FileKind, Object};
use super::version::Version;
use crate::limits::Limits;

/// A file in the instance's directory: what another one was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Saved {
    pub(super) name: String,
    pub(super) length: u64,
    pub(super) mode: u32,
    /// The very file, with all that it is, not a copy of its content.
    pub(super) itself: bool,
}

/// How a mutation is taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Undo {
    /// The file gets its content and mode back, which it had as `before`.
    Content {
        left: Version,
        before: Version,
        saved: Saved,
    },
    /// The file was made and is removed.
    Created { left: Version },
    /// The file was removed and comes back.
    Removed { saved: Saved },
    /// As the link with this text.
    RemovedLink { text: Vec<u8> },
    /// As the empty directory with this mode.
    RemovedDirectory { mode: u32 },
    /// It gets its name back. What it displaced, too.
    Renamed {
        to: PathBuf,
        dev: u64,
        ino: u64,
        displaced: Option<Saved>,
    },
}

impl Undo {
    fn saved(&self) -> Option<&Saved> {
        match self {
            Self::Content { saved, .. } | Self::Removed { saved } => Some(saved),
            Self::Renamed { displaced, .. } => displaced.as_ref(),
            _ => None,
        }
    }
}

/// What can be undone, of all sessions.
#[derive(Debug)]
pub(super) struct Undos {
    /// Mutations of a session that can be taken back.
    mutations: usize,
    /// Bytes of all files that are kept of one session.
    session_bytes: u64,
    // Std: held for a look-up or a change.
    sessions: Mutex<HashMap<SessionId, VecDeque<Kept>>>,
}

#[derive(Debug)]
struct Kept {
    token: String,
    path: PathBuf,
    undo: Undo,
}

impl Undos {
    /// Nothing can be undone yet, and never more than `limits` say.
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            mutations: limits.undo_mutations,
            session_bytes: limits.undo_session_bytes,
            sessions: Mutex::default(),
        }
    }

    /// Keeps one; the token, and what is no longer kept because of it.
    pub(super) fn put(
        &self,
        session: SessionId,
        path: &Path,
        undo: Undo,
    ) -> (Option<String>, Vec<String>) {
        let Ok(token) = random_name("undo_") else {
            return (
                None,
                undo.saved()
                    .map(|saved| saved.name.clone())
                    .into_iter()
                    .collect(),
            );
        };
        let mut sessions = self.locked();
        let kept = sessions.entry(session).or_default();
        kept.push_back(Kept {
            token: token.clone(),
            path: path.to_owned(),
            undo,
        });
        let mut dropped = Vec::new();
        while kept.len() > self.mutations || bytes(kept) > self.session_bytes {
            let oldest = kept.pop_front();
            let Some(oldest) = oldest else { break };
            dropped.extend(oldest.undo.saved().map(|saved| saved.name.clone()));
        }
        let is_kept = kept.back().is_some_and(|last| last.token == token);
        (is_kept.then_some(token), dropped)
    }

    /// What a token is for.
    pub(super) fn get(&self, session: SessionId, token: &str) -> Option<(PathBuf, Undo)> {
        let sessions = self.locked();
        let kept = sessions
            .get(&session)?
            .iter()
            .find(|one| one.token == token)?;
        Some((kept.path.clone(), kept.undo.clone()))
    }

    /// It is used up; the file that was kept for it.
    pub(super) fn remove(&self, session: SessionId, token: &str) -> Option<String> {
        let mut sessions = self.locked();
        let kept = sessions.get_mut(&session)?;
        let at = kept.iter().position(|one| one.token == token)?;
        let gone = kept.remove(at)?;
        gone.undo.saved().map(|saved| saved.name.clone())
    }

    /// A file is again what it was as `before`, under a new version: what led to
    /// that can be taken back in its turn.
    pub(super) fn is_again(&self, session: SessionId, path: &Path, before: Version, now: Version) {
        let mut sessions = self.locked();
        for kept in sessions.entry(session).or_default() {
            if let Undo::Content { left, .. } | Undo::Created { left } = &mut kept.undo
                && kept.path == path
                && *left == before
            {
                *left = now;
            }
        }
    }

    /// Sessions of which something is kept.
    pub(super) fn sessions(&self) -> Vec<SessionId> {
        self.locked().keys().copied().collect()
    }

    /// Forgets a session; the files that were kept for it.
    pub(super) fn end(&self, session: SessionId) -> Vec<String> {
        let kept = self.locked().remove(&session).unwrap_or_default();
        kept.iter()
            .filter_map(|one| Some(one.undo.saved()?.name.clone()))
            .collect()
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<SessionId, VecDeque<Kept>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bytes(kept: &VecDeque<Kept>) -> u64 {
    kept.iter()
        .filter_map(|one| one.undo.saved())
        .map(|saved| saved.length)
        .sum()
}

/// Is it a file, and small enough?
pub(super) fn may_be_kept(instance: &Instance, facts: &Facts) -> bool {
    facts.kind == FileKind::Regular && facts.size <= instance.undo_file_bytes()
}

/// Keeps the file that has `name`, which loses it: moved, else copied. `None`:
/// it cannot be kept.
pub(super) fn save(
    instance: &Instance,
    directory: BorrowedFd<'_>,
    name: &str,
    facts: &Facts,
) -> Option<Saved> {
    if !may_be_kept(instance, facts) {
        return None;
    }
    if let Ok(saved) = take(instance, directory, OsStr::new(name), facts) {
        return Some(saved);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::empty()).ok()?;
    kept(copy_of(instance, &file, facts, Cancel::never()))
}

/// Moves what has `name` into the instance's directory, where that is on the
/// same file system (`EXDEV` else, rename(2)).
pub(super) fn take(
    instance: &Instance,
    directory: BorrowedFd<'_>,
    name: &OsStr,
    facts: &Facts,
) -> Result<Saved, Errno> {
    let saved = random_name("undo-")?;
    rustix::fs::renameat(directory, name, instance.directory(), &saved)?;
    Ok(Saved {
        name: saved,
        length: facts.size,
        mode: facts.mode,
        itself: true,
    })
}

/// Keeps a copy of a file's content. `None`: it cannot be kept.
pub(super) fn copy(instance: &Instance, object: &Object, cancel: &Cancel) -> Option<Saved> {
    let facts = object.facts();
    if !may_be_kept(instance, facts) {
        return None;
    }
    let file = object.content().ok()?;
    kept(copy_of(instance, &file.into(), facts, cancel))
}

fn kept(copied: Result<Saved, Errno>) -> Option<Saved> {
    copied
        .inspect_err(|errno| tracing::debug!(%errno, "a mutation cannot be undone"))
        .ok()
}

fn copy_of(
    instance: &Instance,
    from: &OwnedFd,
    facts: &Facts,
    cancel: &Cancel,
) -> Result<Saved, Errno> {
    let (name, file) = instance.file("undo-")?;
    match in_place::copy(from, &file, facts.size, cancel) {
        Ok(()) => Ok(Saved {
            name,
            length: facts.size,
            mode: facts.mode,
            itself: false,
        }),
        Err(errno) => {
            instance.remove(&name);
            Err(errno)
        }
    }
}

/// Opens what was kept. It is a file of ours in a directory of ours.
pub(super) fn open(instance: &Instance, saved: &Saved) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(
        instance.directory().as_fd(),
        &saved.name,
        flags,
        Mode::empty(),
    )
}
