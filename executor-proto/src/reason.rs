//! Error reasons, and the only code that builds or reads a [`Status`].
//!
//! A client matches on [`Reason`], never on the text. `docs/errors.md` lists
//! them all; a test walks that table and this one both ways.

use std::collections::HashMap;
use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// `google.rpc.ErrorInfo.domain` of every error that this protocol defines.
pub const DOMAIN: &str = "executor.v1";

macro_rules! reasons {
    ($($name:ident = $text:literal, $code:ident, $meaning:literal;)*) => {
        /// Why a call failed. The text form is `google.rpc.ErrorInfo.reason`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason {
            $(#[doc = $meaning] $name,)*
        }

        impl Reason {
            /// Every reason there is.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The text on the wire, in UPPER_SNAKE_CASE.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The gRPC code that goes with it.
            #[must_use]
            pub fn code(self) -> Code {
                match self { $(Self::$name => Code::$code,)* }
            }

            /// What it means, in one sentence.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$name => $meaning,)* }
            }

            /// The reason with this text.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($text => Some(Self::$name),)* _ => None }
            }
        }
    };
}

reasons! {
    InvalidArgument = "INVALID_ARGUMENT", InvalidArgument, "A field of the request is missing or out of its range.";
    Unauthenticated = "UNAUTHENTICATED", Unauthenticated, "The peer is not who may use this listener.";
    PermissionDenied = "PERMISSION_DENIED", PermissionDenied, "The caller lacks the scope that the call needs.";
    SessionRequired = "SESSION_REQUIRED", Unauthenticated, "A session-bound call came without the session's metadata.";
    SessionNotFound = "SESSION_NOT_FOUND", NotFound, "No session with this id was opened in this epoch.";
    SessionEnded = "SESSION_ENDED", FailedPrecondition, "The session has ended; its id cannot be used again.";
    SessionSecretMismatch = "SESSION_SECRET_MISMATCH", PermissionDenied, "The session exists and its secret is another.";
    SessionLimit = "SESSION_LIMIT", ResourceExhausted, "As many sessions are open as the daemon allows.";
    HostLost = "HOST_LOST", Aborted, "The epoch of the request is over: what it names is gone.";
    StartOutcomeUnknown = "START_OUTCOME_UNKNOWN", Aborted, "The epoch of the start is over: whether the command ran is unknown, and it is not run again.";
    StartExpired = "START_EXPIRED", FailedPrecondition, "The start was made longer ago than receipts are kept; it was not run.";
    ProcessNotFound = "PROCESS_NOT_FOUND", NotFound, "No process with this id was started in the session.";
    ProcessForgotten = "FORGOTTEN", NotFound, "The process existed; it and its output were forgotten.";
    ProcessIdConflict = "PROCESS_ID_CONFLICT", AlreadyExists, "A process with this id exists and its spec is another.";
    ProcessStoppedBeforeStart = "PROCESS_STOPPED_BEFORE_START", FailedPrecondition, "The process was stopped before its start arrived; it was not run.";
    ProcessLimit = "PROCESS_LIMIT", ResourceExhausted, "As many processes run in the session as it may keep.";
    ReceiptLimit = "RECEIPT_LIMIT", ResourceExhausted, "The session has started as many processes as it may in its life.";
    ProcessRunning = "PROCESS_RUNNING", FailedPrecondition, "The process still runs; it can be forgotten once it has ended.";
    CwdNotFound = "CWD_NOT_FOUND", NotFound, "The working directory does not exist.";
    CwdNotADirectory = "CWD_NOT_A_DIRECTORY", FailedPrecondition, "The working directory names something that is not a directory.";
    CwdPermissionDenied = "CWD_PERMISSION_DENIED", PermissionDenied, "The kernel refuses access to the working directory.";
    PathOutsideRoots = "PATH_OUTSIDE_ROOTS", PermissionDenied, "The path leads outside the session's roots.";
    RootUnusable = "ROOT_UNUSABLE", FailedPrecondition, "A root of the session cannot be opened, or was removed or replaced.";
    PathNotFound = "PATH_NOT_FOUND", NotFound, "Nothing has the path, or a part of it.";
    PathNotADirectory = "PATH_NOT_A_DIRECTORY", FailedPrecondition, "The path, or a part of it, names something that is not a directory.";
    PathPermissionDenied = "PATH_PERMISSION_DENIED", PermissionDenied, "The kernel refuses access to the path.";
    PathLinkRefused = "PATH_LINK_REFUSED", FailedPrecondition, "The path goes through too many links, or through one that the kernel makes up itself.";
    RootReadOnly = "ROOT_READ_ONLY", PermissionDenied, "The path lies in a root that may only be read.";
    SecretFile = "SECRET_FILE", PermissionDenied, "The operator keeps the file from agents.";
    NotARegularFile = "NOT_A_REGULAR_FILE", FailedPrecondition, "Content is asked of a FIFO, a socket, a device or a directory.";
    IsADirectory = "IS_A_DIRECTORY", FailedPrecondition, "A file is asked for and it is a directory.";
    IsARoot = "IS_A_ROOT", FailedPrecondition, "A root itself, or a directory named by `.` or `..`, is to be changed.";
    FileExists = "FILE_EXISTS", AlreadyExists, "The name is taken.";
    DirectoryNotEmpty = "DIRECTORY_NOT_EMPTY", FailedPrecondition, "The directory has entries.";
    PreconditionFailed = "PRECONDITION_FAILED", FailedPrecondition, "The file is not what the precondition says; nothing was changed.";
    FileChanged = "FILE_CHANGED", Aborted, "Somebody else changed the file meanwhile.";
    FileBusy = "FILE_BUSY", Unavailable, "Other changes of the same file did not end in time, or another program holds it; nothing was done.";
    FileReadOnly = "FILE_READ_ONLY", PermissionDenied, "The file's mode lets nobody write it.";
    WouldBreakLinks = "WOULD_BREAK_LINKS", FailedPrecondition, "Replacing the file would leave its other hard links with the old content.";
    WouldChangeOwner = "WOULD_CHANGE_OWNER", FailedPrecondition, "A replacement could not have the file's owner or group.";
    WouldLoseAttributes = "WOULD_LOSE_ATTRIBUTES", FailedPrecondition, "A replacement could not have an extended attribute, ACL or label of the file.";
    CannotReplace = "CANNOT_REPLACE", FailedPrecondition, "The file cannot be replaced by a rename.";
    NotText = "NOT_TEXT", FailedPrecondition, "The content is not text in the encoding.";
    BinaryFile = "BINARY_FILE", FailedPrecondition, "The file is binary: a NUL is among its first 8 KiB.";
    LineTooLong = "LINE_TOO_LONG", FailedPrecondition, "A line is longer than a page.";
    LineOffsetAhead = "LINE_OFFSET_AHEAD", OutOfRange, "The file has no such line.";
    FileTooLarge = "FILE_TOO_LARGE", FailedPrecondition, "The content is larger than the operation takes.";
    NotAnImage = "NOT_AN_IMAGE", FailedPrecondition, "The content is not an image.";
    ImageUnsupported = "IMAGE_UNSUPPORTED", FailedPrecondition, "The image is of a kind that is not read here.";
    ImageTooLarge = "IMAGE_TOO_LARGE", FailedPrecondition, "The image has more bytes or pixels than are read.";
    ImageDamaged = "IMAGE_DAMAGED", FailedPrecondition, "The image is damaged or not whole.";
    NoSpace = "NO_SPACE", ResourceExhausted, "The file system has no room; the file is as it was.";
    FileSystemReadOnly = "FILE_SYSTEM_READ_ONLY", FailedPrecondition, "The file system is mounted read-only.";
    FileInUse = "FILE_IN_USE", FailedPrecondition, "The system uses the file: something is mounted on it, or a program runs from it.";
    FileSystemRefuses = "FILE_SYSTEM_REFUSES", FailedPrecondition, "The file system takes no such name or does not know the operation.";
    FileIoError = "FILE_IO_ERROR", Internal, "The system failed to read or write.";
    CrossesFileSystems = "CROSSES_FILE_SYSTEMS", FailedPrecondition, "The new name is on another file system.";
    EditEmpty = "EDIT_EMPTY", InvalidArgument, "The text to be replaced is empty.";
    EditUnchanged = "EDIT_UNCHANGED", InvalidArgument, "The old text and the new are the same.";
    EditNotFound = "EDIT_NOT_FOUND", FailedPrecondition, "The text to be replaced is not in the file.";
    EditNotUnique = "EDIT_NOT_UNIQUE", FailedPrecondition, "The text to be replaced is in the file more than once.";
    ElisionRefused = "ELISION", FailedPrecondition, "A line of the new content stands for text that was left out.";
    UndoForgotten = "UNDO_FORGOTTEN", NotFound, "The undo token is used up or no longer kept.";
    UndoConflict = "UNDO_CONFLICT", FailedPrecondition, "The file is not as the mutation left it; nothing was undone.";
    OperationForgotten = "OPERATION_FORGOTTEN", FailedPrecondition, "The result of this operation id is no longer kept; nothing was done.";
    OperationIdConflict = "OPERATION_ID_CONFLICT", AlreadyExists, "The operation id was used for another request; nothing was done.";
    OperationOutcomeUnknown = "OPERATION_OUTCOME_UNKNOWN", Aborted, "Whether the operation was carried out is unknown; it is not carried out again.";
    CursorAhead = "CURSOR_AHEAD", OutOfRange, "The cursor is past the end of the output.";
    ReaderConflict = "READER_CONFLICT", FailedPrecondition, "Another lossless reader is attached to the process.";
    StdinClosed = "STDIN_CLOSED", FailedPrecondition, "The process takes no input (any more).";
    StdinQueueFull = "STDIN_QUEUE_FULL", ResourceExhausted, "The input queue has no room for the whole write.";
    StdinOffsetGap = "STDIN_OFFSET_GAP", FailedPrecondition, "The write begins past what this writer has sent.";
    StdinWriterLimit = "STDIN_WRITER_LIMIT", ResourceExhausted, "The process has as many writers as it may have.";
    NotATerminal = "NOT_A_TERMINAL", FailedPrecondition, "The process has pipes, not a terminal.";
    LimitUnsupported = "LIMIT_UNSUPPORTED", Unimplemented, "This limit cannot be enforced here; nothing was started.";
    Unsupported = "UNSUPPORTED", Unimplemented, "This feature is not built or not possible here; nothing was done.";
    CallLimit = "CALL_LIMIT", ResourceExhausted, "As many calls, or bytes of unfinished requests, are on their way as the daemon allows.";
    OutOfResources = "OUT_OF_RESOURCES", ResourceExhausted, "The machine lacks descriptors, memory or processes for the call.";
    ShuttingDown = "SHUTTING_DOWN", Unavailable, "The daemon is ending; it takes no new work.";
    Unreachable = "MACHINE_UNREACHABLE", Unavailable, "The machine could not be reached. Made by the client.";
    Internal = "INTERNAL", Internal, "The daemon failed in a way it should not; its log says more.";
}

