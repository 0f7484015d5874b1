//! Changing.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use executor_proto::id::OperationId;
use executor_proto::reason::Failure;
use executor_proto::v1;

use super::super::check::{id, invalid};
use super::{bytes, info, label, path};
use crate::files::edit::{EditSpec, Edited};
use crate::files::make_directory::{MadeDirectory, MakeDirectorySpec};
use crate::files::mutation::{Described, Durability, Precondition, Reply};
use crate::files::remove::{RemoveSpec, Removed};
use crate::files::rename::{RenameSpec, Renamed};
use crate::files::text::edits::Edit;
use crate::files::undo_mutation::Undone;
use crate::files::write::{WriteSpec, Written};

/// Content of one message of a write.
const PART_BYTES: usize = 1 << 20;

/// The client's id of a change.
pub(in crate::service) fn operation(text: &str) -> Result<OperationId, Failure> {
    id("operation_id", text)
}

/// One part of a write's content.
pub(in crate::service) fn part(field: &str, length: usize) -> Result<(), Failure> {
    if length <= PART_BYTES {
        return Ok(());
    }
    Err(invalid(
        field,
        format_args!("{length} bytes; one message has at most {PART_BYTES}. Send it in several"),
    ))
}

/// What must hold; `None` where nothing must.
fn precondition(value: Option<v1::Precondition>) -> Result<Option<Precondition>, Failure> {
    use v1::precondition::Condition;
    let Some(v1::Precondition { condition }) = value else {
        return Ok(None);
    };
    let wrong = |error: &dyn std::fmt::Display| invalid("precondition", error);
    match condition {
        None => Err(wrong(&"it names no condition; leave it away for none")),
        Some(Condition::MustNotExist(true)) => Ok(Some(Precondition::MustNotExist)),
        Some(Condition::MustNotExist(false)) => Err(wrong(
            &"must_not_exist is false; leave it away for no condition",
        )),
        Some(Condition::Digest(text)) => text
            .parse()
            .map(|digest| Some(Precondition::Digest(digest)))
            .map_err(|error| wrong(&error)),
        Some(Condition::Version(text)) => text
            .parse()
            .map(|version| Some(Precondition::Version(version)))
            .map_err(|error| wrong(&error)),
    }
}

/// A write that is asked for, without its content.
pub(in crate::service) fn write_spec(open: v1::WriteFileOpen) -> Result<WriteSpec, Failure> {
    Ok(WriteSpec {
        path: path("open.path", open.path)?,
        precondition: precondition(open.precondition)?,
        mode: open.mode,
        parents: open.parents,
        in_place: open.in_place,
        allow_elision: open.allow_elision,
    })
}

/// What a write left.
pub(in crate::service) fn written(reply: Reply<Written>) -> v1::WriteFileResponse {
    let value = reply.value;
    v1::WriteFileResponse {
        file: Some(described(&value.file)),
        digest: value.digest.to_string(),
        created: value.created,
        durability: Some(durability(value.durability)),
        undo_token: value.undo_token.unwrap_or_default(),
        replayed: reply.replayed,
    }
}

/// An edit that is asked for.
pub(in crate::service) fn edit_spec(request: v1::EditFileRequest) -> Result<EditSpec, Failure> {
    let edits = request.edits.into_iter().map(|edit| Edit {
        old: edit.old,
        new: edit.new,
        replace_all: edit.replace_all,
    });
    Ok(EditSpec {
        path: path("path", request.path)?,
        edits: edits.collect(),
        precondition: precondition(request.precondition)?,
        dry_run: request.dry_run,
        in_place: request.in_place,
        encoding: label(request.encoding),
    })
}

/// What an edit left.
pub(in crate::service) fn edited(reply: Reply<Edited>) -> v1::EditFileResponse {
    let value = reply.value;
    v1::EditFileResponse {
        file: Some(described(&value.file)),
        digest_before: value.digest_before.to_string(),
        digest: value.digest.to_string(),
        diff: value.diff,
        diff_truncated: value.diff_truncated,
        lines_added: value.lines_added,
        lines_removed: value.lines_removed,
        replacements: value.replacements,
        line_endings_adapted: value.line_endings_adapted,
        durability: Some(durability(value.durability)),
        undo_token: value.undo_token.unwrap_or_default(),
        replayed: reply.replayed,
    }
}

/// A removal that is asked for.
pub(in crate::service) fn remove_spec(
    request: v1::RemoveFileRequest,
) -> Result<RemoveSpec, Failure> {
    Ok(RemoveSpec {
        path: path("path", request.path)?,
        recursive: request.recursive,
        missing_ok: request.missing_ok,
        precondition: precondition(request.precondition)?,
    })
}

/// What a removal did.
pub(in crate::service) fn removed(reply: Reply<Removed>) -> v1::RemoveFileResponse {
    let value = reply.value;
    v1::RemoveFileResponse {
        path: bytes(&value.path),
        removed: value.removed,
        undo_token: value.undo_token.unwrap_or_default(),
        replayed: reply.replayed,
    }
}

/// A rename that is asked for.
pub(in crate::service) fn rename_spec(
    request: v1::RenameFileRequest,
) -> Result<RenameSpec, Failure> {
    Ok(RenameSpec {
        from: path("from", request.from)?,
        to: path("to", request.to)?,
        replace: request.replace,
        parents: request.parents,
    })
}

/// What a rename left.
pub(in crate::service) fn renamed(reply: Reply<Renamed>) -> v1::RenameFileResponse {
    let value = reply.value;
    v1::RenameFileResponse {
        file: Some(described(&value.file)),
        unchanged: value.unchanged,
        undo_token: value.undo_token.unwrap_or_default(),
        replayed: reply.replayed,
        durability: Some(durability(value.durability)),
    }
}

/// A directory that is asked for.
pub(in crate::service) fn make_directory_spec(
    request: v1::MakeDirectoryRequest,
) -> Result<MakeDirectorySpec, Failure> {
    Ok(MakeDirectorySpec {
        path: path("path", request.path)?,
        parents: request.parents,
        mode: request.mode,
    })
}

/// The directory.
pub(in crate::service) fn made_directory(reply: Reply<MadeDirectory>) -> v1::MakeDirectoryResponse {
    v1::MakeDirectoryResponse {
        file: Some(described(&reply.value.file)),
        created: reply.value.created,
        replayed: reply.replayed,
    }
}

/// What was taken back.
pub(in crate::service) fn undone(reply: Reply<Undone>) -> v1::UndoMutationResponse {
    v1::UndoMutationResponse {
        file: reply.value.file.as_ref().map(described),
        path: bytes(&reply.value.path),
        replayed: reply.replayed,
    }
}

fn described(file: &Described) -> v1::FileInfo {
    let target = file.link_target.as_deref().map(OsStr::from_bytes);
    info(&file.path, &file.facts, target)
}

fn durability(durability: Durability) -> v1::Durability {
    v1::Durability {
        atomic: durability.atomic,
        checked: durability.checked,
    }
}
