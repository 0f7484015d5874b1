//! A search under way.
//!
//! ```text
//!  threads of the crew ──► order ──► pieces, one at a time, for who waits
//!        ▲                                                            │
//!        └──────────── set to work again once there is room ◄─────────┘
//! ```
//!
//! 1. Results are told in the order of their places, whoever found them, as far
//!    as the limits go; what was counted on the way to them is told with them.
//! 2. A search goes on without any thread of the crew, on that of
//!    [`Search::next_piece`].
//! 3. Once the search is dropped, its threads end before the next entry or block.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::super::cancel::Cancel;
use super::super::error::FileError;
use super::super::fence::Fence;
use super::crew::Crew;
pub use super::plan::Settings;
use super::plan::{self, Limits};
use super::request::{Glob, Grep, Scope};
use super::results::{Entry, FileMatches, Part};
use super::summary::Summary;
use super::tree_walk::{Scratch, What};
use super::work::{PIECE, Shared};

/// What was found is told at least so often.
const OFTEN: Duration = Duration::from_millis(50);

/// What was found, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Of a glob.
    pub entries: Vec<Entry>,
    /// Of a grep.
    pub files: Vec<FileMatches>,
    bytes: usize,
}

/// See the module's documentation. Dropping it ends it.
#[derive(Debug)]
pub struct Search {
    shared: Arc<Shared>,
    limits: Limits,
    summary: Summary,
    over: bool,
}

impl Search {
    /// Begins to look for paths. Opens what the caller named.
    ///
    /// # Errors
    /// [`FileError::InvalidArgument`], [`FileError::Glob`], and as
    /// [`Fence::object`] for the paths named.
    pub fn glob(
        fence: Arc<Fence>,
        asked: &Glob,
        settings: &Settings,
        crew: &Arc<Crew>,
    ) -> Result<Self, FileError> {
        Self::begin(fence, &asked.scope, plan::of_glob(asked)?, settings, crew)
    }

    /// Begins to look for text.
    ///
    /// # Errors
    /// As [`Search::glob`]; [`FileError::Pattern`].
    pub fn grep(
        fence: Arc<Fence>,
        asked: &Grep,
        settings: &Settings,
        crew: &Arc<Crew>,
    ) -> Result<Self, FileError> {
        Self::begin(fence, &asked.scope, plan::of_grep(asked)?, settings, crew)
    }

    fn begin(
        fence: Arc<Fence>,
        scope: &Scope,
        (what, limits): (What, Limits),
        settings: &Settings,
        crew: &Arc<Crew>,
    ) -> Result<Self, FileError> {
        let (plan, tasks) = plan::begin(fence, scope, what, settings)?;
        Ok(Self {
            shared: Shared::new(plan, tasks, crew),
            limits,
            summary: Summary::default(),
            over: false,
        })
    }

    /// What was searched so far; all of it once [`Search::next_piece`] gave
    /// `None`.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Bytes that wait to be told.
    #[cfg(test)]
    pub(in super::super) fn waiting(&self) -> usize {
        self.shared.lock().waiting
    }

    /// What was found next; `None` at the end. Blocks.
    ///
    /// # Errors
    /// [`FileError::Cancelled`].
    pub fn next_piece(&mut self, cancel: &Cancel) -> Result<Option<Piece>, FileError> {
        let begun = Instant::now();
        let mut piece = Piece::default();
        let mut scratch = None;
        while !self.over {
            cancel.check()?;
            let mut state = self.shared.lock();
            if state.broken {
                return Err(FileError::from_errno(
                    Errno::IO,
                    "searching",
                    Path::new("what was asked for"),
                ));
            }
            while let Some(part) = state.order.pop() {
                state.waiting = state.waiting.saturating_sub(part.bytes);
                drop(state);
                self.tell(part, &mut piece);
                if self.over || piece.bytes >= PIECE {
                    self.shared.set_to_work();
                    return Ok(Some(piece));
                }
                state = self.shared.lock();
            }
            if state.order.is_done() {
                self.over = true;
                break;
            }
            if begun.elapsed() >= OFTEN && !piece.is_empty() {
                return Ok(Some(piece));
            }
            let threads = state.threads;
            drop(state);
            if !self.shared.set_to_work() && threads == 0 {
                // Nobody else does it.
                let scratch = scratch.get_or_insert_with(|| Scratch::new(&self.shared.plan));
                self.shared.work_once(scratch, cancel);
                continue;
            }
            let state = self.shared.lock();
            if !state.order.is_ready() && !state.order.is_done() {
                drop(self.shared.told.wait_timeout(state, OFTEN));
            }
        }
        Ok((!piece.is_empty()).then_some(piece))
    }

    /// Adds a part to a piece, as far as the limits go.
    fn tell(&mut self, part: Part, piece: &mut Piece) {
        let Part {
            entries,
            files,
            mut counts,
            ..
        } = part;
        let (mut matches, mut files_matched) = (0, 0);
        for entry in entries {
            if !self.room(1) {
                break;
            }
            matches += 1;
            self.take(1, entry.path.len());
            piece.bytes += entry.path.len() + 16;
            piece.entries.push(entry);
        }
        for file in files {
            let Some(file) = self.cut_to_limit(file) else {
                break;
            };
            matches += file.matches;
            files_matched += u64::from(!file.continued);
            piece.bytes += file.path.len() + 16;
            let lines = file.lines.iter().map(|line| line.text.len() + 32);
            piece.bytes += lines.sum::<usize>();
            piece.files.push(file);
        }
        // What was not told was not found, as far as the caller can see.
        (counts.matches, counts.files_matched) = (matches, files_matched);
        self.summary.counts += counts;
        if self.summary.limit_reached {
            self.over = true;
            self.shared.give_up();
        }
    }

    fn room(&mut self, results: u64) -> bool {
        let room = self.limits.results >= results && self.limits.bytes > 0;
        self.summary.limit_reached |= !room;
        room
    }

    fn take(&mut self, results: u64, bytes: usize) {
        self.limits.results = self.limits.results.saturating_sub(results);
        self.limits.bytes = self.limits.bytes.saturating_sub(bytes as u64);
    }

    /// As much of it as may be told. `None`: nothing.
    fn cut_to_limit(&mut self, mut file: FileMatches) -> Option<FileMatches> {
        if !self.room(1) {
            return None;
        }
        if !self.limits.lines {
            self.take(1, file.path.len());
            return Some(file);
        }
        let mut told = 0;
        for (at, line) in file.lines.iter().enumerate() {
            // Lines behind the last one that may be told belong to it.
            if (!line.context && self.limits.results == 0) || self.limits.bytes == 0 {
                self.summary.limit_reached = true;
                file.lines.truncate(at);
                file.matches = told;
                break;
            }
            let matches = u64::from(!line.context);
            told += matches;
            self.limits.results -= matches;
            self.limits.bytes = self.limits.bytes.saturating_sub(line.text.len() as u64);
        }
        Some(file)
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        self.shared.give_up();
    }
}

impl Piece {
    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.files.is_empty()
    }
}
