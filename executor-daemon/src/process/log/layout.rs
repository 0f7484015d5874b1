//! Where everything lies in a segment, and which bytes of a log are retained:
//! plain arithmetic.
//!
//! A segment holds `slots` logs:
//!
//! ```text
//! control 0 | control 1 | … | slot 0 | slot 1 | …            (areas begin at pages)
//! slot:  head | one bit per byte of the head | ring | one bit per byte of the ring
//! ```
//!
//! Bytes of the log below `head` lie in the head only, those from there on in
//! the ring only, at `(offset − head) mod physical`. The bits say which stream a
//! byte came from; they are touched only where standard error is separate.
//!
//! Invariants:
//! 1. `physical = retained + slack`, and no write is larger than `slack`: the
//!    write that begins at `end` overwrites only offsets below
//!    `end − retained`, which are no longer promised.
//! 2. Retained are the head, from `head_from` on, and the newest `retained`
//!    bytes at or above `head` and `floor`.

use serde::{Deserialize, Serialize};

/// Counts of newlines that a log keeps: one for each block of its ring.
pub(super) const COUNTS: usize = 32;
/// Blocks into which the memory of a ring is divided; fewer than [`COUNTS`], so
/// that the count of a block outlives its bytes.
const BLOCKS: usize = 20;
/// Bytes of a control block.
pub(super) const CONTROL: usize = 512;
/// Most logs in one segment.
pub(super) const SLOTS: usize = 64;
/// Largest size that a geometry may come with from elsewhere, in bytes.
const LARGEST: usize = 1 << 32;

/// Sizes of a log. In bytes; all of them at least 1 (less counts as 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    /// First bytes of the output, which are kept for good.
    pub head: usize,
    /// Newest bytes, which are kept while memory allows.
    pub retained: usize,
    /// Largest single write; memory of the ring beyond `retained`.
    pub slack: usize,
    /// Logs in one segment; at most 64 (more count as 64).
    pub slots: usize,
}

impl Geometry {
    /// 64 KiB of head, 1 MiB of tail.
    pub const PRODUCTION: Self = Self {
        head: 64 << 10,
        retained: 1 << 20,
        slack: 256 << 10,
        slots: 64,
    };
}

/// A contiguous piece of a log in its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// In the head, not in the ring.
    pub(super) in_head: bool,
    /// Index of the first byte within head or ring.
    pub(super) at: usize,
    /// Bytes; never 0.
    pub(super) length: usize,
}

/// The geometry with all that follows from it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub(super) geometry: Geometry,
    page: usize,
    first_slot: usize,
    stride: usize,
    head_bits: usize,
    ring: usize,
    ring_bits: usize,
}

impl Layout {
    pub(super) fn new(geometry: Geometry, page: usize) -> Self {
        let geometry = Geometry {
            head: geometry.head.max(1),
            retained: geometry.retained.max(1),
            slack: geometry.slack.max(1),
            slots: geometry.slots.clamp(1, SLOTS),
        };
        let pages = |bytes: usize| bytes.next_multiple_of(page);
        // Bits are set in words of eight bytes.
        let bits = |bytes: usize| pages(bytes.div_ceil(64) * 8);
        let physical = geometry.retained + geometry.slack;
        let head_bits = pages(geometry.head);
        let ring = head_bits + bits(geometry.head);
        let ring_bits = ring + pages(physical);
        Self {
            geometry,
            page,
            first_slot: pages(CONTROL * geometry.slots),
            stride: ring_bits + bits(physical),
            head_bits,
            ring,
            ring_bits,
        }
    }

    /// The layout of a segment that was made elsewhere; none for a geometry that
    /// no segment has.
    pub(super) fn checked(geometry: Geometry, page: usize) -> Option<Self> {
        let Geometry {
            head,
            retained,
            slack,
            slots,
        } = geometry;
        let sizes = [head, retained, slack];
        let possible =
            sizes.iter().all(|size| (1..=LARGEST).contains(size)) && (1..=SLOTS).contains(&slots);
        possible.then(|| Self::new(geometry, page))
    }

    /// Bytes of a segment.
    pub(super) fn segment(&self) -> usize {
        self.first_slot + self.stride * self.geometry.slots
    }

    /// Where the control block of a slot lies.
    pub(super) fn control(&self, slot: usize) -> usize {
        slot * CONTROL
    }

    /// Where the bytes of a piece lie.
    pub(super) fn bytes(&self, slot: usize, piece: Piece) -> usize {
        let area = if piece.in_head { 0 } else { self.ring };
        self.slot(slot) + area + piece.at
    }

    /// Where the bits of the head, or of the ring, begin.
    pub(super) fn bits(&self, slot: usize, in_head: bool) -> usize {
        let area = if in_head {
            self.head_bits
        } else {
            self.ring_bits
        };
        self.slot(slot) + area
    }

    /// Place and length of the head with its bits.
    pub(super) fn head_area(&self, slot: usize) -> (usize, usize) {
        (self.slot(slot), self.ring)
    }

    /// Place and length of the ring with its bits.
    pub(super) fn ring_area(&self, slot: usize) -> (usize, usize) {
        (self.slot(slot) + self.ring, self.stride - self.ring)
    }

    /// Place and length of all that a slot has but its control block.
    pub(super) fn slot_area(&self, slot: usize) -> (usize, usize) {
        (self.slot(slot), self.stride)
    }

    fn slot(&self, slot: usize) -> usize {
        self.first_slot + slot * self.stride
    }

    /// The first offset that lies in the ring.
    pub(super) fn head(&self) -> u64 {
        self.geometry.head as u64
    }

    /// Bytes that the ring has room for.
    pub(super) fn physical(&self) -> u64 {
        (self.geometry.retained + self.geometry.slack) as u64
    }

