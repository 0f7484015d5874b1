//! The control block of a log: all that a reader needs to know, in the mapping.
//!
//! 64 words of eight bytes, each an atomic:
//!
//! | word | what | |
//! |---|---|---|
//! | 0 | generation | of the slot; one more whenever it is given back |
//! | 1 | end | bytes produced; stored last of all that a write changes |
//! | 2 | flags | exited 1, ended 2, separate 4 |
//! | 3 | newlines | among all bytes produced; the writer's own |
//! | 4 | head newlines | among the bytes of the head; set when it is full |
//! | 5 | edges | how often memory was given up; its last bit names the edge in force |
//! | 8–11, 12–15 | two edges | floor, head_from, newlines before each of the two |
//! | 32–63 | counts | newlines before the offset at which each block begins |
//!
//! Invariants:
//! 1. One writer at a time: the log's writer while it runs, the store afterwards.
//! 2. Bytes, bits, counts and flags of a write are stored before `end` (release),
//!    which is loaded (acquire) before they are.
//! 3. A pair of edges is never changed while it is in force; the other one is
//!    filled and then put in force. Who loaded `edges` and finds it unchanged
//!    after reading a pair has read a pair that belongs together.
//! 4. Before bytes are overwritten or given up, what says that they are no longer
//!    retained is stored, and a fence lies between; a reader copies, lays a fence
//!    and looks again.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::layout::{CONTROL, COUNTS, Extent, Layout};
use crate::sys::shm::{SharedMemory, SharedView, Words};

const WORDS: usize = CONTROL / 8;
const GENERATION: usize = 0;
const END: usize = 1;
const FLAGS: usize = 2;
const NEWLINES: usize = 3;
const HEAD_NEWLINES: usize = 4;
const EDGES: usize = 5;
const EVEN_EDGE: usize = 8;
const ODD_EDGE: usize = 12;
const FIRST_COUNT: usize = WORDS - COUNTS;

const EXITED: u64 = 1;
const ENDED: u64 = 2;
const SEPARATE: u64 = 4;

/// The lowest offsets that were not given up, and the newlines before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Edge {
    pub(super) floor: u64,
    pub(super) head_from: u64,
    pub(super) newlines_before_floor: u64,
    pub(super) newlines_before_head: u64,
}

/// What a log looks like at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    edges: u64,
    flags: u64,
    pub(super) edge: Edge,
    pub(super) extent: Extent,
}

impl View {
    pub(super) fn exited(&self) -> bool {
        self.flags & EXITED != 0
    }

    pub(super) fn ended(&self) -> bool {
        self.flags & ENDED != 0
    }

    pub(super) fn separate(&self) -> bool {
        self.flags & SEPARATE != 0
    }

    /// No memory was given up between the two.
    pub(super) fn same_edges(&self, other: &Self) -> bool {
        self.edges == other.edges
    }
}

/// A control block in a mapping, as readers use it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Control<'a> {
    words: Words<'a, WORDS>,
}

impl<'a> Control<'a> {
    /// The one of `slot`.
    pub(super) fn new(memory: &'a SharedView, layout: &Layout, slot: usize) -> Self {
        Self {
            words: memory.words(layout.control(slot)),
        }
    }

    pub(super) fn generation(&self) -> u64 {
        self.words.acquire(GENERATION)
    }

    /// Looks at the log, if it still is of this generation.
    pub(super) fn view(&self, layout: &Layout, generation: u64) -> Option<View> {
        loop {
            let edges = self.words.acquire(EDGES);
            let edge = self.edge(edges);
            // Flags before the end: with the exit seen, all that was written
            // before it is, too. (`separate` is looked at again below.)
            let state = self.words.acquire(FLAGS);
            // The end after the edges, which never lie behind it.
            let end = self.words.acquire(END);
            let separate = self.words.load(FLAGS) & SEPARATE;
            fence(Ordering::Acquire);
            if self.words.load(GENERATION) != generation {
                return None;
            }
            if self.words.load(EDGES) == edges {
                return Some(View {
                    edges,
                    flags: state | separate,
                    edge,
                    extent: extent(layout, end, edge),
                });
            }
        }
    }

