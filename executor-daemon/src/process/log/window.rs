//! One slot as its readers see it: the mapping and where the slot lies in it.
//! It is the same whether writer and reader share a process or not.

use super::control::Control;
use super::layout::{Layout, Piece};
use super::streams;
use crate::sys::shm::SharedView;

/// One slot in a mapping.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window<'a> {
    pub(super) memory: &'a SharedView,
    pub(super) layout: &'a Layout,
    pub(super) slot: usize,
}

impl<'a> Window<'a> {
    pub(super) fn control(&self) -> Control<'a> {
        Control::new(self.memory, self.layout, self.slot)
    }

    /// Where the bytes of a piece lie.
    pub(super) fn bytes(&self, piece: Piece) -> usize {
        self.layout.bytes(self.slot, piece)
    }

    /// How many of the first bytes of a piece came from the same stream, and
    /// whether that is standard error.
    pub(super) fn run(&self, piece: Piece) -> (bool, usize) {
        let words = self.layout.bits(self.slot, piece.in_head);
        streams::run(self.memory, words, piece.at, piece.length)
    }

    /// Newlines from `from` to `to`, which must be retained.
    pub(super) fn newlines(&self, from: u64, to: u64) -> u64 {
        self.layout
            .pieces(from, to)
            .map(|piece| self.memory.count(self.bytes(piece), piece.length, b'\n'))
            .sum()
    }
}
