//! One task per process: it drains the output, feeds the input, sees the exit
//! and keeps the deadlines.
//!
//! ```text
//!               leader exits                 output ends
//! Following ──────────────────► Draining ─────────────────► done
//!     │                            ▲
//!     └── output ends first ───────┘ (then only the exit is awaited)
//! ```
//!
//! Promises kept here (ARCHITECTURE.md, invariants 1 and 2):
//! - Output is read whether or not somebody reads the log; only
//!   `flow: lossless` pauses it, and only while its reader is waited for.
//! - What was in the pipe at the exit is in the log before the exit is
//!   published; the exit never waits for a pipe that a descendant holds.
//!
//! A supervisor can be frozen between two events, and another one goes on with
//! what it gives: that is how a host is upgraded in place.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::Interest;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::backend::pty;
use super::drain::{Drain, Sink};
use super::ends::Ends;
use super::error::StdinClosedBecause;
use super::launch::Running;
use super::lifecycle::{Intent, LeaderEnd};
use super::log::LogWriter;
use super::record::Process;
use super::tree::{EndMode, Leader, LeaderExit, Tree};
use crate::sys::readiness::Watched;

/// Deadlines of one process.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub(crate) struct Deadlines {
    #[serde(with = "super::moment::optional")]
    pub(crate) timeout: Option<Instant>,
    pub(crate) idle_timeout: Option<Duration>,
    /// Since when it is idle.
    #[serde(with = "super::moment")]
    pub(crate) last_output: Instant,
    /// Between SIGTERM and SIGKILL.
    pub(crate) grace: Duration,
}

/// What a supervisor works on, and another one could go on with.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) process: Arc<Process>,
    pub(crate) leader: Option<Leader>,
    pub(crate) tree: Tree,
    pub(crate) drain: Drain,
    pub(crate) input: Option<Watched>,
    pub(crate) deadlines: Deadlines,
    pub(crate) script: Option<Arc<OwnedFd>>,
}

impl Work {
    /// On a process that has just been launched.
    pub(crate) fn new(
        process: Arc<Process>,
        running: Running,
        writer: LogWriter,
        deadlines: Deadlines,
    ) -> Self {
        let Running {
            launched,
            ends,
            script,
        } = running;
        let Ends { outputs, input, .. } = ends;
        Self {
            process,
            leader: Some(launched.leader),
            tree: launched.tree,
            drain: Drain::new(outputs, Sink::Log(writer)),
            input,
            deadlines,
            script: script.map(Arc::new),
        }
    }
}

/// See the module's documentation.
pub(crate) struct Supervisor {
    /// On the heap: a task is as large as all that it ever moves.
    work: Box<Work>,
    /// Output may not come: a reader is waited for.
    held: bool,
    tasks: TaskTracker,
}

impl Supervisor {
    pub(crate) fn new(work: Box<Work>, tasks: TaskTracker) -> Self {
        Self {
            work,
            held: false,
            tasks,
        }
    }

    /// Follows the process until it has exited and its output has ended; then
    /// there is nothing left. Or until `frozen`: then what is left is returned.
    pub(crate) async fn run(mut self, frozen: &CancellationToken) -> Option<Box<Work>> {
        while self.work.leader.is_some() || self.work.drain.is_open() {
            let room = room(&self.work.process, self.work.drain.end());
            // Who is held up is not idle: its time begins when it may go on.
            if self.held || room == 0 {
                self.work.deadlines.last_output = Instant::now();
            }
            self.held = room == 0;
            let deadline = self.next_deadline();
            let has_input = {
                let mutable = self.work.process.lock();
                mutable.stdin.queued() > 0 || mutable.stdin.wants_close()
            };
            let event = tokio::select! {
                end = exit_of(&mut self.work.leader) => Event::Exited(end),
                (index, ready) = self.work.drain.readable(), if room > 0 => {
                    Event::Readable(index, ready)
                }
                ready = writable(&self.work.input), if has_input => Event::Writable(ready),
                () = self.work.process.wake.notified() => Event::Woken,
                () = sleep_until(deadline) => Event::Deadline,
                () = frozen.cancelled() => return Some(self.work),
            };
            match event {
                Event::Exited(end) => self.exited(end),
                Event::Readable(index, Ok(())) => self.read(index),
                Event::Readable(index, Err(_)) => {
                    self.work.drain.close(index);
                    self.output_may_have_ended();
                }
                Event::Writable(Ok(())) => self.feed(),
                Event::Writable(Err(_)) => self.close_input(StdinClosedBecause::ReaderGone),
                Event::Woken => self.woken(),
                Event::Deadline => self.tick(Instant::now()),
            }
        }
        self.finish();
        None
    }

    fn next_deadline(&self) -> Option<Instant> {
        let flow = self
            .work
            .process
            .lock()
            .flow
            .as_ref()
            .and_then(super::flow::LosslessReader::deadline);
        let (timeout, idle) = if self.work.leader.is_some() {
            (self.work.deadlines.timeout, self.idle_deadline())
        } else {
            (None, None)
        };
        [flow, timeout, idle].into_iter().flatten().min()
    }

    fn idle_deadline(&self) -> Option<Instant> {
        let deadlines = &self.work.deadlines;
        let after = deadlines.idle_timeout.filter(|_| !self.held)?;
        Some(deadlines.last_output + after)
    }

