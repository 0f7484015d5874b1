//! What a search is asked for, and what it may be asked for at most.

use std::path::PathBuf;

use super::pattern::Pattern;

/// Paths of one search.
pub const PATHS_MAX: usize = 64;
/// Results of one search: entries of a glob, lines or files of a grep.
pub const RESULTS_MAX: u32 = 1_000_000;
/// Results where nothing is asked for.
pub const RESULTS_DEFAULT: u32 = 10_000;
/// Bytes of all results.
pub const BYTES_MAX: u64 = 256 << 20;
/// Bytes of all results where nothing is asked for.
pub const BYTES_DEFAULT: u64 = 16 << 20;
/// Lines round a match.
pub const CONTEXT_MAX: u32 = 100;

/// Where is looked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scope {
    /// Directories and files; none: the working directory. Their order is that
    /// of the answer.
    pub paths: Vec<PathBuf>,
    /// Which paths below them, in the language of `globs`; none: all.
    pub globs: Vec<String>,
    /// Upper and lower case are one in them.
    pub globs_ignore_case: bool,
    /// Only files of these types.
    pub types: Vec<String>,
    /// No files of these types.
    pub types_not: Vec<String>,
    /// Also names that begin with a dot.
    pub hidden: bool,
    /// Which ignore files count.
    pub ignore: Ignore,
    /// Levels below the paths: 1 is their own entries; `None`: all.
    pub depth: Option<u32>,
}

/// Which ignore files count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own, as ripgrep has them"
)]
pub struct Ignore {
    /// `.ignore` and `.rgignore`.
    pub dot: bool,
    /// `.gitignore`, and `.git` itself is left out.
    pub git: bool,
    /// `.git/info/exclude`.
    pub exclude: bool,
    /// Git's global excludes, as the daemon is configured.
    pub global: bool,
    /// Those of the directories above the paths, inside the roots.
    pub above: bool,
    /// What belongs to git counts in a repository only.
    pub in_repositories: bool,
}

impl Default for Ignore {
    /// As ripgrep.
    fn default() -> Self {
        Self {
            dot: true,
            git: true,
            exclude: true,
            global: true,
            above: true,
            in_repositories: true,
        }
    }
}

/// What a glob is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Glob {
    /// Where. Its globs are the question.
    pub scope: Scope,
    /// Also directories.
    pub directories: bool,
    /// Entries, 1 to [`RESULTS_MAX`]; `None`: [`RESULTS_DEFAULT`].
    pub limit: Option<u32>,
}

/// What is told of a file with a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tell {
    /// Its lines.
    #[default]
    Lines,
    /// That it has one.
    Files,
    /// How many of its lines match.
    Counts,
}

/// What a grep is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grep {
    /// Where.
    pub scope: Scope,
    /// What.
    pub pattern: Pattern,
    /// Lines that do not match instead.
    pub invert: bool,
    /// See there.
    pub tell: Tell,
    /// Lines before a match, at most [`CONTEXT_MAX`].
    pub before: u32,
    /// Lines after a match, at most [`CONTEXT_MAX`].
    pub after: u32,
    /// Binary files as if they were text.
    pub binary: bool,
    /// Matching lines of one file; `None`: all.
    pub file_limit: Option<u64>,
    /// Matching lines, or files where only those are told, 1 to
    /// [`RESULTS_MAX`]; `None`: [`RESULTS_DEFAULT`].
    pub limit: Option<u32>,
    /// Bytes of all lines told, 1 to [`BYTES_MAX`]; `None`: [`BYTES_DEFAULT`].
    pub byte_limit: Option<u64>,
    /// Larger files are not searched; `None`: all are.
    pub file_bytes: Option<u64>,
}
