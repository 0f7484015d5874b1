//! What is told of one process at one moment.

use std::path::PathBuf;
use std::time::SystemTime;

use executor_proto::id::{ProcessId, SessionId};
use serde::{Deserialize, Serialize};

use super::exit::{Exit, State, Usage};
use super::spec::TerminalSize;

/// How a tree is stopped, strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopMeans {
    /// A cgroup v2 of its own, ended by `cgroup.kill` (cgroups(7)).
    Cgroup,
    /// A subreaper of its own (PR_SET_CHILD_SUBREAPER in prctl(2)).
    Reaper,
    /// Process group and descendants as `/proc` shows them.
    BestEffort,
}

/// A process as it is now.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Snapshot {
    /// Its id.
    pub id: ProcessId,
    /// Its session.
    pub session: SessionId,
    /// For people.
    pub label: String,
    /// Where it was started.
    #[serde(with = "crate::path_bytes")]
    pub cwd: PathBuf,
    /// Where it stands.
    pub state: State,
    /// Present once `state` is final.
    pub exit: Option<Exit>,
    /// Absent when it never ran.
    pub pid: Option<u32>,
    /// When the client made the start.
    pub created_at: SystemTime,
    /// When it began to run.
    pub started_at: Option<SystemTime>,
    /// Set for a terminal.
    pub terminal: Option<TerminalSize>,
    /// Bytes produced.
    pub output_end: u64,
    /// Bytes no longer retained.
    pub output_dropped: u64,
    /// No more output can come.
    pub output_ended: bool,
    /// After the exit: who keeps the output open.
    pub held_open_by: Vec<u32>,
    /// What each writer has sent.
    pub stdin_writers: Vec<(String, u64)>,
    /// Input can be written.
    pub stdin_open: bool,
    /// How it is stopped.
    pub means: StopMeans,
    /// While it runs: so far.
    pub usage: Usage,
}
