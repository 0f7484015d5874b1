//! What a process host writes down for the case that it is killed: its epoch,
//! and where its commands are held. The file lies beside its socket, so it goes
//! with a restart of the machine, as they do.

#![expect(
    clippy::disallowed_methods,
    reason = "a file of ours in the private directory of the host's socket"
)]

use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use executor_proto::id::Epoch;
use serde::{Deserialize, Serialize};

use super::greeting::Predecessor;
use crate::process::engine::Engine;
use crate::process::tree::{ContainmentRecord, LostEpoch, left_overs};

/// How long a host tries to end what another one left, before it begins.
const PATIENCE: Duration = Duration::from_secs(5);

/// The file of one host.
#[derive(Debug)]
pub(super) struct Record {
    path: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
struct Written {
    /// Of the host, for people.
    pid: u32,
    epoch: Epoch,
    containment: ContainmentRecord,
}

impl Record {
    pub(super) fn beside(socket: &Path) -> Self {
        let mut name = socket.as_os_str().to_owned();
        name.push(".json");
        Self { path: name.into() }
    }

    /// Writes down what this host is.
    pub(super) fn write(&self, engine: &Engine) -> io::Result<()> {
        let written = Written {
            pid: std::process::id(),
            epoch: engine.epoch(),
            containment: engine.containment().record(),
        };
        let temporary = self.path.with_extension("new");
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(&serde_json::to_vec(&written)?)?;
        std::fs::rename(&temporary, &self.path)
    }

    /// A host has not ended in good order, or is there.
    pub(super) fn is_there(&self) -> bool {
        rustix::fs::stat(&self.path).is_ok()
    }

    /// The host ends in good order: nothing is left.
    pub(super) fn remove(&self) {
        // One that cannot be removed names an epoch of which nothing is found.
        let _ = std::fs::remove_file(&self.path);
    }

    /// Ends what a host that was lost left. The caller holds the lock of the
    /// socket, so that host is gone. Blocks.
    pub(super) fn end_left_overs(&self) -> Option<Predecessor> {
        let text = std::fs::read(&self.path).ok()?;
        let written: Written = match serde_json::from_slice(&text) {
            Ok(written) => written,
            Err(error) => {
                tracing::error!(%error, path = %self.path.display(), "the record of a lost process host cannot be read; what it left goes on");
                return None;
            }
        };
        let lost = LostEpoch {
            epoch: written.epoch,
            cgroup: match written.containment {
                ContainmentRecord::Cgroup { parent, .. } => Some(parent),
                ContainmentRecord::Reaper | ContainmentRecord::BestEffort => None,
            },
        };
        let left = left_overs(&lost, PATIENCE);
        tracing::warn!(
            epoch = %written.epoch,
            ended = ?left.ended,
            survivors = ?left.survivors,
            "ended what a lost process host left"
        );
        Some(Predecessor {
            epoch: written.epoch,
            left,
        })
    }
}
