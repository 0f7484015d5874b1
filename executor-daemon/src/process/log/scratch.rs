//! Aligned memory to read into where the log's own is not aligned.
//!
//! A log goes on at whatever offset it has come to, and copying to an odd
//! address costs the kernel up to three times as much on processors whose string
//! instructions want alignment. Reading into aligned memory and copying from
//! there is faster than that, though it copies twice.

use std::sync::{Mutex, PoisonError};

/// Bytes read at a time. They stay in the second-level cache.
const SIZE: usize = 64 << 10;
/// What the kernel's copy wants.
const ALIGNMENT: usize = 64;
/// Buffers that are kept; there are more only while more threads write.
const KEPT: usize = 2;

/// Buffers for all writers of a store: none is needed for longer than one read.
#[derive(Debug, Default)]
pub(super) struct Scratches {
    free: Mutex<Vec<Scratch>>,
}

impl Scratches {
    pub(super) fn take(&self) -> Scratch {
        let free = self
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        free.unwrap_or_else(Scratch::new)
    }

    pub(super) fn put_back(&self, scratch: Scratch) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < KEPT {
            free.push(scratch);
        }
    }
}

/// One buffer.
#[derive(Debug)]
pub(super) struct Scratch {
    memory: Box<[u8]>,
}

impl Scratch {
    fn new() -> Self {
        Self {
            memory: vec![0; SIZE + ALIGNMENT].into_boxed_slice(),
        }
    }

    /// Its aligned bytes, at most `length`.
    pub(super) fn aligned(&mut self, length: usize) -> &mut [u8] {
        let first = self.memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        let length = length.min(SIZE);
        self.memory
            .get_mut(first..first + length)
            .unwrap_or_default()
    }
}

/// Whether the kernel copies to this place at full speed.
pub(super) fn is_aligned(place: usize) -> bool {
    place.is_multiple_of(ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_is_aligned_and_as_long_as_asked_for() {
        let scratches = Scratches::default();
        let mut scratch = scratches.take();
        for (asked, given) in [(1, 1), (100, 100), (SIZE, SIZE), (SIZE + 1, SIZE)] {
            let bytes = scratch.aligned(asked);
            assert_eq!(bytes.len(), given);
            assert_eq!(bytes.as_ptr().addr() % ALIGNMENT, 0);
        }
        scratches.put_back(scratch);
    }
}
