//! Segments, the shared memory of many logs, and slots, the share of one.
//!
//! A slot is free, running (it has a writer), retired (its output has ended) and
//! free again. Whoever holds a reader of it from before finds another generation
//! and is told that the log is gone.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::LogAddress;
use super::bell::Bell;
use super::control::{Control, ControlMut, Edge};
use super::doorbell::Spot;
use super::layout::{Footprint, Layout, Piece};
use super::store::Shared;
use super::streams;
use super::window::Window;
use crate::sys::shm::SharedMemory;

/// What is known of a slot beside what its readers need.
#[derive(Debug, Default)]
pub(super) struct SlotState {
    pub(super) bell: Bell,
    /// Its memory, as it counts in the store's sum.
    pub(super) charged: AtomicU64,
    /// What the store asks its writer to give up: an [`Ask`].
    pub(super) asked: AtomicU8,
    /// When it retired, in the store's count.
    pub(super) retired_at: AtomicU64,
}

/// What a running log is asked to give up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Ask {
    Nothing = 0,
    Tail = 1,
    All = 2,
}

impl Ask {
    pub(super) fn of(value: u8) -> Self {
        match value {
            0 => Self::Nothing,
            1 => Self::Tail,
            _ => Self::All,
        }
    }
}

/// The shared memory of many logs.
#[derive(Debug)]
pub(super) struct Segment {
    /// Never used again.
    pub(super) id: u64,
    /// The lowest that was free; used again once the segment is gone.
    pub(super) number: u32,
    pub(super) layout: Layout,
    memory: SharedMemory,
    states: Box<[SlotState]>,
    /// Made when it is first asked for.
    read_only: OnceLock<Arc<OwnedFd>>,
}

impl Segment {
    pub(super) fn create(id: u64, number: u32, layout: Layout) -> io::Result<Self> {
        let memory = SharedMemory::create("executor-logs", layout.segment())?;
        Ok(Self::new(id, number, layout, memory))
    }

    /// A segment that was made elsewhere.
    pub(super) fn adopt(id: u64, number: u32, layout: Layout, file: OwnedFd) -> io::Result<Self> {
        let memory = SharedMemory::map(file, layout.segment())?;
        Ok(Self::new(id, number, layout, memory))
    }

    fn new(id: u64, number: u32, layout: Layout, memory: SharedMemory) -> Self {
        Self {
            id,
            number,
            layout,
            memory,
            states: (0..layout.geometry.slots)
                .map(|_| SlotState::default())
                .collect(),
            read_only: OnceLock::new(),
        }
    }

    /// The memory's file, open for reading and writing.
    pub(super) fn file(&self) -> &Arc<OwnedFd> {
        self.memory.file()
    }

    /// The same, open for reading only.
    pub(super) fn read_only(&self) -> io::Result<Arc<OwnedFd>> {
        if let Some(file) = self.read_only.get() {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(self.memory.reopen_read_only()?);
        Ok(Arc::clone(self.read_only.get_or_init(|| file)))
    }

    #[cfg(test)]
    pub(super) fn allocated(&self) -> u64 {
        self.memory.allocated()
    }
}

/// Names a slot among all.
pub(super) type Key = (u64, usize);

/// One slot of a segment.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) segment: Arc<Segment>,
    pub(super) index: usize,
}

impl Place {
    pub(super) fn key(&self) -> Key {
        (self.segment.id, self.index)
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.segment.layout
    }

    pub(super) fn memory(&self) -> &SharedMemory {
        &self.segment.memory
    }

