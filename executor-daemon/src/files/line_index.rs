//! Where lines begin in large files: how a later page does not start at byte 0.
//!
//! A `LineIndex` holds checkpoints of one version of one file: at this byte,
//! this many lines have ended. They stand close together at first; when there
//! are too many of them, every second one goes, so that a file of any size has
//! at most `CHECKPOINTS`. [`LineIndexes`] keeps the indexes of the files that
//! were read last.
//!
//! Only files of 64 KiB or more have one: below that, reading is as fast, and
//! the small files of sysfs change their content without changing their
//! version.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::cancel::Cancel;
use super::error::FileError;
use super::object::Facts;
use super::opened::{CHUNK_BYTES, Content};
use super::text::encoding::Encoding;
use super::version::{Digest, Version};

/// Checkpoints of one file, at most: 24 bytes each.
const CHECKPOINTS: usize = 2_048;
/// Smallest file that is worth it.
const FILE_BYTES: u64 = 64 << 10;
/// A file that was changed more recently could change again without another
/// timestamp.
const SETTLED: Duration = Duration::from_millis(100);

/// At byte `at` the line `line` (from 1), which began at `line_start`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Checkpoint {
    pub(super) at: u64,
    pub(super) line: u64,
    pub(super) line_start: u64,
}

/// See the module's documentation.
#[derive(Debug, Clone)]
pub(super) struct LineIndex {
    checkpoints: Vec<Checkpoint>,
    spacing: u64,
    /// Once it was seen.
    end: Option<End>,
    /// Of the whole content, once it was computed.
    pub(super) digest: Option<Digest>,
}

/// What a search stops at.
#[derive(Debug, Clone, Copy)]
pub(super) enum Goal {
    /// The start of this line, from 1.
    Line(u64),
    /// This byte.
    Byte(u64),
    /// The end.
    End,
}

/// Where a search stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// At the goal. Nothing need follow there.
    Goal(Checkpoint),
    /// The file ends before it.
    End(End),
}

/// Of a whole file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    /// Lines in all.
    pub(super) lines: u64,
    /// Bytes in all.
    pub(super) at: u64,
}

impl LineIndex {
    /// Of a text that begins after a BOM of `bom` bytes.
    pub(super) fn new(bom: usize) -> Self {
        let start = Checkpoint {
            at: bom as u64,
            line: 1,
            line_start: bom as u64,
        };
        Self {
            checkpoints: vec![start],
            spacing: CHUNK_BYTES as u64,
            end: None,
            digest: None,
        }
    }

    /// Lines in all, where that is known.
    pub(super) fn total(&self) -> Option<u64> {
        self.end.map(|end| end.lines)
    }

    /// Goes to `goal` from the nearest checkpoint before it, reading in
    /// constant memory and remembering checkpoints on the way.
    pub(super) fn find(
        &mut self,
        content: &Content,
        encoding: Encoding,
        goal: Goal,
        cancel: &Cancel,
    ) -> Result<Found, FileError> {
        if let (Goal::End, Some(end)) = (goal, self.end) {
            return Ok(Found::End(end));
        }
        let mut here = self.nearest(goal);
        if matches!(goal, Goal::Line(line) if line == here.line) {
            return Ok(Found::Goal(here));
        }
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            cancel.check()?;
            let wanted = match goal {
                Goal::Byte(byte) => usize::try_from(byte.saturating_sub(here.at))
                    .unwrap_or(usize::MAX)
                    .min(CHUNK_BYTES),
                Goal::Line(_) | Goal::End => CHUNK_BYTES,
            };
            if wanted == 0 {
                return Ok(Found::Goal(here));
            }
            let buffer = buffer.get_mut(..wanted).unwrap_or_default();
            let chunk = content.read(here.at, buffer)?;
            if let Goal::Line(line) = goal
                && let Some(found) = here.line_in(chunk, encoding, line)
            {
                return Ok(Found::Goal(found));
            }
            here = here.after(chunk, encoding);
            if chunk.len() < wanted {
                let end = End {
                    lines: here.line - u64::from(here.line_start == here.at),
                    at: here.at,
                };
                self.end = Some(end);
                return Ok(Found::End(end));
            }
            self.remember(here);
        }
    }

    fn nearest(&self, goal: Goal) -> Checkpoint {
        let after = self.checkpoints.partition_point(|one| match goal {
            Goal::Line(line) => one.line <= line,
            Goal::Byte(byte) => one.at <= byte,
            Goal::End => true,
        });
        let found = self.checkpoints.get(after.saturating_sub(1));
        found.copied().unwrap_or(Checkpoint {
            at: 0,
            line: 1,
            line_start: 0,
        })
    }

    fn remember(&mut self, here: Checkpoint) {
        let last = self.checkpoints.last().map_or(0, |last| last.at);
        if here.at < last.saturating_add(self.spacing) {
            return;
        }
        if self.checkpoints.len() >= CHECKPOINTS {
            let mut keep = false;
            self.checkpoints.retain(|_| {
                keep = !keep;
                keep
            });
            self.spacing *= 2;
        }
        self.checkpoints.push(here);
    }
}

