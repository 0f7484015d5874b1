//! Which call is repeated after which failure, and how long.
//!
//! | call | never sent | connection lost | machine shutting down | refused |
//! |---|---|---|---|---|
//! | GetMachine, GetSession, GetProcess, ListProcesses, ReadOutput | again | again | again | no |
//! | OpenSession, KeepAlive, EndSession | again | again | again | no |
//! | StartProcess | again, same id | again, same id | again, same id | no |
//! | StreamOutput | again, from the cursor | again, from the cursor | again, from the cursor | no |
//! | WriteStdin | again, same offset | again, same offset | again, same offset | no |
//! | ResizeTerminal, RemoveProcess | again | again | again | no |
//! | StatFile, ReadLines, ListDirectory, ReadImage, Glob, Grep (until its first message) | again | again | again | no |
//! | ReadBytes | again, from the offset | again, from the offset | again, from the offset | no |
//! | WriteFile, EditFile, RemoveFile, RenameFile, MakeDirectory, UndoMutation | again, same operation id | again, same operation id | again, same operation id | no |
//! | GrantRoot | again | again | again | no |
//! | StopProcess: terminate, kill | again | again | again | no |
//! | StopProcess: interrupt | again | **no** | again | no |
//! | SignalProcess | again | **no** | again | no |
//!
//! - *Never sent*: there was no connection to send the request on.
//! - *Connection lost*: it may have arrived and been carried out. Ids, offsets
//!   and cursors make a repeat harmless; a signal has none of them, and a
//!   program may tell two from one.
//! - *Machine shutting down*: the machine said that it did nothing.
//!   An answer that does not come within 20 s (and what the request itself may
//!   wait) counts as a lost connection, but for the two that are not repeated.
//! - *Refused*: every other reason, above all `HOST_LOST`,
//!   `START_OUTCOME_UNKNOWN` and `OPERATION_OUTCOME_UNKNOWN`: only the caller can decide what to do then.
//!
//! Repeats come after 20 ms, then twice as long each time, at most 2 s, each
//! shortened at random by up to half, until the call's deadline.

use std::time::Duration;

use executor_proto::reason::Reason;
use tokio::time::Instant;

use crate::error::ClientError;

/// How one call is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallOptions {
    /// Time for the whole call with all repeats. A call that waits on the
    /// machine (`wait`) gets its wait on top.
    pub deadline: Duration,
}

impl Default for CallOptions {
    /// 30 seconds: longer than a daemon needs to restart.
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(30),
        }
    }
}

/// The rows of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Describes the machine.
    GetMachine,
    /// Opens or finds a session.
    OpenSession,
    /// Reads a session.
    GetSession,
    /// Renews a lease.
    KeepAlive,
    /// Ends a session.
    EndSession,
    /// Starts a process under the client's id.
    StartProcess,
    /// Reads a process.
    GetProcess,
    /// Lists processes.
    ListProcesses,
    /// Reads a page of output.
    ReadOutput,
    /// Follows the output from a cursor.
    StreamOutput,
    /// Writes input at an offset.
    WriteStdin,
    /// Sets a terminal's size.
    ResizeTerminal,
    /// Sends one signal.
    SignalProcess,
    /// Ends a process's tree.
    StopProcess,
    /// Interrupts a process, which may go on.
    InterruptProcess,
    /// Forgets a finished process.
    RemoveProcess,
    /// Describes a path.
    StatFile,
    /// Reads lines.
    ReadLines,
    /// Reads bytes from an offset.
    ReadBytes,
    /// Lists a directory.
    ListDirectory,
    /// Finds paths.
    Glob,
    /// Finds text.
    Grep,
    /// Writes a whole file under an operation id.
    WriteFile,
    /// Edits a file under an operation id.
    EditFile,
    /// Takes a change back under an operation id.
    UndoMutation,
    /// Removes under an operation id.
    RemoveFile,
    /// Renames under an operation id.
    RenameFile,
    /// Makes a directory under an operation id.
    MakeDirectory,
    /// Reads an image.
    ReadImage,
    /// Adds a root to a session.
    GrantRoot,
}

/// What the table says of one failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Send the same request again.
    Again,
    /// Hand the failure to the caller.
    GiveUp,
}

