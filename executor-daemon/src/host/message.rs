//! The seam between daemon and process engine: plain values, and beside them
//! descriptors of two kinds, directories and logs.
//!
//! Requests and replies hold no handle, no closure and no borrowed data, so
//! that they can cross a socket as well as a channel.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use executor_proto::id::{Epoch, SessionId};
use serde::{Deserialize, Serialize};

pub use crate::process::control::Target;
use crate::process::control::{SignalTarget, StdinWrite, StopMode};
use crate::process::log::LogReader;
use crate::process::snapshot::{Snapshot, StopMeans};
use crate::process::spec::{StartSpec, TerminalSize};
use crate::session::record::{RootRecord, SessionCounts, SessionRecord};

/// What travels beside a message.
#[derive(Debug, Clone)]
pub enum Descriptor {
    /// A directory, opened `O_PATH`.
    Directory(Arc<OwnedFd>),
    /// The log of one process.
    Log(LogReader),
}

/// What the daemon asks of the engine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Request {
    /// → [`Reply::Session`]. Beside it: the working directory, then the roots.
    OpenSession(SessionRecord),
    /// → [`Reply::Session`].
    GetSession(SessionId),
    /// Adds a root to a session, or gives one another access. →
    /// [`Reply::Session`], where `created` says whether that changed anything.
    /// Beside it: the root.
    GrantRoot {
        /// To which session.
        session: SessionId,
        /// Within the operator's roots, as the daemon has checked.
        root: RootRecord,
    },
    /// The session's client was heard of. → [`Reply::Done`].
    Contact(SessionId),
    /// → [`Reply::SessionEnded`]. Ending an ended session succeeds.
    EndSession {
        /// Which.
        session: SessionId,
        /// Between SIGTERM and SIGKILL.
        grace: Duration,
    },
    /// → [`Reply::Started`], at the exit or after `wait`. Beside it: the
    /// working directory.
    Start {
        /// For which session.
        session: SessionId,
        /// What.
        spec: Box<StartSpec>,
        /// How long to wait for the exit.
        wait: Duration,
    },
    /// → [`Reply::Process`], at the exit or after `wait`.
    Get {
        /// Which.
        target: Target,
        /// How long to wait for the exit.
        wait: Duration,
    },
    /// → [`Reply::Processes`].
    List {
        /// `None`: of all sessions.
        session: Option<SessionId>,
    },
    /// → [`Reply::Done`]; the log comes beside it.
    OpenLog(Target),
    /// A lossless reader is there. → [`Reply::Done`].
    AttachReader {
        /// Of which process.
        target: Target,
        /// The client's id of the reader.
        reader: String,
        /// Every byte before this was consumed.
        consumed: u64,
    },
    /// A lossless reader consumed. → [`Reply::Done`].
    Consumed {
        /// Of which process.
        target: Target,
        /// The client's id of the reader.
        reader: String,
        /// Every byte before this.
        offset: u64,
    },
    /// A lossless reader's connection ended. → [`Reply::Done`].
    DetachReader {
        /// Of which process.
        target: Target,
        /// The client's id of the reader.
        reader: String,
    },
    /// → [`Reply::StdinAccepted`].
    WriteStdin {
        /// To which process.
        target: Target,
        /// What.
        write: StdinWrite,
        /// How long to wait for room.
        wait: Duration,
    },
    /// → [`Reply::Done`].
    Resize {
        /// Which terminal.
        target: Target,
        /// To what.
        size: TerminalSize,
    },
    /// → [`Reply::Signalled`].
    Signal {
        /// Which process.
        target: Target,
        /// Which signal, 1 to 64.
        signal: i32,
        /// Who gets it.
        to: SignalTarget,
    },
    /// → [`Reply::Stopped`], when the tree is verified empty or cannot be
    /// emptied.
    Stop {
        /// Which process.
        target: Target,
        /// How.
        mode: StopMode,
        /// Who asks, for the exit's cause.
        by: String,
    },
    /// → [`Reply::Done`].
    Remove(Target),
    /// Ends all sessions and then the engine. → [`Reply::Done`].
    Shutdown {
        /// Between SIGTERM and SIGKILL.
        grace: Duration,
    },
}

impl Request {
    /// Ids and offsets make a second arrival change nothing. A signal has none.
    #[must_use]
    pub fn harmless_twice(&self) -> bool {
        !matches!(
            self,
            Self::Signal { .. }
                | Self::Stop {
                    mode: StopMode::Interrupt,
                    ..
                }
                | Self::Shutdown { .. }
        )
    }

    /// No time in it is longer than 100 years: what crosses a socket may say
    /// anything.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let bound = |time: &mut Duration| *time = (*time).min(LONGEST);
        match &mut self {
            Self::EndSession { grace, .. } | Self::Shutdown { grace } => bound(grace),
            Self::Start { spec, wait, .. } => {
                bound(wait);
                spec.timeout.iter_mut().for_each(bound);
                spec.idle_timeout.iter_mut().for_each(bound);
            }
            Self::Get { wait, .. } | Self::WriteStdin { wait, .. } => bound(wait),
            Self::Stop {
                mode: StopMode::Terminate { grace },
                ..
            } => bound(grace),
            Self::OpenSession(record) => record.lease.iter_mut().for_each(bound),
            _ => {}
        }
        self
    }
}

/// Longer than any process: 100 years.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// What the engine answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Reply {
    /// Nothing more to say.
    Done,
    /// Beside it: the working directory, then the roots.
    Session {
        /// The record as it is.
        record: SessionRecord,
        /// This engine's life.
        epoch: Epoch,
        /// Its processes.
        counts: SessionCounts,
        /// Made by this request.
        created: bool,
    },
    /// A session is over.
    SessionEnded {
        /// Processes that were running or had left something running.
        ended: usize,
        /// Pids that could not be ended.
        survivors: Vec<u32>,
    },
    /// Beside it: the log.
    Started {
        /// As it is.
        process: Box<Snapshot>,
        /// Made by this request.
        created: bool,
    },
    /// One process.
    Process(Box<Snapshot>),
    /// Several, in the order of their start.
    Processes(Vec<Snapshot>),
    /// Input was queued.
    StdinAccepted {
        /// Accepted from this writer in all.
        offset: u64,
        /// Not yet written to the program.
        queued: usize,
        /// Input is closed.
        closed: bool,
    },
    /// A signal was sent, or the process had ended.
    Signalled {
        /// As it is.
        process: Box<Snapshot>,
        /// It was sent.
        delivered: bool,
    },
    /// A stop is over.
    Stopped {
        /// As it is.
        process: Box<Snapshot>,
        /// How.
        means: StopMeans,
        /// Members of the tree that were signalled.
        signalled: usize,
        /// Still there.
        survivors: Vec<u32>,
        /// The leader had ended before.
        already_ended: bool,
    },
}
