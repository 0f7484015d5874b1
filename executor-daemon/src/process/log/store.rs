//! All logs: their segments, and the bound on the memory of them together.
//!
//! Memory is counted in pages that a log's head, ring and bits take; control
//! blocks (512 bytes a log) are not. When the sum passes the budget, memory is
//! given up in this order:
//!
//! 1. of retired logs, oldest first, the tail and then the head;
//! 2. the tails of running logs, largest first;
//! 3. the heads of running logs, largest first.
//!
//! A running log is changed by its writer alone, so the store asks: it leaves a
//! mark, calls the writer's `wake`, and the writer gives the memory up the next
//! time it does anything. Until then what was asked for counts as given.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU64};

use tokio::sync::Notify;

use super::doorbell::{Attached, Doorbell};
use super::layout::{Geometry, Layout};
use super::reader::LogReader;
use super::scratch::Scratches;
#[cfg(test)]
use super::segment::Segment;
use super::segment::{Ask, Key, Place, Slot};
use super::table::Table;
use super::writer::LogWriter;

/// Memory of all logs by default: 1 GiB.
pub const DEFAULT_BUDGET: u64 = 1 << 30;

/// Makes logs. Cheap to clone; all clones share one budget.
#[derive(Debug, Clone)]
pub struct LogStore {
    pub(super) shared: Arc<Shared>,
}

/// What another process needs to read the logs of a segment.
#[derive(Debug, Clone)]
pub struct SegmentFile {
    /// Names the segment; never used again by the same store.
    pub id: u64,
    /// Stands for it in a [`Doorbell`]; below 16,384, and used again once the
    /// segment is gone.
    pub number: u32,
    /// Sizes of its logs.
    pub geometry: Geometry,
    /// Its memory, open for reading only.
    pub file: Arc<OwnedFd>,
}

impl LogStore {
    /// A store without any log, which has taken no memory. `budget` is in bytes.
    #[must_use]
    pub fn new(geometry: Geometry, budget: u64) -> Self {
        let layout = Layout::new(geometry, rustix::param::page_size());
        Self {
            shared: Arc::new(Shared::new(layout, budget, Table::default())),
        }
    }

    /// Makes a log. `wake` is notified (`notify_one`) when the writer ought to
    /// call [`LogWriter::shrink_if_asked`].
    ///
    /// # Errors
    /// No memory or no descriptor for a further segment (one for each 64 logs);
    /// `OutOfMemory`, too, where there are 16,384 segments.
    pub fn create(&self, wake: Arc<Notify>) -> io::Result<(LogWriter, LogReader)> {
        let place = self.shared.lock().claim(self.shared.layout, wake)?;
        let slot = Arc::new(Slot::new(Arc::clone(&self.shared), place));
        let reader = LogReader::local(Arc::clone(&slot));
        Ok((LogWriter::new(slot), reader))
    }

    /// Bytes of memory that logs take now.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.shared.used.load(Ordering::Relaxed)
    }

    /// The ids of the segments that exist, in order. The memory of others is gone.
    #[must_use]
    pub fn live(&self) -> Vec<u64> {
        self.shared.lock().segments.keys().copied().collect()
    }

    /// What is needed to read the logs of a segment elsewhere; `None` when there
    /// is no such segment. Its descriptor is made once.
    ///
    /// # Errors
    /// No descriptor, or no `/proc`.
    pub fn segment(&self, id: u64) -> io::Result<Option<SegmentFile>> {
        let segment = match self.shared.lock().segments.get(&id) {
            Some(held) => Arc::clone(&held.segment),
            None => return Ok(None),
        };
        Ok(Some(SegmentFile {
            id,
            number: segment.number,
            geometry: segment.layout.geometry,
            file: segment.read_only()?,
        }))
    }

    /// From now on readers in another process are woken by this doorbell, and by
    /// none that was attached before.
    pub fn attach(&self, doorbell: Doorbell) {
        let attached = &self.shared.attached;
        attached.exchange(Some(doorbell));
        // In this order: who makes a segment later finds the doorbell there.
        let numbers = self.shared.lock().numbers.clone();
        attached.announce(numbers.into_iter());
    }

    /// No reader in another process is woken any more.
    pub fn detach(&self) {
        self.shared.attached.exchange(None);
    }

    #[cfg(test)]
    pub(super) fn segments(&self) -> Vec<Arc<Segment>> {
        let table = self.shared.lock();
        table
            .segments
            .values()
            .map(|held| Arc::clone(&held.segment))
            .collect()
    }
}

