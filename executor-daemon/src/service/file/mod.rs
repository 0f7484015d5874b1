//! `FileService`.
//!
//! Operations on files block, so each runs on a thread of its own kind
//! ([`places`]): no call holds up the thread that serves all. [`read`] has the
//! calls that only read, [`search`] those that search, [`image`] that for images,
//! [`change`] those that change, [`stream`] what gives its
//! answer in pieces.

mod change;
mod image;
pub(super) mod places;
mod read;
pub(super) mod search;
mod stream;

use std::sync::Arc;

use executor_proto::reason::Failure;
use executor_proto::v1;
use executor_proto::v1::file_service_server::FileService;
use tonic::{Extensions, Request, Response, Status, Streaming, metadata::MetadataMap};

use self::stream::Messages;
use super::failure::Call;
use super::{Caller, Core};
use crate::server::auth::Scope;

/// The service.
#[derive(Debug)]
pub(crate) struct FileCalls {
    core: Arc<Core>,
}

impl FileCalls {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    async fn reader(
        &self,
        metadata: &MetadataMap,
        extensions: &Extensions,
    ) -> Result<Caller, Failure> {
        self.core
            .caller(metadata, extensions, Scope::FilesRead, Call::Other)
            .await
    }

    /// Nothing is changed any more once the daemon ends.
    async fn writer(
        &self,
        metadata: &MetadataMap,
        extensions: &Extensions,
    ) -> Result<Caller, Failure> {
        self.core.accepting()?;
        self.core
            .caller(metadata, extensions, Scope::FilesWrite, Call::Other)
            .await
    }
}

#[tonic::async_trait]
impl FileService for FileCalls {
    async fn stat_file(
        &self,
        request: Request<v1::StatFileRequest>,
    ) -> Result<Response<v1::StatFileResponse>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let caller = self.reader(&metadata, &extensions).await?;
        Ok(Response::new(self.core.stat_file(&caller, message).await?))
    }

    async fn read_lines(
        &self,
        request: Request<v1::ReadLinesRequest>,
    ) -> Result<Response<v1::ReadLinesResponse>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let caller = self.reader(&metadata, &extensions).await?;
        Ok(Response::new(self.core.read_lines(&caller, message).await?))
    }

    type ReadBytesStream = Messages<v1::ReadBytesResponse>;

    async fn read_bytes(
        &self,
        request: Request<v1::ReadBytesRequest>,
    ) -> Result<Response<Self::ReadBytesStream>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let caller = self.reader(&metadata, &extensions).await?;
        Ok(Response::new(self.core.read_bytes(caller, message).await?))
    }

    type ListDirectoryStream = Messages<v1::ListDirectoryResponse>;

    async fn list_directory(
        &self,
        request: Request<v1::ListDirectoryRequest>,
    ) -> Result<Response<Self::ListDirectoryStream>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let caller = self.reader(&metadata, &extensions).await?;
        let listing = self.core.list_directory(caller, message).await?;
        Ok(Response::new(listing))
    }

    type GlobStream = Messages<v1::GlobResponse>;

    async fn glob(
        &self,
        request: Request<v1::GlobRequest>,
    ) -> Result<Response<Self::GlobStream>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let caller = self.reader(&metadata, &extensions).await?;
        Ok(Response::new(self.core.glob(caller, message).await?))
    }

    type GrepStream = Messages<v1::GrepResponse>;

    async fn grep(
        &self,
        request: Request<v1::GrepRequest>,
    ) -> Result<Response<Self::GrepStream>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let caller = self.reader(&metadata, &extensions).await?;
        Ok(Response::new(self.core.grep(caller, message).await?))
    }

    async fn write_file(
        &self,
        request: Request<Streaming<v1::WriteFileRequest>>,
    ) -> Result<Response<v1::WriteFileResponse>, Status> {
        let (metadata, extensions, parts) = request.into_parts();
        let caller = self.writer(&metadata, &extensions).await?;
        let written = self.core.write_file(&caller, parts).await?;
        Ok(Response::new(written))
    }

    async fn edit_file(
        &self,
        request: Request<v1::EditFileRequest>,
    ) -> Result<Response<v1::EditFileResponse>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let caller = self.writer(&metadata, &extensions).await?;
        Ok(Response::new(self.core.edit_file(&caller, message).await?))
    }

    async fn undo_mutation(
        &self,
        request: Request<v1::UndoMutationRequest>,
    ) -> Result<Response<v1::UndoMutationResponse>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let caller = self.writer(&metadata, &extensions).await?;
        let undone = self.core.undo_mutation(&caller, message).await?;
        Ok(Response::new(undone))
    }

    async fn remove_file(
        &self,
        request: Request<v1::RemoveFileRequest>,
    ) -> Result<Response<v1::RemoveFileResponse>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let caller = self.writer(&metadata, &extensions).await?;
        Ok(Response::new(
            self.core.remove_file(&caller, message).await?,
        ))
    }

    async fn rename_file(
        &self,
        request: Request<v1::RenameFileRequest>,
    ) -> Result<Response<v1::RenameFileResponse>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let caller = self.writer(&metadata, &extensions).await?;
        Ok(Response::new(
            self.core.rename_file(&caller, message).await?,
        ))
    }

    async fn make_directory(
        &self,
        request: Request<v1::MakeDirectoryRequest>,
    ) -> Result<Response<v1::MakeDirectoryResponse>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let caller = self.writer(&metadata, &extensions).await?;
        let made = self.core.make_directory(&caller, message).await?;
        Ok(Response::new(made))
    }

    async fn read_image(
        &self,
        request: Request<v1::ReadImageRequest>,
    ) -> Result<Response<v1::ReadImageResponse>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let caller = self.reader(&metadata, &extensions).await?;
        Ok(Response::new(self.core.read_image(&caller, message).await?))
    }
}
