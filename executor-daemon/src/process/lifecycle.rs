//! The life of a process as a state machine, without I/O, clock or lock.
//!
//! ```text
//!            launched              leader_exited
//! Starting ───────────► Running ───────────────► Exited   nobody here ended it
//!     │                                      └──► Killed   we did, or had begun to
//!     └── spawn_failed ──► Failed
//! ```
//!
//! Invariants:
//! 1. A final state never changes, and neither does its exit.
//! 2. The first intent to end it decides the cause; later ones are heard and
//!    change nothing.
//! 3. A signal that the program survived does not colour a later exit, unless
//!    it dies of that very signal soon after it.

use std::time::{Duration, SystemTime};

use super::exit::{Cause, Exit, Member, SpawnFailure, State, Usage, WaitStatus};

/// A program that lives so long after a signal has survived it.
const SOON: Duration = Duration::from_secs(1);

/// Why we mean to end a process.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Intent {
    /// Its timeout passed.
    Timeout,
    /// Its idle timeout passed.
    IdleTimeout,
    /// Somebody stopped it.
    Stopped {
        /// Who.
        by: String,
        /// SIGTERM first, SIGKILL only after the grace.
        gracefully: bool,
    },
    /// Its session ended.
    SessionEnded,
    /// The daemon ends.
    HostShutdown,
}

impl Intent {
    fn cause(&self) -> Cause {
        match self {
            Self::Timeout => Cause::Timeout,
            Self::IdleTimeout => Cause::IdleTimeout,
            Self::Stopped { by, .. } => Cause::Stopped { by: by.clone() },
            Self::SessionEnded => Cause::SessionEnded,
            Self::HostShutdown => Cause::HostShutdown,
        }
    }

    fn is_graceful(&self) -> bool {
        !matches!(
            self,
            Self::Stopped {
                gracefully: false,
                ..
            }
        )
    }
}

#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
enum Phase {
    Starting,
    Running {
        pid: u32,
        since: SystemTime,
    },
    Ended {
        state: State,
        exit: Box<Exit>,
        ran: Option<(u32, SystemTime)>,
    },
}

/// What is known when the leader has been reaped.
#[derive(Debug)]
pub(crate) struct LeaderEnd {
    pub(crate) status: WaitStatus,
    pub(crate) usage: Usage,
    pub(crate) at: SystemTime,
    pub(crate) residue: Vec<Member>,
    pub(crate) output_end: u64,
}

/// See the module's documentation.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Lifecycle {
    phase: Phase,
    intent: Option<Intent>,
    /// Bit n − 1: signal n was the last that a call sent, outside of an intent.
    sent: u64,
    /// When. Release 0.1 did not tell.
    #[serde(default)]
    sent_at: Option<SystemTime>,
}

impl Lifecycle {
    pub(crate) fn new() -> Self {
        Self {
            phase: Phase::Starting,
            intent: None,
            sent: 0,
            sent_at: None,
        }
    }

    pub(crate) fn state(&self) -> State {
        match &self.phase {
            Phase::Starting => State::Starting,
            Phase::Running { .. } => State::Running,
            Phase::Ended { state, .. } => *state,
        }
    }

    pub(crate) fn exit(&self) -> Option<&Exit> {
        match &self.phase {
            Phase::Ended { exit, .. } => Some(exit),
            Phase::Starting | Phase::Running { .. } => None,
        }
    }

    /// Pid and time of the start, once it ran.
    pub(crate) fn ran(&self) -> Option<(u32, SystemTime)> {
        match &self.phase {
            Phase::Starting => None,
            Phase::Running { pid, since } => Some((*pid, *since)),
            Phase::Ended { ran, .. } => *ran,
        }
    }

    /// Somebody means to end it. After the end this changes nothing.
    pub(crate) fn intend(&mut self, intent: Intent) {
        if self.intent.is_none() && !self.state().is_final() {
            self.intent = Some(intent);
        }
    }

    /// Somebody means to end it, or it has ended.
    pub(crate) fn is_ending(&self) -> bool {
        self.intent.is_some() || self.state().is_final()
    }

    /// A call sends a signal.
    pub(crate) fn signalled(&mut self, signal: i32, at: SystemTime) {
        let bit = u32::try_from(signal)
            .ok()
            .and_then(|number| number.checked_sub(1));
        self.sent = bit.and_then(|bit| 1u64.checked_shl(bit)).unwrap_or(0);
        self.sent_at = Some(at);
    }

    /// The signal reached nobody.
    pub(crate) fn not_signalled(&mut self) {
        self.sent = 0;
    }

    fn died_of_ours(&self, end: &LeaderEnd) -> bool {
        let (WaitStatus::Signal(number @ 1..=64), Some(at)) = (end.status, self.sent_at) else {
            return false;
        };
        // A clock that was set back in between makes it ours.
        let since = end.at.duration_since(at).unwrap_or_default();
        self.sent & (1 << (number - 1)) != 0 && since <= SOON
    }

    pub(crate) fn launched(&mut self, pid: u32, at: SystemTime) {
        if matches!(self.phase, Phase::Starting) {
            self.phase = Phase::Running { pid, since: at };
        }
    }

    /// It did not come to run: `failure` says why, unless somebody ended it
    /// before it began.
    pub(crate) fn spawn_failed(&mut self, failure: SpawnFailure, label: &str, at: SystemTime) {
        if matches!(self.phase, Phase::Starting) {
            let cause = match &self.intent {
                Some(intent) if failure == SpawnFailure::NOT_BEGUN => intent.cause(),
                _ => Cause::SpawnFailed {
                    failure,
                    label: label.to_owned(),
                },
            };
            let exit = Exit {
                status: None,
                cause,
                forced: false,
                ended_at: at,
                usage: Usage::default(),
                residue: Vec::new(),
                output_end: 0,
            };
            self.phase = Phase::Ended {
                state: State::Failed,
                exit: Box::new(exit),
                ran: None,
            };
        }
    }

