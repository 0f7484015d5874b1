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

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::Interest;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::backend::pty;
use super::ends::{Ends, Output, OutputKind};
use super::error::StdinClosedBecause;
use super::launch::Running;
use super::lifecycle::{Intent, LeaderEnd};
use super::log::LogWriter;
use super::log::Stream;
use super::record::Process;
use super::tree::{EndMode, Leader, LeaderExit, Tree};
use crate::sys::readiness::Watched;

/// Most bytes of one read(2).
const READ: usize = 256 << 10;
/// Reads in a row before others get their turn: of a pipe, and of a terminal,
/// which gives 4 KiB at most each time.
const READS_IN_A_ROW: usize = 8;
const TERMINAL_READS_IN_A_ROW: usize = 64;
/// Capacity a pipe is given once it was seen full. Not before: all pipes of an
/// unprivileged user share 64 MiB (pipe(7)).
pub(crate) const BUSY_PIPE: usize = 256 << 10;
/// A pipe's capacity before that.
const FRESH_PIPE: usize = 64 << 10;
/// What is read of a terminal at the exit at most: more is more than its
/// buffers hold, so somebody else is writing.
const TERMINAL_AT_EXIT: usize = 128 << 10;

/// Where output goes: the log, or nowhere once the process is forgotten. The
/// pipe is drained all the same.
#[derive(Debug)]
enum Sink {
    Log(LogWriter),
    Nowhere,
}

impl Sink {
    fn read(&mut self, fd: BorrowedFd<'_>, stream: Stream, limit: usize) -> io::Result<usize> {
        match self {
            Self::Log(writer) => writer.read_from(fd, stream, limit),
            Self::Nowhere => {
                let mut scratch = [0u8; 8 << 10];
                let limit = limit.min(scratch.len());
                Ok(rustix::io::read(
                    fd,
                    scratch.get_mut(..limit).unwrap_or_default(),
                )?)
            }
        }
    }

    fn end(&self) -> u64 {
        match self {
            Self::Log(writer) => writer.end(),
            Self::Nowhere => 0,
        }
    }
}

/// What a read of an output ended with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Drained {
    /// Nothing is there now.
    Empty,
    /// There may be more.
    More,
    /// No more can come.
    Ended,
}

/// Deadlines of one process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadlines {
    pub(crate) timeout: Option<Instant>,
    pub(crate) idle_timeout: Option<Duration>,
    /// Between SIGTERM and SIGKILL.
    pub(crate) grace: Duration,
}

/// See the module's documentation.
pub(crate) struct Supervisor {
    process: Arc<Process>,
    leader: Option<Leader>,
    tree: Tree,
    outputs: [Option<Output>; 2],
    input: Option<Watched>,
    sink: Sink,
    deadlines: Deadlines,
    last_output: Instant,
    /// Output may not come: a reader is waited for.
    held: bool,
    tasks: TaskTracker,
    script: Option<OwnedFd>,
}

