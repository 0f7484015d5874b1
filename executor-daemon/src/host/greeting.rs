//! How daemon and process host meet: who they are, which schema they speak,
//! and what the daemon wants the engine to be.
//!
//! ```text
//! daemon ── Hello ──► host
//!        ◄─ Welcome ── (beside it: the doorbell's two descriptors)
//! ```
//!
//! Schemas are numbered. Within one, fields may be added that have a default;
//! whatever else changes makes a new number. Each side names the newest and the
//! oldest it speaks, and they speak the newest that both do.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::time::Duration;

use executor_proto::id::Epoch;
use serde::{Deserialize, Serialize};

use super::HostConfig;
use crate::limits::Limits;
use crate::process::snapshot::StopMeans;
use crate::process::tree::{LeftOvers, Preferred};

/// The schema of this release.
pub(super) const SCHEMA: u32 = 1;
/// The oldest that is understood: that of the release before.
pub(super) const OLDEST: u32 = 1;

/// What whoever connects says first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Hello {
    /// The newest schema it speaks.
    pub(super) schema: u32,
    /// The oldest.
    pub(super) oldest: u32,
    /// Its release.
    pub(super) release: String,
    /// Of the machine's start: `/proc/sys/kernel/random/boot_id`.
    pub(super) boot_id: String,
    /// What it is here for.
    pub(super) purpose: Purpose,
}

/// What a connection is for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Purpose {
    /// The daemon in front. The newest one counts: an older one's connection is
    /// closed.
    Daemon(Box<EngineSettings>),
    /// A command of a person: upgrade, stop.
    Control,
}

/// What the engine is to be like.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct EngineSettings {
    /// Bounds by name. A name that is not known is passed over.
    pub(super) limits: Vec<(String, u64)>,
    /// Variables from which commands get theirs.
    pub(super) environment: Vec<(serde_bytes::ByteBuf, serde_bytes::ByteBuf)>,
    /// How trees are to be stopped. Only the first daemon's word counts.
    pub(super) means: Preferred,
    /// A program of ours with the hidden mode of a reaper, where the operator
    /// named one.
    pub(super) reaper: Option<serde_bytes::ByteBuf>,
    /// Between SIGTERM and SIGKILL.
    pub(super) grace: Duration,
}

impl EngineSettings {
    pub(super) fn of(config: &HostConfig) -> Self {
        let bytes = |text: &Vec<u8>| serde_bytes::ByteBuf::from(text.clone());
        Self {
            limits: config
                .limits
                .values()
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
                .collect(),
            environment: config
                .environment
                .iter()
                .map(|(name, value)| (bytes(name), bytes(value)))
                .collect(),
            means: config.means,
            reaper: config
                .reaper
                .as_ref()
                .map(|path| serde_bytes::ByteBuf::from(path.as_os_str().as_bytes())),
            grace: config.grace,
        }
    }

    /// The engine's configuration, of a process of its own.
    pub(super) fn into_config(self) -> HostConfig {
        let mut limits = Limits::default();
        for (name, value) in self.limits {
            if let Err(error) = limits.set(&name, value) {
                tracing::warn!(name, value, %error, "a limit of the daemon is not known here");
            }
        }
        HostConfig {
            limits,
            environment: self
                .environment
                .into_iter()
                .map(|(name, value)| (name.into_vec(), value.into_vec()))
                .collect(),
            means: self.means,
            reaper: self
                .reaper
                .map(|path| OsString::from_vec(path.into_vec()).into()),
            embedded: false,
            grace: self.grace,
        }
    }
}

/// The host's answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Answer {
    /// They can talk.
    Welcome(Welcome),
    /// They can talk; it was a command that asked.
    Control,
    /// They cannot.
    Refused(Refusal),
}

/// Who the host is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Welcome {
    /// What is spoken from here on.
    pub(super) schema: u32,
    /// Its release.
    pub(super) release: String,
    /// This life of the engine.
    pub(super) epoch: Epoch,
    /// How it stops trees.
    pub(super) means: StopMeans,
    /// What it found of a host that was lost before, and ended.
    #[serde(default)]
    pub(super) predecessor: Option<Predecessor>,
}

/// A host that was lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Predecessor {
    /// Its life.
    pub epoch: Epoch,
    /// What it left, and what became of that.
    pub left: LeftOvers,
}

/// Why they cannot talk.
#[derive(Debug, Clone, Serialize, Deserialize, thiserror::Error)]
pub(super) enum Refusal {
    /// No schema that both speak.
    #[error("it speaks schemas {oldest} to {schema} (release {release})")]
    Schema {
        /// The host's newest.
        schema: u32,
        /// The host's oldest.
        oldest: u32,
        /// The host's release.
        release: String,
    },
    /// Another start of the machine.
    #[error("it belongs to another start of this machine")]
    Boot,
    /// It cannot serve.
    #[error("{0}")]
    Failed(String),
}

/// The newest schema that both sides speak.
pub(super) fn agree(hello: &Hello) -> Result<u32, Refusal> {
    let newest = hello.schema.min(SCHEMA);
    if newest < hello.oldest.max(OLDEST) {
        return Err(Refusal::not_ours());
    }
    Ok(newest)
}

impl Refusal {
    /// What the other side speaks is no schema of ours.
    pub(super) fn not_ours() -> Self {
        Self::Schema {
            schema: SCHEMA,
            oldest: OLDEST,
            release: RELEASE.to_owned(),
        }
    }
}

/// This release.
pub(super) const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// Names this start of the machine; empty where the kernel does not tell.
#[expect(
    clippy::disallowed_methods,
    reason = "reads one of the kernel's own files"
)]
pub(super) fn boot_id() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    text.map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// What this side says of itself.
pub(super) fn hello(purpose: Purpose) -> Hello {
    Hello {
        schema: SCHEMA,
        oldest: OLDEST,
        release: RELEASE.to_owned(),
        boot_id: boot_id(),
        purpose,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_schema_that_both_speak_is_spoken() {
        let says = |oldest, schema| Hello {
            schema,
            oldest,
            ..hello(Purpose::Control)
        };
        assert_eq!(agree(&says(SCHEMA, SCHEMA)).ok(), Some(SCHEMA));
        // The next release, which still speaks this one's.
        assert_eq!(agree(&says(SCHEMA, SCHEMA + 1)).ok(), Some(SCHEMA));
        // The one after that does not.
        assert!(matches!(
            agree(&says(SCHEMA + 1, SCHEMA + 2)),
            Err(Refusal::Schema { .. })
        ));
    }
}
