//! What operations on files refuse.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use executor_proto::reason::{Failure, Reason};

use crate::files::error::FileError;
use crate::files::image::error::ImageError;
use crate::files::image::{FILE_BYTES, SIDE};
use crate::files::object::FileKind;
use crate::files::resolve::ResolveError;
use crate::files::text::edits::EditError;
use crate::files::text::encoding::TextError;

/// A refusal of the files.
pub(in crate::service) fn file(error: &FileError) -> Failure {
    use FileError as E;
    let failure = |reason| Failure::new(reason, error.to_string());
    match error {
        E::Resolve(error) => resolve(error),
        E::NotFound { candidates, .. } | E::NoParent { candidates, .. }
            if candidates.is_empty() =>
        {
            failure(Reason::PathNotFound)
        }
        E::NotFound { candidates, .. } | E::NoParent { candidates, .. } => {
            let names: Vec<_> = candidates.iter().map(|path| escaped(path)).collect();
            failure(Reason::PathNotFound).with("candidates", names.join("\n"))
        }
        E::InvalidPath { .. } => failure(Reason::InvalidArgument).with("field", "path"),
        E::InvalidArgument { field, .. } => failure(Reason::InvalidArgument).with("field", field),
        E::Glob {
            field,
            glob,
            offset,
            ..
        } => failure(Reason::InvalidArgument)
            .with("field", field)
            .with("glob", glob)
            .with("offset", offset),
        E::Pattern {
            field,
            engine,
            offset,
            ..
        } => {
            let failure = failure(Reason::InvalidArgument)
                .with("field", field)
                .with("engine", engine);
            match offset {
                Some(offset) => failure.with("offset", offset),
                None => failure,
            }
        }
        E::RootReadOnly { resolved, root, .. } => failure(Reason::RootReadOnly)
            .with("resolved", resolved.display())
            .with("root", root.display()),
        E::Secret { rule, .. } | E::SecretWithin { rule, .. } => {
            failure(Reason::SecretFile).with("rule", rule)
        }
        E::NotARegularFile { kind, .. } => {
            failure(Reason::NotARegularFile).with("kind", kind_name(*kind))
        }
        E::IsADirectory { .. } => failure(Reason::IsADirectory),
        E::IsARoot { .. } => failure(Reason::IsARoot),
        E::Exists { kind, .. } => failure(Reason::FileExists).with("kind", kind_name(*kind)),
        E::DirectoryNotEmpty { .. } => failure(Reason::DirectoryNotEmpty),
        E::PreconditionFailed { now, .. } => {
            let failure = failure(Reason::PreconditionFailed);
            match now.as_deref() {
                None => failure,
                Some((version, None)) => failure.with("version", version),
                Some((version, Some(digest))) => {
                    failure.with("version", version).with("digest", digest)
                }
            }
        }
        E::Changed { .. } => failure(Reason::FileChanged),
        E::Busy { waited, .. } => failure(Reason::FileBusy)
            .with("waited_ms", waited.as_millis())
            .with("limit", "file_wait_seconds")
            .retry_after(std::time::Duration::from_secs(1)),
        E::ReadOnly { mode, .. } => {
            failure(Reason::FileReadOnly).with("mode", format_args!("{mode:04o}"))
        }
        E::WouldBreakLinks { links, .. } => failure(Reason::WouldBreakLinks).with("links", links),
        E::WouldChangeOwner { uid, gid, .. } => failure(Reason::WouldChangeOwner)
            .with("uid", uid)
            .with("gid", gid),
        E::WouldLoseAttributes { attribute, .. } => {
            failure(Reason::WouldLoseAttributes).with("attribute", attribute)
        }
        E::CannotReplace { .. } | E::Mounted { .. } => failure(Reason::CannotReplace),
        E::Text { error: cause, .. } => text(cause, error),
        E::LineTooLong {
            line,
            length,
            limit,
            ..
        } => failure(Reason::LineTooLong)
            .with("line", line)
            .with("length", length)
            .with("maximum", limit),
        E::LineOffsetAhead { lines, .. } => failure(Reason::LineOffsetAhead).with("lines", lines),
        E::TooLarge { size, limit, .. } => too_large(failure(Reason::FileTooLarge), *size, *limit),
        E::UnsizedTooLarge { limit, .. } => failure(Reason::FileTooLarge)
            .with("maximum", limit)
            .with("limit", "file_unsized_bytes"),
        E::Image { error: cause, .. } => image(cause, error),
        E::NoSpace { .. } => failure(Reason::NoSpace),
        E::FileSystemReadOnly { .. } => failure(Reason::FileSystemReadOnly),
        E::InUse { errno, .. } => failure(Reason::FileInUse).with("errno", errno.raw_os_error()),
        E::NotNow { .. } => {
            failure(Reason::FileBusy).retry_after(std::time::Duration::from_secs(1))
        }
        E::FileSystemRefuses { errno, .. } => {
            failure(Reason::FileSystemRefuses).with("errno", errno.raw_os_error())
        }
        E::OutOfResources { errno, .. } => {
            failure(Reason::OutOfResources).with("errno", errno.raw_os_error())
        }
        E::Io { errno, .. } => failure(Reason::FileIoError).with("errno", errno.raw_os_error()),
        E::CrossesFileSystems { .. } => failure(Reason::CrossesFileSystems),
        E::Edit { error: cause, .. } => edit(cause, error),
        E::Elision { line, .. } => failure(Reason::ElisionRefused).with("line", line),
        E::UndoForgotten { .. } => failure(Reason::UndoForgotten),
        E::UndoConflict { .. } => failure(Reason::UndoConflict),
        E::OperationForgotten { .. } => failure(Reason::OperationForgotten),
        E::OperationConflict { .. } => failure(Reason::OperationIdConflict),
        E::OperationOutcomeUnknown { .. } => failure(Reason::OperationOutcomeUnknown),
        E::StateUnusable(_) => failure(Reason::FileIoError),
        // Nobody is there to read it.
        E::Cancelled => failure(Reason::Internal),
    }
}

