//! The arguments of the commands that search.

use std::path::PathBuf;

/// Where is searched.
#[derive(Debug, clap::Args)]
pub(crate) struct ScopeArgs {
    /// Directories and files; without any the current directory.
    pub(crate) paths: Vec<PathBuf>,

    /// Only paths that match, or with ! in front none that does; may be
    /// repeated. Without a / it is about the last name, at any depth.
    #[arg(long, short, value_name = "GLOB", allow_hyphen_values = true)]
    pub(crate) glob: Vec<String>,

    /// Upper and lower case are one in globs.
    #[arg(long)]
    pub(crate) glob_case_insensitive: bool,

    /// Only files of this type, as rust, py or js; may be repeated.
    #[arg(long = "type", short = 't', value_name = "TYPE")]
    pub(crate) types: Vec<String>,

    /// No files of this type; may be repeated.
    #[arg(long = "type-not", short = 'T', value_name = "TYPE")]
    pub(crate) types_not: Vec<String>,

    /// Also names that begin with a dot.
    #[arg(long, short = '.')]
    pub(crate) hidden: bool,

    /// Also what ignore files (.gitignore, .ignore, …) leave out.
    #[arg(long)]
    pub(crate) no_ignore: bool,

    /// Also what belongs to git leaves out: .gitignore and the like.
    #[arg(long)]
    pub(crate) no_ignore_vcs: bool,

    /// Ignore files of the directories above do not count.
    #[arg(long)]
    pub(crate) no_ignore_parent: bool,

    /// .gitignore counts also where there is no repository.
    #[arg(long)]
    pub(crate) no_require_git: bool,

    /// At most so many levels down.
    #[arg(long, short = 'd', value_name = "LEVELS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_depth: Option<u32>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  executor glob '*.rs'
  executor glob 'src/**/*.rs' --type-not py
  executor glob '*.{yml,yaml}' .github deploy
  executor glob -- '-rf'

A glob without a / is about the last name, at any depth; one with a / about the
whole path below the directory searched. Exit code 1: nothing was found. What was
passed over (ignored, hidden, …) is told at the end.")]
pub(crate) struct GlobArgs {
    /// The glob; may be a path as well.
    pub(crate) pattern: String,

    #[command(flatten)]
    pub(crate) scope: ScopeArgs,

    /// Also directories.
    #[arg(long)]
    pub(crate) directories: bool,

    /// At most so many paths, 1 to 1000000.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) limit: u32,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  executor grep 'fn \\w+_at' src
  executor grep -F 'a(b' -g '*.c' -C 2
  executor grep -il todo
  executor grep -P '(\\w+) \\1'             look-around and back-references
  executor grep -- '-> Option' src

A line is told as path:number:text, one beside it as path-number-text. Long lines
are clipped round the match. Exit code 1: nothing was found. What was not searched
(ignored, hidden, binary, …) is told at the end.")]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct GrepArgs {
    /// What is looked for: a regular expression.
    pub(crate) pattern: String,

    #[command(flatten)]
    pub(crate) scope: ScopeArgs,

    /// The pattern is a text, not a regular expression.
    #[arg(long, short = 'F')]
    pub(crate) fixed_strings: bool,

    /// Perl's regular expressions.
    #[arg(long, short = 'P')]
    pub(crate) pcre2: bool,

    /// Upper and lower case are one.
    #[arg(long, short = 'i', conflicts_with = "smart_case")]
    pub(crate) ignore_case: bool,

    /// Upper and lower case are one unless the pattern has an upper case letter.
    #[arg(long, short = 'S')]
    pub(crate) smart_case: bool,

    /// Whole words only.
    #[arg(long, short = 'w')]
    pub(crate) word_regexp: bool,

    /// Whole lines only.
    #[arg(long, short = 'x')]
    pub(crate) line_regexp: bool,

    /// Lines that do not match.
    #[arg(long, short = 'v')]
    pub(crate) invert_match: bool,

    /// A match may have several lines.
    #[arg(long, short = 'U')]
    pub(crate) multiline: bool,

    /// With --multiline: a dot matches the end of a line too.
    #[arg(long, requires = "multiline")]
    pub(crate) multiline_dotall: bool,

    /// Only the names of files with a match.
    #[arg(long, short = 'l', conflicts_with = "count")]
    pub(crate) files_with_matches: bool,

    /// Only how many lines of each file match.
    #[arg(long, short = 'c')]
    pub(crate) count: bool,

    /// So many lines after each match.
    #[arg(long, short = 'A', value_name = "LINES")]
    pub(crate) after_context: Option<u32>,

    /// So many lines before each match.
    #[arg(long, short = 'B', value_name = "LINES")]
    pub(crate) before_context: Option<u32>,

    /// So many lines before and after each match, at most 100.
    #[arg(long, short = 'C', value_name = "LINES", default_value_t = 0)]
    pub(crate) context: u32,

    /// Binary files too, as if they were text.
    #[arg(long, short = 'a')]
    pub(crate) text: bool,

    /// At most so many matching lines of each file.
    #[arg(long, short = 'm', value_name = "LINES", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_count: Option<u64>,

    /// No files larger than this.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_filesize: Option<u64>,

    /// At most so many matching lines (with -l or -c: files), 1 to 1000000.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) limit: u32,
}
