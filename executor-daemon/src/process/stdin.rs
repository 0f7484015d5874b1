//! The input queue of a process: what writers have sent and the program has
//! not been given yet.
//!
//! Exactly once per writer: each write names what its writer has sent before,
//! so a repeat is recognised and a hole refused. Accepted whole or not at all.
//! Pure: the supervisor moves the bytes.

use std::collections::VecDeque;

use bytes::{Buf as _, Bytes};
use executor_proto::id::ProcessId;

use super::control::StdinWrite;
use super::error::{ExitedAs, ProcessError, StdinClosedBecause};

/// Bounds of one queue.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub(crate) struct StdinLimits {
    /// Bytes that may wait.
    pub(crate) queue: usize,
    /// Writers that are remembered.
    pub(crate) writers: usize,
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// It is queued, or was before.
    Yes {
        /// Accepted from this writer in all.
        offset: u64,
    },
    /// There is no room now.
    NoRoom,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
enum State {
    Open,
    /// End of input follows what is queued.
    Closing,
    Closed(StdinClosedBecause),
}

/// See the module's documentation.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct StdinQueue {
    id: ProcessId,
    state: State,
    terminal: bool,
    limits: StdinLimits,
    writers: Vec<(String, u64)>,
    chunks: VecDeque<Bytes>,
    queued: usize,
}

