//! Values that tell of processes, for the recorded messages.

use std::time::Duration;

use super::samples::{epoch, named, process_id, session_id, time};
use crate::process::error::{ExitedAs, Left, ProcessError, StdinClosedBecause};
use crate::process::exit::{
    Cause, Exit, Member, SpawnFailure, SpawnStage, State, Usage, WaitStatus,
};
use crate::process::snapshot::{Snapshot, StopMeans};
use crate::process::spec::TerminalSize;

/// One that runs, in a terminal.
pub(super) fn process() -> Snapshot {
    Snapshot {
        id: process_id(),
        session: session_id(),
        label: "a command".into(),
        cwd: "/work".into(),
        state: State::Running,
        exit: None,
        pid: Some(4711),
        created_at: time(),
        started_at: Some(time() + Duration::from_millis(1)),
        terminal: Some(TerminalSize::DEFAULT),
        output_end: 1 << 35,
        output_dropped: 1 << 34,
        output_ended: false,
        held_open_by: Vec::new(),
        stdin_writers: vec![("writer".into(), 12)],
        stdin_open: true,
        means: StopMeans::Cgroup,
        usage: usage(),
    }
}

fn usage() -> Usage {
    Usage {
        user_cpu: Duration::from_micros(1_234_567),
        system_cpu: Duration::from_micros(7),
        max_rss: 1 << 24,
        block_inputs: 3,
        block_outputs: 4,
        cgroup_peak: Some(1 << 25),
    }
}

fn ended(state: State, means: StopMeans, status: Option<WaitStatus>, cause: Cause) -> Snapshot {
    let exit = Exit {
        status,
        cause,
        forced: true,
        ended_at: time() + Duration::from_secs(1),
        usage: usage(),
        residue: vec![Member {
            pid: 4712,
            name: "sleep".into(),
        }],
        output_end: 5,
    };
    Snapshot {
        state,
        exit: Some(exit),
        output_ended: true,
        held_open_by: vec![4712],
        stdin_open: false,
        terminal: None,
        means,
        ..process()
    }
}

/// Processes in every state, with every end.
pub(super) fn everything_told() -> Vec<Snapshot> {
    use StopMeans::{BestEffort, Cgroup, Reaper};
    let code = Some(WaitStatus::Code(3));
    let signal = Some(WaitStatus::Signal(9));
    let by = || "ses_abcdefghijklmnopqrstuvwxyz".to_owned();
    let starting = Snapshot {
        state: State::Starting,
        pid: None,
        started_at: None,
        ..process()
    };
    let mut all = vec![
        starting,
        process(),
        ended(State::Exited, Cgroup, code, Cause::Exited),
        ended(State::Exited, Reaper, signal, Cause::Signaled),
        ended(
            State::Exited,
            BestEffort,
            Some(WaitStatus::Lost),
            Cause::Exited,
        ),
        ended(State::Killed, Cgroup, signal, Cause::Timeout),
        ended(State::Killed, Cgroup, signal, Cause::IdleTimeout),
        ended(State::Killed, Cgroup, signal, Cause::Stopped { by: by() }),
        ended(State::Killed, Cgroup, signal, Cause::SessionEnded),
        ended(State::Killed, Cgroup, signal, Cause::HostShutdown),
    ];
    let stages = [
        SpawnStage::Resources,
        SpawnStage::Clone,
        SpawnStage::Cgroup,
        SpawnStage::Session,
        SpawnStage::Terminal,
        SpawnStage::Stdio,
        SpawnStage::WorkingDirectory,
        SpawnStage::Exec,
        SpawnStage::Reaper,
    ];
    all.extend(stages.map(|stage| {
        let failure = SpawnFailure { stage, errno: 2 };
        let label = "nothing".to_owned();
        ended(
            State::Failed,
            Cgroup,
            None,
            Cause::SpawnFailed { failure, label },
        )
    }));
    all
}

/// One of each.
pub(super) fn refusals() -> Vec<(String, ProcessError)> {
    use ProcessError as E;
    let (session, id, limit) = (session_id(), process_id(), 64);
    let closed = |why| E::StdinClosed { id, why };
    let exited = |how| closed(StdinClosedBecause::Exited(how));
    let epoch_over = |left| E::EpochOver {
        asked: epoch('a'),
        current: epoch('b'),
        left,
    };
    let left = Left {
        ended: 2,
        survivors: vec![9],
    };
    let full = E::StdinQueueFull {
        queued: 1,
        length: 2,
        limit: 3,
    };
    let gap = E::StdinOffsetGap {
        offset: 10,
        accepted: 5,
    };
    named([
        ("session-not-found", E::SessionNotFound(session)),
        ("session-ended", E::SessionEnded(session)),
        ("session-secret-mismatch", E::SessionSecretMismatch(session)),
        ("session-limit", E::SessionLimit { limit }),
        ("root-limit", E::RootLimit { limit }),
        ("epoch-over", epoch_over(None)),
        ("epoch-over-after-loss", epoch_over(Some(left))),
        ("not-found", E::NotFound(id)),
        ("not-found-tombstone", E::NotFoundTombstone(id)),
        ("forgotten", E::Forgotten(id)),
        ("id-conflict", E::IdConflict(id)),
        ("stopped-before-start", E::StoppedBeforeStart(id)),
        ("start-expired", E::StartExpired(id)),
        ("process-limit", E::ProcessLimit { limit }),
        ("receipt-limit", E::ReceiptLimit { limit }),
        ("still-running", E::StillRunning(id)),
        ("stdin-never-open", closed(StdinClosedBecause::NeverOpen)),
        ("stdin-closed", closed(StdinClosedBecause::Closed)),
        ("stdin-reader-gone", closed(StdinClosedBecause::ReaderGone)),
        ("stdin-exited-code", exited(ExitedAs::Code(1))),
        ("stdin-exited-signal", exited(ExitedAs::Signal(15))),
        ("stdin-exited-unknown", exited(ExitedAs::Unknown)),
        ("stdin-queue-full", full),
        ("stdin-offset-gap", gap),
        ("stdin-writer-limit", E::StdinWriterLimit { limit }),
        ("close-on-terminal", E::CloseOnTerminal),
        ("not-a-terminal", E::NotATerminal(id)),
        ("reader-conflict", E::ReaderConflict),
        ("not-lossless", E::NotLossless(id)),
        ("bad-signal", E::BadSignal(65)),
        ("missing-descriptor", E::MissingDescriptor("/work".into())),
        ("out-of-resources", E::OutOfResources { errno: 24 }),
        ("shutting-down", E::ShuttingDown),
        ("not-understood", E::NotUnderstood),
        ("engine-gone", E::EngineGone),
    ])
}
