//! The one mapping from what the inside refuses to reasons of the protocol.

pub(super) mod file;

use executor_proto::reason::{Failure, Reason};

use super::convert::process::spawn_failure;
use crate::files::resolve::ResolveError;
use crate::process::error::ProcessError;
use crate::process::exit::Cause;
use crate::process::log::ReadError;
use crate::process::snapshot::Snapshot;
use crate::session::registry::SessionError;

/// What a call was for, where that changes what a refusal means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// A start: whether it ran can be unknown.
    Start,
    /// Any other.
    Other,
}

/// A refusal of the engine.
pub(super) fn engine(error: &ProcessError, call: Call) -> Failure {
    use ProcessError as E;
    let failure = |reason| Failure::new(reason, error.to_string());
    match error {
        E::SessionNotFound(_) => failure(Reason::SessionNotFound),
        E::SessionEnded(_) => failure(Reason::SessionEnded),
        E::SessionSecretMismatch(_) => failure(Reason::SessionSecretMismatch),
        E::SessionLimit { limit } => limited(failure(Reason::SessionLimit), "sessions", *limit),
        E::RootLimit { .. } => failure(Reason::RootUnusable).with("field", "root"),
        E::EpochOver { current, left, .. } => {
            let failure = epoch(call, error).with("epoch", current);
            match left {
                None => failure,
                Some(left) => failure
                    .with("left_ended", left.ended)
                    .with("left_survivors", left.survivors.len()),
            }
        }
        E::NotFound(_) => failure(Reason::ProcessNotFound),
        E::NotFoundTombstone(_) => failure(Reason::ProcessNotFound).with("tombstone", true),
        E::Forgotten(_) => failure(Reason::ProcessForgotten),
        E::IdConflict(_) => failure(Reason::ProcessIdConflict),
        E::StoppedBeforeStart(_) => failure(Reason::ProcessStoppedBeforeStart),
        E::StartExpired(_) => failure(Reason::StartExpired),
        E::ProcessLimit { limit } => limited(
            failure(Reason::ProcessLimit),
            "processes_per_session",
            *limit,
        ),
        E::ReceiptLimit { limit } => limited(
            failure(Reason::ReceiptLimit),
            "receipts_per_session",
            *limit,
        ),
        E::StillRunning(_) => failure(Reason::ProcessRunning),
        E::StdinClosed { .. } => failure(Reason::StdinClosed),
        E::StdinQueueFull { queued, limit, .. } => {
            limited(failure(Reason::StdinQueueFull), "stdin_queue_bytes", *limit)
                .with("queued", queued)
        }
        E::StdinOffsetGap { accepted, .. } => {
            failure(Reason::StdinOffsetGap).with("accepted", accepted)
        }
        E::StdinWriterLimit { limit } => {
            limited(failure(Reason::StdinWriterLimit), "stdin_writers", *limit)
        }
        E::CloseOnTerminal => failure(Reason::InvalidArgument).with("field", "close"),
        E::NotATerminal(_) => failure(Reason::NotATerminal),
        E::ReaderConflict => failure(Reason::ReaderConflict),
        E::NotLossless(_) => failure(Reason::InvalidArgument).with("field", "open.reader_id"),
        E::BadSignal(_) => failure(Reason::InvalidArgument).with("field", "signal"),
        E::MissingDescriptor(_) => failure(Reason::Internal),
        E::OutOfResources { errno } => failure(Reason::OutOfResources).with("errno", errno),
        E::ShuttingDown => failure(Reason::ShuttingDown),
        E::NotUnderstood => failure(Reason::Unsupported),
        E::EngineGone => match call {
            // It may have been started before the engine went.
            Call::Start => Failure::new(
                Reason::StartOutcomeUnknown,
                "the process engine went away while the start was under way; \
                 whether the command ran is unknown",
            ),
            Call::Other => failure(Reason::HostLost),
        },
    }
}

fn epoch(call: Call, error: &ProcessError) -> Failure {
    match call {
        Call::Start => Failure::new(
            Reason::StartOutcomeUnknown,
            format!("{error}. Whether the command ran is unknown; it is not run again"),
        ),
        Call::Other => Failure::new(Reason::HostLost, error.to_string()),
    }
}

fn limited(failure: Failure, name: &str, value: usize) -> Failure {
    failure.with("limit", name).with("value", value)
}

/// A start that failed because the machine is short of something. The process
/// stays as `failed`, so that a repeat meets the same answer; it never ran.
pub(super) fn out_of_resources(process: &Snapshot) -> Option<Failure> {
    let Cause::SpawnFailed { failure, label } = &process.exit.as_ref()?.cause else {
        return None;
    };
    (failure.kind() == "out_of_resources").then(|| {
        let told = spawn_failure(*failure, label);
        let refused = Failure::new(Reason::OutOfResources, told.message)
            .with("errno", told.errno)
            .with("stage", told.stage);
        if failure.is_process_limit() {
            return refused.with("limit", "processes");
        }
        refused
    })
}