impl Call {
    /// Every row.
    pub const ALL: &[Self] = &[
        Self::GetMachine,
        Self::OpenSession,
        Self::GetSession,
        Self::KeepAlive,
        Self::EndSession,
        Self::StartProcess,
        Self::GetProcess,
        Self::ListProcesses,
        Self::ReadOutput,
        Self::StreamOutput,
        Self::WriteStdin,
        Self::ResizeTerminal,
        Self::SignalProcess,
        Self::StopProcess,
        Self::InterruptProcess,
        Self::RemoveProcess,
        Self::StatFile,
        Self::ReadLines,
        Self::ReadBytes,
        Self::ListDirectory,
        Self::Glob,
        Self::Grep,
        Self::WriteFile,
        Self::EditFile,
        Self::UndoMutation,
        Self::RemoveFile,
        Self::RenameFile,
        Self::MakeDirectory,
        Self::ReadImage,
        Self::GrantRoot,
    ];

    /// A second arrival of the same request changes nothing.
    fn harmless_twice(self) -> bool {
        !matches!(self, Self::SignalProcess | Self::InterruptProcess)
    }

    /// Looks the failure up in the table.
    #[must_use]
    pub fn after(self, failure: &ClientError) -> Verdict {
        let again = match failure {
            ClientError::Unreachable { never_sent, .. } => *never_sent || self.harmless_twice(),
            ClientError::Refused { reason, .. } => *reason == Reason::ShuttingDown,
            ClientError::DeadlineExceeded { .. }
            | ClientError::Foreign { .. }
            | ClientError::Protocol(_)
            | ClientError::Address(_) => false,
        };
        if again {
            Verdict::Again
        } else {
            Verdict::GiveUp
        }
    }
}

/// How long an answer may take, beyond what the request itself waits for.
pub(crate) const ANSWER: Duration = Duration::from_secs(20);

/// The pauses between repeats.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(20);
    pub(crate) const LONGEST: Duration = Duration::from_secs(2);

    pub(crate) fn new() -> Self {
        Self { next: Self::FIRST }
    }

    /// The next pause: between half of it and all of it.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(Self::LONGEST);
        let mut random = [0u8; 2];
        // Without randomness the pause is merely not spread.
        if getrandom::fill(&mut random).is_err() {
            return pause;
        }
        let half = pause / 2;
        half + half * u32::from(u16::from_le_bytes(random)) / u32::from(u16::MAX)
    }
}

/// Makes attempts until one answers, the table says no, or the deadline is
/// over. Dropping the future abandons the attempt that is under way; what it
/// asked for may still be done.
///
/// `wait` is what the machine may take by the request itself. An attempt whose
/// answer does not come for [`ANSWER`] longer counts as a lost connection where a
/// repeat is harmless: the answer may be lost although the connection is not.
pub(crate) async fn attempts<T, F, Fut>(
    call: Call,
    deadline: Duration,
    wait: Duration,
    attempt: F,
) -> Result<T, ClientError>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, tonic::Status>>,
{
    attempts_in(call, deadline, wait, deadline, attempt).await
}

