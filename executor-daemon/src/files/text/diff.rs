//! What changed between two texts, as a unified diff.
//!
//! Bounded: at most 1 MiB is written, and the search for the smallest diff ends
//! after a second; what is left by then is told as replaced in one piece. The
//! counts are always those of the whole diff.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, capture_diff_slices_deadline, group_diff_ops};

/// Lines shown around a change.
const CONTEXT: usize = 3;
/// Bytes of a diff that is given.
pub const DIFF_BYTES: usize = 1 << 20;
/// Changed regions of more lines than this are told as replaced in one piece:
/// comparing takes 50 bytes of memory a line.
const COMPARED_LINES: usize = 600_000;
/// How long the smallest diff is looked for.
const SEARCH: Duration = Duration::from_secs(1);

/// A unified diff.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Diff {
    /// As `diff -u` writes it; empty when nothing changed.
    pub text: String,
    /// There is more of it than `text` has.
    pub truncated: bool,
    /// Lines that only the new text has.
    pub added: u32,
    /// Lines that only the old text has.
    pub removed: u32,
}

/// What turns `old` into `new`; `name` stands in the header, one line of text.
#[must_use]
pub fn unified(name: &str, old: &str, new: &str) -> Diff {
    bounded(name, old, new, DIFF_BYTES, SEARCH)
}

pub(super) fn bounded(name: &str, old: &str, new: &str, bytes: usize, search: Duration) -> Diff {
    if old == new {
        return Diff::default();
    }
    let middle = Middle::of(old, new);
    let (olds, news) = (lines(middle.old), lines(middle.new));
    let ops = if olds.len().max(news.len()) > COMPARED_LINES {
        vec![DiffOp::Replace {
            old_index: 0,
            old_len: middle.old.split_inclusive('\n').count(),
            new_index: 0,
            new_len: middle.new.split_inclusive('\n').count(),
        }]
    } else {
        let deadline = Instant::now().checked_add(search);
        capture_diff_slices_deadline(Algorithm::Myers, &olds, &news, deadline)
    };
    let mut diff = Diff::default();
    for op in &ops {
        let (old, new) = match op {
            DiffOp::Equal { .. } => continue,
            other => (other.old_range(), other.new_range()),
        };
        diff.removed = diff.removed.saturating_add(count(old.len()));
        diff.added = diff.added.saturating_add(count(new.len()));
    }
    let mut page = Page {
        text: String::new(),
        room: bytes,
        full: false,
    };
    let name = name.replace(['\n', '\r'], "?");
    page.push(&format!("--- a/{name}\n+++ b/{name}\n"));
    for group in group_diff_ops(ops, CONTEXT) {
        page.hunk(&group, &olds, &news, middle.lines_before);
        if page.full {
            break;
        }
    }
    diff.text = page.text;
    diff.truncated = page.full;
    diff
}

fn count(lines: usize) -> u32 {
    u32::try_from(lines).unwrap_or(u32::MAX)
}

/// Lines with their ends; only `\n` ends one. Of too many, one more than are
/// compared: a diff has no room for more either.
fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n')
        .take(COMPARED_LINES + 1)
        .collect()
}

/// What lies between the lines that both texts begin and end with, and up to
/// three of those around it: mostly a few lines of a large file.
struct Middle<'a> {
    old: &'a str,
    new: &'a str,
    lines_before: usize,
}

impl<'a> Middle<'a> {
    fn of(old: &'a str, new: &'a str) -> Self {
        let (old_bytes, new_bytes) = (old.as_bytes(), new.as_bytes());
        let same = same_at_begin(old_bytes, new_bytes);
        let head = old_bytes.get(..same).unwrap_or_default();
        let from = back_lines(head, CONTEXT);
        let rest = |bytes: &'a [u8]| bytes.get(from..).unwrap_or_default();
        let (old_rest, new_rest) = (rest(old_bytes), rest(new_bytes));
        let tail = same_at_end(old_rest, new_rest);
        // From the first whole line of the common tail, three lines on.
        let mut cut = old_rest.len() - tail;
        for _ in 0..=CONTEXT {
            let after = old_rest.get(cut..).unwrap_or_default();
            cut += memchr::memchr(b'\n', after).map_or(after.len(), |newline| newline + 1);
        }
        let dropped = old_rest.len() - cut;
        let until = |text: &'a str| text.get(from..text.len() - dropped).unwrap_or(text);
        Self {
            old: until(old),
            new: until(new),
            lines_before: memchr::memchr_iter(b'\n', old_bytes.get(..from).unwrap_or_default())
                .count(),
        }
    }
}

