//! Back-pressure for one reader (`flow: lossless`), as a state machine without
//! I/O or clock.
//!
//! ```text
//!            attach                    give up after 5 s
//! Waiting ──────────► Attached   Waiting ───────────────► Abandoned
//!    ▲   last detach     │                                   │ attach
//!    └───────────────────┘        Attached ◄─────────────────┘
//! ```
//!
//! A lost reader, a lost daemon and a start without a reader yet are one case:
//! Waiting. In Waiting and Attached at most [`LosslessReader::window`] bytes
//! are read that the reader has not consumed; in Abandoned all is drained.

use tokio::time::{Duration, Instant};

use super::error::ProcessError;

/// How long a reader may be away before the process goes on without it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
enum State {
    Waiting {
        #[serde(with = "crate::process::moment")]
        since: Instant,
    },
    Attached {
        connections: u32,
    },
    Abandoned,
}

/// See the module's documentation.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct LosslessReader {
    state: State,
    reader: Option<String>,
    consumed: u64,
    window: u64,
}

impl LosslessReader {
    pub(crate) fn new(window: u64, now: Instant) -> Self {
        Self {
            state: State::Waiting { since: now },
            reader: None,
            consumed: 0,
            window,
        }
    }

    /// A connection of `reader` is there. The same reader may come again while
    /// its old connection has not been noticed to be gone.
    pub(crate) fn attach(&mut self, reader: &str, consumed: u64) -> Result<(), ProcessError> {
        match &mut self.state {
            State::Attached { connections } if self.reader.as_deref() == Some(reader) => {
                *connections += 1;
            }
            State::Attached { .. } => return Err(ProcessError::ReaderConflict),
            State::Waiting { .. } | State::Abandoned => {
                self.state = State::Attached { connections: 1 };
            }
        }
        if self.reader.as_deref() == Some(reader) {
            self.consumed = self.consumed.max(consumed);
        } else {
            self.reader = Some(reader.to_owned());
            self.consumed = consumed;
        }
        Ok(())
    }

    /// The reader has consumed everything before `offset`. One that is not
    /// attached says nothing.
    pub(crate) fn consumed(&mut self, reader: &str, offset: u64) {
        if self.reader.as_deref() == Some(reader) {
            self.consumed = self.consumed.max(offset);
        }
    }

    /// A connection of `reader` has ended.
    pub(crate) fn detach(&mut self, reader: &str, now: Instant) {
        if self.reader.as_deref() != Some(reader) {
            return;
        }
        if let State::Attached { connections } = &mut self.state {
            *connections -= 1;
            if *connections == 0 {
                self.state = State::Waiting { since: now };
            }
        }
    }

    /// All connections have ended at once: the daemon is lost.
    pub(crate) fn lost(&mut self, now: Instant) {
        if let State::Attached { .. } = self.state {
            self.state = State::Waiting { since: now };
        }
    }

    /// When patience ends; `None` while a reader is attached or given up.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Waiting { since } => Some(since + PATIENCE),
            State::Attached { .. } | State::Abandoned => None,
        }
    }

    /// Gives the reader up if its time has passed.
    pub(crate) fn tick(&mut self, now: Instant) {
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            self.state = State::Abandoned;
        }
    }

    /// How many bytes may be read now, when `end` have been.
    pub(crate) fn room(&self, end: u64) -> u64 {
        match self.state {
            State::Abandoned => u64::MAX,
            State::Waiting { .. } | State::Attached { .. } => {
                (self.consumed.min(end) + self.window).saturating_sub(end)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_held_up_only_while_its_reader_is_waited_for() {
        let start = Instant::now();
        let mut flow = LosslessReader::new(100, start);
        assert_eq!(flow.room(0), 100);
        assert_eq!(flow.room(100), 0);
        flow.attach("r", 0).unwrap();
        assert_eq!(flow.deadline(), None);
        flow.consumed("r", 40);
        flow.consumed("other", 90);
        assert_eq!(flow.room(100), 40);
        flow.detach("r", start);
        flow.tick(start + PATIENCE / 2);
        assert_eq!(flow.room(140), 0);
        flow.tick(start + PATIENCE);
        assert_eq!(flow.room(140), u64::MAX);
        flow.attach("r", 60).unwrap();
        assert_eq!(flow.room(100), 60);
    }

    #[test]
    fn a_lost_daemon_is_a_lost_reader() {
        let start = Instant::now();
        let mut flow = LosslessReader::new(100, start);
        flow.attach("r", 0).unwrap();
        flow.attach("r", 0).unwrap();
        flow.lost(start);
        assert_eq!(flow.deadline(), Some(start + PATIENCE));
        flow.attach("r", 10).unwrap();
        assert_eq!((flow.deadline(), flow.room(10)), (None, 100));
        flow.detach("r", start);
        flow.tick(start + PATIENCE);
        flow.lost(start + PATIENCE);
        assert_eq!(flow.room(1000), u64::MAX, "what was given up stays so");
    }

    #[test]
    fn one_reader_holds_and_may_come_again_before_its_loss_is_noticed() {
        let now = Instant::now();
        let mut flow = LosslessReader::new(100, now);
        flow.attach("r", 0).unwrap();
        assert_eq!(flow.attach("s", 0), Err(ProcessError::ReaderConflict));
        flow.attach("r", 10).unwrap();
        flow.detach("r", now);
        assert_eq!(flow.deadline(), None, "the newer connection is still there");
        flow.detach("r", now);
        assert!(flow.deadline().is_some());
        flow.attach("s", 0).unwrap();
    }
}
