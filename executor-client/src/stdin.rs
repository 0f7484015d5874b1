//! Writing a process's input, each byte once.
//!
//! A writer has an id and counts what it has sent; the machine counts what it
//! has accepted. A repeat after a lost answer carries the same offset and is
//! not written twice. A chunk keeps its offset and its bytes until it is
//! acknowledged, also when the caller drops the future meanwhile.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use executor_proto::reason::Reason;
use executor_proto::v1;
use tokio::time::Instant;

use crate::error::ClientError;
use crate::process::Process;
use crate::retry::Call;
use crate::session::wire_duration;

/// Most bytes of one write.
const CHUNK: usize = 128 << 10;
/// How long one call waits for room.
const WAIT_AT_ONCE: Duration = Duration::from_secs(30);
/// Between two calls when the machine does not wait by itself.
const PAUSE: Duration = Duration::from_millis(20);

/// Writes to the input of one process. Made by
/// [`Process::stdin`](crate::Process::stdin). Dropping it closes nothing.
#[derive(Debug)]
pub struct StdinWriter {
    process: Process,
    writer_id: String,
    /// Acknowledged by the machine.
    offset: u64,
    /// Handed over and not yet acknowledged; the first begins at `offset`.
    chunks: VecDeque<Bytes>,
    patience: Option<Duration>,
}

impl StdinWriter {
    pub(crate) fn new(process: Process, writer_id: String, offset: u64) -> Self {
        Self {
            process,
            writer_id,
            offset,
            chunks: VecDeque::new(),
            patience: None,
        }
    }

    /// How long a write waits while the queue has no room; without this, for
    /// as long as the process does not read, as a pipe does.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// The writer's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.writer_id
    }

    /// Bytes that the machine has accepted from this writer.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Writes all of `data`, in as many calls as it takes. Returns when all is
    /// queued, which does not mean that the program has read it.
    ///
    /// Dropping the future after it was polled keeps the data: the next call
    /// sends what is left of it first, nothing twice. After an error
    /// the same holds.
    ///
    /// # Errors
    /// `STDIN_CLOSED`; `STDIN_QUEUE_FULL` when the patience is over;
    /// `PROCESS_NOT_FOUND`; and what any call can end with.
    pub async fn write(&mut self, data: impl Into<Bytes>) -> Result<(), ClientError> {
        let mut data: Bytes = data.into();
        while !data.is_empty() {
            let chunk = data.split_to(data.len().min(CHUNK));
            self.chunks.push_back(chunk);
        }
        self.flush().await
    }

    /// Sends what an earlier call has left. As [`StdinWriter::write`].
    ///
    /// # Errors
    /// As [`StdinWriter::write`].
    pub async fn flush(&mut self) -> Result<(), ClientError> {
        while let Some(chunk) = self.chunks.front() {
            let chunk = chunk.clone();
            let length = chunk.len() as u64;
            let accepted = self.send(chunk, false).await?;
            if accepted < self.offset + length {
                return Err(ClientError::Protocol(format!(
                    "{accepted} bytes of input acknowledged where {} were accepted",
                    self.offset + length
                )));
            }
            self.offset += length;
            self.chunks.pop_front();
        }
        Ok(())
    }

    /// Ends the input, after what is left to send. Input that is closed
    /// already is no error. For pipes only; may be repeated after an error or
    /// a dropped future.
    ///
    /// # Errors
    /// As [`StdinWriter::write`]; `INVALID_ARGUMENT` for a terminal.
    pub async fn close(&mut self) -> Result<(), ClientError> {
        self.flush().await?;
        // In a message of its own: a repeat of data that was accepted without
        // `close` would not close.
        match self.send(Bytes::new(), true).await {
            Err(error) if error.reason() != Some(Reason::StdinClosed) => Err(error),
            _ => Ok(()),
        }
    }

    async fn send(&self, data: Bytes, close: bool) -> Result<u64, ClientError> {
        let begin = Instant::now();
        loop {
            let left = self
                .patience
                .map_or(WAIT_AT_ONCE, |all| all.saturating_sub(begin.elapsed()));
            let wait = left.min(WAIT_AT_ONCE);
            let message = v1::WriteStdinRequest {
                process_id: self.process.id().to_string(),
                writer_id: self.writer_id.clone(),
                offset: self.offset,
                data: data.clone(),
                close,
                wait: Some(wire_duration(wait)),
                all_sessions: self.process.all_sessions(),
            };
            let answer = self
                .process
                .session()
                .call(
                    Call::WriteStdin,
                    wait,
                    &message,
                    |mut service, request| async move { service.write_stdin(request).await },
                )
                .await;
            match answer {
                Ok(answer) => return Ok(answer.offset),
                Err(error)
                    if error.reason() == Some(Reason::StdinQueueFull)
                        && self.patience.is_none_or(|all| begin.elapsed() < all) =>
                {
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}
