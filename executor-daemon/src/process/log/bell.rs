//! Wakes the readers of one log that wait in the process of its writer.
//!
//! Ringing while nobody waits costs a fence and a load. Readers in another
//! process are woken by the `doorbell`.

use std::sync::atomic::{AtomicUsize, Ordering, fence};

use tokio::sync::Notify;

/// Rung whenever something about a log has changed.
#[derive(Debug, Default)]
pub(super) struct Bell {
    waiting: AtomicUsize,
    notify: Notify,
}

impl Bell {
    /// Wakes all that wait. What changed must be stored before, and a
    /// sequentially consistent fence laid after that: either this load sees the
    /// waiter, or the waiter, which registered before it looked, sees what was
    /// stored before the fence.
    pub(super) fn wake(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.notify.notify_waiters();
        }
    }

    /// Waits until `changed` is true, looking again at each ring. Cancel safe.
    pub(super) async fn wait_until(&self, changed: impl Fn() -> bool) {
        wait_until(&self.notify, || Waiting::register(self), changed).await;
    }
}

/// Waits until `changed` is true, looking again whenever `rung` is notified.
/// Who waits is registered, by a value that lives as long, before it looks.
/// Cancel safe.
pub(super) async fn wait_until<W>(
    rung: &Notify,
    register: impl Fn() -> W,
    changed: impl Fn() -> bool,
) {
    while !changed() {
        let mut notified = std::pin::pin!(rung.notified());
        notified.as_mut().enable();
        let _waiting = register();
        fence(Ordering::SeqCst);
        if changed() {
            return;
        }
        notified.await;
    }
}

/// Counted while it lives.
struct Waiting<'a>(&'a Bell);

impl<'a> Waiting<'a> {
    fn register(bell: &'a Bell) -> Self {
        bell.waiting.fetch_add(1, Ordering::SeqCst);
        Self(bell)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}
