//! One file searched.
//!
//! A small one is read at once, a larger one in pieces, in constant memory.
//! Nothing is mapped: a file that somebody truncates meanwhile must not kill the
//! daemon.
//!
//! A file with many matches is told in parts of about [`PART_BYTES`]: the search
//! stops in front of a match and goes on there by another task ([`Rest`]), so
//! that no thread is held by one whose answer nobody takes.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::super::cancel::Cancel;
use super::super::error::FileError;
use super::pattern::Matcher;
use super::request::Tell;
use super::results::{FileMatches, Part};
use super::sink::{Asked, Lines};
use super::tree_walk::said;

/// A smaller file is searched in one piece.
const SMALL: usize = 64 << 10;
/// Bytes of lines that one task tells of one file.
pub(super) const PART_BYTES: usize = 1 << 20;
/// The same where the search cannot go on in the middle.
pub(super) const WHOLE_BYTES: usize = 4 << 20;
/// Bytes of one line, or of a whole file where matches may have several lines.
const LINE_BYTES: usize = 64 << 20;

/// What is looked for in each file.
#[derive(Debug)]
pub(super) struct GrepPlan {
    pub(super) matcher: Matcher,
    pub(super) asked: Asked,
    pub(super) invert: bool,
    pub(super) multi_line: bool,
    pub(super) before: usize,
    pub(super) after: usize,
    pub(super) binary: bool,
    pub(super) file_bytes: Option<u64>,
}

/// Where a search goes on in a file.
#[derive(Debug)]
pub(super) struct Rest {
    file: Arc<File>,
    path: Vec<u8>,
    named: bool,
    from: Point,
}

/// A line that a search begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Point {
    /// Bytes in front of it.
    pub(super) offset: u64,
    /// Lines in front of it.
    pub(super) lines: u64,
    /// Lines of the file that were told as matches.
    pub(super) told: u64,
}

/// What a thread searches with.
#[derive(Debug)]
pub(super) struct Finder {
    searcher: Searcher,
    /// A clone has memory of its own to search with, which no other thread waits
    /// for.
    matcher: Matcher,
    buffer: Box<[u8]>,
}

impl Finder {
    pub(super) fn new(plan: &GrepPlan) -> Self {
        let lines = plan.asked.tell == Tell::Lines;
        let mut builder = SearcherBuilder::new();
        builder
            .line_number(lines)
            .invert_match(plan.invert)
            .multi_line(plan.multi_line)
            .heap_limit(Some(LINE_BYTES))
            .binary_detection(if plan.binary {
                BinaryDetection::none()
            } else {
                BinaryDetection::quit(0)
            });
        if lines {
            builder
                .before_context(plan.before)
                .after_context(plan.after);
        }
        Self {
            searcher: builder.build(),
            matcher: plan.matcher.clone(),
            buffer: vec![0; SMALL].into(),
        }
    }

    /// Searches a file that the caller named.
    pub(super) fn named(
        &mut self,
        plan: &GrepPlan,
        file: File,
        path: Vec<u8>,
        part: &mut Part,
        cancel: &Cancel,
    ) -> Result<Option<Rest>, FileError> {
        let rest = Rest {
            file: Arc::new(file),
            path,
            named: true,
            from: Point::default(),
        };
        self.begin(plan, rest, part, cancel)
    }

