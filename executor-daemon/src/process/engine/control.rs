//! What is done to processes that are there.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::Engine;
use crate::process::backend::pty;
use crate::process::control::{SignalTarget, StdinWrite, StopMode, Target};
use crate::process::error::ProcessError;
use crate::process::flow::LosslessReader;
use crate::process::lifecycle::Intent;
use crate::process::log::LogReader;
use crate::process::record::Process;
use crate::process::snapshot::Snapshot;
use crate::process::spec::TerminalSize;
use crate::process::stdin::Accepted;
use crate::process::supervisor::interrupt;
use crate::process::tree::{EndMode, EndReport};

/// How long an interrupt waits for a launch that is under way: it ends none.
const LAUNCHED: Duration = Duration::from_secs(30);

/// What a stop did.
#[derive(Debug)]
pub(crate) struct Stopped {
    pub(crate) process: Snapshot,
    pub(crate) signalled: usize,
    pub(crate) survivors: Vec<u32>,
    pub(crate) already_ended: bool,
}

impl Engine {
    /// The process, at its exit or after `wait`.
    pub(crate) async fn get(
        &self,
        target: Target,
        wait: Duration,
    ) -> Result<Arc<Process>, ProcessError> {
        let process = self.find(target)?;
        if !wait.is_zero() {
            let deadline = Instant::now() + wait;
            process
                .wait_until(deadline, |mutable| mutable.state().is_final())
                .await;
        }
        Ok(process)
    }

    pub(crate) fn log(&self, target: Target) -> Result<LogReader, ProcessError> {
        Ok(self.find(target)?.log.clone())
    }

    pub(crate) async fn stop(
        &self,
        target: Target,
        mode: StopMode,
        by: String,
    ) -> Result<Stopped, ProcessError> {
        let process = match self.find(target) {
            Err(ProcessError::NotFound(id)) => {
                let Some(session) = target.session else {
                    return Err(ProcessError::NotFound(id));
                };
                let session = self.sessions().get(session)?;
                session.table().leave_tombstone(id, SystemTime::now())?;
                return Err(ProcessError::NotFoundTombstone(id));
            }
            found => found?,
        };
        // A stop that has begun is finished whoever still waits for it.
        self.shared
            .tasks
            .spawn(async move { stop(&process, mode, by).await })
            .await
            .map_err(|_| ProcessError::EngineGone)
    }

    /// Sends one signal; says whether it was sent.
    pub(crate) fn signal(
        &self,
        target: Target,
        signal: i32,
        to: SignalTarget,
    ) -> Result<(Snapshot, bool), ProcessError> {
        if !(1..=64).contains(&signal) {
            return Err(ProcessError::BadSignal(signal));
        }
        let process = self.find(target)?;
        let delivered = {
            let mut mutable = process.lock();
            let tree = mutable.tree.clone().filter(|_| !mutable.state().is_final());
            // Noted before it is sent: the exit may follow at once.
            if tree.is_some() {
                mutable.lifecycle.signalled(signal, SystemTime::now());
            }
            drop(mutable);
            tree.is_some_and(|tree| tree.signal(to, signal))
        };
        if !delivered {
            process.lock().lifecycle.not_signalled();
        }
        Ok((process.snapshot(), delivered))
    }

    pub(crate) fn resize(&self, target: Target, size: TerminalSize) -> Result<(), ProcessError> {
        let process = self.find(target)?;
        let master = {
            let mut mutable = process.lock();
            if mutable.size.is_none() {
                return Err(ProcessError::NotATerminal(process.facts.id));
            }
            mutable.size = Some(size);
            mutable.master.clone()
        };
        if let Some(master) = master {
            // A terminal that has just been closed has no size to keep.
            let _ = pty::resize(master.as_fd(), size);
        }
        Ok(())
    }