impl StdinQueue {
    /// A queue that takes input (`open`), or one that never does.
    pub(crate) fn new(id: ProcessId, open: bool, terminal: bool, limits: StdinLimits) -> Self {
        let state = if open {
            State::Open
        } else {
            State::Closed(StdinClosedBecause::NeverOpen)
        };
        Self {
            id,
            state,
            terminal,
            limits,
            writers: Vec::new(),
            chunks: VecDeque::new(),
            queued: 0,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    pub(crate) fn writers(&self) -> &[(String, u64)] {
        &self.writers
    }

    /// Takes a write, or says why not.
    pub(crate) fn accept(&mut self, write: &StdinWrite) -> Result<Accepted, ProcessError> {
        if self.terminal && write.close {
            return Err(ProcessError::CloseOnTerminal);
        }
        let known = self
            .writers
            .iter()
            .position(|(name, _)| *name == write.writer);
        let accepted = known
            .and_then(|at| self.writers.get(at))
            .map_or(0, |(_, sent)| *sent);
        if write.offset > accepted {
            return Err(ProcessError::StdinOffsetGap {
                offset: write.offset,
                accepted,
            });
        }
        let repeated = usize::try_from(accepted - write.offset).unwrap_or(usize::MAX);
        let mut fresh = write.data.clone();
        fresh.advance(repeated.min(write.data.len()));

        match self.state {
            State::Closed(why) if !(fresh.is_empty() && Self::harmless_after(why)) => {
                return Err(ProcessError::StdinClosed { id: self.id, why });
            }
            State::Closing if !fresh.is_empty() => {
                let why = StdinClosedBecause::Closed;
                return Err(ProcessError::StdinClosed { id: self.id, why });
            }
            State::Open | State::Closing | State::Closed(_) => {}
        }
        if self.queued + fresh.len() > self.limits.queue {
            return Ok(Accepted::NoRoom);
        }
        let offset = accepted + fresh.len() as u64;
        match known {
            Some(at) => {
                if let Some((_, sent)) = self.writers.get_mut(at) {
                    *sent = offset;
                }
            }
            None if self.writers.len() >= self.limits.writers => {
                return Err(ProcessError::StdinWriterLimit {
                    limit: self.limits.writers,
                });
            }
            None => self.writers.push((write.writer.clone(), offset)),
        }
        if !fresh.is_empty() {
            self.queued += fresh.len();
            self.chunks.push_back(fresh);
        }
        // `close` counts only with its data: a repeat of an earlier write, from
        // before the last accepted byte, says nothing about the end.
        let reaches_end = write.offset + write.data.len() as u64 == offset;
        if write.close && reaches_end && self.state == State::Open {
            self.state = State::Closing;
        }
        Ok(Accepted::Yes { offset })
    }

    /// A repeat or a second close after a close is acknowledged; after a start
    /// without input nothing is.
    fn harmless_after(why: StdinClosedBecause) -> bool {
        !matches!(why, StdinClosedBecause::NeverOpen)
    }

    /// What is to be written next.
    pub(crate) fn front(&self) -> Option<Bytes> {
        self.chunks.front().cloned()
    }

    /// The program was given `n` bytes of the front.
    pub(crate) fn written(&mut self, n: usize) {
        let Some(front) = self.chunks.front_mut() else {
            return;
        };
        let n = n.min(front.len());
        front.advance(n);
        self.queued -= n;
        if front.is_empty() {
            self.chunks.pop_front();
        }
    }

    /// All was written and a writer has closed: the pipe is to be closed now.
    pub(crate) fn wants_close(&self) -> bool {
        self.state == State::Closing && self.chunks.is_empty()
    }

    /// No more input is taken; what is queued is dropped.
    pub(crate) fn close(&mut self, why: StdinClosedBecause) {
        self.chunks.clear();
        self.queued = 0;
        match (self.state, why) {
            // The exit is the more useful answer.
            (State::Closed(StdinClosedBecause::NeverOpen), _) => {}
            (State::Closed(_), StdinClosedBecause::Exited(_))
            | (State::Open | State::Closing, _) => {
                self.state = State::Closed(why);
            }
            (State::Closed(_), _) => {}
        }
    }

    /// As [`Self::close`], at the end of the process.
    pub(crate) fn exited(&mut self, how: ExitedAs) {
        self.close(StdinClosedBecause::Exited(how));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn queue(open: bool) -> StdinQueue {
        let limits = StdinLimits {
            queue: 16,
            writers: 2,
        };
        StdinQueue::new(ProcessId::random(), open, false, limits)
    }

    fn write(writer: &str, offset: u64, data: &'static str, close: bool) -> StdinWrite {
        StdinWrite {
            writer: writer.into(),
            offset,
            data: Bytes::from_static(data.as_bytes()),
            close,
        }
    }

    fn drained(queue: &mut StdinQueue) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(chunk) = queue.front() {
            all.extend_from_slice(&chunk);
            queue.written(chunk.len());
        }
        all
    }

    #[test]
    fn a_repeat_is_acknowledged_and_not_queued_again() {
        let mut q = queue(true);
        assert_eq!(
            q.accept(&write("a", 0, "one", false)),
            Ok(Accepted::Yes { offset: 3 })
        );
        assert_eq!(
            q.accept(&write("a", 0, "one", false)),
            Ok(Accepted::Yes { offset: 3 })
        );
        assert_eq!(
            q.accept(&write("a", 0, "onetwo", true)),
            Ok(Accepted::Yes { offset: 6 })
        );
        assert_eq!(
            q.accept(&write("a", 0, "onetwo", true)),
            Ok(Accepted::Yes { offset: 6 })
        );
        assert_eq!(drained(&mut q), b"onetwo");
        assert!(q.wants_close());
    }

    #[test]
    fn a_hole_and_too_many_writers_are_refused() {
        let mut q = queue(true);
        assert_eq!(
            q.accept(&write("a", 1, "x", false)),
            Err(ProcessError::StdinOffsetGap {
                offset: 1,
                accepted: 0
            })
        );
        assert!(q.accept(&write("a", 0, "x", false)).is_ok());
        assert!(q.accept(&write("b", 0, "x", false)).is_ok());
        assert_eq!(
            q.accept(&write("c", 0, "x", false)),
            Err(ProcessError::StdinWriterLimit { limit: 2 })
        );
    }

    #[test]
    fn a_write_is_taken_whole_or_not_at_all() {
        let mut q = queue(true);
        assert!(matches!(
            q.accept(&write("a", 0, "0123456789", false)),
            Ok(Accepted::Yes { .. })
        ));
        assert_eq!(
            q.accept(&write("a", 10, "0123456", false)),
            Ok(Accepted::NoRoom)
        );
        assert_eq!(q.queued(), 10);
        q.written(4);
        assert_eq!(
            q.accept(&write("a", 10, "0123456", false)),
            Ok(Accepted::Yes { offset: 17 })
        );
        assert_eq!(drained(&mut q), b"4567890123456");
    }

    #[test]
    fn close_twice_is_fine_and_data_after_it_is_refused() {
        let mut q = queue(true);
        assert!(q.accept(&write("a", 0, "x", true)).is_ok());
        assert!(q.accept(&write("a", 1, "", true)).is_ok());
        assert!(matches!(
            q.accept(&write("a", 1, "y", false)),
            Err(ProcessError::StdinClosed {
                why: StdinClosedBecause::Closed,
                ..
            })
        ));
        assert_eq!(drained(&mut q), b"x");
    }

    #[test]
    fn after_the_exit_and_without_input_the_error_says_why() {
        let mut q = queue(true);
        q.exited(ExitedAs::Code(0));
        let error = q.accept(&write("a", 0, "x", false)).unwrap_err();
        assert!(
            error.to_string().contains("already exited, code 0"),
            "{error}"
        );
        let mut q = queue(false);
        q.exited(ExitedAs::Code(0));
        let error = q.accept(&write("a", 0, "", true)).unwrap_err();
        assert!(error.to_string().contains("stdin: null"), "{error}");
    }

    proptest! {
        /// Whatever is repeated or overlaps, the program gets each writer's
        /// bytes once and in order.
        #[test]
        fn invariant_4_no_byte_is_typed_twice(
            cuts in proptest::collection::vec((0usize..40, 0usize..12), 1..60)
        ) {
            let text: Vec<u8> = (0..200u8).collect();
            let mut q = queue(true);
            let mut got = Vec::new();
            let mut sent = 0usize;
            for (back, length) in cuts {
                let offset = sent.saturating_sub(back);
                let data = Bytes::copy_from_slice(&text[offset..(offset + length).min(text.len())]);
                let w = StdinWrite { writer: "w".into(), offset: offset as u64, data, close: false };
                match q.accept(&w) {
                    Ok(Accepted::Yes { offset }) => sent = usize::try_from(offset).unwrap(),
                    Ok(Accepted::NoRoom) => got.extend(drained(&mut q)),
                    Err(error) => prop_assert!(false, "{error}"),
                }
            }
            got.extend(drained(&mut q));
            prop_assert_eq!(&got[..], &text[..sent]);
        }
    }
}
