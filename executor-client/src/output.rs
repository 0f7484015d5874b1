//! Following output across lost connections.
//!
//! ```text
//! closed ──open at cursor──► open ──message──► open
//!   ▲                          │
//!   └── pause ◄── lost ────────┘          open ──last message──► ended
//! ```
//!
//! Invariants:
//! 1. What is handed out is gapless and without repeats, or the gap is told:
//!    every page begins where the one before ended.
//! 2. The exit is handed out once, the end once and last.
//! 3. A lossless process is told of a byte only when the caller came for the
//!    next event, never when the byte has merely arrived.

use std::collections::VecDeque;

use bytes::Bytes;
use executor_proto::v1;
use executor_proto::v1::stream_output_request::Message;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::WatchStream;
use tonic::{Status, Streaming};

use crate::error::ClientError;
use crate::exit::Exit;
use crate::process::Process;
use crate::retry::{ANSWER, Backoff, Call, Verdict};

/// Where and as whom to follow. The default: from the beginning, as one
/// reader among any number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutputOptions {
    /// A byte offset.
    pub cursor: u64,
    /// The reader that a process with `flow: lossless` waits for, 1 to 64
    /// characters.
    pub reader_id: Option<String>,
}

/// What happens to a process's output.
#[derive(Debug, Clone, PartialEq)]
pub enum OutputEvent {
    /// The next bytes, and what was lost before them.
    Page(v1::OutputPage),
    /// The process has ended; all that it wrote itself was handed out.
    /// Descendants that hold its output may write more.
    Exit(Box<Exit>),
    /// No byte will follow.
    End,
}

/// The output of one process, in order. Made by
/// [`Process::output`](crate::Process::output).
#[derive(Debug)]
pub struct OutputStream {
    process: Process,
    reader_id: Option<String>,
    /// Everything before was received.
    cursor: u64,
    ready: VecDeque<OutputEvent>,
    exit_received: bool,
    ended: bool,
    connection: Option<Connection>,
    outage: Option<Outage>,
}

#[derive(Debug)]
struct Connection {
    messages: Streaming<v1::StreamOutputResponse>,
    /// What the caller consumed; only the newest value counts.
    consumed: watch::Sender<u64>,
    since: Instant,
}

/// From the first failure to the next sign of life.
#[derive(Debug)]
struct Outage {
    backoff: Backoff,
    /// `None`: the deadline is too far away to be expressed.
    give_up: Option<Instant>,
    wake: Instant,
}

impl OutputStream {
    pub(crate) fn new(process: Process, options: OutputOptions) -> Self {
        Self {
            process,
            reader_id: options.reader_id,
            cursor: options.cursor,
            ready: VecDeque::new(),
            exit_received: false,
            ended: false,
            connection: None,
            outage: None,
        }
    }

