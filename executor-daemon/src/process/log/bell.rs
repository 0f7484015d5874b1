//! Wakes the readers of one log.
//!
//! Ringing while nobody waits costs a fence and a load. Within one process this
//! is all there is; between two, a descriptor takes the place of the `Notify`.

use std::sync::atomic::{AtomicUsize, Ordering, fence};

use tokio::sync::Notify;

/// Rung whenever something about a log has changed.
#[derive(Debug, Default)]
pub(super) struct Bell {
    waiting: AtomicUsize,
    notify: Notify,
}

impl Bell {
    /// Wakes all that wait. What changed must be stored before.
    pub(super) fn ring(&self) {
        // Either this load sees the waiter, or the waiter, which registered
        // before it looked, sees what was stored before this fence.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.notify.notify_waiters();
        }
    }

    /// Waits until `changed` is true, looking again at each ring. Cancel safe.
    pub(super) async fn wait_until(&self, changed: impl Fn() -> bool) {
        while !changed() {
            let mut rung = std::pin::pin!(self.notify.notified());
            rung.as_mut().enable();
            let _waiting = Waiting::register(self);
            if changed() {
                return;
            }
            rung.await;
        }
    }
}

/// Counted while it lives.
struct Waiting<'a>(&'a Bell);

impl<'a> Waiting<'a> {
    fn register(bell: &'a Bell) -> Self {
        bell.waiting.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Self(bell)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}
