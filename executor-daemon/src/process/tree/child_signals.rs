//! Exits of our children in a process that is all our own: by SIGCHLD, so that
//! a child that runs costs no descriptor and no watch.
//!
//! ```text
//! SIGCHLD ─→ signalfd ─→ hints: the pids it names ──wake──→ who follows that child
//!                 └──── a moment later: sweep ──────wake──→ (it looks, and reaps)
//! ```
//!
//! 1. A hint is never trusted: whoever is woken asks waitid(2) about its own
//!    child, by pid, and only then reaps it.
//! 2. Hints are incomplete, since one SIGCHLD stands for all that end while it
//!    is pending. So each time some were read, a sweep asks for any child that
//!    has ended and is unreaped. A child that ends after that read makes a new
//!    signal.
//! 3. A child that is not followed hides others from the sweep: then every
//!    followed child is asked about, once. One whose follower has not reaped it
//!    yet hides them too: then the sweep is repeated, and every child is asked
//!    about when that one is still there after several.
//! 4. Who begins to follow a child looks once: it may have ended before.
//! 5. There is one of these per process: a signal is read by one reader.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::Interest;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::proc;
use crate::sys::readiness::Watched;
use crate::sys::{signal, wait};

/// So few children are swept at once: looking costs less than a timer.
const FEW: usize = 128;
/// How long the sweep over more of them waits, so that one is enough for all
/// that end meanwhile: a hundred times what it takes, and at least so long.
const SWEEP_AFTER: Duration = Duration::from_millis(3);
const SWEEP_AFTER_EACH: Duration = Duration::from_micros(10);
/// Ended children that a sweep asks for one by one, before it asks about all.
const ONE_BY_ONE: usize = 4;
/// Sweeps for which a child that is slow to be reaped is waited for.
const PATIENCE: u32 = 3;
/// Children asked about before others get their turn.
const AT_A_TIME: usize = 256;

/// The one reader of this process is taken.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Tells of children that end. Works for as long as this or anything that
/// follows a child exists.
#[derive(Debug)]
pub(super) struct ChildSignals {
    registry: Arc<Registry>,
    _stop: DropGuard,
}

impl ChildSignals {
    /// Becomes the reader of this process's SIGCHLD, in a task of its own.
    /// Must be called inside a runtime.
    ///
    /// # Errors
    /// The signal is not blocked everywhere, somebody reads it already, or
    /// there is no descriptor to be had.
    pub(super) fn claim(tasks: &TaskTracker) -> io::Result<Arc<Self>> {
        if !signal::child_signals_blocked() || !proc::threads_block(libc::SIGCHLD) {
            return Err(io::Error::other("SIGCHLD is not blocked in every thread"));
        }
        let claim = Claim::take().ok_or_else(|| io::Error::other("SIGCHLD is read already"))?;
        let stop = CancellationToken::new();
        let registry = Arc::<Registry>::default();
        let reader = Reader {
            signals: Watched::new(signal::child_signals()?, Interest::READABLE)?,
            registry: Arc::clone(&registry),
            _claim: claim,
        };
        let stopped = stop.clone();
        tasks.spawn(async move { stopped.run_until_cancelled(reader.run()).await });
        Ok(Arc::new(Self {
            registry,
            _stop: stop.drop_guard(),
        }))
    }

    /// Follows a child that nobody else reaps, from now on or because it has
    /// ended already.
    pub(super) fn follow(self: &Arc<Self>, pid: u32) -> Followed {
        let hint = Arc::new(Notify::new());
        self.registry.children().insert(pid, Arc::clone(&hint));
        if wait::has_ended(pid).unwrap_or(true) {
            hint.notify_one();
        }
        Followed {
            pid,
            hint,
            signals: Arc::clone(self),
        }
    }
}

/// A child that is followed until this is dropped.
#[derive(Debug)]
pub(super) struct Followed {
    pid: u32,
    hint: Arc<Notify>,
    signals: Arc<ChildSignals>,
}

