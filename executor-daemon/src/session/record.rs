//! What is remembered of a session.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use executor_proto::id::SessionId;
use serde::{Deserialize, Serialize};

/// May a root be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Only read.
    ReadOnly,
    /// Read and written.
    ReadWrite,
}

/// Roots of one session, at most.
pub const ROOTS_MAX: usize = 64;

/// A root as it was when the session was opened. Its descriptor travels
/// beside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootRecord {
    /// Absolute name.
    #[serde(with = "crate::path_bytes")]
    pub path: PathBuf,
    /// What may be done.
    pub access: Access,
}

/// What the host keeps of a session, and hands to each daemon that connects.
/// Descriptors beside it: the working directory, then one per root.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionRecord {
    /// Its id.
    pub id: SessionId,
    /// BLAKE3 of the secret.
    pub secret_hash: [u8; 32],
    /// Time without contact after which it is ended; `None`: never.
    pub lease: Option<Duration>,
    /// For people.
    pub label: String,
    /// The working directory's name.
    #[serde(with = "crate::path_bytes")]
    pub cwd: PathBuf,
    /// What it may use.
    pub roots: Vec<RootRecord>,
    /// When it was opened.
    pub created_at: SystemTime,
}

/// Counts that go with a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionCounts {
    /// Processes that run.
    pub running: usize,
    /// Processes that are kept, finished ones included.
    pub kept: usize,
}