/// Bytes compared at once, at memory's speed; in the first ones that differ it
/// goes on one by one.
const CHUNK: usize = 256;

/// How many bytes both begin with.
fn same_at_begin(a: &[u8], b: &[u8]) -> usize {
    let chunks = a.chunks_exact(CHUNK).zip(b.chunks_exact(CHUNK));
    let same = chunks.take_while(|(a, b)| a == b).count() * CHUNK;
    let rest = a.iter().zip(b).skip(same);
    same + rest.take_while(|(a, b)| a == b).count()
}

/// How many bytes both end with.
fn same_at_end(a: &[u8], b: &[u8]) -> usize {
    let chunks = a.rchunks_exact(CHUNK).zip(b.rchunks_exact(CHUNK));
    let same = chunks.take_while(|(a, b)| a == b).count() * CHUNK;
    let rest = a.iter().rev().zip(b.iter().rev()).skip(same);
    same + rest.take_while(|(a, b)| a == b).count()
}

/// Where the line begins that is `lines` lines above the last one of `head`.
fn back_lines(head: &[u8], lines: usize) -> usize {
    memchr::memrchr_iter(b'\n', head)
        .nth(lines)
        .map_or(0, |newline| newline + 1)
}

/// Text with room for so much.
struct Page {
    text: String,
    room: usize,
    full: bool,
}

impl Page {
    fn push(&mut self, part: &str) {
        if self.full {
            return;
        }
        if part.len() <= self.room {
            self.text.push_str(part);
            self.room -= part.len();
            return;
        }
        self.text.push_str(
            part.get(..part.floor_char_boundary(self.room))
                .unwrap_or_default(),
        );
        self.full = true;
    }

    fn line(&mut self, sign: &str, line: &str) {
        self.push(sign);
        self.push(line);
        if !line.ends_with('\n') {
            self.push("\n\\ No newline at end of file\n");
        }
    }

    fn hunk(&mut self, ops: &[DiffOp], old: &[&str], new: &[&str], before: usize) {
        let (Some(first), Some(last)) = (ops.first(), ops.last()) else {
            return;
        };
        let old_range = first.old_range().start..last.old_range().end;
        let new_range = first.new_range().start..last.new_range().end;
        let mut header = String::from("@@ -");
        range(&mut header, &old_range, before);
        header.push_str(" +");
        range(&mut header, &new_range, before);
        header.push_str(" @@\n");
        self.push(&header);
        for op in ops {
            let equal = matches!(op, DiffOp::Equal { .. });
            for line in within(old, op.old_range()) {
                self.line(if equal { " " } else { "-" }, line);
            }
            if equal {
                continue;
            }
            for line in within(new, op.new_range()) {
                self.line("+", line);
            }
        }
    }
}

fn within<'a, 'b>(lines: &'a [&'b str], range: std::ops::Range<usize>) -> &'a [&'b str] {
    let end = range.end.min(lines.len());
    lines.get(range.start..end).unwrap_or_default()
}

/// First line, from 1, and number of lines, which is left out if it is 1. An
/// empty range is said by the line before it.
fn range(text: &mut String, lines: &std::ops::Range<usize>, before: usize) {
    let first = before + lines.start + usize::from(!lines.is_empty());
    // Writing to a String does not fail.
    let _ = match lines.len() {
        1 => write!(text, "{first}"),
        length => write!(text, "{first},{length}"),
    };
}
