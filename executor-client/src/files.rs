//! Files of the machine: what a [`Session`] reads and changes.
//!
//! Each method takes the protocol's own request: its fields, their limits and
//! defaults are documented there. Paths are bytes ([`path_bytes`]), relative to
//! the session's working directory or absolute inside one of its roots.
//!
//! The session's deadline is how long a machine that cannot be reached is tried
//! again; work that is large by itself may take a minute longer.
//!
//! A request that changes something carries an `operation_id`. Left empty, the
//! method makes one and keeps it over all its repeats, so that a lost answer
//! never makes the change twice. Dropping a future leaves open whether the change
//! was made; a caller that gives the id itself can ask again with the same request,
//! and is told what the first one did (`replayed`).

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use executor_proto::id::OperationId;
use executor_proto::v1;
use executor_proto::v1::file_service_client::FileServiceClient;
use executor_proto::v1::write_file_request::Part;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::error::ClientError;
use crate::file_bytes::FileBytes;
use crate::retry::{Call, attempts_in};
use crate::session::Session;

/// Content of one message of a write.
const PART_BYTES: usize = 1 << 20;
/// At least so much of a write arrives in a second.
const WRITE_BYTES_A_SECOND: u64 = 4 << 20;
/// How long the machine may need for what is as large as it takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A name as requests have it.
#[must_use]
pub fn path_bytes(path: impl Into<PathBuf>) -> Vec<u8> {
    crate::session::path_bytes(path.into())
}

/// What [`Session::list_directory`] found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Listing {
    /// In the order of the machine: by name, a directory before what is in it.
    pub entries: Vec<v1::DirectoryEntry>,
    /// What was counted, left out or could not be read.
    pub summary: v1::ListSummary,
}

impl Session {
    /// Describes one path. Read-only, cancel safe.
    ///
    /// # Errors
    /// `PATH_NOT_FOUND`, `PATH_OUTSIDE_ROOTS`, `SECRET_FILE` and the others of
    /// paths; and what any call can end with.
    pub async fn stat(
        &self,
        request: v1::StatFileRequest,
    ) -> Result<v1::StatFileResponse, ClientError> {
        let wait = if request.with_digest {
            LONG
        } else {
            Duration::ZERO
        };
        self.file_call(
            Call::StatFile,
            wait,
            &request,
            |mut files, request| async move { files.stat_file(request).await },
        )
        .await
    }

    /// A page of whole lines. Read-only, cancel safe.
    ///
    /// # Errors
    /// `LINE_OFFSET_AHEAD` past the last line, `NOT_TEXT`, `BINARY_FILE`,
    /// `LINE_TOO_LONG`, `NOT_A_REGULAR_FILE`; and as [`Session::stat`].
    pub async fn read_lines(
        &self,
        request: v1::ReadLinesRequest,
    ) -> Result<v1::ReadLinesResponse, ClientError> {
        self.file_call(
            Call::ReadLines,
            LONG,
            &request,
            |mut files, request| async move { files.read_lines(request).await },
        )
        .await
    }

    /// A range of a file's bytes as a stream, which goes on by itself where a
    /// lost connection broke off. Nothing is sent before the first
    /// [`FileBytes::next`].
    #[must_use]
    pub fn read_bytes(&self, request: v1::ReadBytesRequest) -> FileBytes {
        FileBytes::new(self.clone(), request)
    }

    /// The entries of a directory, at most the request's `limit`. A listing that
    /// a lost connection broke off is begun again. Read-only, cancel safe.
    ///
    /// # Errors
    /// `PATH_NOT_A_DIRECTORY`; and as [`Session::stat`].
    pub async fn list_directory(
        &self,
        request: v1::ListDirectoryRequest,
    ) -> Result<Listing, ClientError> {
        let outage = self.options().deadline;
        let deadline = outage.saturating_add(LONG);
        attempts_in(Call::ListDirectory, deadline, LONG, outage, || {
            let (mut files, request) = (self.file_service(), self.request(request.clone()));
            async move {
                let mut messages = files.list_directory(request).await?.into_inner();
                let mut listing = Listing::default();
                let mut summary = None;
                while let Some(message) = messages.message().await? {
                    listing.entries.extend(message.entries);
                    summary = message.summary.or(summary);
                }
                // A stream that ends early without an error was cut.
                listing.summary =
                    summary.ok_or_else(|| Status::unavailable("the listing broke off"))?;
                Ok(listing)
            }
        })
        .await
    }

