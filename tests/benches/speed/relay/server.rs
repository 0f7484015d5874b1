//! The relay's server: StartProcess and StreamOutput, nothing else.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use executor_client::v1;
use executor_client::v1::process_service_server::{ProcessService, ProcessServiceServer};
use executor_client::v1::start_process_request::{Command as Wire, Io};
use executor_client::v1::stream_output_request::Message;
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixListener;
use tokio::net::unix::pipe;
use tokio::process::Command;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status, Streaming};

use super::follow::{Follow, Running};
use crate::floor;

/// Bytes of one read(2).
const READ: usize = 64 << 10;

pub(super) async fn run(socket: &str) -> anyhow::Result<()> {
    let incoming = UnixListenerStream::new(UnixListener::bind(socket)?);
    tonic::transport::Server::builder()
        .add_service(ProcessServiceServer::new(Server::default()))
        .serve_with_incoming(incoming)
        .await?;
    Ok(())
}

/// Programs that nobody follows yet.
#[derive(Default)]
struct Server {
    running: Mutex<HashMap<String, Running>>,
    last: AtomicU64,
}

fn start(request: &v1::StartProcessRequest) -> Result<Running, Status> {
    let Some(Wire::Argv(command)) = &request.command else {
        return Err(Status::invalid_argument("no argv"));
    };
    let mut words = command.argv.iter().map(|word| OsStr::from_bytes(word));
    let program = words
        .next()
        .ok_or_else(|| Status::invalid_argument("no program"))?;
    let mut command = Command::new(program);
    command.args(words);
    let failed = |error: anyhow::Error| Status::internal(error.to_string());
    if matches!(request.io, Some(Io::Terminal(_))) {
        on_terminal(command).map_err(failed)
    } else {
        with_pipe(command).map_err(failed)
    }
}

fn with_pipe(mut command: Command) -> anyhow::Result<Running> {
    let (reader, writer) = io::pipe()?;
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer);
    Ok(Running {
        child: command.spawn()?,
        output: pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?,
    })
}

fn on_terminal(mut command: Command) -> anyhow::Result<Running> {
    let (master, slave) = floor::open_terminal()?;
    rustix::io::ioctl_fionbio(&master, true)?;
    command
        .stdin(slave.try_clone()?)
        .stdout(slave.try_clone()?)
        .stderr(slave);
    Ok(Running {
        child: command.spawn()?,
        output: pipe::Receiver::from_owned_fd_unchecked(master)?,
    })
}

/// Drains the output and waits; the exit code.
async fn finish(mut running: Running) -> io::Result<Option<i32>> {
    let mut buffer = Vec::with_capacity(READ);
    while running.output.read_buf(&mut buffer).await? > 0 {
        buffer.clear();
    }
    Ok(running.child.wait().await?.code())
}

#[tonic::async_trait]
impl ProcessService for Server {
    type StreamOutputStream = Follow;

    async fn start_process(
        &self,
        request: Request<v1::StartProcessRequest>,
    ) -> Result<Response<v1::StartProcessResponse>, Status> {
        let request = request.into_inner();
        let running = start(&request)?;
        let mut process = v1::Process {
            process_id: self.last.fetch_add(1, Ordering::Relaxed).to_string(),
            ..Default::default()
        };
        if request.wait.is_some() {
            process.exit = Some(v1::Exit {
                code: finish(running).await?,
                ..Default::default()
            });
        } else {
            let mut waiting = self
                .running
                .lock()
                .unwrap_or_else(|broken| broken.into_inner());
            waiting.insert(process.process_id.clone(), running);
        }
        Ok(Response::new(v1::StartProcessResponse {
            process: Some(process),
            ..Default::default()
        }))
    }

    async fn stream_output(
        &self,
        request: Request<Streaming<v1::StreamOutputRequest>>,
    ) -> Result<Response<Follow>, Status> {
        let first = request.into_inner().message().await?;
        let Some(Message::Open(open)) = first.and_then(|first| first.message) else {
            return Err(Status::invalid_argument("no open"));
        };
        let mut waiting = self
            .running
            .lock()
            .unwrap_or_else(|broken| broken.into_inner());
        let running = waiting.remove(&open.process_id);
        let running = running.ok_or_else(|| Status::not_found("no such process"))?;
        Ok(Response::new(Follow::new(running, READ)))
    }

    /// Only says that the relay is there.
    async fn list_processes(
        &self,
        _: Request<v1::ListProcessesRequest>,
    ) -> Result<Response<v1::ListProcessesResponse>, Status> {
        Ok(Response::new(v1::ListProcessesResponse::default()))
    }

    async fn get_process(
        &self,
        _: Request<v1::GetProcessRequest>,
    ) -> Result<Response<v1::GetProcessResponse>, Status> {
        Err(none())
    }

    async fn read_output(
        &self,
        _: Request<v1::ReadOutputRequest>,
    ) -> Result<Response<v1::ReadOutputResponse>, Status> {
        Err(none())
    }

    async fn write_stdin(
        &self,
        _: Request<v1::WriteStdinRequest>,
    ) -> Result<Response<v1::WriteStdinResponse>, Status> {
        Err(none())
    }

    async fn resize_terminal(
        &self,
        _: Request<v1::ResizeTerminalRequest>,
    ) -> Result<Response<v1::ResizeTerminalResponse>, Status> {
        Err(none())
    }

    async fn signal_process(
        &self,
        _: Request<v1::SignalProcessRequest>,
    ) -> Result<Response<v1::SignalProcessResponse>, Status> {
        Err(none())
    }

    async fn stop_process(
        &self,
        _: Request<v1::StopProcessRequest>,
    ) -> Result<Response<v1::StopProcessResponse>, Status> {
        Err(none())
    }

    async fn remove_process(
        &self,
        _: Request<v1::RemoveProcessRequest>,
    ) -> Result<Response<v1::RemoveProcessResponse>, Status> {
        Err(none())
    }
}

fn none() -> Status {
    Status::unimplemented("the relay has no features")
}
