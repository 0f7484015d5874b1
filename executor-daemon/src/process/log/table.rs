//! Which segments and slots there are, and who uses them. It is changed under the
//! store's lock.
//!
//! ```text
//! free ── claim ──► running ── stop, retire ──► retired ── forget, release ──► free
//! inherited ── run ──► running       inherited ── retire ──► retired
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::Notify;

use super::doorbell::SEGMENTS;
use super::layout::Layout;
use super::segment::{Ask, Key, Place, Segment};

/// What the store knows of its slots.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// How many segments were made.
    pub(super) made: u64,
    pub(super) segments: BTreeMap<u64, Held>,
    /// Numbers of the segments.
    pub(super) numbers: BTreeSet<u32>,
    /// Segments with free slots.
    pub(super) open: BTreeSet<u64>,
    /// Slots of imported segments that are in use, by nobody yet.
    pub(super) inherited: BTreeSet<Key>,
    running: BTreeMap<Key, Running>,
    /// By age of their retirement; only those that have memory to give.
    pub(super) retired: BTreeMap<u64, Place>,
    pub(super) retirements: u64,
    /// What running logs were asked for and have not given yet.
    pub(super) asked: u64,
}

/// A segment and its free slots.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) segment: Arc<Segment>,
    pub(super) free: Vec<usize>,
}

#[derive(Debug)]
struct Running {
    place: Place,
    wake: Arc<Notify>,
    asked: u64,
}

impl Table {
    /// Without a segment, after others had been made.
    pub(super) fn after(made: u64) -> Self {
        Self {
            made,
            ..Self::default()
        }
    }

    /// Takes a free slot, of the oldest segment that has one, for a log that has
    /// a writer.
    pub(super) fn claim(&mut self, layout: Layout, wake: Arc<Notify>) -> io::Result<Place> {
        let id = match self.open.first() {
            Some(id) => *id,
            None => self.grow(layout)?,
        };
        let held = self.segments.get_mut(&id);
        let held = held.ok_or_else(|| io::Error::other("an open segment is held"))?;
        let index = held.free.pop();
        let index = index.ok_or_else(|| io::Error::other("an open segment has a free slot"))?;
        if held.free.is_empty() {
            self.open.remove(&id);
        }
        let place = Place {
            segment: Arc::clone(&held.segment),
            index,
        };
        self.run(&place, wake);
        Ok(place)
    }

    /// A slot is free again. One segment without logs is kept, others go.
    pub(super) fn release(&mut self, place: &Place) {
        let id = place.segment.id;
        let Some(held) = self.segments.get_mut(&id) else {
            return;
        };
        held.free.push(place.index);
        self.open.insert(id);
        if !held.is_empty() {
            return;
        }
        let mut empty = self.segments.values().filter(|held| held.is_empty());
        if empty.nth(1).is_some() {
            self.segments.remove(&id);
            self.numbers.remove(&place.segment.number);
            self.open.remove(&id);
        }
    }

    /// Makes a segment.
    fn grow(&mut self, layout: Layout) -> io::Result<u64> {
        let number = (0..SEGMENTS).find(|number| !self.numbers.contains(number));
        let number = number.ok_or(io::ErrorKind::OutOfMemory)?;
        let id = self.made;
        let segment = Arc::new(Segment::create(id, number, layout)?);
        self.made += 1;
        let free = (0..layout.geometry.slots).rev().collect();
        self.segments.insert(id, Held { segment, free });
        self.numbers.insert(number);
        self.open.insert(id);
        Ok(id)
    }

    /// A log has a writer.
    pub(super) fn run(&mut self, place: &Place, wake: Arc<Notify>) {
        let running = Running {
            place: place.clone(),
            wake,
            asked: 0,
        };
        self.running.insert(place.key(), running);
    }

    /// A log has no writer any more; whether it had one.
    pub(super) fn stop(&mut self, place: &Place) -> bool {
        self.settle(place.key());
        self.running.remove(&place.key()).is_some()
    }

    /// Nobody uses a log any more.
    pub(super) fn forget(&mut self, place: &Place) {
        self.stop(place);
        let age = place.state().retired_at.load(Ordering::Relaxed);
        let retired = self.retired.get(&age);
        if retired.is_some_and(|retired| retired.key() == place.key()) {
            self.retired.remove(&age);
        }
    }

    /// A log has retired, and has memory to give.
    pub(super) fn retire(&mut self, place: &Place, age: u64) {
        let mut age = age;
        while self.retired.contains_key(&age) {
            age = age.wrapping_add(1);
        }
        self.retirements = self.retirements.max(age.saturating_add(1));
        self.retired.insert(age, place.clone());
        place.state().retired_at.store(age, Ordering::Relaxed);
    }

    /// Asks the running log that has most to give.
    pub(super) fn ask_largest(&mut self, ask: Ask, woken: &mut Vec<Arc<Notify>>) -> bool {
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

    /// What a log was asked for is not expected any more.
    pub(super) fn settle(&mut self, key: Key) {
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

impl Held {
    /// None of its slots is in use.
    fn is_empty(&self) -> bool {
        self.free.len() == self.segment.layout.geometry.slots
    }
}

#[cfg(test)]
mod tests {
    use super::super::Geometry;
    use super::*;

    #[test]
    fn without_a_free_number_there_is_no_further_segment() {
        let mut table = Table::default();
        table.numbers.extend(0..SEGMENTS);
        let layout = Layout::new(Geometry::PRODUCTION, 4096);
        let refused = table.claim(layout, Arc::default()).map(drop);
        assert_eq!(
            refused.expect_err("refused").kind(),
            io::ErrorKind::OutOfMemory
        );
        table.numbers.remove(&77);
        let place = table.claim(layout, Arc::default()).expect("a slot");
        assert_eq!((place.segment.number, place.segment.id), (77, 0));
    }
}
