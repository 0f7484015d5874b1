//! What can be done to a running process.

use std::time::Duration;

use bytes::Bytes;
use executor_proto::id::{ProcessId, SessionId};
use serde::{Deserialize, Serialize};

/// Whose process: one of a session, or of any session for an administrator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Target {
    /// `None`: whichever session has it.
    pub session: Option<SessionId>,
    /// The process.
    pub process: ProcessId,
}

/// How a process is to be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopMode {
    /// SIGINT, once; the program may go on.
    Interrupt,
    /// SIGTERM to the tree, after `grace` SIGKILL.
    Terminate {
        /// Between the two.
        grace: Duration,
    },
    /// SIGKILL to the tree.
    Kill,
}

/// Who gets a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SignalTarget {
    /// The leader.
    Leader,
    /// Its process group.
    Group,
}

/// One write of one writer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StdinWrite {
    /// The client's id.
    pub writer: String,
    /// What it has sent before.
    pub offset: u64,
    /// At most the limit.
    pub data: Bytes,
    /// End of input afterwards.
    pub close: bool,
}
