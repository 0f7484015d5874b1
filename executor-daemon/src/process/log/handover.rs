//! A store that changes hands: a process replaces itself by another image
//! (execve(2)), or gives its logs to a successor, and they go on.
//!
//! All that a log is lies in its segment's memory, so what is handed over is
//! the memory's descriptors and which segments they are. The new image maps them
//! again; readers elsewhere, who have mapped the same memory, notice nothing.
//!
//! ```text
//! export ── execve ──► import ──► resume_running, resume_retired, … ──► sweep
//! ```
//!
//! While a store is exported nothing may write to its logs and none may be made
//! or dropped; the caller sees to that. In the old image nothing is dropped when
//! it is replaced (execve(2) runs no destructors), so no slot is given back. If
//! it is not replaced after all, the exported store goes on as it was.

use std::collections::BTreeSet;
use std::io;
use std::mem::take;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::FdFlags;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::LogAddress;
use super::doorbell::SEGMENTS;
use super::layout::{Geometry, Layout};
use super::reader::LogReader;
use super::segment::{Place, Segment, Slot};
use super::store::{LogStore, Shared};
use super::table::{Held, Table};
use super::writer::{LogWriter, RetiredLog};

/// Of the control block and the layout: one more with each change of them.
pub const FORMAT: u32 = 1;

/// What a store is, beside its memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreState {
    format: u32,
    /// Of segments made from now on.
    geometry: Geometry,
    /// How many segments were made.
    made: u64,
    segments: Vec<SegmentState>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SegmentState {
    id: u64,
    number: u32,
    geometry: Geometry,
    /// Which of the descriptors beside.
    file: usize,
    /// A bit for each slot that is free.
    free: u64,
}

impl LogStore {
    /// What [`LogStore::import`] needs to go on with this store's logs: a value,
    /// and the descriptors that it refers to by their place. They are
    /// close-on-exec like all others. Changes nothing.
    #[must_use]
    pub fn export(&self) -> (StoreState, Vec<Arc<OwnedFd>>) {
        let table = self.shared.lock();
        let held = table.segments.values();
        let files = held.clone().map(|held| Arc::clone(held.segment.file()));
        let segments = held.enumerate().map(|(file, held)| SegmentState {
            id: held.segment.id,
            number: held.segment.number,
            geometry: held.segment.layout.geometry,
            file,
            free: held.free.iter().fold(0, |free, slot| free | 1 << slot),
        });
        let state = StoreState {
            format: FORMAT,
            geometry: self.shared.layout.geometry,
            made: table.made,
            segments: segments.collect(),
        };
        (state, files.collect())
    }

    /// The store that was exported. None of its logs has an owner yet: each is to
    /// be resumed, and [`LogStore::sweep`] to be called then. `budget` is in
    /// bytes. The descriptors are made close-on-exec.
    ///
    /// # Errors
    /// `InvalidData` when state and descriptors do not belong together or are of
    /// another version; no memory.
    pub fn import(state: StoreState, files: Vec<OwnedFd>, budget: u64) -> io::Result<Self> {
        if state.format != FORMAT {
            return Err(invalid("the layout of the logs is of another version"));
        }
        let layout = layout(state.geometry)?;
        let mut files: Vec<Option<OwnedFd>> = files.into_iter().map(Some).collect();
        let mut table = Table::after(state.made);
        for segment in state.segments {
            let file = files.get_mut(segment.file).and_then(Option::take);
            let file = file.ok_or_else(|| invalid("a segment has no descriptor of its own"))?;
            table.adopt(&segment, file)?;
        }
        Ok(Self {
            shared: Arc::new(Shared::new(layout, budget, table)),
        })
    }

    /// Goes on with a log that had a writer. `wake` is as for
    /// [`LogStore::create`]. `None` when nobody left such a log, or somebody has
    /// resumed it.
    #[must_use]
    pub fn resume_running(
        &self,
        address: LogAddress,
        wake: Arc<Notify>,
    ) -> Option<(LogWriter, LogReader)> {
        let slot = self.resume(address, |table, place| table.run(place, wake))?;
        Some((LogWriter::new(Arc::clone(&slot)), LogReader::local(slot)))
    }

    /// Goes on with a log that had retired; `age` as [`RetiredLog::age`] was.
    /// `None` when nobody left such a log, or somebody has resumed it.
    #[must_use]
    pub fn resume_retired(&self, address: LogAddress, age: u64) -> Option<RetiredLog> {
        let slot = self.resume(address, |table, place| {
            if place.footprint().sum() > 0 {
                table.retire(place, age);
            }
        })?;
        Some(RetiredLog::new(slot))
    }

    /// Forgets the logs that were imported and that nobody has resumed, and
    /// gives their memory back; then sees to the budget.
    pub fn sweep(&self) {
        let left = self.shared.lock().take_inherited();
        for place in left {
            let clean = place.clear();
            self.shared.ring(&place);
            if clean {
                self.shared.release(&place);
            }
        }
        if self.shared.over_budget() {
            self.shared.squeeze();
        }
    }

    fn resume(
        &self,
        address: LogAddress,
        own: impl FnOnce(&mut Table, &Place),
    ) -> Option<Arc<Slot>> {
        let place = {
            let mut table = self.shared.lock();
            let key = (address.segment, usize::try_from(address.slot).ok()?);
            if !table.inherited.contains(&key) {
                return None;
            }
            let place = table.place(key)?;
            if place.control().generation() != address.generation {
                return None;
            }
            table.inherited.remove(&key);
            own(&mut table, &place);
            self.shared.charge(&place, place.footprint().sum());
            place
        };
        Some(Arc::new(Slot::new(Arc::clone(&self.shared), place)))
    }
}

impl Table {
    fn adopt(&mut self, state: &SegmentState, file: OwnedFd) -> io::Result<()> {
        let layout = layout(state.geometry)?;
        let (id, number) = (state.id, state.number);
        if id >= self.made || self.segments.contains_key(&id) {
            return Err(invalid("the id of a segment is not its own"));
        }
        if number >= SEGMENTS || !self.numbers.insert(number) {
            return Err(invalid("the number of a segment is not its own"));
        }
        rustix::io::fcntl_setfd(&file, FdFlags::CLOEXEC)?;
        let segment = Arc::new(Segment::adopt(id, number, layout, file)?);
        let slots = (0..layout.geometry.slots).rev();
        let (free, used): (Vec<usize>, Vec<usize>) =
            slots.partition(|slot| state.free >> slot & 1 == 1);
        self.inherited.extend(used.iter().map(|slot| (id, *slot)));
        if !free.is_empty() {
            self.open.insert(id);
        }
        self.segments.insert(id, Held { segment, free });
        Ok(())
    }

    fn place(&self, (id, index): (u64, usize)) -> Option<Place> {
        let held = self.segments.get(&id)?;
        Some(Place {
            segment: Arc::clone(&held.segment),
            index,
        })
    }

    fn take_inherited(&mut self) -> Vec<Place> {
        let inherited: BTreeSet<_> = take(&mut self.inherited);
        inherited
            .into_iter()
            .filter_map(|key| self.place(key))
            .collect()
    }
}

fn layout(geometry: Geometry) -> io::Result<Layout> {
    Layout::checked(geometry, rustix::param::page_size())
        .ok_or_else(|| invalid("no segment has such a geometry"))
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
