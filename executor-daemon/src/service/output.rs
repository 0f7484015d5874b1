//! Output: one page, or a stream of them.
//!
//! A stream is pulled: a page is made when the transport has room for it, so a
//! slow client holds up itself and nothing else, and there is no queue. Where
//! it stands:
//!
//! ```text
//! pages, exit not told ──exit known and all up to its output_end sent──► pages, exit told
//!          │                                                                    │
//!          │ output ended                                                       │ output ended
//!          ▼                                                                    ▼
//!    waiting for the exit ───────────────────────────────────────────────►  last message
//! ```
//!
//! 1. Pages are in order and without overlap.
//! 2. The exit is told once, and after all that the process itself wrote.
//! 3. `output_ended` is set in the last message, and nowhere else.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use executor_proto::reason::{Failure, Reason};
use executor_proto::v1;
use tokio::time::Instant;
use tokio_stream::Stream;
use tokio_util::sync::{CancellationToken, DropGuard, ReusableBoxFuture};
use tonic::Status;

use super::convert::output::{CheckedRead, page as page_to_wire};
use super::convert::process::{exit as exit_to_wire, state as state_to_wire};
use super::failure::{self, Call, unexpected};
use super::readers::Attached;
use super::{Caller, Core};
use crate::host::message::{Reply, Request, Target};
use crate::process::error::ProcessError;
use crate::process::exit::{Exit, State};
use crate::process::log::{LogReader, LogStatus, Page, ReadError};
use crate::process::snapshot::Snapshot;

impl Core {
    /// The process as it is now; one whose log tells the exit, with the exit.
    async fn snapshot(
        &self,
        caller: &Caller,
        target: Target,
        exited: bool,
    ) -> Result<Snapshot, Failure> {
        let wait = if exited {
            Duration::from_secs(self.parts.limits.wait_seconds as u64)
        } else {
            Duration::ZERO
        };
        let get = Request::Get { target, wait };
        match self.ask(caller, get, Vec::new()).await? {
            (Reply::Process(snapshot), _) => Ok(*snapshot),
            _ => Err(unexpected("process")),
        }
    }

    /// `ReadOutput`: one page, waited for where there is none yet.
    pub(super) async fn read_output(
        &self,
        caller: &Caller,
        target: Target,
        read: &CheckedRead,
    ) -> Result<v1::ReadOutputResponse, Failure> {
        let mut log = self.log(caller, target).await?;
        let deadline = Instant::now() + read.wait;
        let (status, page) = loop {
            match one_page(&log, read.cursor, read.max_bytes) {
                Ok((status, page)) => {
                    let has_news = !page.data.is_empty()
                        || page.gap.is_some()
                        || status.exited
                        || status.ended;
                    if has_news || Instant::now() >= deadline {
                        break (status, page);
                    }
                    let changed = tokio::time::timeout_at(deadline, log.changed(status));
                    // At the deadline the page is what it is.
                    let _ = self
                        .parts
                        .registry
                        .while_open(&caller.session, changed)
                        .await;
                }
                // Forgotten: the engine says so, and who is to blame if not.
                Err(ReadError::Gone) => log = self.log(caller, target).await?,
                Err(error) => return Err(failure::read(error)),
            }
        };
        let snapshot = self.snapshot(caller, target, status.exited).await?;
        // An exit that came after the page was made is the next page's: what
        // was written before it is to be read before it is seen.
        let (state, exit) = if status.exited {
            (snapshot.state, snapshot.exit)
        } else if snapshot.state.is_final() {
            (State::Running, None)
        } else {
            (snapshot.state, None)
        };
        Ok(v1::ReadOutputResponse {
            page: Some(page_to_wire(page)),
            state: state_to_wire(state).into(),
            exit: exit.map(exit_to_wire),
            output_ended: status.ended,
            held_open_by: snapshot.held_open_by,
        })
    }
}

/// A page, and where the log stood before it was made.
fn one_page(log: &LogReader, cursor: u64, max: usize) -> Result<(LogStatus, Page), ReadError> {
    let status = log.status()?;
    Ok((status, log.page(cursor, max)?))
}

/// What makes the messages of one stream.
pub(super) struct Pages {
    core: Arc<Core>,
    caller: Caller,
    target: Target,
    log: LogReader,
    cursor: u64,
    max: usize,
    /// Kept for its drop, and to learn that another took its place.
    reader: Option<Attached>,
    /// Asked for when the stream is opened, so that it also comes from an
    /// engine that is ending and takes no more questions.
    exit_coming: ReusableBoxFuture<'static, Result<Snapshot, Failure>>,
    exit: Option<(State, Exit)>,
    exit_told: bool,
    ended: bool,
    /// While it is there the session's client counts as there.
    _open: Option<DropGuard>,
}

impl Pages {
    /// From `cursor`, which the log has.
    pub(super) fn new(
        core: Arc<Core>,
        caller: Caller,
        target: Target,
        log: LogReader,
        cursor: u64,
        reader: Option<Attached>,
    ) -> Self {
        let max = core.parts.limits.stream_page_bytes;
        let open = count_as_contact(&core, &caller);
        let exit_coming =
            ReusableBoxFuture::new(snapshot_at_exit(Arc::clone(&core), caller.clone(), target));
        Self {
            core,
            caller,
            target,
            log,
            cursor,
            max,
            reader,
            exit_coming,
            exit: None,
            exit_told: false,
            ended: false,
            _open: open,
        }
    }

    /// The next message; `None` after the last one. Cancel safe: what was not
    /// returned is made again.
    async fn next(&mut self) -> Option<Result<v1::StreamOutputResponse, Status>> {
        if self.ended {
            return None;
        }
        let message = self.message().await;
        self.ended = match &message {
            Ok(message) => message.output_ended,
            Err(_) => true,
        };
        Some(message.map_err(Status::from))
    }

