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

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU64};

use tokio::sync::Notify;

use super::layout::{Geometry, Layout};
use super::reader::LogReader;
use super::scratch::Scratches;
use super::segment::{Ask, Key, Place, Segment, Slot};
use super::writer::LogWriter;

/// Memory of all logs by default: 1 GiB.
pub const DEFAULT_BUDGET: u64 = 1 << 30;

/// Makes logs. Cheap to clone; all clones share one budget.
#[derive(Debug, Clone)]
pub struct LogStore {
    shared: Arc<Shared>,
}

impl LogStore {
    /// A store without any log, which has taken no memory. `budget` is in bytes.
    #[must_use]
    pub fn new(geometry: Geometry, budget: u64) -> Self {
        let shared = Shared {
            layout: Layout::new(geometry, rustix::param::page_size()),
            budget,
            used: AtomicU64::new(0),
            scratches: Scratches::default(),
            inner: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Makes a log. `wake` is notified (`notify_one`) when the writer ought to
    /// call [`LogWriter::shrink_if_asked`].
    ///
    /// # Errors
    /// No memory or no descriptor for a further segment (one for each 64 logs).
    pub fn create(&self, wake: Arc<Notify>) -> io::Result<(LogWriter, LogReader)> {
        let place = self.shared.claim(wake)?;
        let slot = Arc::new(Slot::new(Arc::clone(&self.shared), place));
        let reader = LogReader::new(Arc::clone(&slot));
        Ok((LogWriter::new(slot), reader))
    }

    /// Bytes of memory that logs take now.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.shared.used.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn segments(&self) -> Vec<Arc<Segment>> {
        let inner = self.shared.lock();
        inner
            .segments
            .values()
            .map(|held| Arc::clone(&held.segment))
            .collect()
    }
}

/// What the logs of one store share.
#[derive(Debug)]
pub(super) struct Shared {
    layout: Layout,
    budget: u64,
    used: AtomicU64,
    pub(super) scratches: Scratches,
    /// A plain mutex: taken when a log is made, retires or is forgotten and when
    /// memory is short; held for look-ups and for giving memory of retired logs
    /// back, which is why none of these can be forgotten and reused meanwhile.
    /// Never across an await or I/O.
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    made: u64,
    segments: BTreeMap<u64, Held>,
    /// Segments with free slots.
    open: BTreeSet<u64>,
    running: BTreeMap<Key, Running>,
    /// By age of their retirement; only those that have memory to give.
    retired: BTreeMap<u64, Place>,
    retirements: u64,
    /// What running logs were asked for and have not given yet.
    asked: u64,
}

#[derive(Debug)]
struct Held {
    segment: Arc<Segment>,
    free: Vec<usize>,
}

#[derive(Debug)]
struct Running {
    place: Place,
    wake: Arc<Notify>,
    asked: u64,
}

impl Shared {
    /// Takes a free slot, of the oldest segment that has one.
    fn claim(&self, wake: Arc<Notify>) -> io::Result<Place> {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let id = match inner.open.first() {
            Some(id) => *id,
            None => {
                let id = inner.made;
                let segment = Arc::new(Segment::create(id, self.layout)?);
                inner.made += 1;
                let free = (0..self.layout.geometry.slots).rev().collect();
                inner.segments.insert(id, Held { segment, free });
                inner.open.insert(id);
                id
            }
        };
        let held = inner.segments.get_mut(&id);
        let held = held.ok_or_else(|| io::Error::other("an open segment is held"))?;
        let index = held.free.pop();
        let index = index.ok_or_else(|| io::Error::other("an open segment has a free slot"))?;
        if held.free.is_empty() {
            inner.open.remove(&id);
        }
        let place = Place {
            segment: Arc::clone(&held.segment),
            index,
        };
        let running = Running {
            place: place.clone(),
            wake,
            asked: 0,
        };
        inner.running.insert(place.key(), running);
        Ok(place)
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
            let mut guard = self.lock();
            let inner = &mut *guard;
            while self
                .used
                .load(Ordering::Relaxed)
                .saturating_sub(inner.asked)
                > self.budget
            {
                let gave = self.shrink_oldest(inner)
                    || inner.ask_largest(Ask::Tail, &mut woken)
                    || inner.ask_largest(Ask::All, &mut woken);
                if !gave {
                    break;
                }
            }
        }
        for wake in woken {
            wake.notify_one();
        }
    }

    fn shrink_oldest(&self, inner: &mut Inner) -> bool {
        let Some(oldest) = inner.retired.first_entry() else {
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
        place.state().bell.ring();
        true
    }

    /// The writer gave up what it was asked for.
    pub(super) fn gave(&self, key: Key) {
        let mut inner = self.lock();
        inner.settle(key);
    }

    /// A log has no writer any more.
    pub(super) fn retire(&self, place: &Place) {
        {
            let mut inner = self.lock();
            inner.settle(place.key());
            if inner.running.remove(&place.key()).is_some() && place.footprint().sum() > 0 {
                let age = inner.retirements;
                inner.retirements += 1;
                inner.retired.insert(age, place.clone());
                place.state().retired_at.store(age, Ordering::Relaxed);
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
        let age = place.state().retired_at.load(Ordering::Relaxed);
        let mut inner = self.lock();
        inner.settle(place.key());
        inner.running.remove(&place.key());
        if inner
            .retired
            .get(&age)
            .is_some_and(|retired| retired.key() == place.key())
        {
            inner.retired.remove(&age);
        }
    }

    /// A slot is free again. One segment without logs is kept, others go.
    pub(super) fn release(&self, place: &Place) {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let id = place.segment.id;
        let Some(held) = inner.segments.get_mut(&id) else {
            return;
        };
        held.free.push(place.index);
        inner.open.insert(id);
        let slots = self.layout.geometry.slots;
        if held.free.len() < slots {
            return;
        }
        let mut empty = inner
            .segments
            .values()
            .filter(|held| held.free.len() == slots);
        if empty.nth(1).is_some() {
            inner.segments.remove(&id);
            inner.open.remove(&id);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics half-way through a change.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Asks the running log that has most to give.
    fn ask_largest(&mut self, ask: Ask, woken: &mut Vec<Arc<Notify>>) -> bool {
        let largest = self
            .running
            .values_mut()
            .filter_map(|running| {
                // Its writer may be at work: an estimate, which is enough.
                let footprint = running.place.footprint();
                let gives = if ask == Ask::All {
                    footprint.sum()
                } else {
                    footprint.tail
                };
                let more = gives.saturating_sub(running.asked);
                (more > 0).then_some((more, running))
            })
            .max_by_key(|(more, _)| *more);
        let Some((more, running)) = largest else {
            return false;
        };
        running.asked += more;
        self.asked += more;
        running
            .place
            .state()
            .asked
            .fetch_max(ask as u8, Ordering::Release);
        woken.push(Arc::clone(&running.wake));
        true
    }

    fn settle(&mut self, key: Key) {
        if let Some(running) = self.running.get_mut(&key) {
            running
                .place
                .state()
                .asked
                .store(Ask::Nothing as u8, Ordering::Relaxed);
            self.asked = self.asked.saturating_sub(running.asked);
            running.asked = 0;
        }
    }
}