fn resolve(error: &ResolveError) -> Failure {
    use ResolveError as E;
    let failure = |reason| Failure::new(reason, error.to_string());
    match error {
        E::NotFound { .. } => failure(Reason::PathNotFound),
        E::Links { .. } | E::MagicLink { .. } => failure(Reason::PathLinkRefused),
        E::NotADirectory { .. } => failure(Reason::PathNotADirectory),
        E::PermissionDenied { .. } => failure(Reason::PathPermissionDenied),
        E::OutsideRoots { .. } => super::path(error, failure(Reason::PathOutsideRoots)),
        E::RootReplaced { .. } => failure(Reason::RootUnusable),
        E::TooLong { .. } | E::NotAbsolute { .. } => {
            failure(Reason::InvalidArgument).with("field", "path")
        }
        E::Other { errno, .. } => failure(Reason::FileIoError).with("errno", errno.raw_os_error()),
    }
}

fn text(cause: &TextError, told: &FileError) -> Failure {
    use TextError as E;
    let failure = |reason| Failure::new(reason, told.to_string());
    let likely = |failure: Failure, likely: Option<&str>| match likely {
        Some(name) => failure.with("likely", name),
        None => failure,
    };
    match cause {
        E::UnknownEncoding { .. } => failure(Reason::InvalidArgument).with("field", "encoding"),
        E::Binary {
            offset,
            likely: name,
        } => likely(failure(Reason::BinaryFile).with("offset", offset), *name),
        E::NotText {
            encoding,
            offset,
            likely: name,
        } => likely(
            failure(Reason::NotText)
                .with("encoding", encoding)
                .with("offset", offset),
            *name,
        ),
        E::Unencodable { encoding, line, .. } => failure(Reason::NotText)
            .with("encoding", encoding)
            .with("line", line),
        E::NotReversible { encoding, offset } => failure(Reason::NotText)
            .with("encoding", encoding)
            .with("offset", offset),
    }
}