    /// The same for who alone changes it.
    pub(super) fn own_view(&self, layout: &Layout) -> View {
        let edges = self.words.load(EDGES);
        let edge = self.edge(edges);
        View {
            edges,
            flags: self.words.load(FLAGS),
            edge,
            extent: extent(layout, self.words.load(END), edge),
        }
    }

    pub(super) fn newlines(&self) -> u64 {
        self.words.load(NEWLINES)
    }

    pub(super) fn head_newlines(&self) -> u64 {
        self.words.load(HEAD_NEWLINES)
    }

    pub(super) fn count(&self, index: usize) -> u64 {
        self.words.load(FIRST_COUNT + index)
    }

    fn edge(&self, edges: u64) -> Edge {
        let first = first_word_of_edge(edges);
        Edge {
            floor: self.words.load(first),
            head_from: self.words.load(first + 1),
            newlines_before_floor: self.words.load(first + 2),
            newlines_before_head: self.words.load(first + 3),
        }
    }
}

/// A control block as its writer uses it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ControlMut<'a> {
    words: &'a [AtomicU64; WORDS],
}

impl<'a> ControlMut<'a> {
    /// The one of `slot`.
    pub(super) fn new(memory: &'a SharedMemory, layout: &Layout, slot: usize) -> Self {
        Self {
            words: memory.atomics(layout.control(slot)),
        }
    }

    pub(super) fn set_head_newlines(&self, newlines: u64) {
        self.words[HEAD_NEWLINES].store(newlines, Ordering::Relaxed);
    }

    pub(super) fn set_count(&self, index: usize, newlines: u64) {
        if let Some(word) = self.words.get(FIRST_COUNT + index) {
            word.store(newlines, Ordering::Relaxed);
        }
    }

    pub(super) fn set_separate(&self) {
        self.words[FLAGS].fetch_or(SEPARATE, Ordering::Relaxed);
    }

    pub(super) fn set_exited(&self) {
        self.words[FLAGS].fetch_or(EXITED, Ordering::Release);
    }

    pub(super) fn set_ended(&self) {
        self.words[FLAGS].fetch_or(ENDED, Ordering::Release);
    }

    /// Makes a write visible, and lays the fence before the next one.
    pub(super) fn publish(&self, end: u64, newlines: u64) {
        self.words[NEWLINES].store(newlines, Ordering::Relaxed);
        self.words[END].store(end, Ordering::Release);
        fence(Ordering::Release);
    }

    /// Says that memory is given up, and lays the fence before that is done.
    pub(super) fn set_edge(&self, edge: Edge) {
        let edges = self.words[EDGES].load(Ordering::Relaxed).wrapping_add(1);
        // The pair that was in force before last may still be read.
        fence(Ordering::Release);
        let first = first_word_of_edge(edges);
        let values = [
            edge.floor,
            edge.head_from,
            edge.newlines_before_floor,
            edge.newlines_before_head,
        ];
        for (word, value) in self.words.iter().skip(first).zip(values) {
            word.store(value, Ordering::Relaxed);
        }
        self.words[EDGES].store(edges, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Ends this generation, before any of its bytes is.
    pub(super) fn begin_next_generation(&self) {
        let next = self.words[GENERATION]
            .load(Ordering::Relaxed)
            .wrapping_add(1);
        self.words[GENERATION].store(next, Ordering::Release);
        fence(Ordering::SeqCst);
        for word in self.words.iter().skip(GENERATION + 1) {
            word.store(0, Ordering::Relaxed);
        }
    }
}

fn first_word_of_edge(edges: u64) -> usize {
    if edges.is_multiple_of(2) {
        EVEN_EDGE
    } else {
        ODD_EDGE
    }
}

fn extent(layout: &Layout, end: u64, edge: Edge) -> Extent {
    Extent {
        head: layout.head(),
        retained: layout.geometry.retained as u64,
        end,
        floor: edge.floor,
        head_from: edge.head_from,
    }
}
