//! The calls that search.
//!
//! A search holds one of `limits.file_searches` for as long as it is open, and
//! does its work on threads of a crew that all searches share; the pieces of its
//! answer are waited for on a thread of its own, as that may take long: no other
//! operation waits for it. While the client takes none, no thread is held.

use std::sync::Arc;

use executor_proto::reason::Failure;
use executor_proto::v1;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::task::TaskTracker;

use super::super::convert::file::search as convert;
use super::super::{Caller, Core};
use super::places::{Places, Pool};
use super::stream::{Messages, Pieces, stream};
use crate::files::cancel::Cancel;
use crate::files::error::FileError;
use crate::files::fence::Fence;
use crate::files::search::crew::{Crew, Work};
use crate::files::search::{Piece, Search, Settings};
use crate::limits::Limits;

/// Threads that one search may have.
const EACH: usize = 8;

/// Threads for all searches, in the runtime that this is called in.
pub(in crate::service) fn crew(limits: &Limits, tasks: &TaskTracker) -> Arc<Crew> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let tasks = tasks.clone();
    let runtime = tokio::runtime::Handle::current();
    Crew::new(limits.search_threads, cores.min(EACH), move |work: Work| {
        drop(tasks.spawn_blocking_on(work, &runtime));
    })
}

impl Core {
    pub(super) async fn glob(
        self: &Arc<Self>,
        caller: Caller,
        request: v1::GlobRequest,
    ) -> Result<Messages<v1::GlobResponse>, Failure> {
        let asked = convert::glob(request)?;
        let found = self.search(&caller, move |fence, settings, crew| {
            Search::glob(fence, &asked, settings, crew)
        });
        let found = found.await?;
        Ok(stream(self, &caller, Paths(found)))
    }

    pub(super) async fn grep(
        self: &Arc<Self>,
        caller: Caller,
        request: v1::GrepRequest,
    ) -> Result<Messages<v1::GrepResponse>, Failure> {
        let asked = convert::grep(request)?;
        let found = self.search(&caller, move |fence, settings, crew| {
            Search::grep(fence, &asked, settings, crew)
        });
        let found = found.await?;
        Ok(stream(self, &caller, Matches(found)))
    }

    async fn search(
        &self,
        caller: &Caller,
        begin: impl FnOnce(Arc<Fence>, &Settings, &Arc<Crew>) -> Result<Search, FileError>
        + Send
        + 'static,
    ) -> Result<Open, Failure> {
        let place = self.files.searches.take()?;
        let crew = Arc::clone(&self.crew);
        let settings = self.parts.searches.clone();
        let search = self.read(caller, move |fence, _| {
            begin(Arc::clone(fence), &settings, &crew)
        });
        Ok(Open {
            search: search.await?,
            told: false,
            _place: place,
        })
    }
}

/// A search that is open.
struct Open {
    search: Search,
    /// The end of it.
    told: bool,
    _place: OwnedSemaphorePermit,
}

impl Open {
    /// The next piece, or the summary; `None` after that.
    fn next(
        &mut self,
        cancel: &Cancel,
    ) -> Result<Option<(Piece, Option<v1::SearchSummary>)>, FileError> {
        if self.told {
            return Ok(None);
        }
        if let Some(piece) = self.search.next_piece(cancel)? {
            return Ok(Some((piece, None)));
        }
        self.told = true;
        let summary = convert::summary(self.search.summary());
        Ok(Some((Piece::default(), Some(summary))))
    }
}

struct Paths(Open);

impl Pieces for Paths {
    type Message = v1::GlobResponse;

    fn pool(places: &Places) -> &Pool {
        &places.search_pieces
    }

    fn next(&mut self, cancel: &Cancel) -> Result<Option<Self::Message>, FileError> {
        let next = self.0.next(cancel)?;
        Ok(next.map(|(piece, summary)| v1::GlobResponse {
            entries: piece.entries.into_iter().map(convert::entry).collect(),
            summary,
        }))
    }
}

struct Matches(Open);

impl Pieces for Matches {
    type Message = v1::GrepResponse;

    fn pool(places: &Places) -> &Pool {
        &places.search_pieces
    }

    fn next(&mut self, cancel: &Cancel) -> Result<Option<Self::Message>, FileError> {
        let next = self.0.next(cancel)?;
        Ok(next.map(|(piece, summary)| v1::GrepResponse {
            files: piece.files.into_iter().map(convert::file).collect(),
            summary,
        }))
    }
}
