//! The output log of a process: written by one, read by any number.
//!
//! A log is addressed by byte offset since the process began. Its first bytes
//! (the head) and its newest (the tail) are retained; what fell out between is a
//! gap, which pages tell. Nobody holds the writer up.
//!
//! All that a reader needs lies in shared memory (`layout`, `control`), so that
//! writer and readers may be different processes. [`LogStore`] hands that memory
//! out and keeps all logs together within a bound. [`RemoteLogs`] reads it in
//! another process, woken by a [`Doorbell`].
//!
//! ```text
//! running ── publish_exit, publish_end ──► ended ── retire ──► retired ── drop ──► gone
//! ```
//!
//! Invariants:
//! 1. Bytes returned + gaps told = bytes produced, for every reader, at any time.
//! 2. Whoever sees the exit can read all that was written before it.
//! 3. A reader of a log that is gone gets [`ReadError::Gone`], never the bytes
//!    of another.
//! 4. While memory is not short, the head and the newest bytes that the
//!    [`Geometry`] promises are retained.

mod bell;
mod control;
mod doorbell;
mod handover;
mod layout;
mod reader;
mod remote;
mod scratch;
mod segment;
mod store;
mod streams;
mod table;
#[cfg(test)]
mod tests;
mod window;
mod writer;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use self::doorbell::Doorbell;
pub use self::handover::{FORMAT, StoreState};
pub use self::layout::Geometry;
pub use self::reader::LogReader;
pub use self::remote::RemoteLogs;
pub use self::store::{DEFAULT_BUDGET, LogStore, SegmentFile};
pub use self::writer::{LogWriter, RetiredLog};

/// Names one log of a store, also to other processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LogAddress {
    /// Id of its segment ([`SegmentFile`]).
    pub segment: u64,
    /// Its place there.
    pub slot: u32,
    /// Which of the logs that are there one after the other.
    pub generation: u64,
}

/// Which of the two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Stream {
    /// Standard output; with one shared pipe or a terminal, everything.
    Stdout,
    /// Standard error, where it is separate.
    Stderr,
}

/// Bytes of one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Which.
    pub stream: Stream,
    /// How many.
    pub length: usize,
}

/// Bytes that were produced and are no longer retained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The first.
    pub from: u64,
    /// The one after the last.
    pub to: u64,
    /// Newlines among them, where that is known.
    pub newlines: Option<u64>,
}

/// A contiguous piece of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// What lies between the cursor and `start`.
    pub gap: Option<Gap>,
    /// Offset of the first byte.
    pub start: u64,
    /// The bytes.
    pub data: Bytes,
    /// Their streams, in order; empty when all is stdout.
    pub runs: Vec<Run>,
    /// Bytes produced when the page was made.
    pub end: u64,
}

impl Page {
    /// Where to go on.
    #[must_use]
    pub fn next_cursor(&self) -> u64 {
        self.start + self.data.len() as u64
    }
}

/// Where a log stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogStatus {
    /// Bytes produced.
    pub end: u64,
    /// Bytes no longer retained.
    pub dropped: u64,
    /// The exit of the process is published; `end` was at least its
    /// `output_end` before.
    pub exited: bool,
    /// No byte will follow.
    pub ended: bool,
}

/// Why a page cannot be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The cursor is past the end.
    #[error("the cursor is past the end of the output, which is at {end}; read from there")]
    Ahead {
        /// The end.
        end: u64,
    },
    /// The log was given back: the process is forgotten.
    #[error("the log is gone")]
    Gone,
}

/// A page whose bytes are in the caller's buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageHead {
    /// What lies between the cursor and `start`.
    pub gap: Option<Gap>,
    /// Offset of the first byte.
    pub start: u64,
    /// How many bytes were put into the buffer.
    pub length: usize,
    /// Their streams, in order; empty when all is stdout.
    pub runs: Vec<Run>,
    /// Bytes produced when the page was made.
    pub end: u64,
}
