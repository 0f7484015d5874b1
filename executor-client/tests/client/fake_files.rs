//! The files of the machine in memory: one content, and a list of changes.

use std::pin::Pin;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use executor_client::{Reason, v1};
use executor_proto::reason::Failure;
use executor_proto::v1::file_service_server::FileService;
use executor_proto::v1::write_file_request::Part;
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

use crate::fake::{Answer, Fake};

type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Fake {
    /// Carries a change out once; true: it was there already.
    async fn change(&self, what: &str, operation_id: &str) -> bool {
        operation_id
            .parse::<executor_client::OperationId>()
            .unwrap();
        self.0.change_calls.fetch_add(1, Ordering::SeqCst);
        let change = format!("{what} {operation_id}");
        let replayed = {
            let mut changes = self.0.changes.lock().unwrap();
            let replayed = changes.contains(&change);
            if !replayed {
                changes.push(change);
            }
            replayed
        };
        self.0.maybe_lose_answer().await;
        replayed
    }

    fn info(&self) -> v1::FileInfo {
        v1::FileInfo {
            version: self.0.version.lock().unwrap().clone(),
            ..Default::default()
        }
    }
}

#[tonic::async_trait]
impl FileService for Fake {
    async fn stat_file(&self, _: Request<v1::StatFileRequest>) -> Answer<v1::StatFileResponse> {
        self.0.maybe_lose_answer().await;
        Ok(Response::new(v1::StatFileResponse {
            file: Some(self.info()),
            ..Default::default()
        }))
    }

    async fn read_lines(&self, _: Request<v1::ReadLinesRequest>) -> Answer<v1::ReadLinesResponse> {
        Err(Failure::new(Reason::BinaryFile, "binary").into())
    }

    type ReadBytesStream = Messages<v1::ReadBytesResponse>;

    async fn read_bytes(
        &self,
        request: Request<v1::ReadBytesRequest>,
    ) -> Answer<Self::ReadBytesStream> {
        let request = request.into_inner();
        let info = self.info();
        if !request.version.is_empty() && request.version != info.version {
            return Err(Failure::new(Reason::FileChanged, "changed").into());
        }
        self.0.change_calls.fetch_add(1, Ordering::SeqCst);
        let content = &self.0.output;
        let from = usize::try_from(request.offset).unwrap();
        let length = request
            .length
            .map_or(content.len(), |length| usize::try_from(length).unwrap());
        let end = content.len().min(from.saturating_add(length));
        let first = v1::ReadBytesResponse {
            file: Some(info),
            offset: request.offset,
            data: Bytes::new(),
        };
        let parts: Vec<_> = content[from..end]
            .chunks(self.0.page)
            .enumerate()
            .map(|(at, data)| v1::ReadBytesResponse {
                file: None,
                offset: request.offset + (at * self.0.page) as u64,
                data: Bytes::copy_from_slice(data),
            })
            .collect();
        let all = std::iter::once(first).chain(parts).map(Ok);
        Ok(Response::new(Box::pin(tokio_stream::iter(all))))
    }

    async fn read_image(&self, _: Request<v1::ReadImageRequest>) -> Answer<v1::ReadImageResponse> {
        Err(Status::unimplemented("no test reads images"))
    }

    type GlobStream = Messages<v1::GlobResponse>;

    async fn glob(&self, _: Request<v1::GlobRequest>) -> Answer<Self::GlobStream> {
        let entry = |at: usize| v1::GlobEntry {
            path: format!("{at}{}", "x".repeat(100)).into_bytes(),
            ..Default::default()
        };
        let pages = (0..20).map(move |page| v1::GlobResponse {
            entries: (page * 10..page * 10 + 10).map(entry).collect(),
            summary: (page == 19).then(v1::SearchSummary::default),
        });
        let mut pages: Vec<_> = pages.map(Ok).collect();
        if self.0.lose_next_answer.swap(false, Ordering::SeqCst) {
            pages.truncate(5);
            pages.push(Err(Status::unavailable("lost")));
        }
        Ok(Response::new(Box::pin(tokio_stream::iter(pages))))
    }

    type GrepStream = Messages<v1::GrepResponse>;

    async fn grep(&self, _: Request<v1::GrepRequest>) -> Answer<Self::GrepStream> {
        Err(Status::unimplemented("no test searches text"))
    }

    type ListDirectoryStream = Messages<v1::ListDirectoryResponse>;

    async fn list_directory(
        &self,
        _: Request<v1::ListDirectoryRequest>,
    ) -> Answer<Self::ListDirectoryStream> {
        let entry = |at: usize| v1::DirectoryEntry {
            path: format!("{at}{}", "x".repeat(100)).into_bytes(),
            ..Default::default()
        };
        let pages = (0..20).map(move |page| v1::ListDirectoryResponse {
            entries: (page * 10..page * 10 + 10).map(entry).collect(),
            summary: (page == 19).then(v1::ListSummary::default),
        });
        let pages: Vec<_> = pages.map(Ok).collect();
        Ok(Response::new(Box::pin(tokio_stream::iter(pages))))
    }

    async fn write_file(
        &self,
        request: Request<Streaming<v1::WriteFileRequest>>,
    ) -> Answer<v1::WriteFileResponse> {
        let mut parts = request.into_inner();
        let Some(Part::Open(open)) = parts.message().await?.unwrap().part else {
            return Err(Status::invalid_argument("open first"));
        };
        let mut content = open.data.to_vec();
        while let Some(message) = parts.message().await? {
            let Some(Part::Data(data)) = message.part else {
                return Err(Status::invalid_argument("opened twice"));
            };
            content.extend_from_slice(&data);
        }
        *self.0.stdin.lock().unwrap() = content;
        let replayed = self.change("write", &open.operation_id).await;
        Ok(Response::new(v1::WriteFileResponse {
            replayed,
            ..Default::default()
        }))
    }

    async fn edit_file(
        &self,
        request: Request<v1::EditFileRequest>,
    ) -> Answer<v1::EditFileResponse> {
        let replayed = self
            .change("edit", &request.into_inner().operation_id)
            .await;
        Ok(Response::new(v1::EditFileResponse {
            replayed,
            ..Default::default()
        }))
    }

    async fn undo_mutation(
        &self,
        request: Request<v1::UndoMutationRequest>,
    ) -> Answer<v1::UndoMutationResponse> {
        let replayed = self
            .change("undo", &request.into_inner().operation_id)
            .await;
        Ok(Response::new(v1::UndoMutationResponse {
            replayed,
            ..Default::default()
        }))
    }

    async fn remove_file(
        &self,
        request: Request<v1::RemoveFileRequest>,
    ) -> Answer<v1::RemoveFileResponse> {
        let replayed = self
            .change("remove", &request.into_inner().operation_id)
            .await;
        Ok(Response::new(v1::RemoveFileResponse {
            replayed,
            ..Default::default()
        }))
    }

    async fn rename_file(
        &self,
        request: Request<v1::RenameFileRequest>,
    ) -> Answer<v1::RenameFileResponse> {
        let replayed = self
            .change("rename", &request.into_inner().operation_id)
            .await;
        Ok(Response::new(v1::RenameFileResponse {
            replayed,
            ..Default::default()
        }))
    }

    async fn make_directory(
        &self,
        request: Request<v1::MakeDirectoryRequest>,
    ) -> Answer<v1::MakeDirectoryResponse> {
        let replayed = self
            .change("mkdir", &request.into_inner().operation_id)
            .await;
        Ok(Response::new(v1::MakeDirectoryResponse {
            replayed,
            ..Default::default()
        }))
    }
}