    /// Searches what has the name in the directory, if it is a regular file.
    pub(super) fn in_directory(
        &mut self,
        plan: &GrepPlan,
        directory: &OwnedFd,
        name: &OsStr,
        path: Vec<u8>,
        part: &mut Part,
        cancel: &Cancel,
    ) -> Result<Option<Rest>, FileError> {
        // The directory says that it is a regular file. Should it have become
        // another thing meanwhile, opening it so does not wait (open(2)), and
        // nothing is read from it.
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => {
                part.counts.links += 1;
                return Ok(None);
            }
            // A socket, or a device without a driver.
            Err(Errno::NXIO) => {
                part.counts.special += 1;
                return Ok(None);
            }
            Err(errno) => {
                part.counts.unreadable(&path, said(errno));
                return Ok(None);
            }
        };
        let rest = Rest {
            file: Arc::new(file),
            path,
            named: false,
            from: Point::default(),
        };
        self.begin(plan, rest, part, cancel)
    }

    fn begin(
        &mut self,
        plan: &GrepPlan,
        rest: Rest,
        part: &mut Part,
        cancel: &Cancel,
    ) -> Result<Option<Rest>, FileError> {
        let stat = match rustix::fs::fstat(&rest.file) {
            Ok(stat) => stat,
            Err(errno) => {
                part.counts.unreadable(&rest.path, said(errno));
                return Ok(None);
            }
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            part.counts.special += 1;
            return Ok(None);
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if let Some(most) = plan.file_bytes
            && size > most
        {
            part.counts.too_large += 1;
            if rest.named {
                let why = format!("it has {size} bytes, above the limit of {most} asked for");
                part.counts.problem(&rest.path, why);
            }
            return Ok(None);
        }
        part.counts.files += 1;
        self.search(plan, rest, Some(size), part, cancel)
    }

    /// Searches the rest of a file.
    pub(super) fn go_on(
        &mut self,
        plan: &GrepPlan,
        rest: Rest,
        part: &mut Part,
        cancel: &Cancel,
    ) -> Result<Option<Rest>, FileError> {
        self.search(plan, rest, None, part, cancel)
    }

    fn search(
        &mut self,
        plan: &GrepPlan,
        mut rest: Rest,
        size: Option<u64>,
        part: &mut Part,
        cancel: &Cancel,
    ) -> Result<Option<Rest>, FileError> {
        let mut reader = FileReader {
            file: &rest.file,
            at: rest.from.offset,
            cancel,
        };
        let read = match reader.fill(&mut self.buffer, size) {
            Ok(read) => read,
            Err(error) => {
                cancel.check()?;
                part.counts.unreadable(&rest.path, error.to_string());
                return Ok(None);
            }
        };
        let first = self.buffer.get(..read.bytes).unwrap_or_default();
        let mark = Mark::of(first);
        let mut lines = Lines::new(&self.matcher, &plan.asked, rest.from, mark);
        if plan.multi_line {
            lines.cannot_go_on();
        }
        let found = if read.is_all && mark == Mark::None {
            match memchr::memchr(0, first) {
                // As the searcher itself has it for what is in one buffer.
                Some(at) if !plan.binary => {
                    lines.is_binary(at as u64);
                    Ok(())
                }
                _ => self.searcher.search_slice(&self.matcher, first, &mut lines),
            }
        } else {
            let whole = io::Cursor::new(first).chain(&mut reader);
            self.searcher
                .search_reader(&self.matcher, whole, &mut lines)
        };
        part.counts.bytes += reader.at - rest.from.offset;
        cancel.check()?;
        let found_in = lines.end();
        if let Err(error) = found {
            failed(plan, &rest.path, &error, part);
        }
        if let Some(offset) = found_in.binary {
            part.counts.binary += 1;
            if rest.named || found_in.matches > 0 || rest.from.told > 0 {
                let why = format!(
                    "it is binary (a NUL at byte {offset}) and is not searched from there on; \
                     ask for `binary` to search it as text"
                );
                part.counts.problem(&rest.path, why);
            }
        }
        part.counts.lines_clipped += found_in.clipped;
        part.counts.files_cut += u64::from(found_in.overflowed);
        let continued = rest.from.told > 0;
        if found_in.matches > 0 || !found_in.lines.is_empty() {
            part.counts.files_matched += u64::from(!continued);
            part.counts.matches += found_in.matches;
            part.push_file(FileMatches {
                path: rest.path.clone(),
                lines: found_in.lines,
                matches: found_in.matches,
                continued,
                cut: found_in.cut,
            });
        }
        Ok(found_in.goes_on_at.map(|from| {
            rest.from = from;
            rest
        }))
    }
}

fn failed(plan: &GrepPlan, path: &[u8], error: &io::Error, part: &mut Part) {
    let why = error.to_string();
    // The searcher has no other sign of it.
    if !why.contains("allocation limit") {
        part.counts.unreadable(path, why);
        return;
    }
    part.counts.too_large += 1;
    let most = LINE_BYTES >> 20;
    let why = if plan.multi_line {
        format!("it is larger than the {most} MiB that `multi_line` takes")
    } else {
        format!("it has a line longer than {most} MiB")
    };
    part.counts.problem(path, why);
}

/// How a text begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    None,
    /// The mark of UTF-8, which is no part of the first line.
    Utf8,
    /// UTF-16: what is searched is a translation.
    Utf16,
}

impl Mark {
    pub(super) fn of(bytes: &[u8]) -> Self {
        match bytes {
            [0xEF, 0xBB, 0xBF, ..] => Self::Utf8,
            [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] => Self::Utf16,
            _ => Self::None,
        }
    }
}

/// Reads a file from a place on; gives up when the caller does.
struct FileReader<'a> {
    file: &'a File,
    at: u64,
    cancel: &'a Cancel,
}

struct Filled {
    bytes: usize,
    /// The file has no more.
    is_all: bool,
}

impl FileReader<'_> {
    /// Fills the buffer, or reads the whole file. `size`: what the file system
    /// says that it has.
    fn fill(&mut self, buffer: &mut [u8], size: Option<u64>) -> io::Result<Filled> {
        let mut filled = 0;
        loop {
            let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) else {
                return Ok(Filled {
                    bytes: filled,
                    is_all: false,
                });
            };
            let read = self.read(room)?;
            filled += read;
            // What says that it is empty need not be (proc(5)).
            let whole = size.is_some_and(|size| size > 0 && filled as u64 == size);
            if read == 0 || (whole && filled < buffer.len()) {
                return Ok(Filled {
                    bytes: filled,
                    is_all: true,
                });
            }
        }
    }
}

impl Read for FileReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.cancel.check().map_err(io::Error::other)?;
        loop {
            match rustix::io::pread(self.file, &mut *buffer, self.at) {
                Ok(read) => {
                    self.at += read as u64;
                    return Ok(read);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}