    /// The next event; `None` after the end. Asking for it acknowledges all
    /// that was handed out before. Cancel safe: dropping the future loses
    /// nothing.
    ///
    /// A lost connection is made again and the stream goes on where it was.
    /// After an error the stream has kept its place: calling again goes on.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] when the machine could not be reached for
    /// as long as the session's deadline; `CURSOR_AHEAD`, `READER_CONFLICT`,
    /// `PROCESS_NOT_FOUND`, `FORGOTTEN`, `HOST_LOST`.
    pub async fn next(&mut self) -> Result<Option<OutputEvent>, ClientError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if let Some(connection) = &self.connection {
                let cursor = self.cursor;
                connection.consumed.send_if_modified(|consumed| {
                    let changed = *consumed != cursor;
                    *consumed = cursor;
                    changed
                });
            }
            if self.ended {
                return Ok(None);
            }
            self.receive().await?;
        }
    }

    /// The offset behind the last page that was handed out: where another
    /// stream would go on.
    #[must_use]
    pub fn cursor(&self) -> u64 {
        self.ready
            .iter()
            .find_map(|event| match event {
                OutputEvent::Page(page) => {
                    Some(page.gap.as_ref().map_or(page.start, |gap| gap.from))
                }
                _ => None,
            })
            .unwrap_or(self.cursor)
    }

    /// Takes one message in, or notes a failure that may be tried again.
    async fn receive(&mut self) -> Result<(), ClientError> {
        if let Some(outage) = &self.outage
            && self.connection.is_none()
        {
            tokio::time::sleep_until(outage.wake).await;
        }
        let failure = match self.message().await {
            Ok(Some(message)) => {
                self.outage = None;
                let accepted = self.accept(message);
                if accepted.is_err() {
                    self.connection = None;
                }
                return accepted;
            }
            Ok(None) => ClientError::Unreachable {
                message: "the stream ended before the output".into(),
                never_sent: false,
            },
            Err(status) => ClientError::from_status(&status),
        };
        let lived = self.connection.take().map(|open| open.since.elapsed());
        if Call::StreamOutput.after(&failure) == Verdict::GiveUp {
            self.outage = None;
            return Err(failure);
        }
        // A quiet stream that had lived is a new outage, not the old one.
        if lived.is_some_and(|lived| lived > Backoff::LONGEST) {
            self.outage = None;
        }
        let now = Instant::now();
        let deadline = self.process.session().options().deadline;
        let outage = self.outage.get_or_insert_with(|| Outage {
            backoff: Backoff::new(),
            give_up: now.checked_add(deadline),
            wake: now,
        });
        outage.wake = now + outage.backoff.pause();
        if outage.give_up.is_some_and(|end| outage.wake >= end) {
            self.outage = None;
            return Err(failure);
        }
        Ok(())
    }

    async fn message(&mut self) -> Result<Option<v1::StreamOutputResponse>, Status> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            closed => {
                let open = open(&self.process, self.reader_id.as_deref(), self.cursor);
                let open = tokio::time::timeout(ANSWER, open).await;
                // An answer that is lost is as good as a connection that is.
                let open = open.map_err(|_| Status::unavailable("no answer"))??;
                closed.insert(open)
            }
        };
        connection.messages.message().await
    }

    fn accept(&mut self, message: v1::StreamOutputResponse) -> Result<(), ClientError> {
        if let Some(page) = message.page {
            self.accept_page(page)?;
        }
        if let Some(exit) = message.exit
            && !self.exit_received
        {
            self.exit_received = true;
            self.ready
                .push_back(OutputEvent::Exit(Box::new(Exit::from(exit))));
        }
        if message.output_ended {
            self.ended = true;
            self.ready.push_back(OutputEvent::End);
        }
        Ok(())
    }

    fn accept_page(&mut self, page: v1::OutputPage) -> Result<(), ClientError> {
        let (from, to) = match &page.gap {
            Some(gap) => (gap.from, gap.to),
            None => (page.start, page.start),
        };
        let next = page.start.saturating_add(page.data.len() as u64);
        if from != self.cursor || to != page.start || to < from || next != page.next_cursor {
            return Err(ClientError::Protocol(format!(
                "a page of output at {from}..{to}..{} where {} was due",
                page.next_cursor, self.cursor
            )));
        }
        if next > self.cursor {
            self.cursor = next;
            self.ready.push_back(OutputEvent::Page(page));
        }
        Ok(())
    }
}

async fn open(
    process: &Process,
    reader_id: Option<&str>,
    cursor: u64,
) -> Result<Connection, Status> {
    let open = v1::StreamOutputRequest {
        message: Some(Message::Open(v1::StreamOutputOpen {
            process_id: process.id().to_string(),
            cursor,
            reader_id: reader_id.unwrap_or_default().to_owned(),
            all_sessions: process.all_sessions(),
        })),
    };
    let (consumed, changes) = watch::channel(cursor);
    let acknowledgements =
        WatchStream::from_changes(changes).map(|offset| v1::StreamOutputRequest {
            message: Some(Message::Consumed(offset)),
        });
    let session = process.session();
    let request = session.request(tokio_stream::once(open).chain(acknowledgements));
    let messages = session
        .process_service()
        .stream_output(request)
        .await?
        .into_inner();
    Ok(Connection {
        messages,
        consumed,
        since: Instant::now(),
    })
}

/// The bytes of a page with their streams, in order, without copying. Runs
/// that do not add up to the page count as stdout from there.
pub fn runs(page: &v1::OutputPage) -> impl Iterator<Item = (v1::OutputStream, Bytes)> {
    let mut rest = page.data.clone();
    let mut runs = page.runs.iter();
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        for run in runs.by_ref() {
            let length = usize::try_from(run.length).map_or(rest.len(), |l| l.min(rest.len()));
            if length > 0 {
                let stream = match run.stream() {
                    v1::OutputStream::Stderr => v1::OutputStream::Stderr,
                    _ => v1::OutputStream::Stdout,
                };
                return Some((stream, rest.split_to(length)));
            }
        }
        Some((v1::OutputStream::Stdout, std::mem::take(&mut rest)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_handed_out_whole_and_in_order() {
        let run = |stream: v1::OutputStream, length| v1::StreamRun {
            stream: stream.into(),
            length,
        };
        let page = v1::OutputPage {
            data: Bytes::from_static(b"outerrrest"),
            runs: vec![
                run(v1::OutputStream::Stdout, 3),
                run(v1::OutputStream::Stderr, 0),
                run(v1::OutputStream::Stderr, 4),
            ],
            ..Default::default()
        };
        let parts: Vec<_> = runs(&page).collect();
        assert_eq!(
            parts,
            [
                (v1::OutputStream::Stdout, Bytes::from_static(b"out")),
                (v1::OutputStream::Stderr, Bytes::from_static(b"errr")),
                (v1::OutputStream::Stdout, Bytes::from_static(b"est")),
            ]
        );
        assert_eq!(runs(&v1::OutputPage::default()).count(), 0);
    }
}
