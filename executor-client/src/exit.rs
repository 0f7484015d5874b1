//! How a process stands and how it ended, as Rust types.

use std::time::SystemTime;

use executor_proto::v1;

/// starting → running → exited | failed | killed
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Accepted; its program is not running yet.
    Starting,
    /// Its leader runs.
    Running,
    /// It ended by itself, by a code or by a signal that nobody here sent.
    Exited,
    /// It never ran.
    Failed,
    /// It died of our signal, or ended after our stop or timeout had begun.
    Killed,
    /// A state that this client does not know.
    Unknown,
}

impl State {
    /// Nothing about the exit changes any more.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Exited | Self::Failed | Self::Killed)
    }

    /// One lower-case word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Exited => "exited",
            Self::Failed => "failed",
            Self::Killed => "killed",
            Self::Unknown => "unknown",
        }
    }
}

impl From<v1::ProcessState> for State {
    fn from(state: v1::ProcessState) -> Self {
        match state {
            v1::ProcessState::Unspecified => Self::Unknown,
            v1::ProcessState::Starting => Self::Starting,
            v1::ProcessState::Running => Self::Running,
            v1::ProcessState::Exited => Self::Exited,
            v1::ProcessState::Failed => Self::Failed,
            v1::ProcessState::Killed => Self::Killed,
        }
    }
}

/// What wait(2) said of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExitStatus {
    /// It exited with this code, 0 to 255.
    Code(i32),
    /// This signal ended it (signal(7) of the machine).
    Signal(i32),
    /// It never ran, or its status was lost.
    None,
}

/// Why a process ended.
#[derive(Debug, Clone, PartialEq)]
pub enum ExitCause {
    /// By itself.
    Exited,
    /// A signal ended it.
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
    /// It used more memory than it may.
    OutOfMemory,
    /// It made more processes than it may.
    PidsLimit,
    /// It produced more output than it may.
    OutputLimit,
    /// The machine's process host was ending.
    HostShutdown,
    /// It could not be started.
    SpawnFailed(v1::SpawnFailure),
    /// A cause that this client does not know.
    Unknown,
}

impl ExitCause {
    /// One word in lower_snake_case.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::Signaled => "signaled",
            Self::Timeout => "timeout",
            Self::IdleTimeout => "idle_timeout",
            Self::Stopped { .. } => "stopped",
            Self::SessionEnded => "session_ended",
            Self::OutOfMemory => "out_of_memory",
            Self::PidsLimit => "pids_limit",
            Self::OutputLimit => "output_limit",
            Self::HostShutdown => "host_shutdown",
            Self::SpawnFailed(_) => "spawn_failed",
            Self::Unknown => "unknown",
        }
    }
}

/// The end of a process. Once told it never changes.
#[derive(Debug, Clone, PartialEq)]
pub struct Exit {
    /// By code or by signal.
    pub status: ExitStatus,
    /// Why.
    pub cause: ExitCause,
    /// SIGKILL was needed after the grace had passed.
    pub forced: bool,
    /// When, by the machine's clock.
    pub ended_at: Option<SystemTime>,
    /// CPU time, memory and block operations.
    pub usage: v1::ResourceUsage,
    /// Descendants that outlived it, at most 64.
    pub residue: Vec<v1::ResidueProcess>,
    /// All that the process itself wrote lies before this offset.
    pub output_end: u64,
    /// The shell's convention: the code, or 128 + the signal; 127 for a
    /// program that was not found, 126 for one that could not be executed.
    pub shell_code: i32,
}

impl Exit {
    /// It exited by itself with code 0.
    #[must_use]
    pub fn success(&self) -> bool {
        self.status == ExitStatus::Code(0) && self.cause == ExitCause::Exited
    }

    /// The exit of a process that has ended.
    #[must_use]
    pub fn of(process: &v1::Process) -> Option<Self> {
        process.exit.clone().map(Self::from)
    }
}

impl From<v1::Exit> for Exit {
    fn from(exit: v1::Exit) -> Self {
        let cause = match exit.cause() {
            v1::ExitCause::Unspecified => ExitCause::Unknown,
            v1::ExitCause::Exited => ExitCause::Exited,
            v1::ExitCause::Signaled => ExitCause::Signaled,
            v1::ExitCause::Timeout => ExitCause::Timeout,
            v1::ExitCause::IdleTimeout => ExitCause::IdleTimeout,
            v1::ExitCause::Stopped => ExitCause::Stopped {
                by: exit.stopped_by,
            },
            v1::ExitCause::SessionEnded => ExitCause::SessionEnded,
            v1::ExitCause::OutOfMemory => ExitCause::OutOfMemory,
            v1::ExitCause::PidsLimit => ExitCause::PidsLimit,
            v1::ExitCause::OutputLimit => ExitCause::OutputLimit,
            v1::ExitCause::HostShutdown => ExitCause::HostShutdown,
            v1::ExitCause::SpawnFailed => {
                ExitCause::SpawnFailed(exit.spawn_failure.unwrap_or_default())
            }
        };
        let status = match (exit.code, exit.signal) {
            (Some(code), _) => ExitStatus::Code(code),
            (None, Some(signal)) => ExitStatus::Signal(signal),
            (None, None) => ExitStatus::None,
        };
        Self {
            status,
            cause,
            forced: exit.forced,
            ended_at: exit.ended_at.and_then(|at| SystemTime::try_from(at).ok()),
            usage: exit.usage.unwrap_or_default(),
            residue: exit.residue,
            output_end: exit.output_end,
            shell_code: exit.shell_code,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_code_of_zero_by_itself_is_success() {
        let exit = |code, cause: v1::ExitCause| {
            Exit::from(v1::Exit {
                code,
                cause: cause.into(),
                ..Default::default()
            })
        };
        assert!(exit(Some(0), v1::ExitCause::Exited).success());
        assert!(!exit(Some(1), v1::ExitCause::Exited).success());
        assert!(!exit(None, v1::ExitCause::Exited).success());
        assert!(!exit(Some(0), v1::ExitCause::Timeout).success());
    }

    #[test]
    fn who_stopped_it_is_told() {
        let exit = Exit::from(v1::Exit {
            signal: Some(15),
            cause: v1::ExitCause::Stopped.into(),
            stopped_by: "ses_x".into(),
            ..Default::default()
        });
        assert_eq!(exit.status, ExitStatus::Signal(15));
        assert_eq!(exit.cause, ExitCause::Stopped { by: "ses_x".into() });
    }
}