    fn tick(&mut self, now: Instant) {
        if let Some(flow) = &mut self.work.process.lock().flow {
            flow.tick(now);
        }
        if self.work.leader.is_none() {
            return;
        }
        if self.work.deadlines.timeout.is_some_and(|at| at <= now) {
            self.work.deadlines.timeout = None;
            self.end_tree(Intent::Timeout);
        }
        if self.idle_deadline().is_some_and(|at| at <= now) {
            self.work.deadlines.idle_timeout = None;
            self.end_tree(Intent::IdleTimeout);
        }
    }

    fn end_tree(&self, intent: Intent) {
        let process = Arc::clone(&self.work.process);
        process.lock().lifecycle.intend(intent);
        let mode = EndMode::Terminate {
            grace: self.work.deadlines.grace,
        };
        self.tasks.spawn(async move {
            let report = process.end_tree(mode).await;
            if !report.survivors.is_empty() {
                tracing::warn!(
                    process = %process.facts.id,
                    survivors = ?report.survivors,
                    "a timeout could not end the whole tree"
                );
            }
            process.notify();
        });
    }

    fn woken(&mut self) {
        let (forgotten, wants_close) = {
            let mutable = self.work.process.lock();
            (mutable.forgotten, mutable.stdin.wants_close())
        };
        // Not only when the pipe takes more: it may be full.
        if wants_close {
            self.close_input(StdinClosedBecause::Closed);
        }
        if forgotten {
            // The pipe is drained as before.
            self.work.drain.forget();
        }
        self.work.drain.shrink_if_asked();
    }

    fn read(&mut self, index: usize) {
        let process = &self.work.process;
        if self.work.drain.turn(index, |end| room(process, end)) {
            self.work.deadlines.last_output = Instant::now();
        }
        self.output_may_have_ended();
    }

    fn exited(&mut self, end: LeaderExit) {
        let work = &mut self.work;
        work.leader = None;
        work.script = None;
        work.drain.at_exit();
        let residue = work.tree.residue();
        let empty = residue.is_empty();
        let end = LeaderEnd {
            status: end.status,
            usage: end.usage,
            at: end.ended_at,
            residue: residue
                .into_iter()
                .take(super::exit::Exit::RESIDUE_TOLD)
                .collect(),
            output_end: work.drain.end(),
        };
        work.input = None;
        let tree = {
            let mut mutable = work.process.lock();
            mutable.stdin.exited(end.status.into());
            mutable.lifecycle.leader_exited(end);
            if empty { mutable.tree.take() } else { None }
        };
        work.drain.publish_exit();
        self.output_may_have_ended();
        self.work.process.notify();
        if let Some(tree) = tree {
            // After those who wait have been told.
            self.tasks.spawn(async move { tree.release() });
        }
    }

    fn output_may_have_ended(&self) {
        if self.work.drain.is_open() {
            return;
        }
        self.work.process.lock().master = None;
        self.work.process.notify();
    }

    /// Gives the program what is queued, as far as it takes it.
    fn feed(&mut self) {
        let Some(input) = &self.work.input else {
            return;
        };
        let process = &self.work.process;
        loop {
            let Some(chunk) = process.lock().stdin.front() else {
                break;
            };
            let written = input.try_io(Interest::WRITABLE, |fd| Ok(rustix::io::write(fd, &chunk)?));
            match written {
                Ok(n) => {
                    process.lock().stdin.written(n);
                    process.notify();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return self.close_input(StdinClosedBecause::ReaderGone),
            }
        }
        if process.lock().stdin.wants_close() {
            self.close_input(StdinClosedBecause::Closed);
        }
    }

    fn close_input(&mut self, why: StdinClosedBecause) {
        self.work.input = None;
        self.work.process.lock().stdin.close(why);
        self.work.process.notify();
    }

    fn finish(self) {
        let Work { process, drain, .. } = *self.work;
        let retired = drain.retire();
        let mut mutable = process.lock();
        if !mutable.forgotten {
            mutable.retired = retired;
        }
        drop(mutable);
        process.notify();
    }
}

/// How many bytes may be read when `end` have been.
fn room(process: &Process, end: u64) -> u64 {
    let mutable = process.lock();
    match &mutable.flow {
        Some(flow) if !mutable.forgotten => flow.room(end),
        _ => u64::MAX,
    }
}

enum Event {
    Exited(LeaderExit),
    Readable(usize, io::Result<()>),
    Writable(io::Result<()>),
    Woken,
    Deadline,
}

async fn exit_of(leader: &mut Option<Leader>) -> LeaderExit {
    match leader {
        Some(leader) => leader.wait().await,
        None => std::future::pending().await,
    }
}

// What few processes have is on the heap where it is, and not in every task.

async fn writable(input: &Option<Watched>) -> io::Result<()> {
    match input {
        Some(input) => {
            let mut ready = Box::pin(input.writable()).await?;
            ready.retain_ready();
            Ok(())
        }
        None => std::future::pending().await,
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => Box::pin(tokio::time::sleep_until(deadline)).await,
        None => std::future::pending().await,
    }
}

/// Sends Ctrl-C the way a terminal does, or to the process group.
pub(crate) fn interrupt(process: &Process) -> bool {
    let (master, tree) = {
        let mutable = process.lock();
        (mutable.master.clone(), mutable.tree.clone())
    };
    match (master, tree) {
        (Some(master), _) => pty::interrupt(master.as_fd()).is_ok(),
        (None, Some(tree)) => tree.signal(super::control::SignalTarget::Group, libc::SIGINT),
        (None, None) => false,
    }
}
