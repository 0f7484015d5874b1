//! A checked start: what is run, where and with what.
//!
//! Values of these types cannot be wrong; `service` makes them from requests.

use std::ffi::CString;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use executor_proto::id::ProcessId;
use serde::{Deserialize, Serialize};

/// Most bytes of a command.
pub const COMMAND_BYTES: usize = 4 << 20;
/// Longest single argument of execve(2), without its NUL (`MAX_ARG_STRLEN`).
pub const ARGUMENT_BYTES: usize = 131_071;

/// Tells two specs apart: BLAKE3 of the request, shortened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpecDigest(pub [u8; 16]);

/// One start, complete but for the working directory's descriptor, which
/// travels beside it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StartSpec {
    /// The client's id.
    pub id: ProcessId,
    /// Identifies the spec for retries.
    pub digest: SpecDigest,
    /// When the client made it.
    pub created_at: SystemTime,
    /// For people; never empty.
    pub label: String,
    /// What is run.
    pub command: Command,
    /// With which variables.
    pub environment: EnvironmentSpec,
    /// Its input and output.
    pub io: Io,
    /// Whether it may be held up by a reader.
    pub flow: Flow,
    /// Ends the tree after this time.
    pub timeout: Option<Duration>,
    /// Ends the tree after this time without output.
    pub idle_timeout: Option<Duration>,
    /// The working directory's name, for `PWD` and for people.
    #[serde(with = "crate::path_bytes")]
    pub cwd: PathBuf,
}

/// What is run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// A program and its arguments; not empty.
    Argv(Vec<CString>),
    /// A text for a shell, byte for byte.
    Shell {
        /// Which one.
        shell: Shell,
        /// Without NUL, at most [`COMMAND_BYTES`].
        text: CString,
    },
}

/// Which shell runs a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shell {
    /// `$SHELL` of the command's environment where it is a POSIX shell; else
    /// bash where there is one, else sh.
    Default,
    /// `sh`
    Sh,
    /// `bash`
    Bash,
    /// `zsh`
    Zsh,
}

/// Which variables a command starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EnvironmentPolicy {
    /// PATH, HOME, USER, LOGNAME, SHELL, LANG, LC_*, TZ, TMPDIR.
    Core,
    /// What the user's login shell sets.
    Login,
    /// Nothing.
    None,
    /// The daemon's own, without what looks like a secret.
    All,
}

/// The environment of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvironmentSpec {
    /// Where it starts from.
    pub policy: EnvironmentPolicy,
    /// Then removed.
    pub unset: Vec<CString>,
    /// Then set; names hold no `=` and are not empty.
    pub set: Vec<(CString, CString)>,
    /// Settings that keep programs from waiting for a person.
    pub quiet: bool,
}

/// Input and output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Io {
    /// Pipes.
    Pipe {
        /// A pipe for input, or end of file at once.
        stdin: bool,
        /// Two pipes for output instead of one.
        separate_stderr: bool,
    },
    /// A pseudo-terminal.
    Terminal(TerminalSize),
}

/// Rows and columns, 1 to 1,000 each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    rows: u16,
    columns: u16,
}

impl TerminalSize {
    /// 80 columns, 24 rows.
    pub const DEFAULT: Self = Self {
        rows: 24,
        columns: 80,
    };

    /// `None` where one of the two is outside 1 to 1,000.
    #[must_use]
    pub fn new(rows: u32, columns: u32) -> Option<Self> {
        let checked = |value: u32| u16::try_from(value).ok().filter(|v| (1..=1000).contains(v));
        Some(Self {
            rows: checked(rows)?,
            columns: checked(columns)?,
        })
    }

    /// Lines.
    #[must_use]
    pub fn rows(self) -> u16 {
        self.rows
    }

    /// Characters a line.
    #[must_use]
    pub fn columns(self) -> u16 {
        self.columns
    }
}

/// Whether a reader can hold the process up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Flow {
    /// Never.
    Drain,
    /// One reader, while it is there.
    Lossless,
}
