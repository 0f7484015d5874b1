//! A page of whole lines of a text file.
//!
//! 1. Only `\n` ends a line, with an optional `\r` before it; a file that does
//!    not end with one has a last line that is not ended.
//! 2. Pages that follow each other by `next_offset` and `next_in_line` are the
//!    text of the file without its BOM, each byte once, and each page moves on.
//! 3. A page never has more than its bytes; a line that no page holds is an
//!    error or, if asked for, cut on a character.
//! 4. The version told is that of before the page was read: where the file
//!    changes meanwhile it is out of date at once, and no precondition on it
//!    holds.
//! 5. Memory does not depend on the file.

use std::ffi::OsStr;
use std::path::PathBuf;

use super::cancel::Cancel;
use super::entry::Last;
use super::error::FileError;
use super::fence::Fence;
use super::line_index::{Found, Goal, LineIndex, LineIndexes};
use super::object::Facts;
use super::opened::Content;
use super::text::encoding::{Encoding, PROBE_BYTES, TextError};
use super::text::line_ending::LineEnding;
use super::version::Digest;
use crate::limits::Limits;

/// Lines of one page where nothing is asked for.
pub const LINES_DEFAULT: u32 = 200;
/// Files up to this size are looked through for their digest and the number of
/// their lines.
pub const CHEAP_BYTES: u64 = 8 << 20;
/// How often a page is read again because the file changed meanwhile.
const ATTEMPTS: usize = 3;

/// What is asked for.
#[derive(Debug, Clone)]
pub struct ReadLines {
    /// First line, from 1.
    pub offset: u64,
    /// Lines, 1 to `limit_max`.
    pub limit: u32,
    /// What the operator allows (`limits.file_read_lines`).
    pub limit_max: u32,
    /// Name of the encoding; `None`: UTF-8, or what a BOM says.
    pub encoding: Option<String>,
    /// A line that no page holds is cut instead of refused.
    pub clip_long_lines: bool,
    /// Bytes of the file into line `offset` where the page begins; what
    /// `next_in_line` said. Only with `clip_long_lines`.
    pub in_line: u64,
    /// Bytes of text in a page, 1 KiB or more.
    pub page_bytes: usize,
}

impl Default for ReadLines {
    fn default() -> Self {
        Self {
            offset: 1,
            limit: LINES_DEFAULT,
            limit_max: Limits::default().file_read_lines,
            encoding: None,
            clip_long_lines: false,
            in_line: 0,
            page_bytes: 64 << 10,
        }
    }
}

/// A page.
#[derive(Debug, Clone)]
pub struct Lines {
    /// Of the file.
    pub facts: Facts,
    /// Its absolute name, without links.
    pub path: PathBuf,
    /// The lines with their endings.
    pub text: String,
    /// Number of the first line in `text`.
    pub first_line: u64,
    /// Lines in `text`, one that is cut or begun included.
    pub lines: u32,
    /// Where the next page begins; `None`: the file ends here.
    pub next_offset: Option<u64>,
    /// The next page begins this many bytes into line `next_offset`.
    pub next_in_line: Option<u64>,
    /// Lines in the whole file, where it is known.
    pub total_lines: Option<u64>,
    /// Of the whole content, where it is known or the file has at most 8 MiB.
    pub digest: Option<Digest>,
    /// What the bytes were read as.
    pub encoding: Encoding,
    /// Of the lines in `text`.
    pub line_ending: LineEnding,
    /// The last line of the page has no ending: it ends the file.
    pub unterminated: bool,
}

/// Reads one page.
///
/// # Errors
/// [`FileError::InvalidArgument`], [`FileError::LineOffsetAhead`],
/// [`FileError::LineTooLong`], [`FileError::Text`],
/// [`FileError::NotARegularFile`], [`FileError::TooLarge`] for a file without a
/// size, and as [`Fence::object`].
pub fn read_lines(
    fence: &Fence,
    given: &OsStr,
    request: &ReadLines,
    indexes: &LineIndexes,
    cancel: &Cancel,
) -> Result<Lines, FileError> {
    check(request)?;
    for _ in 1..ATTEMPTS {
        let content = Content::open(fence.object(given, Last::Follow)?, fence.unsized_bytes())?;
        let mut page = Page::new(&content, request, indexes, cancel)?;
        let lines = page.read();
        if content.is_unchanged()? {
            // What a refusal cost, such as the number of lines, is not paid for
            // again either.
            indexes.keep(content.facts(), page.encoding, page.index);
            return lines;
        }
    }
    // A file that is always being written, such as a log: the lines are told,
    // and nothing of the whole.
    let content = Content::open(fence.object(given, Last::Follow)?, fence.unsized_bytes())?;
    let no_index = LineIndexes::new(0);
    let lines = Page::new(&content, request, &no_index, cancel)?.read()?;
    Ok(Lines {
        digest: None,
        total_lines: None,
        ..lines
    })
}

