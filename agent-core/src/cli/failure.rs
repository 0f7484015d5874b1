//! Our own failures: how they are told, and with which code we exit.

use std::io;
use std::path::PathBuf;

use executor_client::ClientError;
use serde_json::json;

/// Our exit code when not the command failed but we did.
pub(crate) const OWN_FAILURE: u8 = 125;
/// What a shell reports of a program that SIGPIPE ended.
const BROKEN_PIPE: u8 = 128 + 13;

/// Why a command of ours did not do what it should.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The machine refused or could not be reached.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The system refused.
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    /// Nobody reads our output any more.
    #[error("nobody reads the output")]
    BrokenPipe,
    /// No daemon to start.
    #[error(
        "no daemon is running and the program executor-daemon was found neither at {} nor in PATH; \
         install it beside executor, or name a running one with --machine",
        beside.display()
    )]
    NoDaemonProgram { beside: PathBuf },
    /// The daemon did not come up.
    #[error("the daemon did not start: {why}{}", last_lines(log))]
    DaemonFailed { why: String, log: String },
    /// Somebody could have planted or read it.
    #[error("{} is not used: {why}; remove it to get a new one", path.display())]
    UnsafeFile { path: PathBuf, why: String },
    /// An id that names nothing, or too much.
    #[error("{0}")]
    Selection(String),
    /// The arguments make no sense together.
    #[error("{0}")]
    Usage(String),
    /// The embedded daemon did not start.
    #[cfg(feature = "local")]
    #[error("cannot start a machine in this process: {0}")]
    Embed(String),
}

fn last_lines(log: &str) -> String {
    if log.is_empty() {
        return String::new();
    }
    format!("; its log ends with:\n{log}")
}

impl CliError {
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::BrokenPipe {
            return Self::BrokenPipe;
        }
        Self::Io {
            what: what.into(),
            source,
        }
    }

    /// With which code we exit.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::BrokenPipe => BROKEN_PIPE,
            _ => OWN_FAILURE,
        }
    }

    /// For programs: the protocol's reason, or one of ours.
    fn reason(&self) -> &str {
        match self {
            Self::Client(error) => match (error.reason(), error) {
                (Some(reason), _) => reason.name(),
                (None, ClientError::DeadlineExceeded { .. }) => "DEADLINE_EXCEEDED",
                (None, ClientError::Address(_)) => "INVALID_ARGUMENT",
                (None, _) => "PROTOCOL",
            },
            Self::Io { .. } => "IO",
            Self::BrokenPipe => "BROKEN_PIPE",
            Self::NoDaemonProgram { .. } | Self::DaemonFailed { .. } => "DAEMON_NOT_STARTED",
            Self::UnsafeFile { .. } => "UNSAFE_FILE",
            Self::Selection(_) => "PROCESS_NOT_FOUND",
            Self::Usage(_) => "INVALID_ARGUMENT",
            #[cfg(feature = "local")]
            Self::Embed(_) => "DAEMON_NOT_STARTED",
        }
    }
}

/// Tells the failure on stderr. A reader that has gone is told nothing, as
/// programs that SIGPIPE ends tell nothing.
pub(crate) fn report(error: &CliError, json: bool) {
    use std::io::Write as _;
    if matches!(error, CliError::BrokenPipe) {
        return;
    }
    let told = match error {
        CliError::Client(_) => with_options(&error.to_string()),
        ours => ours.to_string(),
    };
    let line = if json {
        json!({"error": {"reason": error.reason(), "message": told}}).to_string()
    } else {
        format!("executor: {told}")
    };
    // Nobody is left to be told that nobody is left.
    let _ = writeln!(io::stderr(), "{line}");
}

/// Fields of the protocol that our options set.
const OPTIONS: [(&str, &str); 7] = [
    ("`in_place`", "--in-place"),
    ("`recursive`", "-r"),
    ("`parents`", "-p"),
    ("`replace_all`", "--all"),
    ("`allow_elision`", "--allow-elision"),
    ("`missing_ok`", "-f"),
    ("`replace`", "--replace"),
];

/// A message of the machine, with our options in place of the fields that they
/// set.
fn with_options(message: &str) -> String {
    let mut told = message.to_owned();
    for (field, option) in OPTIONS {
        told = told.replace(field, option);
    }
    told
}

/// Tells something that is no failure on stderr.
pub(crate) fn notice(text: impl std::fmt::Display) {
    use std::io::Write as _;
    let _ = writeln!(io::stderr(), "executor: {text}");
}

/// Prints a line on stdout.
pub(crate) fn print_line(line: impl std::fmt::Display) -> Result<(), CliError> {
    use std::io::Write as _;
    writeln!(io::stdout(), "{line}").map_err(|error| CliError::io("cannot write to stdout", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_the_protocol_is_told_as_the_option_that_sets_it() {
        for (told, expected) in [
            ("remove it with `recursive`", "remove it with -r"),
            ("ask for `in_place` to write", "ask for --in-place to write"),
            ("or set `replace_all`", "or set --all"),
            ("made with `parents`, or `parents`", "made with -p, or -p"),
            ("`something` else in_place", "`something` else in_place"),
        ] {
            assert_eq!(with_options(told), expected);
        }
    }
}