    async fn message(&mut self) -> Result<v1::StreamOutputResponse, Failure> {
        let mut reopened = false;
        loop {
            let Ok(status) = self.log.status() else {
                self.reopen(&mut reopened).await?;
                continue;
            };
            while status.exited && self.exit.is_none() {
                let snapshot = std::future::poll_fn(|context| self.exit_coming.poll(context)).await;
                self.take_exit(snapshot)?;
            }
            let page = match self.log.page(self.cursor, self.max) {
                Ok(page) => page,
                Err(ReadError::Gone) => {
                    self.reopen(&mut reopened).await?;
                    continue;
                }
                Err(error) => return Err(failure::read(error)),
            };
            self.cursor = page.next_cursor();
            let exit = self.exit_due();
            let ended = status.ended && self.exit_told && self.cursor >= status.end;
            let page = (page.gap.is_some() || !page.data.is_empty()).then_some(page);
            if page.is_some() || exit.is_some() || ended {
                return Ok(v1::StreamOutputResponse {
                    page: page.map(page_to_wire),
                    state: self.state().into(),
                    exit: exit.map(exit_to_wire),
                    output_ended: ended,
                });
            }
            self.wait(status).await?;
        }
    }

    /// The log is gone: the process was forgotten, or its host is lost, as the
    /// engine says, or only the link to it was.
    async fn reopen(&mut self, reopened: &mut bool) -> Result<(), Failure> {
        let forgotten = ProcessError::Forgotten(self.target.process);
        if std::mem::replace(reopened, true) {
            return Err(failure::engine(&forgotten, Call::Other));
        }
        self.log = self.core.log(&self.caller, self.target).await?;
        if self.reader.is_some() {
            // A reader without loss has to attach again, at its cursor.
            return Err(failure::engine(&ProcessError::ShuttingDown, Call::Other));
        }
        Ok(())
    }

    /// The exit, where it is time to tell it.
    fn exit_due(&mut self) -> Option<Exit> {
        let (_, exit) = self.exit.as_ref()?;
        if self.exit_told || self.cursor < exit.output_end {
            return None;
        }
        self.exit_told = true;
        Some(exit.clone())
    }

    /// The state that goes with what was sent so far.
    fn state(&self) -> v1::ProcessState {
        match &self.exit {
            Some((state, _)) if self.exit_told => state_to_wire(*state),
            _ => v1::ProcessState::Running,
        }
    }

    /// Keeps the exit; asks again where the process still runs.
    fn take_exit(&mut self, snapshot: Result<Snapshot, Failure>) -> Result<(), Failure> {
        let snapshot = snapshot?;
        match snapshot.exit {
            Some(exit) => self.exit = Some((snapshot.state, exit)),
            None => self.exit_coming.set(snapshot_at_exit(
                Arc::clone(&self.core),
                self.caller.clone(),
                self.target,
            )),
        }
        Ok(())
    }

    /// Until there is more, or the stream is to end.
    async fn wait(&mut self, seen: LogStatus) -> Result<(), Failure> {
        let superseded = async {
            match &self.reader {
                Some(reader) => reader.superseded.cancelled().await,
                None => std::future::pending().await,
            }
        };
        let (coming, known) = (&mut self.exit_coming, self.exit.is_some());
        tokio::select! {
            biased;
            snapshot = std::future::poll_fn(|context| coming.poll(context)), if !known => {
                self.take_exit(snapshot)
            }
            () = self.log.changed(seen) => Ok(()),
            () = superseded => Err(Failure::new(
                Reason::ReaderConflict,
                "a newer stream with the same reader id has taken over",
            )),
            () = self.core.closing.cancelled() => {
                Err(failure::engine(&ProcessError::ShuttingDown, Call::Other))
            }
        }
    }
}

async fn snapshot_at_exit(
    core: Arc<Core>,
    caller: Caller,
    target: Target,
) -> Result<Snapshot, Failure> {
    core.snapshot(&caller, target, true).await
}

/// Tells the engine of contact while a stream is open, also while its client
/// is too slow for it to be polled.
pub(super) fn count_as_contact(core: &Arc<Core>, caller: &Caller) -> Option<DropGuard> {
    core.parts.registry.contact_period(&caller.session)?;
    let gone = CancellationToken::new();
    let guard = gone.clone().drop_guard();
    let (core, caller) = (Arc::clone(core), caller.clone());
    let tasks = core.tasks.clone();
    tasks.spawn(async move {
        let registry = &core.parts.registry;
        registry.while_open(&caller.session, gone.cancelled()).await;
    });
    Some(guard)
}

type Made = (Pages, Option<Result<v1::StreamOutputResponse, Status>>);

/// The response of `StreamOutput`. Dropping it detaches its reader.
pub(crate) struct OutputStream {
    making: ReusableBoxFuture<'static, Made>,
}

impl OutputStream {
    /// All messages of `pages`.
    pub(super) fn new(pages: Pages) -> Self {
        Self {
            making: ReusableBoxFuture::new(make(pages)),
        }
    }
}

async fn make(mut pages: Pages) -> Made {
    let message = pages.next().await;
    (pages, message)
}

impl Stream for OutputStream {
    type Item = Result<v1::StreamOutputResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let (pages, message) = ready!(this.making.poll(context));
        // After the last message this makes `None` again and again, as a
        // stream that has ended may be polled.
        this.making.set(make(pages));
        Poll::Ready(message)
    }
}

impl std::fmt::Debug for OutputStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutputStream").finish_non_exhaustive()
    }
}