fn check(request: &ReadLines) -> Result<(), FileError> {
    let wrong = |field, why: &str| FileError::InvalidArgument {
        field,
        why: why.to_owned(),
    };
    let most = request.limit_max;
    if request.offset == 0 {
        return Err(wrong("offset", "lines are counted from 1"));
    }
    if !(1..=most).contains(&request.limit) {
        let why = format!("it must be 1 to {most} lines (limits.file_read_lines)");
        return Err(wrong("limit", &why));
    }
    if request.in_line > 0 && !request.clip_long_lines {
        return Err(wrong("in_line", "it needs `clip_long_lines`"));
    }
    Ok(())
}

fn wrong_in_line(why: &str) -> FileError {
    FileError::InvalidArgument {
        field: "in_line",
        why: format!("{why}; give what `next_in_line` said"),
    }
}

struct Page<'a> {
    content: &'a Content,
    request: &'a ReadLines,
    indexes: &'a LineIndexes,
    cancel: &'a Cancel,
    encoding: Encoding,
    index: LineIndex,
}

/// Bytes of the file from `at`, where a line or the rest of one begins.
struct Window {
    at: u64,
    bytes: Vec<u8>,
    /// The file ends with them.
    ends: bool,
}

/// What a page took of its window.
#[derive(Default)]
struct Taken {
    text: String,
    lines: u32,
    bytes: usize,
    /// The last line is cut after so many bytes of it, which are in `bytes`.
    cut: bool,
}

impl<'a> Page<'a> {
    fn new(
        content: &'a Content,
        request: &'a ReadLines,
        indexes: &'a LineIndexes,
        cancel: &'a Cancel,
    ) -> Result<Self, FileError> {
        let wrong = |error| FileError::Text {
            given: content.given(),
            error,
        };
        let mut head = [0; PROBE_BYTES];
        let head = content.read(0, &mut head)?;
        let encoding = Encoding::of(head, request.encoding.as_deref()).map_err(wrong)?;
        encoding.check_not_binary(head).map_err(wrong)?;
        Ok(Self {
            content,
            request,
            indexes,
            cancel,
            encoding,
            index: indexes.get(content.facts(), encoding),
        })
    }

    fn read(&mut self) -> Result<Lines, FileError> {
        let offset = self.request.offset;
        let start = match self.find(Goal::Line(offset))? {
            Found::Goal(found) => found.line_start,
            Found::End(end) => return Err(self.ahead(end.lines)),
        };
        let at = self.in_line(start)?;
        let window = self.window(at)?;
        self.check_in_line(&window)?;
        if window.bytes.is_empty() && (offset > 1 || self.request.in_line > 0) {
            return Err(self.ahead(offset - 1));
        }
        let taken = self.take(&window)?;
        let end = window.at + taken.bytes as u64;
        let at_end = window.ends && taken.bytes == window.bytes.len();
        let after = offset + u64::from(taken.lines);
        let (next_offset, next_in_line) = match (at_end, taken.cut) {
            (true, _) => (None, None),
            (false, false) => (Some(after), None),
            // The line that is cut is the last one taken, and the first.
            (false, true) => (Some(offset), Some(end - start)),
        };
        let unterminated = at_end && !taken.text.is_empty() && !taken.text.ends_with('\n');
        let known = at_end.then_some(after - 1);
        let (total_lines, digest) = self.whole(known)?;
        Ok(Lines {
            facts: *self.content.facts(),
            path: self.content.object().path().to_owned(),
            line_ending: LineEnding::of(&taken.text),
            text: taken.text,
            first_line: offset,
            lines: taken.lines,
            next_offset,
            next_in_line,
            total_lines,
            digest,
            encoding: self.encoding,
            unterminated,
        })
    }

    fn find(&mut self, goal: Goal) -> Result<Found, FileError> {
        self.index
            .find(self.content, self.encoding, goal, self.cancel)
    }

    fn ahead(&self, lines: u64) -> FileError {
        FileError::LineOffsetAhead {
            given: self.content.given(),
            offset: self.request.offset,
            lines,
        }
    }

    /// Where the page begins, in the line that begins at `start`.
    fn in_line(&mut self, start: u64) -> Result<u64, FileError> {
        let in_line = self.request.in_line;
        if in_line == 0 {
            return Ok(start);
        }
        let at = start.saturating_add(in_line);
        let offset = self.request.offset;
        match self.find(Goal::Byte(at))? {
            Found::Goal(found) if found.line == offset => {}
            _ => {
                return Err(wrong_in_line(&format!(
                    "line {offset} has no more than {in_line} bytes"
                )));
            }
        }
        Ok(at)
    }

