//! Threads that all searches of a daemon share, beside the one that each has.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a thread does.
pub type Work = Box<dyn FnOnce() + Send>;

/// A bounded number of threads. A search that gets none does its work on the
/// thread that waits for it, so that each goes on, however many there are.
pub struct Crew {
    free: AtomicUsize,
    /// Threads that one search may have.
    each: usize,
    start: Box<dyn Fn(Work) + Send + Sync>,
}

impl Crew {
    /// `size` threads, which `start` sets to work; one search has at most
    /// `each`.
    #[must_use]
    pub fn new(
        size: usize,
        each: usize,
        start: impl Fn(Work) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            free: AtomicUsize::new(size),
            each: each.max(1),
            start: Box::new(start),
        })
    }

    /// Threads that nothing is done on.
    #[cfg(test)]
    pub(in super::super) fn free(&self) -> usize {
        self.free.load(Ordering::Relaxed)
    }

    pub(super) fn each(&self) -> usize {
        self.each
    }

    /// Sets a thread to work; `false`: there is none.
    pub(super) fn set_to_work(self: &Arc<Self>, work: impl FnOnce() + Send + 'static) -> bool {
        let taken = self
            .free
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
                free.checked_sub(1)
            });
        if taken.is_err() {
            return false;
        }
        let place = Place(Arc::clone(self));
        (self.start)(Box::new(move || {
            // Given back also where the work panics, or is never begun.
            let _place = place;
            work();
        }));
        true
    }
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew")
            .field("free", &self.free)
            .field("each", &self.each)
            .finish_non_exhaustive()
    }
}

struct Place(Arc<Crew>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.free.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_threads_work_than_there_are() {
        let (given, works) = std::sync::mpsc::sync_channel::<Work>(8);
        let crew = Crew::new(2, 8, move |work| drop(given.send(work)));
        assert!(crew.set_to_work(|| ()) && crew.set_to_work(|| panic!("a bug")));
        assert!(!crew.set_to_work(|| ()));
        works.recv().unwrap()();
        assert!(crew.set_to_work(|| ()));
        let panics = works.recv().unwrap();
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        assert!(crew.set_to_work(|| ()));
        assert!(!crew.set_to_work(|| ()));
        // What is never begun is given back too.
        drop(works);
        for _ in 0..3 {
            assert!(crew.set_to_work(|| ()));
        }
    }
}