/// The working directory of a start.
pub(super) fn working_directory(error: &ResolveError) -> Failure {
    use ResolveError as E;
    let failure = |reason| Failure::new(reason, format!("working directory {error}"));
    match error {
        E::NotFound { .. } => failure(Reason::CwdNotFound),
        E::Links { .. } | E::MagicLink { .. } => failure(Reason::PathLinkRefused),
        E::NotADirectory { .. } => failure(Reason::CwdNotADirectory),
        E::PermissionDenied { .. } => failure(Reason::CwdPermissionDenied),
        E::OutsideRoots { .. } => path(error, failure(Reason::PathOutsideRoots)),
        E::RootReplaced { .. } => Failure::new(Reason::RootUnusable, error.to_string()),
        E::TooLong { .. } | E::NotAbsolute { .. } => {
            failure(Reason::InvalidArgument).with("field", "working_directory")
        }
        E::Other { .. } => failure(Reason::Internal),
    }
}

/// What keeps a session from being opened or used.
pub(super) fn session(error: &SessionError) -> Failure {
    match error {
        SessionError::Engine(error) => engine(error, Call::Other),
        SessionError::WorkingDirectory { error, .. } => working_directory(error),
        SessionError::RootReadOnly { .. } => {
            Failure::new(Reason::RootUnusable, error.to_string()).with("field", "roots")
        }
        SessionError::Root { error: cause, .. } => {
            let failure = |reason| Failure::new(reason, error.to_string());
            match cause {
                ResolveError::OutsideRoots { .. } => {
                    path(cause, failure(Reason::PathOutsideRoots)).with("field", "roots")
                }
                ResolveError::NotAbsolute { .. } | ResolveError::TooLong { .. } => {
                    failure(Reason::InvalidArgument).with("field", "roots")
                }
                _ => failure(Reason::RootUnusable).with("field", "roots"),
            }
        }
    }
}

fn path(error: &ResolveError, failure: Failure) -> Failure {
    let ResolveError::OutsideRoots {
        given,
        resolved,
        nearest,
    } = error
    else {
        return failure;
    };
    failure
        .with("given", given.display())
        .with("resolved", resolved.display())
        .with("nearest_root", nearest.display())
}

/// A page that cannot be given.
pub(super) fn read(error: ReadError) -> Failure {
    match error {
        ReadError::Ahead { end } => {
            Failure::new(Reason::CursorAhead, error.to_string()).with("end", end)
        }
        ReadError::Gone => Failure::new(
            Reason::ProcessForgotten,
            "the process has been forgotten with its output",
        ),
    }
}

/// The engine answered with a reply of another kind.
pub(super) fn unexpected(what: &str) -> Failure {
    tracing::error!(
        what,
        "the engine gave a reply that does not fit the request"
    );
    Failure::new(
        Reason::Internal,
        format!("the process engine gave no {what}; this is a bug"),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// The rows of docs/errors.md: reason → code, meaning, what to do.
    fn table() -> HashMap<&'static str, (String, &'static str, &'static str)> {
        let text = include_str!("../../../../docs/errors.md");
        let rows = text.lines().filter_map(|line| {
            let cells: Vec<_> = line
                .strip_prefix("| `")?
                .split('|')
                .map(str::trim)
                .collect();
            let [reason, code, meaning, advice, ""] = cells[..] else {
                panic!("a row has four cells: {line}");
            };
            let reason = reason.trim_end_matches('`');
            Some((reason, (code.trim_matches('`').to_owned(), meaning, advice)))
        });
        let rows: Vec<_> = rows.collect();
        let count = rows.len();
        let table: HashMap<_, _> = rows.into_iter().collect();
        assert_eq!(table.len(), count, "a reason is listed twice");
        table
    }

    fn code_name(reason: Reason) -> String {
        let mut name = String::new();
        for (at, letter) in format!("{:?}", reason.code()).chars().enumerate() {
            if at > 0 && letter.is_uppercase() {
                name.push('_');
            }
            name.push(letter.to_ascii_uppercase());
        }
        name
    }

    #[test]
    fn the_table_of_errors_and_the_reasons_are_the_same() {
        let table = table();
        for &reason in Reason::ALL {
            let row = table.get(reason.name());
            let (code, meaning, advice) =
                row.unwrap_or_else(|| panic!("docs/errors.md lacks {}", reason.name()));
            assert_eq!(*code, code_name(reason), "{}", reason.name());
            assert_eq!(*meaning, reason.meaning(), "{}", reason.name());
            assert!(!advice.is_empty(), "{} says not what to do", reason.name());
        }
        for name in table.keys() {
            assert!(Reason::from_name(name).is_some(), "{name} is no reason");
        }
    }

    #[test]
    fn a_bound_that_was_met_is_named_as_its_configuration_key() {
        let errors = [
            ProcessError::SessionLimit { limit: 7 },
            ProcessError::ProcessLimit { limit: 7 },
            ProcessError::ReceiptLimit { limit: 7 },
            ProcessError::StdinWriterLimit { limit: 7 },
            ProcessError::StdinQueueFull {
                queued: 1,
                length: 9,
                limit: 7,
            },
        ];
        for error in errors {
            let failure = engine(&error, Call::Other);
            let name = failure.metadata["limit"].as_str();
            let known = crate::limits::Limits::BOUNDS
                .iter()
                .any(|bound| bound.name == name);
            assert!(known, "{name}");
            assert_eq!(failure.metadata["value"], "7");
            assert_eq!(failure.reason.code(), tonic::Code::ResourceExhausted);
        }
    }
}
