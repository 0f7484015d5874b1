//! Reading logs whose writers are in another process.
//!
//! Segments are mapped once, for reading only, and their logs are then found by
//! address; nothing is asked of the other process for a page. Who waits is
//! registered in a [`Doorbell`] (which says why no wake-up is lost) and woken by
//! [`RemoteLogs::listen`].
//!
//! Waiters are kept by the *number* of a segment, not by the segment: when a
//! number is used again, those of the old segment and those of the new one share
//! the bits of the doorbell, and are woken together rather than one by the
//! other's leaving forgotten.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::Interest;
use tokio::sync::Notify;

use super::LogAddress;
use super::bell;
use super::doorbell::{Doorbell, SEGMENTS, Spot};
use super::layout::{Layout, SLOTS};
use super::reader::LogReader;
use super::store::SegmentFile;
use super::window::Window;
use crate::sys::readiness::Watched;
use crate::sys::shm::SharedView;

/// The logs of another process, as far as their segments are known. Cheap to
/// clone; all clones are the same.
#[derive(Debug, Clone)]
pub struct RemoteLogs {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    line: Arc<Line>,
    /// Plain mutexes, here and below: held for look-ups, never across an await.
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    segments: BTreeMap<u64, Arc<Segment>>,
    /// By number of the segment; kept, because readers of one that is gone may
    /// still wait.
    rows: BTreeMap<u32, Arc<Row>>,
}

/// What connects to the other process.
#[derive(Debug)]
struct Line {
    doorbell: Mutex<Doorbell>,
    lost: AtomicBool,
}

/// Those who wait for a slot of the segments of one number.
type Row = [Waiters; SLOTS];

/// Those who wait for one slot.
#[derive(Debug, Default)]
struct Waiters {
    rung: Notify,
    registered: Mutex<Registered>,
}

#[derive(Debug, Default)]
struct Registered {
    waiting: usize,
    /// Where the bit is set.
    at: Option<Doorbell>,
}

#[derive(Debug)]
struct Segment {
    number: u32,
    layout: Layout,
    memory: SharedView,
    row: Arc<Row>,
    line: Arc<Line>,
}

impl RemoteLogs {
    /// Without any segment yet.
    #[must_use]
    pub fn new(doorbell: Doorbell) -> Self {
        let line = Line {
            doorbell: Mutex::new(doorbell),
            lost: AtomicBool::new(false),
        };
        Self {
            shared: Arc::new(Shared {
                line: Arc::new(line),
                inner: Mutex::default(),
            }),
        }
    }

    /// Exchanges the doorbell, for a new connection to the same logs. Who waits
    /// goes on waiting at the new one, and [`RemoteLogs::listen`] listens to it.
    pub fn connect(&self, doorbell: Doorbell) {
        let old = {
            let mut current = lock(&self.shared.line.doorbell);
            std::mem::replace(&mut *current, doorbell)
        };
        self.wake_all();
        old.knock();
    }

    /// The other process is lost, and its logs with it: every reader, also one
    /// that waits, finds its log gone.
    pub fn close(&self) {
        self.shared.line.lost.store(true, Ordering::SeqCst);
        self.wake_all();
        self.shared.line.current().knock();
    }

    /// Makes the logs of a segment readable. Repeating it changes nothing.
    ///
    /// # Errors
    /// `InvalidData` when it is none; no memory.
    pub fn add(&self, segment: &SegmentFile) -> io::Result<()> {
        let layout = Layout::checked(segment.geometry, rustix::param::page_size())
            .filter(|_| segment.number < SEGMENTS)
            .ok_or_else(|| {
                let kind = io::ErrorKind::InvalidData;
                io::Error::new(kind, "no segment has such a number or geometry")
            })?;
        let mut inner = lock(&self.shared.inner);
        if inner.segments.contains_key(&segment.id) {
            return Ok(());
        }
        let memory = SharedView::map(segment.file.as_fd(), layout.segment())?;
        let row = inner.rows.entry(segment.number).or_insert_with(|| {
            let row: Row = std::array::from_fn(|_| Waiters::default());
            Arc::new(row)
        });
        let row = Arc::clone(row);
        let mapped = Segment {
            number: segment.number,
            layout,
            memory,
            row,
            line: Arc::clone(&self.shared.line),
        };
        inner.segments.insert(segment.id, Arc::new(mapped));
        Ok(())
    }

    /// Forgets all segments but those with these ids. Readers that are left keep
    /// the memory of theirs mapped and find their logs gone.
    pub fn retain(&self, live: &[u64]) {
        let mut inner = lock(&self.shared.inner);
        inner.segments.retain(|id, _| live.contains(id));
    }

