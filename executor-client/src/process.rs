//! One process: a handle that is an id and a session, and the calls on it.

use std::time::{Duration, SystemTime};

use executor_proto::id::ProcessId;
use executor_proto::v1;

use crate::error::ClientError;
use crate::exit::Exit;
use crate::output::{OutputOptions, OutputStream};
use crate::retry::Call;
use crate::session::{Session, wire_duration};
use crate::stdin::StdinWriter;

/// Longest wait that one call asks for; longer waits are several calls.
const WAIT_AT_ONCE: Duration = Duration::from_secs(60);

/// A handle on a process. Cheap to clone. Dropping it stops nothing.
#[derive(Debug, Clone)]
pub struct Process {
    session: Session,
    id: ProcessId,
}

/// What a start answers.
#[derive(Debug, Clone)]
pub struct Started {
    /// The handle.
    pub process: Process,
    /// As it was when the call returned.
    pub info: v1::Process,
    /// The first page of output.
    pub output: v1::OutputPage,
    /// False when a process with this id and spec was there already.
    pub created: bool,
}

impl Process {
    pub(crate) fn new(session: Session, id: ProcessId) -> Self {
        Self { session, id }
    }

    pub(crate) async fn start(
        session: &Session,
        mut request: v1::StartProcessRequest,
    ) -> Result<Started, ClientError> {
        if request.process_id.is_empty() {
            request.process_id = ProcessId::random().to_string();
        }
        let id = request
            .process_id
            .parse()
            .map_err(|error| ClientError::Protocol(format!("id of the start: {error}")))?;
        // The same in every repeat, so that a late one is known as late.
        request.created_at.get_or_insert(SystemTime::now().into());
        let wait = request
            .wait
            .and_then(|wait| Duration::try_from(wait).ok())
            .unwrap_or_default();
        let answer = session
            .call(
                Call::StartProcess,
                wait,
                &request,
                |mut service, request| async move { service.start_process(request).await },
            )
            .await?;
        Ok(Started {
            process: Self::new(session.clone(), id),
            info: answer.process.ok_or_else(without_process)?,
            output: answer.output.unwrap_or_default(),
            created: answer.created,
        })
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> ProcessId {
        self.id
    }

    /// The session that acts on it.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// As it is now. Read-only, cancel safe.
    ///
    /// # Errors
    /// `PROCESS_NOT_FOUND`, `FORGOTTEN`; and what any call can end with.
    pub async fn info(&self) -> Result<v1::Process, ClientError> {
        self.get(Duration::ZERO).await
    }

    /// Waits for its exit, however long that takes. Read-only, cancel safe.
    ///
    /// # Errors
    /// As [`Process::info`].
    pub async fn wait(&self) -> Result<Exit, ClientError> {
        loop {
            if let Some(exit) = Exit::of(&self.get(WAIT_AT_ONCE).await?) {
                return Ok(exit);
            }
        }
    }

    /// Waits for its exit for at most `time`; `None` when it still runs then.
    /// Read-only, cancel safe.
    ///
    /// # Errors
    /// As [`Process::info`].
    pub async fn wait_for(&self, time: Duration) -> Result<Option<Exit>, ClientError> {
        let mut left = time;
        loop {
            let wait = left.min(WAIT_AT_ONCE);
            let exit = Exit::of(&self.get(wait).await?);
            left = left.saturating_sub(wait);
            if exit.is_some() || left.is_zero() {
                return Ok(exit);
            }
        }
    }

    async fn get(&self, wait: Duration) -> Result<v1::Process, ClientError> {
        let message = v1::GetProcessRequest {
            process_id: self.id.to_string(),
            wait: Some(wire_duration(wait)),
            all_sessions: self.all_sessions(),
        };
        self.session
            .call(
                Call::GetProcess,
                wait,
                &message,
                |mut service, request| async move { service.get_process(request).await },
            )
            .await?
            .process
            .ok_or_else(without_process)
    }

    /// One page of output from the byte offset `cursor`: at most `max_bytes`
    /// (65,536; 0: 8,192), at once where there is something, else after
    /// `wait` (at most 300 s). Reading consumes nothing; cancel safe.
    ///
    /// # Errors
    /// `CURSOR_AHEAD`, `PROCESS_NOT_FOUND`, `FORGOTTEN`; and what any call can
    /// end with.
    pub async fn read_output(
        &self,
        cursor: u64,
        max_bytes: u32,
        wait: Duration,
    ) -> Result<v1::ReadOutputResponse, ClientError> {
        let message = v1::ReadOutputRequest {
            process_id: self.id.to_string(),
            cursor,
            max_bytes,
            wait: Some(wire_duration(wait)),
            all_sessions: self.all_sessions(),
        };
        self.session
            .call(
                Call::ReadOutput,
                wait,
                &message,
                |mut service, request| async move { service.read_output(request).await },
            )
            .await
    }

    /// Follows the output from its beginning, beside any other reader.
    #[must_use]
    pub fn output(&self) -> OutputStream {
        self.stream_output(OutputOptions::default())
    }

    /// Follows the output from a cursor, or as the reader that a lossless
    /// process waits for.
    #[must_use]
    pub fn stream_output(&self, options: OutputOptions) -> OutputStream {
        OutputStream::new(self.clone(), options)
    }

    /// A writer of its input that nobody wrote with before.
    #[must_use]
    pub fn stdin(&self) -> StdinWriter {
        StdinWriter::new(self.clone(), crate::random_name(), 0)
    }

    /// The writer `writer_id`, 1 to 64 characters, that has sent `offset`
    /// bytes before ([`v1::Process::stdin_writers`] tells them).
    #[must_use]
    pub fn stdin_as(&self, writer_id: impl Into<String>, offset: u64) -> StdinWriter {
        StdinWriter::new(self.clone(), writer_id.into(), offset)
    }

    /// Sets the terminal's size, 1 to 1,000 each way. Idempotent; dropping the
    /// future leaves open which size is set.
    ///
    /// # Errors
    /// `NOT_A_TERMINAL`; and what any call can end with.
    pub async fn resize(&self, rows: u32, columns: u32) -> Result<(), ClientError> {
        let message = v1::ResizeTerminalRequest {
            process_id: self.id.to_string(),
            size: Some(v1::TerminalSize { rows, columns }),
            all_sessions: self.all_sessions(),
        };
        self.session
            .call(
                Call::ResizeTerminal,
                Duration::ZERO,
                &message,
                |mut service, request| async move { service.resize_terminal(request).await },
            )
            .await?;
        Ok(())
    }

    /// Sends one signal, 1 to 64, and never another. False when the process
    /// had ended. Not repeated once it may have arrived; dropping the future
    /// leaves open whether it was sent.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] and [`ClientError::DeadlineExceeded`] may
    /// mean that it was sent.
    pub async fn signal(&self, signal: i32, target: v1::SignalTarget) -> Result<bool, ClientError> {
        let message = v1::SignalProcessRequest {
            process_id: self.id.to_string(),
            signal,
            target: target.into(),
            all_sessions: self.all_sessions(),
        };
        let answer = self
            .session
            .call(
                Call::SignalProcess,
                Duration::ZERO,
                &message,
                |mut service, request| async move { service.signal_process(request).await },
            )
            .await?;
        Ok(answer.delivered)
    }

    /// Interrupts it as Ctrl-C does; the program may go on. Not repeated once
    /// it may have arrived.
    ///
    /// # Errors
    /// As [`Process::signal`], and `PROCESS_NOT_FOUND`.
    pub async fn interrupt(&self) -> Result<v1::StopProcessResponse, ClientError> {
        self.stop_with(v1::StopMode::Interrupt, Duration::ZERO)
            .await
    }

    /// Ends its whole tree: SIGTERM, and SIGKILL after `grace`, at most 60 s.
    /// Returns when the tree is verified empty or says what is left.
    /// Idempotent. Dropping the future does not take the stop back once it was
    /// sent.
    ///
    /// # Errors
    /// `PROCESS_NOT_FOUND` with `tombstone` (a start that arrives later does
    /// nothing); and what any call can end with.
    pub async fn stop(&self, grace: Duration) -> Result<v1::StopProcessResponse, ClientError> {
        self.stop_with(v1::StopMode::Terminate, grace).await
    }

    /// Ends its whole tree with SIGKILL. As [`Process::stop`].
    ///
    /// # Errors
    /// As [`Process::stop`].
    pub async fn kill(&self) -> Result<v1::StopProcessResponse, ClientError> {
        self.stop_with(v1::StopMode::Kill, Duration::ZERO).await
    }

    async fn stop_with(
        &self,
        mode: v1::StopMode,
        grace: Duration,
    ) -> Result<v1::StopProcessResponse, ClientError> {
        let message = v1::StopProcessRequest {
            process_id: self.id.to_string(),
            mode: mode.into(),
            grace: (mode == v1::StopMode::Terminate).then(|| wire_duration(grace)),
            all_sessions: self.all_sessions(),
        };
        let call = match mode {
            v1::StopMode::Interrupt => Call::InterruptProcess,
            _ => Call::StopProcess,
        };
        self.session
            .call(call, grace, &message, |mut service, request| async move {
                service.stop_process(request).await
            })
            .await
    }

    /// Forgets it and its output, once it has ended. Idempotent; dropping the
    /// future leaves open whether it is forgotten.
    ///
    /// # Errors
    /// `PROCESS_RUNNING`, `PROCESS_NOT_FOUND`; and what any call can end with.
    pub async fn remove(&self) -> Result<(), ClientError> {
        let message = v1::RemoveProcessRequest {
            process_id: self.id.to_string(),
            all_sessions: self.all_sessions(),
        };
        self.session
            .call(
                Call::RemoveProcess,
                Duration::ZERO,
                &message,
                |mut service, request| async move { service.remove_process(request).await },
            )
            .await?;
        Ok(())
    }

    pub(crate) fn all_sessions(&self) -> bool {
        self.session.acts_on_all_sessions()
    }
}

fn without_process() -> ClientError {
    ClientError::Protocol("an answer without its process".into())
}
