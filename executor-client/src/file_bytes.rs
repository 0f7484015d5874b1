//! A range of a file, across lost connections.
//!
//! ```text
//! closed ──open at offset, version──► open ──message──► open ──end of stream──► ended
//!   ▲                                   │
//!   └──────────── pause ◄── lost ───────┘
//! ```
//!
//! Every byte is of one version of the file: a stream that goes on names the
//! version that it began with, and ends with `FILE_CHANGED` when the file has
//! another one.

use bytes::Bytes;
use executor_proto::v1;
use tokio::time::Instant;
use tonic::{Status, Streaming};

use crate::error::ClientError;
use crate::retry::{ANSWER, Backoff, Call, Verdict};
use crate::session::Session;

/// The bytes of a file. Made by [`Session::read_bytes`]. Read it on or drop it: up
/// to 2 MiB of one that is left alone wait in the connection, which takes 4 MiB in
/// all.
#[derive(Debug)]
pub struct FileBytes {
    session: Session,
    /// What is asked for now: the rest, and of which version.
    request: v1::ReadBytesRequest,
    info: Option<v1::FileInfo>,
    connection: Option<Streaming<v1::ReadBytesResponse>>,
    outage: Option<(Backoff, Option<Instant>)>,
    ended: bool,
}

impl FileBytes {
    pub(crate) fn new(session: Session, request: v1::ReadBytesRequest) -> Self {
        Self {
            session,
            request,
            info: None,
            connection: None,
            outage: None,
            ended: false,
        }
    }

    /// What the file is; known once [`FileBytes::next`] has returned.
    #[must_use]
    pub fn info(&self) -> Option<&v1::FileInfo> {
        self.info.as_ref()
    }

    /// Offset of the byte that comes next.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.request.offset
    }

    /// The next bytes, at most 256 KiB and never none; `None` at the end of the
    /// range or file. Cancel safe: dropping the future loses nothing.
    ///
    /// # Errors
    /// `FILE_CHANGED`, `NOT_A_REGULAR_FILE` and the errors of paths; what any
    /// call can end with once the machine was not reached for as long as the
    /// session's deadline.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        while !self.ended {
            let failure = match self.message().await {
                Ok(Some(message)) => {
                    self.outage = None;
                    match self.accept(message) {
                        Ok(data) if data.is_empty() => continue,
                        Ok(data) => return Ok(Some(data)),
                        Err(error) => {
                            self.connection = None;
                            return Err(error);
                        }
                    }
                }
                Ok(None) => {
                    self.ended = true;
                    self.connection = None;
                    continue;
                }
                Err(status) => ClientError::from_status(&status),
            };
            self.connection = None;
            if Call::ReadBytes.after(&failure) == Verdict::GiveUp {
                self.outage = None;
                return Err(failure);
            }
            self.pause(failure).await?;
        }
        Ok(None)
    }

    async fn pause(&mut self, failure: ClientError) -> Result<(), ClientError> {
        let now = Instant::now();
        let deadline = self.session.options().deadline;
        let (backoff, give_up) = self
            .outage
            .get_or_insert_with(|| (Backoff::new(), now.checked_add(deadline)));
        let wake = now + backoff.pause();
        if give_up.is_some_and(|end| wake >= end) {
            self.outage = None;
            return Err(failure);
        }
        tokio::time::sleep_until(wake).await;
        Ok(())
    }

    async fn message(&mut self) -> Result<Option<v1::ReadBytesResponse>, Status> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            closed => {
                let request = self.session.request(self.request.clone());
                let mut files = self.session.file_service();
                let open = tokio::time::timeout(ANSWER, files.read_bytes(request)).await;
                // An answer that is lost is as good as a connection that is.
                let open = open.map_err(|_| Status::unavailable("no answer"))??;
                closed.insert(open.into_inner())
            }
        };
        let message = tokio::time::timeout(ANSWER, connection.message()).await;
        message.map_err(|_| Status::unavailable("no answer"))?
    }

    fn accept(&mut self, message: v1::ReadBytesResponse) -> Result<Bytes, ClientError> {
        if let Some(info) = message.file {
            self.request.version.clone_from(&info.version);
            self.info.get_or_insert(info);
        }
        let length = message.data.len() as u64;
        let fits = self.request.length.is_none_or(|left| length <= left);
        if message.offset != self.request.offset || !fits {
            return Err(ClientError::Protocol(format!(
                "{length} bytes of a file at {} where {} was due",
                message.offset, self.request.offset
            )));
        }
        self.request.offset += length;
        if let Some(left) = &mut self.request.length {
            *left -= length;
            // To ask for nothing would be to ask for all.
            self.ended |= *left == 0;
        }
        Ok(message.data)
    }
}