    /// A reader of a log; `None` when its segment is not known. Dropping it gives
    /// nothing back: how long the log lives is decided by the other process.
    #[must_use]
    pub fn reader(&self, address: LogAddress) -> Option<LogReader> {
        let inner = lock(&self.shared.inner);
        let segment = inner.segments.get(&address.segment)?;
        let slot = usize::try_from(address.slot).ok()?;
        (slot < segment.layout.geometry.slots).then(|| {
            LogReader::remote(RemoteSlot {
                segment: Arc::clone(segment),
                address,
            })
        })
    }

    /// Wakes waiting readers as the other process rings, and returns once the logs
    /// were closed. Without it no reader is woken; one call at a time. Cancel
    /// safe: what was rung meanwhile is found by the next call.
    ///
    /// # Errors
    /// The eventfd cannot be watched, or the runtime is ending.
    pub async fn listen(&self) -> io::Result<()> {
        let line = &self.shared.line;
        while !line.is_lost() {
            let doorbell = line.current();
            let event = Watched::new(Arc::clone(doorbell.event()), Interest::READABLE)?;
            // What was rung to a call before this one, which ended in between.
            self.pick_up(&doorbell);
            // Who exchanges or closes does so before it knocks.
            while line.current().is(&doorbell) && !line.is_lost() {
                let mut ready = event.readable().await?;
                // Before the eventfd is read: every write from here on makes it
                // ready again.
                ready.clear_ready();
                self.pick_up(&doorbell);
            }
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn doorbell(&self) -> Doorbell {
        self.shared.line.current()
    }

    /// Wakes who waits for what was rung.
    fn pick_up(&self, doorbell: &Doorbell) {
        let inner = lock(&self.shared.inner);
        doorbell.take(inner.rows.keys().copied(), |number, bits| {
            let row = inner.rows.get(&number);
            for (slot, waiters) in row.iter().flat_map(|row| row.iter().enumerate()) {
                if bits >> slot & 1 == 1 {
                    waiters.rung.notify_waiters();
                }
            }
        });
    }

    fn wake_all(&self) {
        let inner = lock(&self.shared.inner);
        for waiters in inner.rows.values().flat_map(|row| row.iter()) {
            waiters.rung.notify_waiters();
        }
    }
}

impl Line {
    fn current(&self) -> Doorbell {
        lock(&self.doorbell).clone()
    }

    fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }
}

/// One slot of another process, with the log that was in it at one time.
#[derive(Debug, Clone)]
pub(super) struct RemoteSlot {
    segment: Arc<Segment>,
    address: LogAddress,
}

impl RemoteSlot {
    pub(super) fn address(&self) -> LogAddress {
        self.address
    }

    pub(super) fn generation(&self) -> u64 {
        self.address.generation
    }

    /// The process of the writer is.
    pub(super) fn is_lost(&self) -> bool {
        self.segment.line.is_lost()
    }

    pub(super) fn window(&self) -> Window<'_> {
        Window {
            memory: &self.segment.memory,
            layout: &self.segment.layout,
            slot: self.index(),
        }
    }

    /// Waits until `changed` is true, looking again at each ring. Cancel safe.
    pub(super) async fn wait_until(&self, changed: impl Fn() -> bool) {
        // `reader` gives out slots only for which there are waiters.
        let Some(waiters) = self.segment.row.get(self.index()) else {
            return;
        };
        let register = || Waiting::register(waiters, &self.segment.line, self.spot());
        bell::wait_until(&waiters.rung, register, changed).await;
    }

    fn index(&self) -> usize {
        usize::try_from(self.address.slot).unwrap_or(usize::MAX)
    }

    fn spot(&self) -> Spot {
        Spot {
            number: self.segment.number,
            slot: self.address.slot,
        }
    }
}

/// Counted while it lives; the first sets the bit in the doorbell, the last
/// clears it.
struct Waiting<'a> {
    waiters: &'a Waiters,
    spot: Spot,
}

impl<'a> Waiting<'a> {
    fn register(waiters: &'a Waiters, line: &Line, spot: Spot) -> Self {
        let mut registered = lock(&waiters.registered);
        registered.waiting += 1;
        // Looked up under the lock, so that an older one never follows a newer.
        let current = line.current();
        let told = registered.at.as_ref();
        if !told.is_some_and(|told| told.is(&current)) {
            current.wait(spot);
            registered.at = Some(current);
        }
        Self { waiters, spot }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut registered = lock(&self.waiters.registered);
        registered.waiting = registered.waiting.saturating_sub(1);
        if registered.waiting == 0
            && let Some(doorbell) = registered.at.take()
        {
            doorbell.leave(self.spot);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics half-way through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