/// What the logs of one store share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Of segments made from now on.
    pub(super) layout: Layout,
    budget: u64,
    used: AtomicU64,
    pub(super) scratches: Scratches,
    attached: Attached,
    /// A plain mutex: taken when a log is made, retires or is forgotten and when
    /// memory is short; held for look-ups and for giving memory of retired logs
    /// back, which is why none of these can be forgotten and reused meanwhile.
    /// Never across an await or I/O.
    table: Mutex<Table>,
}

impl Shared {
    pub(super) fn new(layout: Layout, budget: u64, table: Table) -> Self {
        Self {
            layout,
            budget,
            used: AtomicU64::new(0),
            scratches: Scratches::default(),
            attached: Attached::default(),
            table: Mutex::new(table),
        }
    }

    /// Wakes who waits for a change of the log, which is stored already.
    pub(super) fn ring(&self, place: &Place) {
        fence(Ordering::SeqCst);
        place.state().bell.wake();
        self.attached.ring(place.spot());
    }

    /// Counts what a log takes now.
    pub(super) fn charge(&self, place: &Place, bytes: u64) {
        let before = place.state().charged.swap(bytes, Ordering::Relaxed);
        if bytes >= before {
            self.used.fetch_add(bytes - before, Ordering::Relaxed);
        } else {
            self.used.fetch_sub(before - bytes, Ordering::Relaxed);
        }
    }

    /// The logs together take more than they may.
    pub(super) fn over_budget(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.budget
    }

    /// Gives memory up, or asks for it, until the budget is met.
    pub(super) fn squeeze(&self) {
        let mut woken = Vec::new();
        {
            let mut table = self.lock();
            while self
                .used
                .load(Ordering::Relaxed)
                .saturating_sub(table.asked)
                > self.budget
            {
                let gave = self.shrink_oldest(&mut table)
                    || table.ask_largest(Ask::Tail, &mut woken)
                    || table.ask_largest(Ask::All, &mut woken);
                if !gave {
                    break;
                }
            }
        }
        for wake in woken {
            wake.notify_one();
        }
    }

    fn shrink_oldest(&self, table: &mut Table) -> bool {
        let Some(oldest) = table.retired.first_entry() else {
            return false;
        };
        let place = oldest.get().clone();
        if place.footprint().tail > 0 {
            place.drop_tail();
        } else {
            place.drop_head();
            oldest.remove();
        }
        self.charge(&place, place.footprint().sum());
        self.ring(&place);
        true
    }

    /// The writer gave up what it was asked for.
    pub(super) fn gave(&self, key: Key) {
        self.lock().settle(key);
    }

    /// A log has no writer any more.
    pub(super) fn retire(&self, place: &Place) {
        {
            let mut table = self.lock();
            if table.stop(place) && place.footprint().sum() > 0 {
                let age = table.retirements;
                table.retire(place, age);
            }
        }
        // What it was asked for and has not given is still to be had.
        if self.over_budget() {
            self.squeeze();
        }
    }

    /// A retired log is about to be forgotten: its memory is not the store's to
    /// give up any more.
    pub(super) fn forget(&self, place: &Place) {
        self.lock().forget(place);
    }

    /// A slot is free again.
    pub(super) fn release(&self, place: &Place) {
        self.lock().release(place);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Table> {
        // Nothing panics half-way through a change.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
