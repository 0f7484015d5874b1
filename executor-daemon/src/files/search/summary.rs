//! What was searched, and what was not and why: never silence.

use std::ops::AddAssign;

/// Problems that are told.
pub const PROBLEMS: usize = 20;

/// What became of what a search came by. A directory that is left out counts
/// once, whatever is in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// Directories read.
    pub directories: u64,
    /// Files searched; of a glob, entries looked at.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Files with a match.
    pub files_matched: u64,
    /// Lines that match; of a glob, entries told.
    pub matches: u64,
    /// Lines that were clipped.
    pub lines_clipped: u64,
    /// Files that were not searched to their end, because as much of one was
    /// told as may be.
    pub files_cut: u64,
    /// Left out by ignore files.
    pub ignored: u64,
    /// Left out because the name begins with a dot.
    pub hidden: u64,
    /// Not asked for by the globs and types.
    pub filtered: u64,
    /// Below the depth asked for.
    pub too_deep: u64,
    /// Symbolic links, which are not followed.
    pub links: u64,
    /// FIFOs, sockets and devices.
    pub special: u64,
    /// Kept from agents.
    pub secret: u64,
    /// Binary: not searched from their first NUL on.
    pub binary: u64,
    /// Larger than asked for, or with a line that does not fit into memory.
    pub too_large: u64,
    /// What could not be read.
    pub unreadable: u64,
    /// The first of them, and binary files that the caller named.
    pub problems: Vec<Problem>,
}

/// One thing that could not be searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// As results have it.
    pub path: Vec<u8>,
    /// Why.
    pub message: String,
}

impl Counts {
    /// Tells of something, as far as there is room.
    pub(super) fn problem(&mut self, path: &[u8], message: impl Into<String>) {
        if self.problems.len() < PROBLEMS {
            self.problems.push(Problem {
                path: path.to_vec(),
                message: message.into(),
            });
        }
    }

    /// Something could not be read.
    pub(super) fn unreadable(&mut self, path: &[u8], why: impl Into<String>) {
        self.unreadable += 1;
        self.problem(path, why);
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, more: Self) {
        self.directories += more.directories;
        self.files += more.files;
        self.bytes += more.bytes;
        self.files_matched += more.files_matched;
        self.matches += more.matches;
        self.lines_clipped += more.lines_clipped;
        self.files_cut += more.files_cut;
        self.ignored += more.ignored;
        self.hidden += more.hidden;
        self.filtered += more.filtered;
        self.too_deep += more.too_deep;
        self.links += more.links;
        self.special += more.special;
        self.secret += more.secret;
        self.binary += more.binary;
        self.too_large += more.too_large;
        self.unreadable += more.unreadable;
        let room = PROBLEMS.saturating_sub(self.problems.len());
        self.problems.extend(more.problems.into_iter().take(room));
    }
}

/// The end of a search.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// Of what was looked at.
    pub counts: Counts,
    /// There may be more: the limit of results or bytes was reached.
    pub limit_reached: bool,
}

impl Summary {
    /// All that was asked for was searched, as far as it can be: no limit cut it
    /// short, and nothing was unreadable or too large.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let Counts {
            files_cut,
            unreadable,
            too_large,
            ..
        } = self.counts;
        !self.limit_reached && [files_cut, unreadable, too_large].iter().all(|n| *n == 0)
    }
}