    /// Makes a file, or replaces its whole content. `open` says where and how;
    /// its `data` is not looked at: `content` is the content, at most 256 MiB.
    ///
    /// # Errors
    /// `PRECONDITION_FAILED`, `FILE_READ_ONLY`, `WOULD_BREAK_LINKS` and the
    /// others that say why a file cannot be replaced, `ELISION`, `NO_SPACE`,
    /// `FILE_TOO_LARGE`, `OPERATION_ID_CONFLICT`, `OPERATION_FORGOTTEN`,
    /// `OPERATION_OUTCOME_UNKNOWN`; and as [`Session::stat`].
    pub async fn write_file(
        &self,
        mut open: v1::WriteFileOpen,
        content: impl Into<Bytes>,
    ) -> Result<v1::WriteFileResponse, ClientError> {
        identify(&mut open.operation_id);
        let content = content.into();
        let seconds = content.len() as u64 / WRITE_BYTES_A_SECOND;
        let wait = LONG + Duration::from_secs(seconds);
        let outage = self.options().deadline;
        let deadline = outage.saturating_add(wait);
        let answer = attempts_in(Call::WriteFile, deadline, wait, outage, || {
            let parts = tokio_stream::iter(parts(open.clone(), content.clone()));
            let (mut files, request) = (self.file_service(), self.request(parts));
            async move { files.write_file(request).await }
        })
        .await?;
        Ok(answer.into_inner())
    }

    /// Replaces text in a text file: all edits or none.
    ///
    /// # Errors
    /// `EDIT_NOT_FOUND`, `EDIT_NOT_UNIQUE`, `EDIT_EMPTY`, `EDIT_UNCHANGED`,
    /// `NOT_TEXT`, `BINARY_FILE`; and as [`Session::write_file`].
    pub async fn edit_file(
        &self,
        mut request: v1::EditFileRequest,
    ) -> Result<v1::EditFileResponse, ClientError> {
        identify(&mut request.operation_id);
        self.file_call(
            Call::EditFile,
            LONG,
            &request,
            |mut files, request| async move { files.edit_file(request).await },
        )
        .await
    }

    /// Removes a file, a link, or a directory.
    ///
    /// # Errors
    /// `DIRECTORY_NOT_EMPTY`, `IS_A_ROOT`, `PRECONDITION_FAILED`; and as
    /// [`Session::stat`].
    pub async fn remove_file(
        &self,
        mut request: v1::RemoveFileRequest,
    ) -> Result<v1::RemoveFileResponse, ClientError> {
        identify(&mut request.operation_id);
        self.file_call(
            Call::RemoveFile,
            LONG,
            &request,
            |mut files, request| async move { files.remove_file(request).await },
        )
        .await
    }