    /// Queues input. Returns the writer's offset, what is queued, and whether
    /// input is closed.
    pub(crate) async fn write_stdin(
        &self,
        target: Target,
        write: &StdinWrite,
        wait: Duration,
    ) -> Result<(u64, usize, bool), ProcessError> {
        let process = self.find(target)?;
        let deadline = Instant::now() + wait;
        let settings = self.settings();
        let mut outcome = None;
        process
            .wait_until(deadline, |mutable| {
                let accepted = match mutable.stdin.accept(write) {
                    Ok(Accepted::NoRoom) => Err(ProcessError::StdinQueueFull {
                        queued: mutable.stdin.queued(),
                        length: write.data.len(),
                        limit: settings.limits.stdin_queue_bytes,
                    }),
                    Ok(Accepted::Yes { offset }) => {
                        Ok((offset, mutable.stdin.queued(), !mutable.stdin.is_open()))
                    }
                    Err(error) => Err(error),
                };
                let decided = !matches!(accepted, Err(ProcessError::StdinQueueFull { .. }));
                outcome = Some(accepted);
                decided
            })
            .await;
        process.wake.notify_one();
        outcome.unwrap_or(Err(ProcessError::EngineGone))
    }

    pub(crate) fn attach_reader(
        &self,
        target: Target,
        reader: &str,
        consumed: u64,
    ) -> Result<(), ProcessError> {
        self.with_flow(target, |flow| flow.attach(reader, consumed))?
    }

    pub(crate) fn consumed(
        &self,
        target: Target,
        reader: &str,
        offset: u64,
    ) -> Result<(), ProcessError> {
        self.with_flow(target, |flow| flow.consumed(reader, offset))
    }

    pub(crate) fn detach_reader(&self, target: Target, reader: &str) -> Result<(), ProcessError> {
        self.with_flow(target, |flow| flow.detach(reader, Instant::now()))
    }

    fn with_flow<R>(
        &self,
        target: Target,
        change: impl FnOnce(&mut LosslessReader) -> R,
    ) -> Result<R, ProcessError> {
        let process = self.find(target)?;
        let result = match &mut process.lock().flow {
            Some(flow) => change(flow),
            None => return Err(ProcessError::NotLossless(process.facts.id)),
        };
        process.wake.notify_one();
        Ok(result)
    }

    pub(crate) fn remove(&self, target: Target) -> Result<(), ProcessError> {
        let session = match target.session {
            Some(session) => session,
            None => self.find(target)?.facts.session,
        };
        let session = self.sessions().get(session)?;
        let mut table = session.table();
        table.remove(target.process, SystemTime::now())
    }
}

async fn stop(process: &Process, mode: StopMode, by: String) -> Stopped {
    let already_ended = process.is_finished();
    let gracefully = matches!(mode, StopMode::Terminate { .. });
    let mode = match mode {
        StopMode::Interrupt => {
            return interrupted(process, already_ended).await;
        }
        StopMode::Terminate { grace } => EndMode::Terminate { grace },
        StopMode::Kill => EndMode::Kill,
    };
    process
        .lock()
        .lifecycle
        .intend(Intent::Stopped { by, gracefully });
    process.notify();
    let EndReport {
        signalled,
        survivors,
        ..
    } = process.end_tree(mode).await;
    if survivors.is_empty() {
        process.wait_exit_published().await;
        process.has_tree();
    }
    Stopped {
        process: process.snapshot(),
        signalled,
        survivors,
        already_ended,
    }
}

async fn interrupted(process: &Process, already_ended: bool) -> Stopped {
    let mut signalled = 0;
    if !already_ended {
        process.wait_launched(Instant::now() + LAUNCHED).await;
        // Noted before it is sent: the exit may follow at once.
        let now = SystemTime::now();
        process.lock().lifecycle.signalled(libc::SIGINT, now);
        signalled = usize::from(interrupt(process));
        if signalled == 0 {
            process.lock().lifecycle.not_signalled();
        }
    }
    Stopped {
        process: process.snapshot(),
        signalled,
        survivors: Vec::new(),
        already_ended,
    }
}
