//! Results of sessions that are over.

use std::os::fd::OwnedFd;

use executor_proto::id::SessionId;
use rustix::fs::{AtFlags, Dir};
use rustix::io::Errno;

use super::{Receipts, locked};

/// A file that nobody wrote to for so long is of a session that is over.
pub(super) const ABANDONED_MILLIS: u64 = 7 * 24 * 3600 * 1000;

impl Receipts {
    /// Forgets all of a session that is over.
    pub(crate) fn end(&self, session: SessionId) {
        locked(&self.sessions).remove(&session);
        remove(&self.directory, session);
    }

    /// As [`Receipts::end`], if nobody wrote to its file for a week.
    pub(crate) fn end_if_abandoned(&self, session: SessionId, now: u64) {
        if is_abandoned(&self.directory, session.to_string(), now) == Ok(true) {
            self.end(session);
        }
    }

    /// Sessions that did something in this life.
    pub(crate) fn sessions(&self) -> Vec<SessionId> {
        locked(&self.sessions).keys().copied().collect()
    }

    /// Sessions of which there are results on disk, those of other daemons with
    /// the same state directory included.
    ///
    /// # Errors
    /// As the directory cannot be read.
    pub(crate) fn recorded(&self) -> Result<Vec<SessionId>, Errno> {
        let mut found = Vec::new();
        for entry in Dir::read_from(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name().to_str();
            found.extend(name.ok().and_then(|name| name.parse::<SessionId>().ok()));
        }
        Ok(found)
    }
}

fn remove(directory: &OwnedFd, session: SessionId) {
    match rustix::fs::unlinkat(directory, session.to_string(), AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => tracing::warn!(%session, %errno, "results of an ended session stay"),
    }
}

fn is_abandoned(
    directory: &OwnedFd,
    name: impl rustix::path::Arg,
    now: u64,
) -> Result<bool, Errno> {
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let modified = u64::try_from(stat.st_mtime).unwrap_or(0) * 1000;
    Ok(modified + ABANDONED_MILLIS < now)
}

/// Removes what sessions of long ago left.
pub(super) fn sweep(directory: &OwnedFd, now: u64) -> Result<(), Errno> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if !matches!(name.to_bytes(), b"." | b"..") && is_abandoned(directory, name, now)? {
            rustix::fs::unlinkat(directory, name, AtFlags::empty())?;
        }
    }
    Ok(())
}
