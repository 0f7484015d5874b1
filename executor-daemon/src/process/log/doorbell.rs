//! Wakes readers of logs whose writers are in another process.
//!
//! A doorbell is a small shared memory that both sides write, and an eventfd
//! (eventfd(2)). In the memory, words of eight bytes, each an atomic:
//!
//! | word | what | set | cleared |
//! |---|---|---|---|
//! | 0 | pending: the eventfd was written and nobody has looked since | writers | listener |
//! | 8 + 2 n | waiting: bit `s` = somebody waits for slot `s` of segment number `n` | readers | readers |
//! | 9 + 2 n | dirty: bit `s` = that slot was rung and its waiter was not woken yet | writers | listener |
//!
//! ```text
//! writer    store what changed │ fence │ load waiting ─► set dirty ─► pending.swap(1) = 0 ─► write eventfd
//! reader    set waiting │ fence │ look whether it changed ─► sleep
//! listener  read eventfd ─► pending.swap(0) ─► dirty.swap(0) ─► wake these readers
//! ```
//!
//! **No wake-up is lost:**
//! 1. Of the two fences one comes first. If the reader's, the writer's load of
//!    `waiting` sees the bit; if the writer's, the reader's look sees what was
//!    stored. So a reader sleeps only if the writer rings.
//! 2. A writer sets `dirty` before it swaps `pending`. All that change `pending`
//!    are swaps, so the listener's swap synchronizes with each swap before it and
//!    sees all dirty bits set before these. A writer that swaps later than the
//!    listener finds 0, or a swap of another writer before it did; that one
//!    writes the eventfd, after the listener has read it or such that it is
//!    readable again, and the listener comes round once more.
//! 3. The listener reads the eventfd before it swaps `pending`: it never eats the
//!    write of somebody that found 0 after that swap.
//! 4. A writer that does not yet see a doorbell just attached laid its fence
//!    before [`Doorbell::announce`] laid its own, so whoever sets its waiting bit
//!    too late for `announce` looks after that fence and sees what was stored;
//!    all others are rung by `announce`.
//!
//! A doorbell serves one connection of one reading process. One that dies leaves
//! bits set, in a doorbell that nobody uses again.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, PoisonError, RwLock};

use rustix::event::EventfdFlags;
use rustix::fs::OFlags;

use super::layout::SLOTS;
use crate::sys::shm::SharedMemory;

/// Most segments that a store has at a time.
pub(super) const SEGMENTS: u32 = 16_384;

const PENDING: usize = 0;
const FIRST_PAIR: usize = 8;
const WORD: usize = size_of::<u64>();
const LENGTH: usize = (FIRST_PAIR + 2 * SEGMENTS as usize) * WORD;

const _: () = assert!(SLOTS <= u64::BITS as usize, "a bit for each slot");

/// Names a slot to both sides: the number of its segment, and its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) number: u32,
    pub(super) slot: u32,
}

impl Spot {
    fn bit(self) -> u64 {
        1 << (self.slot % u64::BITS)
    }
}

/// What wakes readers in another process: a shared memory and an eventfd, of
/// which both processes hold a descriptor. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct Doorbell {
    memory: Arc<SharedMemory>,
    event: Arc<OwnedFd>,
}

