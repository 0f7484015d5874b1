//! How a process ended, as data.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

/// starting → running → exited | failed | killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Accepted; its program is not running yet.
    Starting,
    /// Its leader runs.
    Running,
    /// Ended by itself, by a code or by a signal that nobody here sent.
    Exited,
    /// It never ran.
    Failed,
    /// Died of our signal, or ended after our stop or timeout had begun.
    Killed,
}

impl State {
    /// Nothing about the exit changes any more.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Exited | Self::Failed | Self::Killed)
    }
}

/// What wait(2) said of the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitStatus {
    /// It called exit with this code, 0 to 255.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
    /// Somebody else took the status before us: an embedding program that
    /// waits for children it did not start.
    Lost,
}

impl WaitStatus {
    /// It exited with 0.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Self::Code(0)
    }
}

/// Why it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// It exited by itself.
    Exited,
    /// A signal ended it; the state says whether it was ours.
    Signaled,
    /// Its `timeout` passed.
    Timeout,
    /// Its `idle_timeout` passed without output.
    IdleTimeout,
    /// Somebody stopped it.
    Stopped {
        /// The session or principal.
        by: String,
    },
    /// Its session ended.
    SessionEnded,
    /// The daemon is ending.
    HostShutdown,
    /// It could not be started.
    SpawnFailed {
        /// Why.
        failure: SpawnFailure,
        /// What was to be started, for people.
        label: String,
    },
}

/// Where a start failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpawnStage {
    /// Pipes, a terminal or memory could not be had.
    Resources,
    /// clone3(2) failed.
    Clone,
    /// The process could not enter its cgroup.
    Cgroup,
    /// setsid(2) failed.
    Session,
    /// The terminal could not be opened as the controlling one.
    Terminal,
    /// Descriptors 0 to 2 could not be put in place.
    Stdio,
    /// The working directory could not be entered.
    WorkingDirectory,
    /// execve(2) failed.
    Exec,
    /// The reaper between us and the program failed.
    Reaper,
}

impl SpawnStage {
    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Resources => "resources",
            Self::Clone => "clone",
            Self::Cgroup => "cgroup",
            Self::Session => "session",
            Self::Terminal => "terminal",
            Self::Stdio => "stdio",
            Self::WorkingDirectory => "working_directory",
            Self::Exec => "exec",
            Self::Reaper => "reaper",
        }
    }
}

/// Why a program could not be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnFailure {
    /// Where.
    pub stage: SpawnStage,
    /// errno(3); 0 when the kernel gave none.
    pub errno: i32,
}

impl SpawnFailure {
    /// It was given up before anything was started.
    pub(super) const NOT_BEGUN: Self = Self {
        stage: SpawnStage::Resources,
        errno: libc::ECANCELED,
    };

    /// The kind of failure, for programs.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self.errno {
            libc::ENOENT | libc::ENOTDIR => "not_found",
            libc::EACCES | libc::EPERM => "permission_denied",
            libc::ENOEXEC | libc::ELIBBAD => "not_executable",
            libc::EISDIR => "is_a_directory",
            libc::E2BIG => "argument_list_too_long",
            libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::ENOSPC => {
                "out_of_resources"
            }
            _ => "other",
        }
    }
}

impl SpawnFailure {
    /// The kernel has no process left to give (`EAGAIN` in fork(2)).
    #[must_use]
    pub fn is_process_limit(&self) -> bool {
        self.errno == libc::EAGAIN && matches!(self.stage, SpawnStage::Clone | SpawnStage::Reaper)
    }
}

/// What the process used (getrusage(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Time in user mode.
    pub user_cpu: Duration,
    /// Time in the kernel.
    pub system_cpu: Duration,
    /// Largest resident set, in bytes.
    pub max_rss: u64,
    /// File system reads.
    pub block_inputs: u64,
    /// File system writes.
    pub block_outputs: u64,
    /// `memory.peak` of the command's cgroup.
    pub cgroup_peak: Option<u64>,
}

/// A member of a command's tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its pid.
    pub pid: u32,
    /// The kernel's short name (`comm`).
    pub name: String,
}

/// The end of a process. Once published it never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// `None` when it never ran.
    pub status: Option<WaitStatus>,
    /// Why.
    pub cause: Cause,
    /// SIGKILL was needed after the grace had passed.
    pub forced: bool,
    /// When.
    pub ended_at: SystemTime,
    /// What it used.
    pub usage: Usage,
    /// Descendants that outlived the leader, at most [`Exit::RESIDUE_TOLD`].
    pub residue: Vec<Member>,
    /// All that the leader wrote lies before this offset.
    pub output_end: u64,
}

impl Exit {
    /// Most descendants that an exit names.
    pub const RESIDUE_TOLD: usize = 64;

    /// The shell's convention: the code, or 128 + the signal. 127 for a program
    /// that was not found, 126 for one that could not be executed.
    #[must_use]
    pub fn shell_code(&self) -> i32 {
        match (self.status, &self.cause) {
            (Some(WaitStatus::Code(code)), _) => code,
            (Some(WaitStatus::Signal(signal)), _) => 128 + signal,
            (_, Cause::SpawnFailed { failure, .. }) if failure.kind() == "not_found" => 127,
            (_, Cause::SpawnFailed { .. }) => 126,
            (Some(WaitStatus::Lost) | None, _) => 255,
        }
    }
}