impl Supervisor {
    pub(crate) fn new(
        process: Arc<Process>,
        running: Running,
        writer: LogWriter,
        deadlines: Deadlines,
        tasks: TaskTracker,
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
            outputs,
            input,
            sink: Sink::Log(writer),
            deadlines,
            last_output: Instant::now(),
            held: false,
            tasks,
            script,
        }
    }

    /// Follows the process until it has exited and its output has ended.
    pub(crate) async fn run(mut self) {
        while self.leader.is_some() || self.outputs.iter().any(Option::is_some) {
            let room = self.room();
            // Who is held up is not idle: its time begins when it may go on.
            if self.held || room == 0 {
                self.last_output = Instant::now();
            }
            self.held = room == 0;
            let deadline = self.next_deadline();
            let has_input = {
                let mutable = self.process.lock();
                mutable.stdin.queued() > 0 || mutable.stdin.wants_close()
            };
            let [first, second] = &self.outputs;
            let event = tokio::select! {
                end = exit_of(&mut self.leader) => Event::Exited(end),
                ready = readable(first), if room > 0 => Event::Readable(0, ready),
                ready = readable(second), if room > 0 => Event::Readable(1, ready),
                ready = writable(&self.input), if has_input => Event::Writable(ready),
                () = self.process.wake.notified() => Event::Woken,
                () = sleep_until(deadline) => Event::Deadline,
            };
            match event {
                Event::Exited(end) => self.exited(end),
                Event::Readable(index, Ok(())) => self.drain(index),
                Event::Readable(index, Err(_)) => self.close_output(index),
                Event::Writable(Ok(())) => self.feed(),
                Event::Writable(Err(_)) => self.close_input(StdinClosedBecause::ReaderGone),
                Event::Woken => self.woken(),
                Event::Deadline => self.tick(Instant::now()),
            }
        }
        self.finish();
    }

    fn room(&self) -> u64 {
        let mutable = self.process.lock();
        match &mutable.flow {
            Some(flow) if !mutable.forgotten => flow.room(self.sink.end()),
            _ => u64::MAX,
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let flow = self
            .process
            .lock()
            .flow
            .as_ref()
            .and_then(super::flow::LosslessReader::deadline);
        let (timeout, idle) = if self.leader.is_some() {
            (self.deadlines.timeout, self.idle_deadline())
        } else {
            (None, None)
        };
        [flow, timeout, idle].into_iter().flatten().min()
    }

    fn idle_deadline(&self) -> Option<Instant> {
        let after = self.deadlines.idle_timeout.filter(|_| !self.held)?;
        Some(self.last_output + after)
    }

    fn tick(&mut self, now: Instant) {
        if let Some(flow) = &mut self.process.lock().flow {
            flow.tick(now);
        }
        if self.leader.is_none() {
            return;
        }
        if self.deadlines.timeout.is_some_and(|at| at <= now) {
            self.deadlines.timeout = None;
            self.end_tree(Intent::Timeout);
        }
        if self.idle_deadline().is_some_and(|at| at <= now) {
            self.deadlines.idle_timeout = None;
            self.end_tree(Intent::IdleTimeout);
        }
    }

    fn end_tree(&self, intent: Intent) {
        self.process.lock().lifecycle.intend(intent);
        let (tree, process) = (self.tree.clone(), Arc::clone(&self.process));
        let mode = EndMode::Terminate {
            grace: self.deadlines.grace,
        };
        self.tasks.spawn(async move {
            let report = tree.end(mode).await;
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
            let mutable = self.process.lock();
            (mutable.forgotten, mutable.stdin.wants_close())
        };
        // Not only when the pipe takes more: it may be full.
        if wants_close {
            self.close_input(StdinClosedBecause::Closed);
        }
        match &mut self.sink {
            // The log goes back at once; the pipe is drained as before.
            Sink::Log(_) if forgotten => self.sink = Sink::Nowhere,
            Sink::Log(writer) => writer.shrink_if_asked(),
            Sink::Nowhere => {}
        }
    }

    /// Reads one output until it is empty, or for its turn.
    fn drain(&mut self, index: usize) {
        let kind = self.outputs.get(index).and_then(Option::as_ref);
        let reads = match kind.map(|output| output.kind) {
            Some(OutputKind::Terminal) => TERMINAL_READS_IN_A_ROW,
            Some(OutputKind::Pipe) | None => READS_IN_A_ROW,
        };
        for _ in 0..reads {
            let room = usize::try_from(self.room()).unwrap_or(usize::MAX);
            if room == 0 {
                return;
            }
            match self.read_once(index, room.min(READ)) {
                Drained::More => {}
                Drained::Empty => return,
                Drained::Ended => return self.close_output(index),
            }
        }
    }

    fn read_once(&mut self, index: usize, limit: usize) -> Drained {
        let Some(Some(output)) = self.outputs.get_mut(index) else {
            return Drained::Empty;
        };
        let (sink, stream) = (&mut self.sink, output.stream);
        let read = output
            .fd
            .try_io(Interest::READABLE, |fd| sink.read(fd, stream, limit));
        match read {
            Ok(0) => Drained::Ended,
            Ok(n) => {
                self.last_output = Instant::now();
                if n >= FRESH_PIPE && !output.grown {
                    output.grown = true;
                    if output.kind == OutputKind::Pipe {
                        // Only speed depends on it.
                        let _ = rustix::pipe::fcntl_setpipe_size(output.fd.as_fd(), BUSY_PIPE);
                    }
                }
                Drained::More
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Drained::Empty,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Drained::More,
            // EIO: the last holder of the terminal has closed it.
            Err(_) => Drained::Ended,
        }
    }

    /// What was written before the exit, and no more than that.
    fn drain_at_exit(&mut self, index: usize) {
        let Some(Some(output)) = self.outputs.get(index) else {
            return;
        };
        let mut left = match output.kind {
            OutputKind::Pipe => {
                let there = pty::fionread(output.fd.as_fd());
                there.map_or(READ, |n| usize::try_from(n).unwrap_or(READ))
            }
            OutputKind::Terminal => TERMINAL_AT_EXIT,
        };
        while left > 0 {
            let Some(Some(output)) = self.outputs.get(index) else {
                return;
            };
            let (sink, stream) = (&mut self.sink, output.stream);
            // Past the readiness that the runtime remembers: the bytes may
            // have come since it last looked.
            match sink.read(output.fd.as_fd(), stream, left.min(READ)) {
                Ok(0) => return self.close_output(index),
                Ok(n) => left = left.saturating_sub(n),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return self.close_output(index),
            }
        }
    }

    fn exited(&mut self, end: LeaderExit) {
        self.leader = None;
        self.script = None;
        for index in 0..self.outputs.len() {
            self.drain_at_exit(index);
        }
        let residue = self.tree.residue();
        let empty = residue.is_empty();
        let end = LeaderEnd {
            status: end.status,
            usage: end.usage,
            at: end.ended_at,
            residue: residue
                .into_iter()
                .take(super::exit::Exit::RESIDUE_TOLD)
                .collect(),
            output_end: self.sink.end(),
        };
        self.input = None;
        let tree = {
            let mut mutable = self.process.lock();
            mutable.stdin.exited(end.status.into());
            mutable.lifecycle.leader_exited(end);
            if empty { mutable.tree.take() } else { None }
        };
        if let Sink::Log(writer) = &mut self.sink {
            writer.publish_exit();
        }
        self.process.notify();
        if let Some(tree) = tree {
            // After those who wait have been told.
            self.tasks.spawn(async move { tree.release() });
        }
    }

    fn close_output(&mut self, index: usize) {
        if let Some(output) = self.outputs.get_mut(index) {
            *output = None;
        }
        if self.outputs.iter().all(Option::is_none) {
            self.process.lock().master = None;
            if let Sink::Log(writer) = &mut self.sink {
                writer.publish_end();
            }
            self.process.notify();
        }
    }

    /// Gives the program what is queued, as far as it takes it.
    fn feed(&mut self) {
        let Some(input) = &self.input else { return };
        loop {
            let Some(chunk) = self.process.lock().stdin.front() else {
                break;
            };
            let written = input.try_io(Interest::WRITABLE, |fd| Ok(rustix::io::write(fd, &chunk)?));
            match written {
                Ok(n) => {
                    self.process.lock().stdin.written(n);
                    self.process.notify();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return self.close_input(StdinClosedBecause::ReaderGone),
            }
        }
        if self.process.lock().stdin.wants_close() {
            self.close_input(StdinClosedBecause::Closed);
        }
    }

    fn close_input(&mut self, why: StdinClosedBecause) {
        self.input = None;
        self.process.lock().stdin.close(why);
        self.process.notify();
    }

    fn finish(self) {
        let mut mutable = self.process.lock();
        if let Sink::Log(writer) = self.sink
            && !mutable.forgotten
        {
            mutable.retired = Some(writer.retire());
        }
        drop(mutable);
        self.process.notify();
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

async fn readable(output: &Option<Output>) -> io::Result<()> {
    match output {
        // Readiness is cleared by `try_io` when the kernel says EAGAIN.
        Some(output) => output
            .fd
            .readable()
            .await
            .map(|mut guard| guard.retain_ready()),
        None => std::future::pending().await,
    }
}

async fn writable(input: &Option<Watched>) -> io::Result<()> {
    match input {
        Some(input) => input.writable().await.map(|mut guard| guard.retain_ready()),
        None => std::future::pending().await,
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
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
