//! The threads of a search: they take the first task, and put what came of it
//! in its place.
//!
//! 1. No thread waits for the client: where too much waits to be told, threads
//!    leave, and are set to work again when a piece was taken. The first
//!    unfinished task goes on even so while nothing can be told, as all that
//!    waits waits for it.
//! 2. What waits to be told is bounded: [`WAITING`], and what the tasks at work
//!    add (about a MiB each).

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::super::cancel::Cancel;
use super::crew::Crew;
use super::order::{Order, Place, Step};
use super::results::Part;
use super::tree_walk::{Plan, Scratch, Steps, Task};

/// Bytes that wait to be told before no more is done.
const WAITING: usize = 2 << 20;
/// Bytes of a piece, about.
pub(super) const PIECE: usize = 128 << 10;
/// A thread that finds nothing to do leaves after this time.
const IDLE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) plan: Plan,
    pub(super) crew: Arc<Crew>,
    pub(super) cancel: Cancel,
    pub(super) state: Mutex<State>,
    /// Something can be told, or all is done.
    pub(super) told: Condvar,
    /// There may be something to do.
    pub(super) work: Condvar,
}

/// Its lock is held for a few moves of values, never while anything is read.
#[derive(Debug)]
pub(super) struct State {
    pub(super) order: Order<Task, Part>,
    /// Bytes of parts that are done and not told.
    pub(super) waiting: usize,
    pub(super) threads: usize,
    pub(super) broken: bool,
}

impl Shared {
    pub(super) fn new(plan: Plan, tasks: Vec<Task>, crew: &Arc<Crew>) -> Arc<Self> {
        Arc::new(Self {
            plan,
            crew: Arc::clone(crew),
            cancel: Cancel::new(),
            state: Mutex::new(State {
                order: Order::new(tasks),
                waiting: 0,
                threads: 0,
                broken: false,
            }),
            told: Condvar::new(),
            work: Condvar::new(),
        })
    }

    /// A thread that panics leaves the state whole: it is changed by moves only.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets one more thread to work, if there is work and a thread.
    pub(super) fn set_to_work(self: &Arc<Self>) -> bool {
        {
            let mut state = self.lock();
            let wanted = state.order.queued().min(self.crew.each());
            if !state.may_work() || state.threads >= wanted {
                return false;
            }
            state.threads += 1;
        }
        let thread = Working(Arc::clone(self));
        // Where there is none, what was to be done is dropped with its count.
        self.crew.set_to_work(move || thread.0.work())
    }

    fn work(self: &Arc<Self>) {
        let mut scratch = None;
        while let Some((place, task)) = self.next_task() {
            self.set_to_work();
            let scratch = scratch.get_or_insert_with(|| Scratch::new(&self.plan));
            self.run(&place, task, scratch, &self.cancel);
        }
    }

    /// `None`: there is nothing to do for this thread.
    fn next_task(&self) -> Option<(Place, Task)> {
        let mut state = self.lock();
        let begun = Instant::now();
        loop {
            if self.cancel.check().is_err() || state.order.is_done() {
                return None;
            }
            if state.order.queued() > 0 {
                return state.may_work().then(|| state.order.take())?;
            }
            let left = IDLE.checked_sub(begun.elapsed())?;
            let woken = self.work.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Does one task on this thread, if there is one. Given up by `cancel`.
    pub(super) fn work_once(&self, scratch: &mut Scratch, cancel: &Cancel) {
        let next = self.lock().order.take();
        if let Some((place, task)) = next {
            self.run(&place, task, scratch, cancel);
        }
    }

    fn run(&self, place: &Place, task: Task, scratch: &mut Scratch, cancel: &Cancel) {
        let done = Done {
            shared: self,
            place,
            steps: Some(Steps::new()),
        };
        let steps = self.plan.run(task, scratch, cancel);
        done.with(steps.unwrap_or_default());
    }

    pub(super) fn give_up(&self) {
        self.cancel.cancel();
        self.lock().order.clear();
        self.work.notify_all();
    }
}

impl State {
    /// There is room for what would come of it, or all that waits waits for it.
    fn may_work(&self) -> bool {
        self.waiting < WAITING || (self.order.first_is_queued() && !self.order.is_ready())
    }
}

/// A thread that counts as long as it is there.
struct Working(Arc<Shared>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.lock().threads -= 1;
        self.0.told.notify_all();
    }
}

/// Puts what came of a task in its place, whatever happens.
struct Done<'a> {
    shared: &'a Shared,
    place: &'a Place,
    steps: Option<Steps>,
}

impl Done<'_> {
    fn with(mut self, steps: Steps) {
        self.steps = Some(steps);
        drop(self);
    }
}

impl Drop for Done<'_> {
    fn drop(&mut self) {
        let steps = self.steps.take().unwrap_or_default();
        let bytes = steps.iter().map(|step| match step {
            Step::Part(part) => part.bytes,
            Step::Task(_) => 0,
        });
        let bytes: usize = bytes.sum();
        let mut state = self.shared.lock();
        if std::thread::panicking() {
            tracing::error!("a thread that searched panicked; the search ends");
            state.broken = true;
        }
        state.waiting += bytes;
        let before = state.order.queued();
        state.order.finish(self.place, steps);
        let more = state.order.queued() > before;
        // Who waits looks often enough; to wake it for each part costs more.
        let tell = state.order.is_done() || state.waiting >= PIECE || state.broken;
        drop(state);
        if more {
            self.shared.work.notify_all();
        }
        if tell {
            self.shared.told.notify_all();
        }
    }
}