/// An error on its way to the wire.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Why.
    pub reason: Reason,
    /// For the model or person that reads it: what happened, the value, the
    /// limit, what to do next.
    pub message: String,
    /// Facts for programs.
    pub metadata: HashMap<String, String>,
    /// When trying again may help.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure with a message and no further facts.
    #[must_use]
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            metadata: HashMap::new(),
            retry_after: None,
        }
    }

    /// Adds a fact.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl ToString) -> Self {
        self.metadata.insert(key.to_owned(), value.to_string());
        self
    }

    /// Says when trying again may help.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// Reads what [`Status::from`] wrote. `None` when the status carries no
    /// reason of this protocol: it was made by a proxy, by the transport or by
    /// another service.
    #[must_use]
    pub fn from_status(status: &Status) -> Option<Self> {
        let details = status.get_error_details();
        let info = details.error_info()?;
        if info.domain != DOMAIN {
            return None;
        }
        Some(Self {
            reason: Reason::from_name(&info.reason)?,
            message: status.message().to_owned(),
            metadata: info.metadata.clone(),
            retry_after: details.retry_info().and_then(|retry| retry.retry_delay),
        })
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        let mut details =
            ErrorDetails::with_error_info(failure.reason.name(), DOMAIN, failure.metadata.clone());
        if let Some(delay) = failure.retry_after {
            details.set_retry_info(Some(delay));
        }
        match failure.reason {
            Reason::InvalidArgument => {
                if let Some(field) = failure.metadata.get("field") {
                    details.add_bad_request_violation(field, &failure.message);
                }
            }
            _ if failure.reason.code() == Code::ResourceExhausted => {
                let subject = failure.metadata.get("limit").cloned().unwrap_or_default();
                details.add_quota_failure_violation(subject, &failure.message);
            }
            _ => {}
        }
        Status::with_error_details(failure.reason.code(), failure.message, details)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_survives_the_wire() {
        for &reason in Reason::ALL {
            assert_eq!(Reason::from_name(reason.name()), Some(reason));
            let status = Status::from(
                Failure::new(reason, "what happened")
                    .with("limit", 7)
                    .retry_after(Duration::from_secs(1)),
            );
            assert_eq!(status.code(), reason.code());
            let back = Failure::from_status(&status).unwrap();
            assert_eq!(back.reason, reason);
            assert_eq!(back.message, "what happened");
            assert_eq!(back.metadata["limit"], "7");
            assert_eq!(back.retry_after, Some(Duration::from_secs(1)));
        }
    }

    #[test]
    fn a_status_of_somebody_else_has_no_reason() {
        assert!(Failure::from_status(&Status::unavailable("connection refused")).is_none());
    }
}