/// As [`attempts`], where the machine is given up `outage` after the first of its
/// failures: work that may take long by itself is waited for, a machine that is
/// not there is not.
pub(crate) async fn attempts_in<T, F, Fut>(
    call: Call,
    deadline: Duration,
    wait: Duration,
    outage: Duration,
    mut attempt: F,
) -> Result<T, ClientError>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, tonic::Status>>,
{
    let mut give_up = None;
    // A deadline so far away that it cannot be expressed is none.
    let end = Instant::now().checked_add(deadline);
    let mut backoff = Backoff::new();
    loop {
        // A generated call is several kilobytes; boxed once here, the futures
        // of all methods above stay small.
        let sent = Box::pin(attempt());
        let silence = Instant::now().checked_add(wait.saturating_add(ANSWER));
        let silence = silence.filter(|_| call.harmless_twice());
        let until = match (end, silence) {
            (Some(end), Some(silence)) => Some(end.min(silence)),
            (end, silence) => end.or(silence),
        };
        let answer = match until {
            Some(until) => tokio::time::timeout_at(until, sent).await.ok(),
            None => Some(sent.await),
        };
        let failure = match answer {
            Some(Ok(answer)) => return Ok(answer),
            Some(Err(status)) => ClientError::from_status(&status),
            None if end.is_some_and(|end| Instant::now() >= end) => {
                return Err(ClientError::DeadlineExceeded { deadline });
            }
            None => ClientError::Unreachable {
                message: format!("no answer within {} s", ANSWER.as_secs()),
                never_sent: false,
            },
        };
        if call.after(&failure) == Verdict::GiveUp {
            return Err(failure);
        }
        let now = Instant::now();
        let wake = now + backoff.pause();
        let out = *give_up.get_or_insert_with(|| now.checked_add(outage));
        if [end, out].into_iter().flatten().any(|end| wake >= end) {
            return Err(failure);
        }
        tokio::time::sleep_until(wake).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost() -> ClientError {
        ClientError::Unreachable {
            message: "gone".into(),
            never_sent: false,
        }
    }

    fn refused(reason: Reason) -> ClientError {
        ClientError::Refused {
            reason,
            message: "no".into(),
            metadata: Default::default(),
        }
    }

    #[test]
    fn what_was_never_sent_is_sent_again() {
        let failure = ClientError::Unreachable {
            message: "refused".into(),
            never_sent: true,
        };
        for call in Call::ALL {
            assert_eq!(call.after(&failure), Verdict::Again, "{call:?}");
        }
    }

    #[test]
    fn a_signal_that_may_have_arrived_is_not_sent_again() {
        for &call in Call::ALL {
            let signal = matches!(call, Call::SignalProcess | Call::InterruptProcess);
            let expected = if signal {
                Verdict::GiveUp
            } else {
                Verdict::Again
            };
            assert_eq!(call.after(&lost()), expected, "{call:?}");
        }
    }

    #[test]
    fn a_refusal_is_the_callers_to_decide() {
        for &call in Call::ALL {
            for &reason in Reason::ALL {
                let expected = if reason == Reason::ShuttingDown {
                    Verdict::Again
                } else {
                    Verdict::GiveUp
                };
                assert_eq!(
                    call.after(&refused(reason)),
                    expected,
                    "{call:?} {reason:?}"
                );
            }
        }
    }

    #[test]
    fn pauses_grow_to_a_bound_and_are_spread() {
        let mut backoff = Backoff::new();
        let mut whole = Backoff::FIRST;
        for _ in 0..20 {
            let pause = backoff.pause();
            assert!(pause >= whole / 2 && pause <= whole, "{pause:?} {whole:?}");
            whole = (whole * 2).min(Backoff::LONGEST);
        }
        assert_eq!(whole, Backoff::LONGEST);
    }

    #[tokio::test(start_paused = true)]
    async fn the_deadline_holds_over_all_attempts() {
        let begin = Instant::now();
        let deadline = Duration::from_secs(5);
        let failure = attempts::<(), _, _>(Call::GetMachine, deadline, Duration::ZERO, || async {
            Err(tonic::Status::unavailable("gone"))
        })
        .await
        .unwrap_err();
        assert_eq!(failure.reason(), Some(Reason::Unreachable));
        assert!(begin.elapsed() <= deadline);
        let failure = attempts::<(), _, _>(
            Call::GetMachine,
            deadline,
            Duration::ZERO,
            std::future::pending,
        );
        let failure = failure.await.unwrap_err();
        assert!(matches!(failure, ClientError::DeadlineExceeded { .. }));
    }

    #[tokio::test(start_paused = true)]
    async fn long_work_is_waited_for_and_a_machine_that_is_not_there_is_not() {
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        let begin = Instant::now();
        let failure = attempts_in::<(), _, _>(Call::EditFile, minute, minute, second, || async {
            Err(tonic::Status::unavailable("gone"))
        });
        let failure = failure.await.unwrap_err();
        assert_eq!(failure.reason(), Some(Reason::Unreachable));
        assert!(begin.elapsed() <= second);
        let work = attempts_in(Call::EditFile, minute, minute, second, || async {
            tokio::time::sleep(minute / 2).await;
            Ok(())
        });
        work.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_lost_is_asked_for_again() {
        let deadline = Duration::from_secs(60);
        let mut made = 0;
        let answer = attempts(Call::WriteStdin, deadline, Duration::from_secs(5), || {
            made += 1;
            let lost = made < 3;
            async move {
                if lost {
                    std::future::pending::<()>().await;
                }
                Ok(made)
            }
        });
        assert_eq!(answer.await.unwrap(), 3);
        let begin = Instant::now();
        let signal = attempts::<(), _, _>(
            Call::SignalProcess,
            deadline,
            Duration::ZERO,
            std::future::pending,
        );
        assert!(signal.await.is_err());
        assert_eq!(begin.elapsed(), deadline, "a signal is sent once");
    }
}
