//! The reading end of a log.
//!
//! A reader looks where the log stands, copies, and looks again: a writer that
//! went on meanwhile may have overwritten what was copied. Then it begins anew
//! from where the retained bytes begin by now.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use bytes::BytesMut;

use super::control::View;
use super::remote::RemoteSlot;
use super::segment::Slot;
use super::window::Window;
use super::{Gap, LogAddress, LogStatus, Page, PageHead, ReadError, Run, Stream};

/// Most runs of one page; it ends where there would be more.
const RUNS: usize = 1024;
/// How often a reader that was overtaken begins anew at the very edge of what is
/// retained.
const TRIES_AT_EDGE: usize = 4;
/// How often then at a distance from it.
const TRIES_BEHIND: usize = 4;

/// Reads one log, of this process or of another ([`super::RemoteLogs`]). Any
/// number of readers, each with its own cursor. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LogReader {
    source: Source,
}

#[derive(Debug, Clone)]
enum Source {
    /// With the writer in this process. The log lives as long.
    Local(Arc<Slot>),
    /// With the writer in another. How long the log lives is decided there.
    Remote(RemoteSlot),
}

impl LogReader {
    pub(super) fn local(slot: Arc<Slot>) -> Self {
        Self {
            source: Source::Local(slot),
        }
    }

    pub(super) fn remote(slot: RemoteSlot) -> Self {
        Self {
            source: Source::Remote(slot),
        }
    }

    /// What names this log to other processes.
    #[must_use]
    pub fn address(&self) -> LogAddress {
        match &self.source {
            Source::Local(slot) => slot.address(),
            Source::Remote(slot) => slot.address(),
        }
    }

    /// Where the log stands.
    ///
    /// # Errors
    /// [`ReadError::Gone`].
    pub fn status(&self) -> Result<LogStatus, ReadError> {
        let view = self.view()?;
        Ok(LogStatus {
            end: view.extent.end,
            dropped: view.extent.dropped(),
            exited: view.exited(),
            ended: view.ended(),
        })
    }

    /// At most `max` bytes from `cursor`; 0 counts as 1. Empty only where nothing
    /// is retained at or behind `cursor`, or (once in a very long while) where
    /// the writer was faster than every attempt to read and all up to the end
    /// is told as a gap.
    ///
    /// A page ends at a gap and, with a separate standard error, at
    /// 1,024 runs. It is shortened by up to three bytes so as not to
    /// cut a UTF-8 character, unless it would be empty then; where it ends
    /// because the output does, it is not.
    ///
    /// # Errors
    /// [`ReadError::Ahead`], [`ReadError::Gone`].
    pub fn page(&self, cursor: u64, max: usize) -> Result<Page, ReadError> {
        let mut data = BytesMut::new();
        let head = self.page_into(cursor, max, &mut data)?;
        Ok(Page {
            gap: head.gap,
            start: head.start,
            data: data.freeze(),
            runs: head.runs,
            end: head.end,
        })
    }

    /// [`LogReader::page`] with its bytes put behind those that `buffer` holds.
    ///
    /// # Errors
    /// The same; the buffer is then as it was.
    pub fn page_into(
        &self,
        cursor: u64,
        max: usize,
        buffer: &mut BytesMut,
    ) -> Result<PageHead, ReadError> {
        let kept = buffer.len();
        for attempt in 0..TRIES_AT_EDGE + TRIES_BEHIND {
            let page = self.attempt(cursor, max.max(1), attempt >= TRIES_AT_EDGE, buffer);
            match page {
                Ok(Some(page)) => return Ok(page),
                Ok(None) => buffer.truncate(kept),
                Err(error) => {
                    buffer.truncate(kept);
                    return Err(error);
                }
            }
        }
        let end = self.view()?.extent.end;
        Ok(PageHead {
            gap: (cursor < end).then_some(Gap {
                from: cursor,
                to: end,
                newlines: None,
            }),
            start: end,
            length: 0,
            runs: Vec::new(),
            end,
        })
    }

    /// Waits until the status differs from `seen`, or the log is gone.
    /// Cancel safe.
    pub async fn changed(&self, seen: LogStatus) {
        let changed = || self.status() != Ok(seen);
        match &self.source {
            Source::Local(slot) => slot.place.state().bell.wait_until(changed).await,
            Source::Remote(slot) => slot.wait_until(changed).await,
        }
    }

    /// One attempt at a page; `None` when it was overtaken.
    fn attempt(
        &self,
        cursor: u64,
        max: usize,
        keep_away: bool,
        buffer: &mut BytesMut,
    ) -> Result<Option<PageHead>, ReadError> {
        let window = self.window();
        let view = self.view()?;
        let extent = view.extent;
        let end = extent.end;
        if cursor > end {
            return Err(ReadError::Ahead { end });
        }
        let mut start = extent.next_retained(cursor);
        if keep_away && start > cursor && start >= extent.head {
            let geometry = window.layout.geometry;
            let distance = geometry.slack.min(geometry.retained.div_ceil(2));
            start = end.min(start + distance as u64);
        }
        let available = extent.readable_until(start) - start;
        let stop = start + available.min(max as u64);

        let first = buffer.len();
        for piece in window.layout.pieces(start, stop) {
            window
                .memory
                .append_to(window.bytes(piece), piece.length, buffer);
        }
        let mut runs = Vec::new();
        if view.separate() {
            runs = runs_of(window, start, stop);
            let length = runs.iter().map(|run| run.length).sum::<usize>();
            buffer.truncate(first + length);
        }
        let mut gap = None;
        if cursor < start {
            gap = Some(Count::take(window, &view, cursor, start));
        }

        // What follows is decided by what was true after the bytes were copied.
        fence(Ordering::Acquire);
        let after = self.view()?;
        if !after.extent.retains(start, stop) {
            return Ok(None);
        }
        let gap = match gap {
            None => None,
            Some(count) => match count.check(window, &view, &after) {
                None if !keep_away => return Ok(None),
                newlines => Some(Gap {
                    from: cursor,
                    to: start,
                    newlines: newlines.flatten(),
                }),
            },
        };
        if stop < start + available {
            end_at_character(first, buffer, &mut runs);
        }
        if runs.iter().all(|run| run.stream == Stream::Stdout) {
            runs.clear();
        }
        Ok(Some(PageHead {
            gap,
            start,
            length: buffer.len() - first,
            runs,
            end,
        }))
    }