impl Followed {
    /// Returns when the child may have ended: soon after it has, and sometimes
    /// for nothing. Cancel safe.
    pub(super) async fn hint(&self) {
        self.hint.notified().await;
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        let mut children = self.signals.registry.children();
        // A later child may have the number by now.
        let own = children.get(&self.pid);
        if own.is_some_and(|hint| Arc::ptr_eq(hint, &self.hint)) {
            children.remove(&self.pid);
        }
    }
}

/// Followers by pid. The lock is held for one look or change, or one copy of
/// the pids.
#[derive(Debug, Default)]
struct Registry {
    children: Mutex<HashMap<u32, Arc<Notify>>>,
}

impl Registry {
    fn children(&self) -> MutexGuard<'_, HashMap<u32, Arc<Notify>>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// False when nobody follows it.
    fn wake(&self, pid: u32) -> bool {
        let children = self.children();
        let hint = children.get(&pid);
        hint.inspect(|hint| hint.notify_one()).is_some()
    }
}

struct Reader {
    signals: Watched,
    registry: Arc<Registry>,
    _claim: Claim,
}

impl Reader {
    /// Runs until its runtime ends.
    async fn run(self) {
        let mut sweep_at = None;
        let mut slow = Slow::default();
        loop {
            tokio::select! {
                biased;
                hints = self.hints() => {
                    let Ok(hints) = hints else { return };
                    for pid in hints {
                        self.registry.wake(pid);
                    }
                    let count = self.registry.children().len();
                    if count <= FEW {
                        sweep_at = self.sweep(&mut slow).await;
                    } else {
                        sweep_at.get_or_insert_with(|| Instant::now() + sweep_after(count));
                    }
                }
                () = at(sweep_at) => {
                    sweep_at = self.sweep(&mut slow).await;
                }
            }
        }
    }

    async fn hints(&self) -> io::Result<Vec<u32>> {
        let mut ready = self.signals.readable().await?;
        let hints = signal::take_child_signals(self.signals.as_fd());
        ready.clear_ready();
        hints
    }

    /// Finds those that ended and were not named. Says when it is to be done
    /// again.
    async fn sweep(&self, slow: &mut Slow) -> Option<Instant> {
        let mut last = None;
        for _ in 0..ONE_BY_ONE {
            // Those that were woken reap first.
            tokio::task::yield_now().await;
            let Ok(Some(pid)) = wait::any_ended() else {
                *slow = Slow::default();
                return None;
            };
            if !self.registry.wake(pid) {
                break;
            }
            if last == Some(pid) {
                if slow.again(pid) {
                    return Some(Instant::now() + SWEEP_AFTER);
                }
                break;
            }
            last = Some(pid);
        }
        let pids: Vec<u32> = self.registry.children().keys().copied().collect();
        for some in pids.chunks(AT_A_TIME) {
            for pid in some {
                if wait::has_ended(*pid).unwrap_or(true) {
                    self.registry.wake(*pid);
                }
            }
            tokio::task::yield_now().await;
        }
        *slow = Slow::default();
        None
    }
}

/// A child that has ended and is not reaped by who follows it.
#[derive(Debug, Default)]
struct Slow {
    pid: u32,
    sweeps: u32,
}

impl Slow {
    /// Whether to wait for it once more.
    fn again(&mut self, pid: u32) -> bool {
        if self.pid != pid {
            *self = Self { pid, sweeps: 0 };
        }
        self.sweeps += 1;
        self.sweeps <= PATIENCE
    }
}

fn sweep_after(count: usize) -> Duration {
    let each = u32::try_from(count).unwrap_or(u32::MAX);
    SWEEP_AFTER_EACH.saturating_mul(each).max(SWEEP_AFTER)
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Given back when the reader is gone.
struct Claim;

impl Claim {
    fn take() -> Option<Self> {
        (!TAKEN.swap(true, Ordering::AcqRel)).then_some(Self)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        TAKEN.store(false, Ordering::Release);
    }
}
