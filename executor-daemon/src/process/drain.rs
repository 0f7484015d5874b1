//! Reads the output of one process into its log.
//!
//! Output is read whether or not somebody reads the log; how much at a time is
//! the caller's to say. What was there at the exit is read before the exit is
//! told, and no more than that: others may go on writing.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

use tokio::io::Interest;

use super::backend::pty;
use super::ends::{Output, OutputKind};
use super::log::{LogWriter, RetiredLog, Stream};

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
pub(crate) enum Sink {
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
                let scratch = scratch.get_mut(..limit).unwrap_or_default();
                Ok(rustix::io::read(fd, scratch)?)
            }
        }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Drain {
    outputs: [Option<Output>; 2],
    sink: Sink,
}

/// What became of one read.
enum Read {
    /// So many bytes; there may be more.
    Some(usize),
    /// Nothing is there now.
    Nothing,
    /// No more can come.
    Ended,
}

impl Drain {
    pub(crate) fn new(outputs: [Option<Output>; 2], sink: Sink) -> Self {
        Self { outputs, sink }
    }

    /// More output may come.
    pub(crate) fn is_open(&self) -> bool {
        self.outputs.iter().any(Option::is_some)
    }

    /// Bytes read so far.
    pub(crate) fn end(&self) -> u64 {
        match &self.sink {
            Sink::Log(writer) => writer.end(),
            Sink::Nowhere => 0,
        }
    }

    /// Waits until one of the outputs can be read; says which. Cancel safe.
    pub(crate) async fn readable(&self) -> (usize, io::Result<()>) {
        let [first, second] = &self.outputs;
        match (first, second) {
            (Some(first), None) => (0, readable(first).await),
            (None, Some(second)) => (1, readable(second).await),
            (None, None) => std::future::pending().await,
            // Few have two: on the heap, not in every task.
            (Some(first), Some(second)) => {
                Box::pin(async {
                    tokio::select! {
                        ready = readable(first) => (0, ready),
                        ready = readable(second) => (1, ready),
                    }
                })
                .await
            }
        }
    }

    /// Reads one output until it is empty, or for its turn. `room` says how
    /// many bytes may be read when so many have been. True when something was.
    pub(crate) fn turn(&mut self, index: usize, room: impl Fn(u64) -> u64) -> bool {
        let kind = self.outputs.get(index).and_then(Option::as_ref);
        let reads = match kind.map(|output| output.kind) {
            Some(OutputKind::Terminal) => TERMINAL_READS_IN_A_ROW,
            Some(OutputKind::Pipe) | None => READS_IN_A_ROW,
        };
        let mut any = false;
        for _ in 0..reads {
            let room = usize::try_from(room(self.end())).unwrap_or(usize::MAX);
            if room == 0 {
                break;
            }
            match self.read(index, room.min(READ), Readiness::AsRemembered) {
                Read::Some(_) => any = true,
                Read::Nothing => break,
                Read::Ended => {
                    self.close(index);
                    break;
                }
            }
        }
        any
    }

    /// Reads what was written before the exit.
    pub(crate) fn at_exit(&mut self) {
        for index in 0..self.outputs.len() {
            self.rest_of(index);
        }
    }

    fn rest_of(&mut self, index: usize) {
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
            // The bytes may have come since the runtime last looked.
            match self.read(index, left.min(READ), Readiness::Ask) {
                Read::Some(read) => left = left.saturating_sub(read),
                Read::Nothing => return,
                Read::Ended => return self.close(index),
            }
        }
    }

    fn read(&mut self, index: usize, limit: usize, readiness: Readiness) -> Read {
        let Some(Some(output)) = self.outputs.get_mut(index) else {
            return Read::Nothing;
        };
        let (sink, stream) = (&mut self.sink, output.stream);
        let read = match readiness {
            Readiness::AsRemembered => output
                .fd
                .try_io(Interest::READABLE, |fd| sink.read(fd, stream, limit)),
            Readiness::Ask => sink.read(output.fd.as_fd(), stream, limit),
        };
        match read {
            Ok(0) => Read::Ended,
            Ok(n) => {
                if n >= FRESH_PIPE && !output.grown {
                    output.grown = true;
                    if output.kind == OutputKind::Pipe {
                        // Only speed depends on it.
                        let _ = rustix::pipe::fcntl_setpipe_size(output.fd.as_fd(), BUSY_PIPE);
                    }
                }
                Read::Some(n)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Read::Nothing,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Read::Some(0),
            // EIO: the last holder of the terminal has closed it.
            Err(_) => Read::Ended,
        }
    }

    /// Nothing more is read of this output.
    pub(crate) fn close(&mut self, index: usize) {
        if let Some(output) = self.outputs.get_mut(index) {
            *output = None;
        }
        if !self.is_open()
            && let Sink::Log(writer) = &mut self.sink
        {
            writer.publish_end();
        }
    }

    /// Says that the process has exited.
    pub(crate) fn publish_exit(&mut self) {
        if let Sink::Log(writer) = &mut self.sink {
            writer.publish_exit();
        }
    }

    /// The process is forgotten: its log goes back at once.
    pub(crate) fn forget(&mut self) {
        self.sink = Sink::Nowhere;
    }

    /// Gives memory up if the store is short of it.
    pub(crate) fn shrink_if_asked(&mut self) {
        if let Sink::Log(writer) = &mut self.sink {
            writer.shrink_if_asked();
        }
    }

    /// What keeps the log readable, where there is one.
    pub(crate) fn retire(self) -> Option<RetiredLog> {
        match self.sink {
            Sink::Log(writer) => Some(writer.retire()),
            Sink::Nowhere => None,
        }
    }

    /// What it is made of.
    pub(crate) fn into_parts(self) -> ([Option<Output>; 2], Sink) {
        (self.outputs, self.sink)
    }
}

/// Whether a read trusts what the runtime remembers of a descriptor.
#[derive(Debug, Clone, Copy)]
enum Readiness {
    AsRemembered,
    Ask,
}

async fn readable(output: &Output) -> io::Result<()> {
    // Readiness is cleared by `try_io` when the kernel says EAGAIN.
    let ready = output.fd.readable().await;
    ready.map(|mut guard| guard.retain_ready())
}