impl Doorbell {
    /// A new one. It takes 4 KiB of memory for each 252 segments in use.
    ///
    /// # Errors
    /// No memory or no descriptor; it needs two.
    pub fn new() -> io::Result<Self> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            memory: Arc::new(SharedMemory::create("executor-doorbell", LENGTH)?),
            event: Arc::new(event),
        })
    }

    /// The one whose [`Doorbell::descriptors`] were passed.
    ///
    /// # Errors
    /// `InvalidData` when they are not of a doorbell, `PermissionDenied` when
    /// they cannot be written; no memory.
    pub fn from_descriptors(memory: OwnedFd, event: OwnedFd) -> io::Result<Self> {
        let name = format!("/proc/self/fd/{}", event.as_raw_fd());
        let name = rustix::fs::readlink(name, Vec::new())?;
        if name.as_bytes() != b"anon_inode:[eventfd]" {
            let kind = io::ErrorKind::InvalidData;
            return Err(io::Error::new(kind, format!("{name:?} is not an eventfd")));
        }
        // Nobody may be held up by a peer that counts it up to its limit.
        let flags = rustix::fs::fcntl_getfl(&event)?;
        rustix::fs::fcntl_setfl(&event, flags | OFlags::NONBLOCK)?;
        Ok(Self {
            memory: Arc::new(SharedMemory::map(memory, LENGTH)?),
            event: Arc::new(event),
        })
    }

    /// Its memory and its eventfd, to be passed to the other process.
    #[must_use]
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.memory.file().as_fd(), self.event.as_fd()]
    }

    /// Both are the same one of this process.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.memory, &other.memory)
    }

    pub(super) fn event(&self) -> &Arc<OwnedFd> {
        &self.event
    }

    /// Somebody waits. The caller lays a fence before it looks again.
    pub(super) fn wait(&self, spot: Spot) {
        let [waiting, _] = self.pair(spot.number);
        waiting.fetch_or(spot.bit(), Ordering::SeqCst);
    }

    /// Nobody waits any more.
    pub(super) fn leave(&self, spot: Spot) {
        let [waiting, _] = self.pair(spot.number);
        waiting.fetch_and(!spot.bit(), Ordering::SeqCst);
    }

    /// Wakes who waits. The caller has laid a fence after what changed.
    fn ring(&self, spot: Spot) {
        let [waiting, dirty] = self.pair(spot.number);
        if waiting.load(Ordering::Relaxed) & spot.bit() != 0 {
            dirty.fetch_or(spot.bit(), Ordering::Release);
            if self.pending().swap(1, Ordering::AcqRel) == 0 {
                self.knock();
            }
        }
    }

    /// Wakes all that wait for a slot of these segments.
    fn announce(&self, numbers: impl Iterator<Item = u32>) {
        fence(Ordering::SeqCst);
        for number in numbers {
            let [waiting, dirty] = self.pair(number);
            let bits = waiting.load(Ordering::Relaxed);
            if bits != 0 {
                dirty.fetch_or(bits, Ordering::Release);
            }
        }
        // Whatever `pending` says: who set it last may have died before it knocked.
        self.pending().swap(1, Ordering::AcqRel);
        self.knock();
    }

    /// Makes the listener look.
    pub(super) fn knock(&self) {
        // It fails only where the count is at its limit, so readable.
        let knocked = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        if let Err(error) = knocked {
            tracing::debug!(%error, "a doorbell was not rung");
        }
    }

    /// Takes the slots of these segments that were rung since, as bits.
    pub(super) fn take(&self, numbers: impl Iterator<Item = u32>, mut rung: impl FnMut(u32, u64)) {
        let mut count = [0; WORD];
        // Already empty is no error: one look may answer two knocks.
        let _ = rustix::io::read(&self.event, &mut count);
        self.pending().swap(0, Ordering::AcqRel);
        for number in numbers {
            let [_, dirty] = self.pair(number);
            if dirty.load(Ordering::Relaxed) != 0 {
                rung(number, dirty.swap(0, Ordering::Acquire));
            }
        }
    }

    /// The slots of a segment for which somebody waits, as bits.
    #[cfg(test)]
    pub(super) fn waits(&self, number: u32) -> u64 {
        let [waiting, _] = self.pair(number);
        waiting.load(Ordering::SeqCst)
    }

    fn pending(&self) -> &AtomicU64 {
        let [pending] = self.memory.atomics(PENDING * WORD);
        pending
    }

    /// `waiting` and `dirty`.
    fn pair(&self, number: u32) -> &[AtomicU64; 2] {
        let number = (number % SEGMENTS) as usize;
        self.memory.atomics((FIRST_PAIR + 2 * number) * WORD)
    }
}

/// The doorbell of the reading process that is connected now, if one is.
#[derive(Debug, Default)]
pub(super) struct Attached {
    /// Whether there is one: without, ringing costs a load.
    any: AtomicBool,
    /// For reading and writing because the writers of all logs ring at the same
    /// time, and it is exchanged once per connection.
    doorbell: RwLock<Option<Doorbell>>,
}

impl Attached {
    /// Wakes who waits at the slot. The caller has laid a fence after what
    /// changed.
    pub(super) fn ring(&self, spot: Spot) {
        if self.any.load(Ordering::Relaxed) {
            let doorbell = self.doorbell.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(doorbell) = &*doorbell {
                doorbell.ring(spot);
            }
        }
    }

    /// Exchanges the doorbell. Who waits at the new one is to be told of it by
    /// [`Attached::announce`].
    pub(super) fn exchange(&self, new: Option<Doorbell>) {
        let mut doorbell = self
            .doorbell
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        self.any.store(new.is_some(), Ordering::Relaxed);
        *doorbell = new;
    }

    /// Wakes all that wait at the doorbell for a slot of these segments, which
    /// are those that there were some time after it was exchanged: they may have
    /// missed something before.
    pub(super) fn announce(&self, numbers: impl Iterator<Item = u32>) {
        let doorbell = self.doorbell.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(doorbell) = &*doorbell {
            doorbell.announce(numbers);
        }
    }
}
