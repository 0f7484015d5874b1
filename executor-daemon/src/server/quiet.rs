//! What a burst of calls took of memory goes back to the system once it is
//! over; an idle daemon then takes what its sessions need.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::sys::memory;

/// So long without a new call is quiet.
const QUIET: Duration = Duration::from_secs(1);

/// Counts calls, and does nothing while none comes.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    calls: AtomicU64,
    called: Notify,
}

impl Quiet {
    /// A call has come.
    pub(super) fn call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.called.notify_one();
    }

    /// Gives memory back each time it has become quiet. Cancel safe.
    pub(super) async fn give_back(&self) -> Infallible {
        loop {
            self.called.notified().await;
            loop {
                let before = self.calls.load(Ordering::Relaxed);
                tokio::time::sleep(QUIET).await;
                if self.calls.load(Ordering::Relaxed) == before {
                    break;
                }
            }
            // Off the threads that serve: it looks through all that is free.
            // Where it cannot be done, it is not done.
            let _ = tokio::task::spawn_blocking(memory::give_back).await;
        }
    }
}
