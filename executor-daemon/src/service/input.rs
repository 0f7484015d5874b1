//! The calls of `ProcessService` that act on a running process: input, size,
//! signals, stops, and forgetting it.

use executor_proto::v1;
use tonic::{Request, Response, Status};

use super::convert::check::{count, id, length};
use super::convert::control::{CheckedWrite, signal, signal_target, stop_mode};
use super::convert::process::{means, process as process_to_wire, terminal_size};
use super::failure::{Call, unexpected};
use super::process::Processes;
use crate::host::message::{Reply, Request as Ask};
use crate::process::control::StopMode;

impl Processes {
    pub(super) async fn write(
        &self,
        request: Request<v1::WriteStdinRequest>,
    ) -> Result<Response<v1::WriteStdinResponse>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let caller = self.caller(&metadata, &extensions, Call::Other).await?;
        let checked = CheckedWrite::new(message, &self.core.parts.limits)?;
        let wait = checked.wait;
        let ask = Ask::WriteStdin {
            target: caller.target(checked.process, checked.all_sessions)?,
            write: checked.write,
            wait,
        };
        match self.core.ask_waiting(&caller, ask, wait).await? {
            (
                Reply::StdinAccepted {
                    offset,
                    queued,
                    closed,
                },
                _,
            ) => Ok(Response::new(v1::WriteStdinResponse {
                offset,
                queued_bytes: length(queued),
                closed,
            })),
            _ => Err(unexpected("receipt of the input").into()),
        }
    }

    pub(super) async fn resize(
        &self,
        request: Request<v1::ResizeTerminalRequest>,
    ) -> Result<Response<v1::ResizeTerminalResponse>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let caller = self.caller(&metadata, &extensions, Call::Other).await?;
        let process = id("process_id", &message.process_id)?;
        let ask = Ask::Resize {
            target: caller.target(process, message.all_sessions)?,
            size: terminal_size("size", message.size)?,
        };
        self.core.ask(&caller, ask, Vec::new()).await?;
        Ok(Response::new(v1::ResizeTerminalResponse {}))
    }

    pub(super) async fn signal(
        &self,
        request: Request<v1::SignalProcessRequest>,
    ) -> Result<Response<v1::SignalProcessResponse>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let caller = self.caller(&metadata, &extensions, Call::Other).await?;
        let process = id("process_id", &message.process_id)?;
        let ask = Ask::Signal {
            target: caller.target(process, message.all_sessions)?,
            signal: signal(message.signal)?,
            to: signal_target(message.target)?,
        };
        match self.core.ask(&caller, ask, Vec::new()).await? {
            (Reply::Signalled { process, delivered }, _) => {
                Ok(Response::new(v1::SignalProcessResponse {
                    process: Some(process_to_wire(*process)),
                    delivered,
                }))
            }
            _ => Err(unexpected("signal").into()),
        }
    }

    pub(super) async fn stop(
        &self,
        request: Request<v1::StopProcessRequest>,
    ) -> Result<Response<v1::StopProcessResponse>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let caller = self.caller(&metadata, &extensions, Call::Other).await?;
        let process = id("process_id", &message.process_id)?;
        let mode = stop_mode(message.mode, message.grace)?;
        let ask = Ask::Stop {
            target: caller.target(process, message.all_sessions)?,
            mode,
            by: caller.session.id().to_string(),
        };
        let wait = match mode {
            StopMode::Terminate { grace } => grace,
            StopMode::Interrupt | StopMode::Kill => std::time::Duration::ZERO,
        };
        match self.core.ask_waiting(&caller, ask, wait).await? {
            (
                Reply::Stopped {
                    process,
                    means: by,
                    signalled,
                    survivors,
                    already_ended,
                },
                _,
            ) => Ok(Response::new(v1::StopProcessResponse {
                process: Some(process_to_wire(*process)),
                means: means(by).into(),
                signalled: count(signalled),
                survivors,
                already_ended,
            })),
            _ => Err(unexpected("stop").into()),
        }
    }

    pub(super) async fn remove(
        &self,
        request: Request<v1::RemoveProcessRequest>,
    ) -> Result<Response<v1::RemoveProcessResponse>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let caller = self.caller(&metadata, &extensions, Call::Other).await?;
        let process = id("process_id", &message.process_id)?;
        let target = caller.target(process, message.all_sessions)?;
        self.core
            .ask(&caller, Ask::Remove(target), Vec::new())
            .await?;
        Ok(Response::new(v1::RemoveProcessResponse {}))
    }
}
