//! Searches: paths and text found in whole trees, as they are found or all at
//! once.
//!
//! ```text
//! closed ──open──► open ──message──► open ──summary──► ended
//!   ▲                │                 └── lost, error ──► ended
//!   └── pause ◄ lost ┘ (before the first message)
//! ```
//!
//! A stream that broke off after its first message is an error: a search has no
//! place from which it could go on. [`Session::glob_all`] and
//! [`Session::grep_all`] begin again.

use executor_proto::v1;
use tonic::{Status, Streaming};

use crate::error::ClientError;
use crate::files::LONG;
use crate::retry::{Call, attempts_in};
use crate::session::Session;

/// What [`Session::glob_all`] found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Globbed {
    /// In the order of the machine.
    pub entries: Vec<v1::GlobEntry>,
    /// What was counted and passed over.
    pub summary: v1::SearchSummary,
}

/// What [`Session::grep_all`] found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Grepped {
    /// In the order of the machine; a file with many matches in several parts.
    pub files: Vec<v1::GrepFile>,
    /// What was counted and passed over.
    pub summary: v1::SearchSummary,
}

/// Paths as they are found. Made by [`Session::glob`].
#[derive(Debug)]
pub struct GlobStream(Found<v1::GlobResponse>);

/// Matches as they are found. Made by [`Session::grep`].
#[derive(Debug)]
pub struct GrepStream(Found<v1::GrepResponse>);

impl GlobStream {
    /// The next paths, at least one; `None` at the end. Cancel safe.
    ///
    /// # Errors
    /// What any call can end with; nothing more comes then.
    pub async fn next(&mut self) -> Result<Option<Vec<v1::GlobEntry>>, ClientError> {
        while let Some(message) = self.0.next(|message| message.summary.clone()).await? {
            if !message.entries.is_empty() {
                return Ok(Some(message.entries));
            }
        }
        Ok(None)
    }

    /// What was counted and passed over; there once [`GlobStream::next`] gave
    /// `None`.
    #[must_use]
    pub fn summary(&self) -> Option<&v1::SearchSummary> {
        self.0.summary.as_ref()
    }
}

impl GrepStream {
    /// The next files with a match, or parts of one, at least one; `None` at the
    /// end. Cancel safe.
    ///
    /// # Errors
    /// What any call can end with; nothing more comes then.
    pub async fn next(&mut self) -> Result<Option<Vec<v1::GrepFile>>, ClientError> {
        while let Some(message) = self.0.next(|message| message.summary.clone()).await? {
            if !message.files.is_empty() {
                return Ok(Some(message.files));
            }
        }
        Ok(None)
    }

    /// What was counted and passed over; there once [`GrepStream::next`] gave
    /// `None`.
    #[must_use]
    pub fn summary(&self) -> Option<&v1::SearchSummary> {
        self.0.summary.as_ref()
    }
}

#[derive(Debug)]
struct Found<M> {
    stream: Option<Streaming<M>>,
    /// Came with the opening of the stream.
    first: Option<M>,
    summary: Option<v1::SearchSummary>,
}

impl<M> Found<M> {
    async fn next(
        &mut self,
        summary: impl Fn(&M) -> Option<v1::SearchSummary>,
    ) -> Result<Option<M>, ClientError> {
        let message = match (self.first.take(), &mut self.stream) {
            (Some(first), _) => Ok(Some(first)),
            (None, Some(stream)) => stream.message().await,
            (None, None) => return Ok(None),
        };
        let broken = match message {
            Ok(Some(message)) => {
                if let Some(summary) = summary(&message) {
                    self.summary = Some(summary);
                }
                return Ok(Some(message));
            }
            Ok(None) if self.summary.is_some() => None,
            // A stream that ends early without an error was cut.
            Ok(None) => Some(Status::unavailable("the search broke off")),
            Err(status) => Some(status),
        };
        self.stream = None;
        match broken {
            None => Ok(None),
            Some(status) => Err(ClientError::from_status(&status)),
        }
    }
}

impl Session {
    /// Finds paths by globs, and tells them as they are found. Returns with the
    /// first of them; dropping the stream ends the search. Read-only.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a glob that is none; and as [`Session::stat`].
    pub async fn glob(&self, request: v1::GlobRequest) -> Result<GlobStream, ClientError> {
        let found = self.attempt(Call::Glob, || {
            let (mut files, request) = (self.file_service(), self.request(request.clone()));
            async move { opened(files.glob(request).await?.into_inner()).await }
        });
        found.await.map(GlobStream)
    }

    /// Finds lines by a pattern, and tells them as they are found. Returns with
    /// the first of them; dropping the stream ends the search. Read-only.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a pattern that the engine does not take; and as
    /// [`Session::glob`].
    pub async fn grep(&self, request: v1::GrepRequest) -> Result<GrepStream, ClientError> {
        let found = self.attempt(Call::Grep, || {
            let (mut files, request) = (self.file_service(), self.request(request.clone()));
            async move { opened(files.grep(request).await?.into_inner()).await }
        });
        found.await.map(GrepStream)
    }

    /// As [`Session::glob`], all at once. A search that a lost connection broke
    /// off is begun again. Cancel safe.
    ///
    /// # Errors
    /// As [`Session::glob`].
    pub async fn glob_all(&self, request: v1::GlobRequest) -> Result<Globbed, ClientError> {
        self.attempt(Call::Glob, || {
            let (mut files, request) = (self.file_service(), self.request(request.clone()));
            async move {
                let mut messages = files.glob(request).await?.into_inner();
                let (mut found, mut summary) = (Globbed::default(), None);
                while let Some(message) = messages.message().await? {
                    found.entries.extend(message.entries);
                    summary = message.summary.or(summary);
                }
                found.summary = whole(summary)?;
                Ok(found)
            }
        })
        .await
    }

    /// As [`Session::grep`], all at once: as many as the request's limits let
    /// be. A search that a lost connection broke off is begun again. Cancel safe.
    ///
    /// # Errors
    /// As [`Session::grep`].
    pub async fn grep_all(&self, request: v1::GrepRequest) -> Result<Grepped, ClientError> {
        self.attempt(Call::Grep, || {
            let (mut files, request) = (self.file_service(), self.request(request.clone()));
            async move {
                let mut messages = files.grep(request).await?.into_inner();
                let (mut found, mut summary) = (Grepped::default(), None);
                while let Some(message) = messages.message().await? {
                    found.files.extend(message.files);
                    summary = message.summary.or(summary);
                }
                found.summary = whole(summary)?;
                Ok(found)
            }
        })
        .await
    }

    async fn attempt<T, F, Fut>(&self, call: Call, attempt: F) -> Result<T, ClientError>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T, Status>>,
    {
        let outage = self.options().deadline;
        // A large tree on a slow disk takes its time.
        let wait = LONG.saturating_mul(10);
        attempts_in(call, outage.saturating_add(wait), wait, outage, attempt).await
    }
}

/// The stream with its first message.
async fn opened<M>(mut stream: Streaming<M>) -> Result<Found<M>, Status> {
    let first = stream.message().await?;
    let first = first.ok_or_else(|| Status::unavailable("the search broke off"))?;
    Ok(Found {
        stream: Some(stream),
        first: Some(first),
        summary: None,
    })
}

fn whole(summary: Option<v1::SearchSummary>) -> Result<v1::SearchSummary, Status> {
    summary.ok_or_else(|| Status::unavailable("the search broke off"))
}
