//! What the process engine refuses, and why.

use std::path::PathBuf;

use executor_proto::id::{Epoch, ProcessId, SessionId};
use serde::{Deserialize, Serialize};

/// A refusal of the process engine. Nothing was changed unless it says so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ProcessError {
    /// No such session in this epoch.
    #[error("session {0} is not open; open it with OpenSession")]
    SessionNotFound(SessionId),
    /// The session is over.
    #[error("session {0} has ended; open a new one under a new id")]
    SessionEnded(SessionId),
    /// Another secret.
    #[error("session {0} was opened with another secret")]
    SessionSecretMismatch(SessionId),
    /// Too many sessions.
    #[error("{limit} sessions are open, which is the limit (sessions); end one first")]
    SessionLimit {
        /// The limit.
        limit: usize,
    },
    /// Too many roots in one session.
    #[error("the session has {limit} roots, which is the most; grant a directory above several")]
    RootLimit {
        /// The limit.
        limit: usize,
    },
    /// Another life of the engine.
    #[error("epoch {asked} is over, this is {current}: what belonged to it is gone{}", told(left.as_ref()))]
    EpochOver {
        /// What the request named.
        asked: Epoch,
        /// What there is.
        current: Epoch,
        /// What the lost host of that epoch had left running, where the present
        /// one found out.
        left: Option<Left>,
    },
    /// Never started.
    #[error("no process {0} in this session; list the processes to see what there is")]
    NotFound(ProcessId),
    /// Never started; and it never will be.
    #[error("no process {0} in this session; a start with this id that arrives later will not run")]
    NotFoundTombstone(ProcessId),
    /// Was there.
    #[error("process {0} has been forgotten with its output")]
    Forgotten(ProcessId),
    /// Same id, other spec.
    #[error("process {0} was started with another spec; use a new id for a new command")]
    IdConflict(ProcessId),
    /// A stop came first.
    #[error("process {0} was stopped before its start arrived; it was not run")]
    StoppedBeforeStart(ProcessId),
    /// Older than the receipts.
    #[error("the start of {0} was made more than 24 hours ago; it was not run")]
    StartExpired(ProcessId),
    /// All kept processes run.
    #[error(
        "{limit} processes are running, which is the limit of a session \
         (processes_per_session); stop one first"
    )]
    ProcessLimit {
        /// The limit.
        limit: usize,
    },
    /// The life-long bound of a session.
    #[error(
        "this session has started {limit} processes, which is the limit \
         (receipts_per_session); open a new session"
    )]
    ReceiptLimit {
        /// The limit.
        limit: usize,
    },
    /// Only finished ones can be forgotten.
    #[error("process {0} still runs; stop it before removing it")]
    StillRunning(ProcessId),
    /// No input.
    #[error("process {id} takes no input: {why}")]
    StdinClosed {
        /// Whose.
        id: ProcessId,
        /// Why, and since when.
        why: StdinClosedBecause,
    },
    /// No room.
    #[error(
        "{queued} bytes of input are queued and there is no room for {length} more (limit {limit}); wait until the program has read"
    )]
    StdinQueueFull {
        /// Waiting already.
        queued: usize,
        /// What was offered.
        length: usize,
        /// The bound.
        limit: usize,
    },
    /// A hole in what a writer sent.
    #[error("the write begins at {offset}, this writer has sent {accepted} bytes; send from there")]
    StdinOffsetGap {
        /// Where the write begins.
        offset: u64,
        /// What was accepted.
        accepted: u64,
    },
    /// Too many writers.
    #[error("process has {limit} writers, which is the limit (stdin_writers); reuse a writer id")]
    StdinWriterLimit {
        /// The bound.
        limit: usize,
    },
    /// `close` on a terminal.
    #[error(
        "a terminal has no end of input of its own; send the character 0x04 at the start of a line instead"
    )]
    CloseOnTerminal,
    /// Resize of pipes.
    #[error("process {0} has pipes, not a terminal")]
    NotATerminal(ProcessId),
    /// Another reader holds the process.
    #[error("another lossless reader is attached; attach without a reader id to read beside it")]
    ReaderConflict,
    /// A reader id for a process that waits for nobody.
    #[error("process {0} was started with flow drain: attach without a reader id")]
    NotLossless(ProcessId),
    /// Not a signal that can be sent.
    #[error("signal {0} cannot be sent; signals are 1 to 64")]
    BadSignal(i32),
    /// A directory that was opened is gone from the seam.
    #[error("the working directory {0:?} came without its descriptor")]
    MissingDescriptor(#[serde(with = "crate::path_bytes")] PathBuf),
    /// The machine lacks something.
    #[error(
        "the machine has no descriptors or memory left for another process (errno {errno}); end some first"
    )]
    OutOfResources {
        /// errno(3).
        errno: i32,
    },
    /// Ending.
    #[error("the daemon is shutting down and takes no new work")]
    ShuttingDown,
    /// The process host is of another release.
    #[error(
        "the process host does not understand this request: it is of another release; \
         bring both to the same one with `executor-daemon upgrade`"
    )]
    NotUnderstood,
    /// The engine is gone: its thread or process has ended.
    #[error("the process engine does not answer")]
    EngineGone,
}

/// What became of processes that a lost host had left running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// How many were ended.
    pub ended: usize,
    /// Pids that could not be ended.
    pub survivors: Vec<u32>,
}

fn told(left: Option<&Left>) -> String {
    match left {
        None => String::new(),
        Some(Left { ended, survivors }) if survivors.is_empty() => {
            format!("; {ended} processes that it left running were ended")
        }
        Some(Left { ended, survivors }) => format!(
            "; of the processes that it left running {ended} were ended, and these could not \
             be: {survivors:?}"
        ),
    }
}

/// Why a process takes no input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum StdinClosedBecause {
    /// It was started with `stdin: null`.
    #[error("it was started without input (stdin: null)")]
    NeverOpen,
    /// A writer closed it.
    #[error("a writer has closed it")]
    Closed,
    /// The program closed its end.
    #[error("the program has closed its end")]
    ReaderGone,
    /// The process ended.
    #[error("already exited, {0}")]
    Exited(ExitedAs),
}

/// An exit in two words, for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ExitedAs {
    /// By a code.
    #[error("code {0}")]
    Code(i32),
    /// By a signal.
    #[error("signal {0}")]
    Signal(i32),
    /// It never ran, or nobody knows.
    #[error("without a status")]
    Unknown,
}