    fn view(&self) -> Result<View, ReadError> {
        let (window, generation) = match &self.source {
            Source::Local(slot) => (slot.place.window(), slot.generation),
            Source::Remote(slot) if slot.is_lost() => return Err(ReadError::Gone),
            Source::Remote(slot) => (slot.window(), slot.generation()),
        };
        let view = window.control().view(window.layout, generation);
        view.ok_or(ReadError::Gone)
    }

    fn window(&self) -> Window<'_> {
        match &self.source {
            Source::Local(slot) => slot.place.window(),
            Source::Remote(slot) => slot.window(),
        }
    }
}

/// The streams of the bytes from `start` on, as far as a page may have them.
fn runs_of(window: Window<'_>, start: u64, stop: u64) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for mut piece in window.layout.pieces(start, stop) {
        while piece.length > 0 {
            let (stderr, length) = window.run(piece);
            let stream = if stderr {
                Stream::Stderr
            } else {
                Stream::Stdout
            };
            piece.at += length;
            piece.length -= length;
            let full = runs.len() == RUNS;
            match runs.last_mut() {
                Some(last) if last.stream == stream => last.length += length,
                _ if full => return runs,
                _ => runs.push(Run { stream, length }),
            }
        }
    }
    runs
}

/// Newlines of a gap, read before it is known whether they can be believed.
struct Count {
    /// Before the first byte of the gap, where the log still knows, and the
    /// offset of the count if that may be replaced meanwhile.
    before: Option<(u64, Option<u64>)>,
    /// Before the first byte behind it, likewise.
    behind: Option<(u64, Option<u64>)>,
}

impl Count {
    fn take(window: Window<'_>, view: &View, from: u64, to: u64) -> Self {
        let (control, layout) = (window.control(), window.layout);
        let head_full = view.extent.end >= view.extent.head;
        let known = |offset: u64| {
            if offset == 0 {
                Some((0, None))
            } else if offset == view.extent.head && head_full {
                Some((control.head_newlines(), None))
            } else if offset == view.edge.floor {
                Some((view.edge.newlines_before_floor, None))
            } else if offset == view.edge.head_from {
                Some((view.edge.newlines_before_head, None))
            } else {
                let index = layout.count_at(offset)?;
                Some((control.count(index), Some(offset)))
            }
        };
        let behind = known(to).or_else(|| {
            // From the next count back: all bytes up to it are retained.
            let counted = layout.next_count(to);
            let (newlines, offset) = (counted <= view.extent.end).then(|| known(counted))??;
            Some((newlines.wrapping_sub(window.newlines(to, counted)), offset))
        });
        Self {
            before: known(from),
            behind,
        }
    }

    /// The count of the gap, `Some(None)` where it is not known; `None` when the
    /// log went on too far meanwhile.
    fn check(self, window: Window<'_>, view: &View, after: &View) -> Option<Option<u64>> {
        if !after.same_edges(view) {
            return None;
        }
        let lives = |counted: (u64, Option<u64>)| {
            let (newlines, offset) = counted;
            let lives =
                offset.is_none_or(|offset| window.layout.count_lives(offset, after.extent.end));
            lives.then_some(newlines)
        };
        let (Some(before), Some(behind)) =
            (self.before.and_then(lives), self.behind.and_then(lives))
        else {
            return Some(None);
        };
        behind.checked_sub(before).map(Some)
    }
}

/// Shortens a page that `max` cut, where it was cut within a UTF-8 character.
fn end_at_character(first: usize, buffer: &mut BytesMut, runs: &mut Vec<Run>) {
    // A character is of one stream.
    let last = runs.last().map_or(buffer.len() - first, |run| run.length);
    let begins = buffer.len() - last;
    let cut = buffer.get(begins..).map_or(0, incomplete);
    if cut == 0 || cut == buffer.len() - first {
        return;
    }
    buffer.truncate(buffer.len() - cut);
    if let Some(run) = runs.last_mut() {
        run.length -= cut;
        if run.length == 0 {
            runs.pop();
        }
    }
}

/// Bytes at the end that begin a UTF-8 character which needs more of them.
fn incomplete(bytes: &[u8]) -> usize {
    for (behind, byte) in bytes.iter().rev().take(3).enumerate() {
        let needs = match byte {
            0x80..=0xbf => continue,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => 1,
        };
        let has = behind + 1;
        return if has < needs { has } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::incomplete;

    #[test]
    fn only_a_character_that_needs_more_is_incomplete() {
        for (bytes, cut) in [
            (&b""[..], 0),
            (b"abc", 0),
            ("ab中".as_bytes(), 0),
            (b"ab\xe4", 1),
            (b"ab\xe4\xb8", 2),
            (b"a\xf0\x9f\x98", 3),
            ("a😀".as_bytes(), 0),
            (b"\xc3", 1),
            ("é".as_bytes(), 0),
            (b"\x80\x80\x80\x80", 0),
            (b"\xff\x80", 0),
            (b"\xc0", 0),
        ] {
            assert_eq!(incomplete(bytes), cut, "{bytes:?}");
        }
    }
}