fn edit(cause: &EditError, told: &FileError) -> Failure {
    use EditError as E;
    let failure = |reason, edit: &usize| Failure::new(reason, told.to_string()).with("edit", edit);
    match cause {
        E::Empty { edit } => failure(Reason::EditEmpty, edit),
        E::Unchanged { edit } => failure(Reason::EditUnchanged, edit),
        E::NotFound { edit, nearest } => {
            let failure = failure(Reason::EditNotFound, edit);
            match nearest {
                Some(nearest) => failure
                    .with("nearest_line", nearest.line)
                    .with("differs_on", nearest.differs_on),
                None => failure,
            }
        }
        E::NotUnique {
            edit, count, lines, ..
        } => {
            let lines: Vec<_> = lines.iter().map(u64::to_string).collect();
            failure(Reason::EditNotUnique, edit)
                .with("count", count)
                .with("lines", lines.join(","))
        }
        E::TooLarge { edit, size, limit } => {
            too_large(failure(Reason::FileTooLarge, edit), *size, *limit)
        }
    }
}

fn image(cause: &ImageError, told: &FileError) -> Failure {
    use ImageError as E;
    let failure = |reason| Failure::new(reason, told.to_string());
    match cause {
        E::NotAnImage { .. } => failure(Reason::NotAnImage),
        E::Unsupported { kind } => failure(Reason::ImageUnsupported).with("kind", kind),
        E::TooManyPixels { width, height, .. } => failure(Reason::ImageTooLarge)
            .with("width", width)
            .with("height", height)
            .with("maximum", SIDE),
        E::TooManyBytes { size, .. } => {
            too_large(failure(Reason::ImageTooLarge), *size, FILE_BYTES)
        }
        E::TooMuchMemory { .. } => failure(Reason::ImageTooLarge),
        E::Damaged { .. } => failure(Reason::ImageDamaged),
        // Nobody is there to read it.
        E::Cancelled => failure(Reason::Internal),
    }
}

fn too_large(failure: Failure, size: u64, limit: u64) -> Failure {
    failure.with("size", size).with("maximum", limit)
}

fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Link => "link",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharacterDevice => "character device",
        FileKind::BlockDevice => "block device",
        FileKind::Unknown => "unknown",
    }
}

/// A name in which everything beyond ASCII is escaped, one to a line.
fn escaped(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text.extend(chunk.valid().chars().flat_map(char::escape_default));
        for byte in chunk.invalid() {
            // Writing to a String does not fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn what_the_system_says_has_a_reason_that_tells_what_to_do() {
        let cases = [
            (Errno::NOENT, Reason::PathNotFound),
            (Errno::NOTDIR, Reason::PathNotADirectory),
            (Errno::ACCESS, Reason::PathPermissionDenied),
            (Errno::PERM, Reason::PathPermissionDenied),
            (Errno::LOOP, Reason::PathLinkRefused),
            (Errno::NAMETOOLONG, Reason::InvalidArgument),
            (Errno::NOSPC, Reason::NoSpace),
            (Errno::DQUOT, Reason::NoSpace),
            (Errno::ISDIR, Reason::IsADirectory),
            (Errno::ROFS, Reason::FileSystemReadOnly),
            (Errno::BUSY, Reason::FileInUse),
            (Errno::TXTBSY, Reason::FileInUse),
            (Errno::AGAIN, Reason::FileBusy),
            (Errno::INVAL, Reason::FileSystemRefuses),
            (Errno::OPNOTSUPP, Reason::FileSystemRefuses),
            (Errno::MFILE, Reason::OutOfResources),
            (Errno::NFILE, Reason::OutOfResources),
            (Errno::NOMEM, Reason::OutOfResources),
            (Errno::IO, Reason::FileIoError),
        ];
        for (errno, reason) in cases {
            let said = FileError::from_errno(errno, "writing", Path::new("dir/f"));
            let failure = file(&said);
            assert_eq!(failure.reason, reason, "{errno}");
            assert!(
                failure.message.contains("dir/f"),
                "{errno}: {}",
                failure.message
            );
            // The same where a name was being resolved.
            let resolved = ResolveError::Other {
                given: "dir/f".into(),
                errno,
            };
            assert_eq!(file(&FileError::from(resolved)).reason, reason, "{errno}");
        }
    }
}
