//! Descriptors that a runtime watches.
//!
//! tokio's registration is unsafe because the descriptor must stay open, and
//! the same, for as long as it is registered. [`Watched`] owns it and gives out
//! no way to exchange it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

/// A descriptor registered with the runtime until dropped.
#[derive(Debug)]
pub struct Watched(AsyncFd<Arc<OwnedFd>>);

impl Watched {
    /// Registers a descriptor, which should be non-blocking. Must be called
    /// inside a runtime; the same open file cannot be registered twice.
    ///
    /// # Errors
    /// It cannot be polled (`EPERM`), or epoll(7) is out of room.
    pub fn new(descriptor: impl Into<Arc<OwnedFd>>, interest: Interest) -> io::Result<Self> {
        // SAFETY: the descriptor is owned, so open, until this value drops it
        // after its registration; nothing here replaces it in between.
        let watched = unsafe { AsyncFd::register_with_interest(descriptor.into(), interest) };
        Ok(Self(watched?))
    }

    /// The descriptor itself.
    #[must_use]
    pub fn file(&self) -> &Arc<OwnedFd> {
        self.0.get_ref()
    }

    /// Waits until it is readable. Cancel safe.
    ///
    /// # Errors
    /// The runtime is ending.
    pub async fn readable(&self) -> io::Result<AsyncFdReadyGuard<'_, Arc<OwnedFd>>> {
        self.0.readable().await
    }

    /// Waits until it is writable. Cancel safe.
    ///
    /// # Errors
    /// The runtime is ending.
    pub async fn writable(&self) -> io::Result<AsyncFdReadyGuard<'_, Arc<OwnedFd>>> {
        self.0.writable().await
    }

    /// Does one non-blocking operation if the descriptor was last seen ready;
    /// `WouldBlock` makes it not ready.
    ///
    /// # Errors
    /// What `operation` fails with, or `WouldBlock` without calling it.
    pub fn try_io<R>(
        &self,
        interest: Interest,
        operation: impl FnOnce(BorrowedFd<'_>) -> io::Result<R>,
    ) -> io::Result<R> {
        self.0
            .try_io(interest, |descriptor| operation(descriptor.as_fd()))
    }
}

/// Blocks until `descriptor` is readable, or for `time`. Says whether it is; a
/// pidfd is when its process has ended.
#[must_use]
pub fn readable_within(descriptor: BorrowedFd<'_>, time: Duration) -> bool {
    let last = Instant::now() + time;
    loop {
        let left = last.saturating_duration_since(Instant::now());
        let Ok(timeout) = Timespec::try_from(left) else {
            return false;
        };
        let mut asked = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        match poll(&mut asked, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => {}
            answer => return answer.is_ok_and(|ready| ready > 0),
        }
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}
