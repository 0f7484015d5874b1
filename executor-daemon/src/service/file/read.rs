//! The calls that only read.

use std::sync::Arc;

use executor_proto::reason::Failure;
use executor_proto::v1;

use super::super::convert::file::read::{
    CheckedRange, CheckedStat, lines as lines_to_wire, list_options, listed, range_begins,
    read_lines as checked_lines, stat as stat_to_wire, summary,
};
use super::super::failure::file as refusal;
use super::super::{Caller, Core};
use super::places::Pool;
use super::stream::{Messages, Pieces, stream};
use crate::files::cancel::Cancel;
use crate::files::error::FileError;
use crate::files::fence::Fence;
use crate::files::list::Listing;
use crate::files::read_bytes::ReadBytes;
use crate::files::read_lines::read_lines;
use crate::files::stat::stat;

/// Entries of one message.
const ENTRIES: usize = 512;
/// Bytes of names in one message, but for its last entry.
const NAME_BYTES: usize = 128 << 10;

impl Core {
    pub(super) async fn stat_file(
        &self,
        caller: &Caller,
        request: v1::StatFileRequest,
    ) -> Result<v1::StatFileResponse, Failure> {
        let asked = CheckedStat::new(request)?;
        let indexes = Arc::clone(&self.parts.indexes);
        let found = self.read(caller, move |fence, cancel| {
            let (path, last) = (asked.path.as_os_str(), asked.last);
            stat(fence, path, last, asked.with_digest, &indexes, cancel)
        });
        found.await.map(|found| stat_to_wire(&found))
    }

    pub(super) async fn read_lines(
        &self,
        caller: &Caller,
        request: v1::ReadLinesRequest,
    ) -> Result<v1::ReadLinesResponse, Failure> {
        let (path, asked) = checked_lines(request, &self.parts.limits)?;
        let indexes = Arc::clone(&self.parts.indexes);
        let page = self.read(caller, move |fence, cancel| {
            read_lines(fence, path.as_os_str(), &asked, &indexes, cancel)
        });
        page.await.map(lines_to_wire)
    }

    pub(super) async fn read_bytes(
        self: &Arc<Self>,
        caller: Caller,
        request: v1::ReadBytesRequest,
    ) -> Result<Messages<v1::ReadBytesResponse>, Failure> {
        let asked = CheckedRange::new(request)?;
        let range = self.read(&caller, move |fence, _| {
            let path = asked.path.as_os_str();
            ReadBytes::open(fence, path, asked.offset, asked.length, asked.version)
        });
        let range = range.await?;
        Ok(stream(
            self,
            &caller,
            Range {
                range,
                begun: false,
            },
        ))
    }

    pub(super) async fn list_directory(
        self: &Arc<Self>,
        caller: Caller,
        request: v1::ListDirectoryRequest,
    ) -> Result<Messages<v1::ListDirectoryResponse>, Failure> {
        let (path, options) = list_options(request, &self.parts.limits)?;
        let listing = self.read(&caller, move |fence, cancel| {
            Listing::open(Arc::clone(fence), path.as_os_str(), options, cancel)
        });
        let listing = listing.await?;
        Ok(stream(
            self,
            &caller,
            Entries {
                listing,
                told: false,
            },
        ))
    }

    /// Runs an operation in a place for reads; meanwhile the caller counts as
    /// there. Once nobody waits for it, it ends soon.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        caller: &Caller,
        work: impl FnOnce(&Arc<Fence>, &Cancel) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, Failure> {
        self.read_in(&self.files.reads, caller, work).await
    }

    /// The same in another kind of place.
    pub(super) async fn read_in<T: Send + 'static>(
        &self,
        places: &Pool,
        caller: &Caller,
        work: impl FnOnce(&Arc<Fence>, &Cancel) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, Failure> {
        let fence = Arc::clone(caller.session.fence());
        let cancel = Cancel::new();
        let _given_up = GivenUp(cancel.clone());
        let work = move || work(&fence, &cancel);
        let done = places.run(&self.tasks, work);
        let done = self.parts.registry.while_open(&caller.session, done).await;
        done?.map_err(|error| refusal::file(&error))
    }
}

/// Raises the flag when it is dropped.
pub(super) struct GivenUp(pub(super) Cancel);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// A range of bytes as messages.
struct Range {
    range: ReadBytes,
    begun: bool,
}

impl Pieces for Range {
    type Message = v1::ReadBytesResponse;

    fn next(&mut self, cancel: &Cancel) -> Result<Option<Self::Message>, FileError> {
        if !std::mem::replace(&mut self.begun, true) {
            let (path, facts) = (self.range.path(), self.range.facts());
            return Ok(Some(range_begins(path, facts, self.range.offset())));
        }
        let offset = self.range.offset();
        let piece = self.range.next_piece(cancel)?;
        Ok(piece.map(|data| v1::ReadBytesResponse {
            file: None,
            offset,
            data: data.into(),
        }))
    }
}

/// A listing as messages.
struct Entries {
    listing: Listing,
    told: bool,
}

impl Pieces for Entries {
    type Message = v1::ListDirectoryResponse;

    fn next(&mut self, cancel: &Cancel) -> Result<Option<Self::Message>, FileError> {
        if self.told {
            return Ok(None);
        }
        let (mut entries, mut bytes) = (Vec::new(), 0);
        while entries.len() < ENTRIES && bytes < NAME_BYTES {
            let Some(entry) = self.listing.next_entry(cancel)? else {
                self.told = true;
                break;
            };
            let entry = listed(entry);
            bytes += entry.path.len() + entry.link_target.len();
            entries.push(entry);
        }
        let summary = self.told.then(|| summary(self.listing.summary()));
        Ok(Some(v1::ListDirectoryResponse { entries, summary }))
    }
}