    pub(crate) fn leader_exited(&mut self, end: LeaderEnd) {
        let Phase::Running { pid, since } = self.phase else {
            return;
        };
        let own_signal = self.died_of_ours(&end);
        let (state, cause) = match (&self.intent, end.status) {
            (Some(intent), _) => (State::Killed, intent.cause()),
            (None, WaitStatus::Signal(_)) if own_signal => (State::Killed, Cause::Signaled),
            (None, WaitStatus::Signal(_)) => (State::Exited, Cause::Signaled),
            (None, WaitStatus::Code(_) | WaitStatus::Lost) => (State::Exited, Cause::Exited),
        };
        let forced = end.status == WaitStatus::Signal(libc::SIGKILL)
            && self.intent.as_ref().is_some_and(Intent::is_graceful);
        let exit = Exit {
            status: Some(end.status),
            cause,
            forced,
            ended_at: end.at,
            usage: end.usage,
            residue: end.residue,
            output_end: end.output_end,
        };
        self.phase = Phase::Ended {
            state,
            exit: Box::new(exit),
            ran: Some((pid, since)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(status: WaitStatus) -> LeaderEnd {
        LeaderEnd {
            status,
            usage: Usage::default(),
            at: SystemTime::UNIX_EPOCH,
            residue: Vec::new(),
            output_end: 0,
        }
    }

    fn running() -> Lifecycle {
        let mut life = Lifecycle::new();
        life.launched(7, SystemTime::UNIX_EPOCH);
        life
    }

    fn stopped() -> Intent {
        Intent::Stopped {
            by: "test".into(),
            gracefully: true,
        }
    }

    #[test]
    fn a_signal_of_a_stranger_is_exited_and_ours_is_killed() {
        let mut life = running();
        life.leader_exited(end(WaitStatus::Signal(9)));
        assert_eq!(life.state(), State::Exited);
        assert_eq!(life.exit().unwrap().cause, Cause::Signaled);

        let mut life = running();
        life.signalled(2, SystemTime::UNIX_EPOCH);
        life.leader_exited(end(WaitStatus::Signal(2)));
        assert_eq!(life.state(), State::Killed);
    }

    #[test]
    fn what_was_ended_before_it_began_tells_who_ended_it() {
        let mut life = Lifecycle::new();
        life.intend(stopped());
        life.spawn_failed(SpawnFailure::NOT_BEGUN, "sleep", SystemTime::UNIX_EPOCH);
        assert_eq!(life.state(), State::Failed, "it never ran");
        let exit = life.exit().unwrap();
        assert_eq!(exit.cause, Cause::Stopped { by: "test".into() });
        assert_eq!(exit.status, None);
    }

    #[test]
    fn a_survived_interrupt_does_not_colour_a_later_exit() {
        let mut life = running();
        life.signalled(2, SystemTime::UNIX_EPOCH);
        let later = LeaderEnd {
            at: SystemTime::UNIX_EPOCH + 2 * SOON,
            ..end(WaitStatus::Signal(2))
        };
        life.leader_exited(later);
        assert_eq!(life.state(), State::Exited);
        let mut life = running();
        life.signalled(2, SystemTime::UNIX_EPOCH);
        life.leader_exited(end(WaitStatus::Code(0)));
        assert_eq!(life.state(), State::Exited);
        assert_eq!(life.exit().unwrap().cause, Cause::Exited);
    }

    #[test]
    fn what_ends_after_a_stop_began_is_killed_whatever_its_status() {
        for status in [
            WaitStatus::Code(0),
            WaitStatus::Signal(15),
            WaitStatus::Signal(9),
        ] {
            let mut life = running();
            life.intend(stopped());
            life.leader_exited(end(status));
            assert_eq!(life.state(), State::Killed);
            assert_eq!(
                life.exit().unwrap().cause,
                Cause::Stopped { by: "test".into() }
            );
            assert_eq!(life.exit().unwrap().forced, status == WaitStatus::Signal(9));
        }
    }

    #[test]
    fn the_first_intent_decides_and_a_final_state_stays() {
        let mut life = running();
        life.intend(Intent::Timeout);
        life.intend(stopped());
        life.leader_exited(end(WaitStatus::Signal(15)));
        assert_eq!(life.exit().unwrap().cause, Cause::Timeout);

        let before = life.exit().cloned();
        life.intend(stopped());
        life.leader_exited(end(WaitStatus::Code(3)));
        life.launched(9, SystemTime::UNIX_EPOCH);
        assert_eq!(life.exit().cloned(), before);

        let mut life = running();
        life.leader_exited(end(WaitStatus::Code(7)));
        life.intend(stopped());
        assert_eq!(life.state(), State::Exited);
        assert_eq!(life.exit().unwrap().status, Some(WaitStatus::Code(7)));
    }

    #[test]
    fn a_failed_spawn_is_failed_with_its_reason() {
        let mut life = Lifecycle::new();
        let failure = SpawnFailure {
            stage: super::super::exit::SpawnStage::Exec,
            errno: libc::ENOENT,
        };
        life.spawn_failed(failure, "x", SystemTime::UNIX_EPOCH);
        assert_eq!(life.state(), State::Failed);
        assert_eq!(life.ran(), None);
        assert_eq!(life.exit().unwrap().shell_code(), 127);
    }
}