    /// Bytes of the ring between two counts of newlines.
    fn block(&self) -> u64 {
        let block = (self.geometry.retained + self.geometry.slack).div_ceil(BLOCKS);
        // A retained byte must have a count at or behind it.
        block.min(self.geometry.retained) as u64
    }

    /// The first offset behind `offset` at which newlines are counted.
    pub(super) fn next_count(&self, offset: u64) -> u64 {
        match offset.checked_sub(self.head()) {
            None => self.head(),
            Some(at) => self.head() + (at / self.block() + 1) * self.block(),
        }
    }

    /// Which count belongs to `offset`; none unless it begins a block.
    pub(super) fn count_at(&self, offset: u64) -> Option<usize> {
        let at = offset.checked_sub(self.head())?;
        at.is_multiple_of(self.block())
            .then(|| index(at / self.block() % COUNTS as u64))
    }

    /// The count of `offset`, which begins a block, cannot have been replaced
    /// while the log has ended at or before `end`.
    pub(super) fn count_lives(&self, offset: u64, end: u64) -> bool {
        offset + COUNTS as u64 * self.block() > end + self.geometry.slack as u64
    }

    /// Memory that may be written in one go from `end` on.
    pub(super) fn room(&self, end: u64) -> Piece {
        let slack = self.geometry.slack;
        match self.head().checked_sub(end) {
            None | Some(0) => {
                let at = index((end - self.head()) % self.physical());
                Piece {
                    in_head: false,
                    at,
                    length: slack.min(index(self.physical()) - at),
                }
            }
            Some(left) => Piece {
                in_head: true,
                at: index(end),
                length: slack.min(index(left)),
            },
        }
    }

    /// The memory of the offsets from `from` to `to`: of at most the head and
    /// one round of the ring.
    pub(super) fn pieces(&self, from: u64, to: u64) -> impl Iterator<Item = Piece> + use<> {
        let (head, physical) = (self.head(), self.physical());
        let mut from = from;
        std::iter::from_fn(move || {
            let in_head = from < head;
            let (at, edge) = if in_head {
                (from, head)
            } else {
                let at = (from - head) % physical;
                (at, from - at + physical)
            };
            let stop = edge.min(to);
            let length = stop.checked_sub(from).filter(|length| *length > 0)?;
            from = stop;
            Some(Piece {
                in_head,
                at: index(at),
                length: index(length),
            })
        })
    }

    /// Memory that a log takes.
    pub(super) fn footprint(&self, extent: &Extent, separate: bool) -> Footprint {
        let of = |from: u64, to: u64| {
            let bits = if separate && from < to {
                self.touched(from / 8, to.div_ceil(8))
            } else {
                0
            };
            self.touched(from, to) + bits
        };
        let head = of(extent.head_from, extent.head_end());
        let base = extent.floor.max(self.head());
        let tail = match extent.end.saturating_sub(base) {
            0 => 0,
            length if length >= self.physical() => of(0, self.physical()),
            length => {
                let from = (base - self.head()) % self.physical();
                match (from + length).checked_sub(self.physical()) {
                    None | Some(0) => of(from, from + length),
                    // Both ends may share pages, which does not make them more.
                    Some(rest) => {
                        (of(from, self.physical()) + of(0, rest)).min(of(0, self.physical()))
                    }
                }
            }
        };
        Footprint { head, tail }
    }

    fn touched(&self, from: u64, to: u64) -> u64 {
        let page = self.page as u64;
        if from >= to {
            0
        } else {
            (to.div_ceil(page) - from / page) * page
        }
    }
}

/// Bytes of memory, in whole pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Footprint {
    pub(super) head: u64,
    pub(super) tail: u64,
}

impl Footprint {
    pub(super) fn sum(self) -> u64 {
        self.head + self.tail
    }
}

/// Which offsets of a log are retained at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// The first offset of the ring.
    pub(super) head: u64,
    /// Newest bytes that the ring keeps.
    pub(super) retained: u64,
    /// Bytes produced.
    pub(super) end: u64,
    /// The lowest offset of the ring that was not given up; 0 when nothing was.
    pub(super) floor: u64,
    /// The lowest offset of the head that was not given up.
    pub(super) head_from: u64,
}

impl Extent {
    /// Where the bytes of the head end.
    pub(super) fn head_end(&self) -> u64 {
        self.head.min(self.end)
    }

    /// Where the retained bytes of the ring begin; the end when there are none.
    pub(super) fn tail_start(&self) -> u64 {
        self.end
            .saturating_sub(self.retained)
            .max(self.floor)
            .max(self.head)
            .min(self.end)
    }

    /// The lowest retained offset at or behind `cursor`; the end when there is
    /// none.
    pub(super) fn next_retained(&self, cursor: u64) -> u64 {
        if cursor < self.head_end() && self.head_from < self.head_end() {
            cursor.max(self.head_from)
        } else {
            cursor.max(self.tail_start())
        }
    }

    /// Where the retained bytes that begin at `start`, itself retained, are
    /// interrupted.
    pub(super) fn readable_until(&self, start: u64) -> u64 {
        if start < self.head_end() && self.tail_start() > self.head {
            self.head
        } else {
            self.end
        }
    }

    /// All bytes from `from` to `to` are retained.
    pub(super) fn retains(&self, from: u64, to: u64) -> bool {
        from == to || (self.next_retained(from) == from && to <= self.readable_until(from))
    }

    /// Bytes that are no longer retained.
    pub(super) fn dropped(&self) -> u64 {
        let head = self.head_end().saturating_sub(self.head_from);
        self.end - head - (self.end - self.tail_start())
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "only what is smaller than a size of the geometry, which is a usize"
)]
pub(super) fn index(below_a_size: u64) -> usize {
    below_a_size as usize
}