    /// What its readers see.
    pub(super) fn window(&self) -> Window<'_> {
        Window {
            memory: self.memory(),
            layout: self.layout(),
            slot: self.index,
        }
    }

    /// What a doorbell calls it.
    pub(super) fn spot(&self) -> Spot {
        Spot {
            number: self.segment.number,
            // It is below 64.
            slot: u32::try_from(self.index).unwrap_or(u32::MAX),
        }
    }

    pub(super) fn control(&self) -> Control<'_> {
        self.window().control()
    }

    /// For who alone changes the log.
    pub(super) fn control_mut(&self) -> ControlMut<'_> {
        ControlMut::new(self.memory(), self.layout(), self.index)
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "a place is made with an index below the geometry's slots, for each of which there is a state"
    )]
    pub(super) fn state(&self) -> &SlotState {
        &self.segment.states[self.index]
    }

    pub(super) fn bytes(&self, piece: Piece) -> usize {
        self.layout().bytes(self.index, piece)
    }

    /// Says where the bytes of a piece came from.
    pub(super) fn mark(&self, piece: Piece, stderr: bool) {
        let words = self.layout().bits(self.index, piece.in_head);
        streams::mark(self.memory(), words, piece.at, piece.length, stderr);
    }

    /// Newlines from `from` to `to`, which lie in the memory. For who alone
    /// changes the log.
    pub(super) fn own_newlines(&self, from: u64, to: u64) -> u64 {
        let memory = self.memory();
        self.layout()
            .pieces(from, to)
            .map(|piece| memory.count_own(self.bytes(piece), piece.length, b'\n'))
            .sum()
    }

    /// What the log takes, for who alone changes it.
    pub(super) fn footprint(&self) -> Footprint {
        let view = self.control().own_view(self.layout());
        self.layout().footprint(&view.extent, view.separate())
    }

    /// Gives the bytes of the ring up. For who alone changes the log.
    pub(super) fn drop_tail(&self) {
        let control = self.control();
        let view = control.own_view(self.layout());
        if view.extent.tail_start() < view.extent.end {
            self.control_mut().set_edge(Edge {
                floor: view.extent.end,
                newlines_before_floor: control.newlines(),
                ..view.edge
            });
            self.punch(self.layout().ring_area(self.index));
        }
    }

    /// Gives the bytes of the head up. For who alone changes the log.
    pub(super) fn drop_head(&self) {
        let control = self.control();
        let view = control.own_view(self.layout());
        let head_end = view.extent.head_end();
        if view.extent.head_from < head_end {
            let full = view.extent.end >= view.extent.head;
            self.control_mut().set_edge(Edge {
                head_from: head_end,
                newlines_before_head: if full {
                    control.head_newlines()
                } else {
                    control.newlines()
                },
                ..view.edge
            });
            self.punch(self.layout().head_area(self.index));
        }
    }

    /// Ends a log that nobody has taken over, and gives its memory back; not when
    /// that fails.
    pub(super) fn clear(&self) -> bool {
        self.control_mut().begin_next_generation();
        // Whatever its control block says: it may have been left like this.
        self.punch(self.layout().slot_area(self.index))
    }

    fn punch(&self, (at, length): (usize, usize)) -> bool {
        self.memory()
            .punch(at, length)
            .inspect_err(|error| tracing::warn!(%error, "log memory could not be given back"))
            .is_ok()
    }
}

/// A slot in use, by its writer, by what is left of it once it has retired, and
/// by its readers.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) shared: Arc<Shared>,
    pub(super) place: Place,
    pub(super) generation: u64,
    given_back: AtomicBool,
}

impl Slot {
    pub(super) fn new(shared: Arc<Shared>, place: Place) -> Self {
        Self {
            shared,
            generation: place.control().generation(),
            place,
            given_back: AtomicBool::new(false),
        }
    }

    pub(super) fn address(&self) -> LogAddress {
        LogAddress {
            segment: self.place.segment.id,
            slot: self.place.spot().slot,
            generation: self.generation,
        }
    }

    /// Forgets the log and gives its memory back, once. Only when it has no
    /// writer any more.
    pub(super) fn give_back(&self) {
        if self.given_back.swap(true, Ordering::AcqRel) {
            return;
        }
        // From here on the store does not touch it.
        self.shared.forget(&self.place);
        let place = &self.place;
        let (footprint, layout) = (place.footprint(), place.layout());
        place.control_mut().begin_next_generation();
        // A hole costs the more the longer it is, and most logs are short.
        let clean = match (footprint.head, footprint.tail) {
            (0, 0) => true,
            (_, 0) => place.punch(layout.head_area(place.index)),
            _ => place.punch(layout.slot_area(place.index)),
        };
        self.shared.charge(place, 0);
        self.shared.ring(place);
        // Old bits would give the next log wrong streams: better one slot lost.
        if clean {
            self.shared.release(place);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.give_back();
    }
}
