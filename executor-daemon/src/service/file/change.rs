//! The calls that change something.
//!
//! A change that has begun is carried through, also when its caller has gone:
//! the operation id tells whoever asks again what it did. What only prepares one
//! (reading, hashing, comparing, waiting for a turn) ends soon then, and with it
//! goes its place.

use std::sync::Arc;

use bytes::Bytes;
use executor_proto::id::OperationId;
use executor_proto::reason::Failure;
use executor_proto::v1;
use executor_proto::v1::write_file_request::Part;
use tonic::{Status, Streaming};

use super::super::convert::check::invalid;
use super::super::convert::file::change::{
    edit_spec, edited, made_directory, make_directory_spec, operation, part, remove_spec, removed,
    rename_spec, renamed, undone, write_spec, written,
};
use super::super::failure::file as refusal;
use super::super::{Caller, Core};
use super::read::GivenUp;
use crate::files::Files;
use crate::files::cancel::Cancel;
use crate::files::content::ContentWriter;
use crate::files::error::FileError;
use crate::files::mutation::{self, Reply};

/// Content that waits in memory before it is written down.
const PENDING: usize = 1 << 20;

impl Core {
    pub(super) async fn write_file(
        &self,
        caller: &Caller,
        mut parts: Streaming<v1::WriteFileRequest>,
    ) -> Result<v1::WriteFileResponse, Status> {
        // The content takes room as long as it arrives.
        let _place = self.files.writes.take()?;
        let Some(Part::Open(mut open)) = next_part(&mut parts).await? else {
            return Err(invalid("part", "the first message must be `open`").into());
        };
        let id = operation(&open.operation_id)?;
        part("open.data", open.data.len())?;
        let mut pending = vec![std::mem::take(&mut open.data)];
        let spec = write_spec(open)?;
        let mut writer = self.parts.files.content(spec.path.clone());
        while let Some(next) = next_part(&mut parts).await? {
            let Part::Data(data) = next else {
                return Err(invalid("part", "only the first message is `open`").into());
            };
            part("data", data.len())?;
            pending.push(data);
            if pending.len() > 64 || pending.iter().map(Bytes::len).sum::<usize>() > PENDING {
                let pending = std::mem::take(&mut pending);
                let pushed = move || pushed(writer, &pending);
                let pushed = self.files.changes.run(&self.tasks, pushed).await?;
                writer = pushed.map_err(|error| refusal::file(&error))?;
            }
        }
        // The client has closed its side: this is all.
        let done = self.change(caller, id, move |files, caller| {
            let content = pushed(writer, &pending)?.finish();
            files.write(caller, &spec, &content)
        });
        Ok(written(done.await?))
    }

    pub(super) async fn edit_file(
        &self,
        caller: &Caller,
        request: v1::EditFileRequest,
    ) -> Result<v1::EditFileResponse, Failure> {
        let id = operation(&request.operation_id)?;
        let spec = edit_spec(request)?;
        let done = self.change(caller, id, move |files, caller| files.edit(caller, &spec));
        done.await.map(edited)
    }

    pub(super) async fn undo_mutation(
        &self,
        caller: &Caller,
        request: v1::UndoMutationRequest,
    ) -> Result<v1::UndoMutationResponse, Failure> {
        let id = operation(&request.operation_id)?;
        let token = request.undo_token;
        let done = self.change(caller, id, move |files, caller| files.undo(caller, &token));
        done.await.map(undone)
    }

    pub(super) async fn remove_file(
        &self,
        caller: &Caller,
        request: v1::RemoveFileRequest,
    ) -> Result<v1::RemoveFileResponse, Failure> {
        let id = operation(&request.operation_id)?;
        let spec = remove_spec(request)?;
        let done = self.change(caller, id, move |files, caller| files.remove(caller, &spec));
        done.await.map(removed)
    }

    pub(super) async fn rename_file(
        &self,
        caller: &Caller,
        request: v1::RenameFileRequest,
    ) -> Result<v1::RenameFileResponse, Failure> {
        let id = operation(&request.operation_id)?;
        let spec = rename_spec(request)?;
        let done = self.change(caller, id, move |files, caller| files.rename(caller, &spec));
        done.await.map(renamed)
    }

    pub(super) async fn make_directory(
        &self,
        caller: &Caller,
        request: v1::MakeDirectoryRequest,
    ) -> Result<v1::MakeDirectoryResponse, Failure> {
        let id = operation(&request.operation_id)?;
        let spec = make_directory_spec(request)?;
        let done = self.change(caller, id, move |files, caller| {
            files.make_directory(caller, &spec)
        });
        done.await.map(made_directory)
    }

    /// Runs an operation in a place for changes; meanwhile the caller counts as
    /// there.
    async fn change<T: Send + 'static>(
        &self,
        caller: &Caller,
        operation: OperationId,
        work: impl FnOnce(&Files, mutation::Caller<'_>) -> Result<Reply<T>, FileError> + Send + 'static,
    ) -> Result<Reply<T>, Failure> {
        let files = Arc::clone(&self.parts.files);
        let fence = Arc::clone(caller.session.fence());
        let session = caller.session.id();
        let cancel = Cancel::new();
        let _given_up = GivenUp(cancel.clone());
        let changed = Arc::clone(&self.changed);
        let work = move || {
            let caller = mutation::Caller {
                session,
                fence: &fence,
                operation,
                cancel: &cancel,
            };
            let done = work(&files, caller);
            changed.notify_one();
            done
        };
        let done = self.files.changes.run(&self.tasks, work);
        let done = self.parts.registry.while_open(&caller.session, done).await;
        done?.map_err(|error| refusal::file(&error))
    }
}

/// The next part of a write; `None` once the client has closed its side, and
/// only then: a stream that broke off is an error.
async fn next_part(parts: &mut Streaming<v1::WriteFileRequest>) -> Result<Option<Part>, Status> {
    let Some(message) = parts.message().await? else {
        return Ok(None);
    };
    let part = message
        .part
        .ok_or_else(|| invalid("part", "a message holds `open` or `data`"))?;
    Ok(Some(part))
}

fn pushed(mut writer: ContentWriter, parts: &[Bytes]) -> Result<ContentWriter, FileError> {
    for part in parts {
        writer.push(part)?;
    }
    Ok(writer)
}