    fn check_in_line(&self, window: &Window) -> Result<(), FileError> {
        let in_line = self.request.in_line;
        let continues = |byte: &u8| byte & 0xC0 == 0x80;
        let cut = self.is_utf_8() && window.bytes.first().is_some_and(continues);
        let odd = !in_line.is_multiple_of(self.encoding.unit() as u64);
        if in_line > 0 && (cut || odd) {
            return Err(wrong_in_line(&format!(
                "byte {in_line} is within a character"
            )));
        }
        Ok(())
    }

    fn is_utf_8(&self) -> bool {
        self.encoding.name() == Encoding::UTF_8.name()
    }

    fn window(&self, at: u64) -> Result<Window, FileError> {
        // In UTF-16 what is one byte as UTF-8 takes two. One unit more shows
        // whether the file goes on.
        let length = (self.request.page_bytes + 1) * self.encoding.unit();
        let mut bytes = vec![0; length];
        let read = self.content.read(at, &mut bytes)?.len();
        bytes.truncate(read);
        Ok(Window {
            at,
            ends: read < length,
            bytes,
        })
    }

    /// As many whole lines as the page has room for.
    fn take(&mut self, window: &Window) -> Result<Taken, FileError> {
        let mut taken = Taken::default();
        while taken.lines < self.request.limit && taken.bytes < window.bytes.len() {
            let end = match self.encoding.find_newline(&window.bytes, taken.bytes) {
                Some(newline) => newline + self.encoding.unit(),
                None if window.ends => window.bytes.len(),
                // It goes on beyond the window, which is more than a page.
                None if taken.lines == 0 => return self.long_line(window),
                None => break,
            };
            let line = window.bytes.get(taken.bytes..end).unwrap_or_default();
            let at = window.at + taken.bytes as u64;
            let line = self.encoding.decode(line, at).map_err(|error| {
                // More bytes give a better guess at what it is.
                let all = window.bytes.get(taken.bytes..).unwrap_or_default();
                let better = self.encoding.decode(all, at).err();
                self.not_text(better.unwrap_or(error))
            })?;
            if taken.text.len() + line.len() > self.request.page_bytes {
                if taken.lines == 0 {
                    return self.long_line(window);
                }
                break;
            }
            taken.text.push_str(&line);
            taken.lines += 1;
            taken.bytes = end;
        }
        Ok(taken)
    }

    /// The beginning of a line (or of the rest of it) that no page holds.
    fn long_line(&mut self, window: &Window) -> Result<Taken, FileError> {
        if !self.request.clip_long_lines {
            return Err(self.too_long(window.at)?);
        }
        // No encoding makes more than three bytes of UTF-8 from one of its own.
        let room = self.request.page_bytes / if self.is_utf_8() { 1 } else { 3 };
        let room = room - room % self.encoding.unit();
        let slice = window.bytes.get(..room).unwrap_or(&window.bytes);
        let (text, mut bytes) = self
            .encoding
            .decode_prefix(slice, window.at)
            .map_err(|error| self.not_text(error))?;
        let mut text = text.into_owned();
        // `\r\n` stays together.
        if text.ends_with('\r') && text.len() > 1 {
            text.pop();
            bytes -= self.encoding.unit();
        }
        Ok(Taken {
            text,
            lines: 1,
            bytes,
            cut: true,
        })
    }

    fn too_long(&mut self, start: u64) -> Result<FileError, FileError> {
        let offset = self.request.offset;
        let end = match self.find(Goal::Line(offset + 1))? {
            Found::Goal(next) => next.line_start,
            Found::End(end) => end.at,
        };
        Ok(FileError::LineTooLong {
            given: self.content.given(),
            line: offset,
            length: end.saturating_sub(start),
            limit: self.request.page_bytes as u64,
        })
    }

    fn not_text(&self, error: TextError) -> FileError {
        FileError::Text {
            given: self.content.given(),
            error,
        }
    }

    /// The number of lines and the digest, where they are known or cheap.
    fn whole(&mut self, known: Option<u64>) -> Result<(Option<u64>, Option<Digest>), FileError> {
        let facts = self.content.facts();
        let digest = self
            .index
            .digest
            .or_else(|| self.indexes.digest(facts, self.encoding));
        let known = known.or(self.index.total());
        let endless = facts.size == 0 && known.is_none();
        if facts.size > CHEAP_BYTES || endless || (known.is_some() && digest.is_some()) {
            self.index.digest = digest;
            return Ok((known, digest));
        }
        let (lines, digest) = self.look_through()?;
        self.index.digest = digest;
        Ok((known.or(lines), digest))
    }

    /// Once through a file that is not large; nothing of one that turns out to
    /// be.
    fn look_through(&mut self) -> Result<(Option<u64>, Option<Digest>), FileError> {
        let lines = match self.find(Goal::End)? {
            Found::End(end) => Some(end.lines),
            Found::Goal(_) => None,
        };
        let digest = self.content.digest(self.cancel)?;
        Ok((lines, Some(digest)))
    }
}
