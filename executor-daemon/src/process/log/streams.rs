//! One bit per byte: did it come from standard error.
//!
//! Bit `i` of an area is bit `i mod 64` of its word `i / 64`.

use std::sync::atomic::Ordering;

use crate::sys::shm::{SharedMemory, SharedView};

const BITS: usize = u64::BITS as usize;

/// Sets the bits of `length` bytes from `at` on. Only one thread at a time.
pub(super) fn mark(memory: &SharedMemory, area: usize, at: usize, length: usize, stderr: bool) {
    for (word, mask) in words(at, length) {
        let [bits] = memory.atomics::<1>(area + word * 8);
        // A single writer: nothing comes between load and store.
        let old = if mask == u64::MAX {
            0
        } else {
            bits.load(Ordering::Relaxed)
        };
        let new = if stderr { old | mask } else { old & !mask };
        bits.store(new, Ordering::Relaxed);
    }
}

/// The stream of the byte at `at`, and how many bytes of it follow, itself
/// counted, at most `length`.
pub(super) fn run(memory: &SharedView, area: usize, at: usize, length: usize) -> (bool, usize) {
    let load = |word: usize| memory.word(area + word * 8);
    let stderr = load(at / BITS) >> (at % BITS) & 1 == 1;
    let mut run = 0;
    for (word, mask) in words(at, length) {
        let bits = load(word);
        let other = if stderr { !bits & mask } else { bits & mask };
        if other != 0 {
            let first = word * BITS + other.trailing_zeros() as usize;
            return (stderr, (first - at).max(1));
        }
        run += mask.count_ones() as usize;
    }
    (stderr, run.max(1))
}

/// The words that hold `length` bits from `at` on, and which of their bits.
fn words(at: usize, length: usize) -> impl Iterator<Item = (usize, u64)> {
    let stop = at + length;
    let mut at = at;
    std::iter::from_fn(move || {
        if at >= stop {
            return None;
        }
        let (word, first) = (at / BITS, at % BITS);
        let count = (BITS - first).min(stop - at);
        at += count;
        Some((word, (u64::MAX >> (BITS - count)) << first))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_where_the_stream_changes() {
        let memory = SharedMemory::create("test", 4096).expect("memory");
        for (at, length) in [(0, 1), (5, 3), (63, 2), (64, 64), (100, 300)] {
            mark(&memory, 0, 0, 1024, false);
            mark(&memory, 0, at, length, true);
            if at > 0 {
                assert_eq!(run(&memory, 0, 0, 1024), (false, at));
            }
            assert_eq!(run(&memory, 0, at, 1024 - at), (true, length));
            let behind = at + length;
            assert_eq!(
                run(&memory, 0, behind, 1024 - behind),
                (false, 1024 - behind)
            );
        }
    }

    #[test]
    fn marks_change_no_other_bit() {
        let memory = SharedMemory::create("test", 4096).expect("memory");
        mark(&memory, 0, 0, 256, true);
        mark(&memory, 0, 60, 70, false);
        assert_eq!(run(&memory, 0, 0, 256), (true, 60));
        assert_eq!(run(&memory, 0, 60, 196), (false, 70));
        assert_eq!(run(&memory, 0, 130, 126), (true, 126));
    }
}
