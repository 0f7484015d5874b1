//! What the searcher finds in one file becomes lines that are told.

use std::io;

use grep_matcher::{Match, Matcher as _};
use grep_searcher::{Searcher, Sink, SinkContext, SinkMatch};

use super::clip::window;
use super::file::{Mark, PART_BYTES, Point, WHOLE_BYTES};
use super::pattern::Matcher;
use super::request::Tell;
use super::results::Line;

/// Matches of one line that are marked.
const SPANS: usize = 32;
/// Bytes that a line counts beside its text.
const LINE: usize = 64;

/// What is told of each file.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) tell: Tell,
    pub(super) file_limit: Option<u64>,
    /// Matches are marked. (What does not match has none.)
    pub(super) spans: bool,
}

/// What was found in a file, or in a part of it.
#[derive(Debug, Default)]
pub(super) struct FoundIn {
    pub(super) lines: Vec<Line>,
    /// Lines that match.
    pub(super) matches: u64,
    pub(super) clipped: u64,
    /// Where its first NUL is.
    pub(super) binary: Option<u64>,
    /// There may be more than the limit of one file.
    pub(super) cut: bool,
    /// There may be more, which cannot be told.
    pub(super) overflowed: bool,
    pub(super) goes_on_at: Option<Point>,
}

/// The searcher's sink for one file.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    matcher: &'a Matcher,
    asked: &'a Asked,
    from: Point,
    can_go_on: bool,
    bytes: usize,
    found: FoundIn,
}

impl<'a> Lines<'a> {
    pub(super) fn new(matcher: &'a Matcher, asked: &'a Asked, from: Point, mark: Mark) -> Self {
        let mut from = from;
        if mark == Mark::Utf8 {
            from.offset += 3;
        }
        Self {
            matcher,
            asked,
            from,
            can_go_on: mark != Mark::Utf16,
            bytes: 0,
            found: FoundIn::default(),
        }
    }

    /// The search cannot begin in the middle.
    pub(super) fn cannot_go_on(&mut self) {
        self.can_go_on = false;
    }

    pub(super) fn is_binary(&mut self, offset: u64) {
        self.found.binary = Some(self.from.offset + offset);
    }

    pub(super) fn end(self) -> FoundIn {
        self.found
    }

    fn told(&self) -> u64 {
        self.from.told + self.found.matches
    }

    fn push(&mut self, line: Line) {
        self.bytes += line.text.len() + LINE;
        self.found.clipped += u64::from(line.is_clipped());
        self.found.lines.push(line);
    }

    /// The matches in `range` of `buffer`.
    fn spans(&self, buffer: &[u8], range: std::ops::Range<usize>) -> Result<Vec<Match>, io::Error> {
        let mut spans = Vec::new();
        let mut at = range.start;
        // A line by itself, so that its end is an end; several in their place.
        let text = buffer.get(..range.end).unwrap_or(buffer);
        while at <= range.end && spans.len() < SPANS {
            let found = self.matcher.find_at(text, at).map_err(io::Error::other)?;
            let Some(found) = found else { break };
            at = found.end() + usize::from(found.is_empty());
            spans.push(found);
        }
        Ok(spans)
    }

    /// Tells the lines of a match.
    fn tell(&mut self, found: &SinkMatch<'_>) -> Result<(), io::Error> {
        let range = found.bytes_range_in_buffer();
        let several = found.lines().nth(1).is_some();
        let buffer = if several {
            found.buffer()
        } else {
            found.bytes()
        };
        let mut start = if several { range.start } else { 0 };
        let spans = if self.asked.spans {
            let end = start + without_ending(found.bytes()).len();
            self.spans(buffer, start..end)?
        } else {
            Vec::new()
        };
        let number = found.line_number().unwrap_or(1) + self.from.lines;
        let offset = found.absolute_byte_offset() + self.from.offset;
        let base = start;
        for (count, line) in (0..).zip(found.lines()) {
            let text = without_ending(line);
            let within = |span: &Match| {
                let from = span.start().max(start) - start;
                let to = span.end().min(start + text.len()).checked_sub(start)?;
                (from < to || (from == to && span.is_empty())).then_some((from, to))
            };
            let spans: Vec<_> = spans.iter().filter_map(within).collect();
            let offset = offset + (start - base) as u64;
            self.push(line_of(text, number + count, offset, &spans));
            start += line.len();
        }
        Ok(())
    }
}

impl Sink for Lines<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        if self
            .asked
            .file_limit
            .is_some_and(|limit| self.told() >= limit)
        {
            self.found.cut = true;
            return Ok(false);
        }
        let most = if self.can_go_on {
            PART_BYTES
        } else {
            WHOLE_BYTES
        };
        // A line that looks like the mark of an encoding would be read as one.
        if self.bytes >= most && (!self.can_go_on || Mark::of(found.bytes()) == Mark::None) {
            if self.can_go_on {
                self.found.goes_on_at = Some(Point {
                    offset: self.from.offset + found.absolute_byte_offset(),
                    lines: self.from.lines + found.line_number().unwrap_or(1) - 1,
                    told: self.told(),
                });
            } else {
                self.found.overflowed = true;
            }
            return Ok(false);
        }
        if self.asked.tell == Tell::Lines {
            self.tell(found)?;
        }
        self.found.matches += found.lines().count() as u64;
        Ok(self.asked.tell != Tell::Files)
    }

    fn context(&mut self, _: &Searcher, line: &SinkContext<'_>) -> Result<bool, io::Error> {
        let number = line.line_number().unwrap_or(1) + self.from.lines;
        let offset = line.absolute_byte_offset() + self.from.offset;
        let text = without_ending(line.bytes());
        let line = Line {
            context: true,
            ..line_of(text, number, offset, &[])
        };
        self.push(line);
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, offset: u64) -> Result<bool, io::Error> {
        self.is_binary(offset);
        Ok(true)
    }
}

fn line_of(text: &[u8], number: u64, offset: u64, spans: &[(usize, usize)]) -> Line {
    let first = spans.first().map(|(from, _)| *from);
    let told = window(text, first.unwrap_or(0));
    let spans = spans.iter().filter_map(|(from, to)| {
        let from = (*from).max(told.start) - told.start;
        let to = (*to).min(told.end).checked_sub(told.start)?;
        (from <= to && from <= told.len()).then_some((from, to))
    });
    Line {
        number,
        offset,
        column: first.map_or(0, |at| at as u64 + 1),
        length: text.len() as u64,
        spans: spans.collect(),
        text: text.get(told.clone()).unwrap_or_default().to_vec(),
        text_start: told.start as u64,
        context: false,
    }
}

fn without_ending(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}
