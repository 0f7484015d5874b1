//! What a search finds.

use super::super::object::FileKind;
use super::summary::Counts;

/// One path of a glob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The path given and what is below it.
    pub path: Vec<u8>,
    /// What the directory says it is; a link is one.
    pub kind: FileKind,
}

/// A file with a match, or a part of what it has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileMatches {
    /// The path given and what is below it.
    pub path: Vec<u8>,
    /// In order. None where only files or counts are told.
    pub lines: Vec<Line>,
    /// Lines that match, in this part.
    pub matches: u64,
    /// It goes on with what came before it.
    pub continued: bool,
    /// There may be more matches than `file_limit` lets be told.
    pub cut: bool,
}

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Line {
    /// From 1.
    pub number: u64,
    /// Bytes of the content in front of the line.
    pub offset: u64,
    /// Where the first match begins: bytes from 1. 0: there is none, as in a line
    /// of context.
    pub column: u64,
    /// Bytes of the whole line, without its ending.
    pub length: u64,
    /// The line without its ending; if it is long, the part round the match.
    pub text: Vec<u8>,
    /// Bytes of the line in front of `text`.
    pub text_start: u64,
    /// It stands beside a match and is none.
    pub context: bool,
    /// Matches: where in `text` they begin and end. The first ones.
    pub spans: Vec<(usize, usize)>,
}

impl Line {
    /// `text` is not all of it.
    #[must_use]
    pub fn is_clipped(&self) -> bool {
        self.text.len() as u64 != self.length
    }
}

/// What came of a task, told as one.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) entries: Vec<Entry>,
    pub(super) files: Vec<FileMatches>,
    pub(super) counts: Counts,
    /// About what it takes in memory.
    pub(super) bytes: usize,
}

/// Bytes that a result takes beside its text.
const RESULT: usize = 64;

impl Part {
    pub(super) fn of(counts: Counts) -> Self {
        Self {
            counts,
            ..Self::default()
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.files.is_empty() && self.counts == Counts::default()
    }

    pub(super) fn push_entry(&mut self, entry: Entry) {
        self.bytes += entry.path.len() + RESULT;
        self.entries.push(entry);
    }

    pub(super) fn push_file(&mut self, file: FileMatches) {
        let lines: usize = file.lines.iter().map(|line| line.text.len() + RESULT).sum();
        self.bytes += file.path.len() + RESULT + lines;
        self.files.push(file);
    }
}