impl Checkpoint {
    /// The start of `line`, which is a later one, if it is within `chunk`.
    fn line_in(self, chunk: &[u8], encoding: Encoding, line: u64) -> Option<Self> {
        let wanted = line.checked_sub(self.line)?;
        if newlines(chunk, encoding) < wanted {
            return None;
        }
        let nth = usize::try_from(wanted.checked_sub(1)?).ok()?;
        let unit = encoding.unit();
        let newline = if unit == 1 {
            memchr::memchr_iter(b'\n', chunk).nth(nth)?
        } else {
            let units = chunk.chunks_exact(unit).enumerate();
            let mut newlines = units.filter(|(_, unit)| *unit == encoding.newline());
            newlines.nth(nth)?.0 * unit
        };
        let at = self.at + (newline + unit) as u64;
        Some(Self {
            at,
            line,
            line_start: at,
        })
    }

    fn after(self, chunk: &[u8], encoding: Encoding) -> Self {
        let at = self.at + chunk.len() as u64;
        let ended = newlines(chunk, encoding);
        let line_start = match last_newline(chunk, encoding) {
            Some(newline) => self.at + (newline + encoding.unit()) as u64,
            None => self.line_start,
        };
        Self {
            at,
            line: self.line + ended,
            line_start,
        }
    }
}

fn newlines(chunk: &[u8], encoding: Encoding) -> u64 {
    if encoding.unit() == 1 {
        return memchr::memchr_iter(b'\n', chunk).count() as u64;
    }
    let unit = encoding.unit();
    let units = chunk.chunks_exact(unit);
    units.filter(|unit| *unit == encoding.newline()).count() as u64
}

fn last_newline(chunk: &[u8], encoding: Encoding) -> Option<usize> {
    let unit = encoding.unit();
    if unit == 1 {
        return memchr::memrchr(b'\n', chunk);
    }
    let index = chunk
        .chunks_exact(unit)
        .rposition(|unit| unit == encoding.newline())?;
    Some(index * unit)
}

/// The indexes of the files that were read last.
#[derive(Debug)]
pub struct LineIndexes {
    capacity: usize,
    /// Least recently used first. Std: held to find or put one, never while a
    /// file is read.
    kept: Mutex<VecDeque<(Key, Arc<LineIndex>)>>,
}

/// The same bytes have other lines in another encoding.
type Key = (Version, &'static str);

impl LineIndexes {
    /// Keeps at most `capacity` indexes, of at most 48 KiB each.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            kept: Mutex::default(),
        }
    }

    /// The digest of a content that somebody had to compute is known from now
    /// on.
    pub fn learn_digest(&self, facts: &Facts, digest: Digest) {
        let mut index = LineIndex::new(0);
        index.digest = Some(digest);
        // Where lines begin is not known yet: any encoding but those of texts.
        self.put(facts, DIGEST_ONLY, index);
    }

    pub(super) fn digest(&self, facts: &Facts, encoding: Encoding) -> Option<Digest> {
        let of_text = self.find((facts.version(), encoding.name()));
        let known = of_text.and_then(|index| index.digest);
        known.or_else(|| self.find((facts.version(), DIGEST_ONLY))?.digest)
    }

    pub(super) fn get(&self, facts: &Facts, encoding: Encoding) -> LineIndex {
        let found = self.find((facts.version(), encoding.name()));
        found.map_or_else(
            || LineIndex::new(encoding.bom().len()),
            |index| LineIndex::clone(&index),
        )
    }

    pub(super) fn keep(&self, facts: &Facts, encoding: Encoding, index: LineIndex) {
        self.put(facts, encoding.name(), index);
    }

    fn find(&self, key: Key) -> Option<Arc<LineIndex>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(one, _)| *one == key)?;
        let found = kept.remove(at)?;
        let index = Arc::clone(&found.1);
        kept.push_back(found);
        Some(index)
    }

    fn put(&self, facts: &Facts, encoding: &'static str, index: LineIndex) {
        if facts.size < FILE_BYTES || !is_settled(facts) {
            return;
        }
        let key = (facts.version(), encoding);
        let index = Arc::new(index);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(one, _)| *one != key);
        kept.push_back((key, index));
        while kept.len() > self.capacity {
            kept.pop_front();
        }
    }
}

const DIGEST_ONLY: &str = "";

fn is_settled(facts: &Facts) -> bool {
    let Ok(now) = SystemTime::now().duration_since(UNIX_EPOCH) else {
        return false;
    };
    // Nobody can set it, unlike mtime.
    let (seconds, nanos) = facts.ctime;
    let changed = Duration::new(u64::try_from(seconds).unwrap_or(0), nanos);
    now.checked_sub(changed).is_some_and(|age| age >= SETTLED)
}