    /// Gives a file or directory another name.
    ///
    /// # Errors
    /// `FILE_EXISTS`, `CROSSES_FILE_SYSTEMS`, `IS_A_ROOT`; and as
    /// [`Session::stat`].
    pub async fn rename_file(
        &self,
        mut request: v1::RenameFileRequest,
    ) -> Result<v1::RenameFileResponse, ClientError> {
        identify(&mut request.operation_id);
        self.file_call(
            Call::RenameFile,
            LONG,
            &request,
            |mut files, request| async move { files.rename_file(request).await },
        )
        .await
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// `FILE_EXISTS`; and as [`Session::stat`].
    pub async fn make_directory(
        &self,
        mut request: v1::MakeDirectoryRequest,
    ) -> Result<v1::MakeDirectoryResponse, ClientError> {
        identify(&mut request.operation_id);
        self.file_call(
            Call::MakeDirectory,
            LONG,
            &request,
            |mut files, request| async move { files.make_directory(request).await },
        )
        .await
    }

    /// Takes back what a write, an edit, a removal or a rename did, by the token
    /// of its answer.
    ///
    /// # Errors
    /// `UNDO_FORGOTTEN`, `UNDO_CONFLICT`; and as [`Session::write_file`].
    pub async fn undo(
        &self,
        token: impl Into<String>,
    ) -> Result<v1::UndoMutationResponse, ClientError> {
        let request = v1::UndoMutationRequest {
            operation_id: OperationId::random().to_string(),
            undo_token: token.into(),
        };
        self.file_call(
            Call::UndoMutation,
            LONG,
            &request,
            |mut files, request| async move { files.undo_mutation(request).await },
        )
        .await
    }

    /// An image, of a kind and size that a model can be shown. Read-only, cancel
    /// safe.
    ///
    /// # Errors
    /// `NOT_AN_IMAGE`, `IMAGE_UNSUPPORTED`, `IMAGE_TOO_LARGE`, `IMAGE_DAMAGED`,
    /// `NOT_A_REGULAR_FILE`; and as [`Session::stat`].
    pub async fn read_image(
        &self,
        request: v1::ReadImageRequest,
    ) -> Result<v1::ReadImageResponse, ClientError> {
        self.file_call(
            Call::ReadImage,
            LONG,
            &request,
            |mut files, request| async move { files.read_image(request).await },
        )
        .await
    }

    async fn file_call<M, R, F, Fut>(
        &self,
        call: Call,
        wait: Duration,
        message: &M,
        send: F,
    ) -> Result<R, ClientError>
    where
        M: Clone,
        F: Fn(FileServiceClient<Channel>, Request<M>) -> Fut,
        Fut: Future<Output = Result<Response<R>, Status>>,
    {
        let outage = self.options().deadline;
        let deadline = outage.saturating_add(wait);
        let answer = attempts_in(call, deadline, wait, outage, || {
            send(self.file_service(), self.request(message.clone()))
        })
        .await?;
        Ok(answer.into_inner())
    }

    pub(crate) fn file_service(&self) -> FileServiceClient<Channel> {
        // No answer is larger than what is taken by default, 4 MiB: an image has at
        // most 4,000 KiB, an edit a diff of up to 1 MiB.
        FileServiceClient::new(self.machine().channel())
    }
}

fn identify(operation_id: &mut String) {
    if operation_id.is_empty() {
        *operation_id = OperationId::random().to_string();
    }
}

/// The messages of a write, without copying the content.
fn parts(
    mut open: v1::WriteFileOpen,
    mut content: Bytes,
) -> impl Iterator<Item = v1::WriteFileRequest> {
    let mut next = move || content.split_to(content.len().min(PART_BYTES));
    open.data = next();
    let message = |part| v1::WriteFileRequest { part: Some(part) };
    let rest = std::iter::from_fn(move || Some(next()).filter(|part| !part.is_empty()));
    std::iter::once(message(Part::Open(open)))
        .chain(rest.map(move |part| message(Part::Data(part))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_is_sent_whole_in_bounded_parts() {
        for length in [0, 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES] {
            let content: Bytes = (0..length).map(|at| at.to_le_bytes()[0]).collect();
            let open = v1::WriteFileOpen {
                path: b"x".to_vec(),
                data: Bytes::from_static(b"not looked at"),
                ..Default::default()
            };
            let mut sent = Vec::new();
            for (at, message) in parts(open, content.clone()).enumerate() {
                let data = match message.part.unwrap() {
                    Part::Open(open) => {
                        assert_eq!((at, open.path.as_slice()), (0, b"x".as_slice()));
                        open.data
                    }
                    Part::Data(data) => {
                        assert!(at > 0 && !data.is_empty());
                        data
                    }
                };
                assert!(data.len() <= PART_BYTES);
                sent.extend_from_slice(&data);
            }
            assert!(sent == content, "{length}");
        }
    }
}
