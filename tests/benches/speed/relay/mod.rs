//! The bare relay: the smallest gRPC server over a Unix socket that does the
//! same steps, and its client.
//!
//! It has no sessions, no log, no identity, no limit, no stop, and nothing is
//! tuned: tonic's and tokio's defaults on a current-thread runtime, as the
//! first thing that one would write. It speaks the same messages, so that
//! what differs is what we do.

mod follow;
mod server;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use executor_client::v1;
use executor_client::v1::process_service_client::ProcessServiceClient;
use executor_client::v1::start_process_request::{Command as Wire, Io};
use executor_client::v1::stream_output_request::Message;
use tempfile::TempDir;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

use crate::daemon::{end, until_it_listens};
use crate::floor;

/// Longer than any step takes; asks the relay to wait for the exit.
const WAIT: prost_types::Duration = prost_types::Duration {
    seconds: 300,
    nanos: 0,
};

/// Serves until it is killed.
pub(crate) fn serve(socket: &str) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(server::run(socket))
}

/// A relay that runs, and a client of it. Killed when dropped.
pub(crate) struct Relay {
    child: Child,
    client: ProcessServiceClient<Channel>,
    _directory: TempDir,
    /// From its start to its first answer.
    pub(crate) ready_after: Duration,
}

impl Relay {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let socket = directory.path().join("relay.sock");
        let begin = Instant::now();
        let mut child = Command::new(floor::this_program()?)
            .arg("relay")
            .arg(&socket)
            .stdin(Stdio::null())
            .spawn()?;
        if let Err(error) = until_it_listens(&mut child, &socket) {
            end(&mut child);
            return Err(error.context("the relay does not answer"));
        }
        let address = format!("unix://{}", floor::text(&socket)?);
        let channel = Endpoint::from_shared(address)?.connect().await?;
        let mut client = ProcessServiceClient::new(channel);
        client
            .list_processes(v1::ListProcessesRequest::default())
            .await?;
        Ok(Self {
            child,
            client,
            _directory: directory,
            ready_after: begin.elapsed(),
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Runs a program to its exit: one call.
    pub(crate) fn run(
        &self,
        argv: &[&str],
    ) -> impl Future<Output = anyhow::Result<()>> + Send + 'static {
        let mut client = self.client.clone();
        let mut request = request(argv, false);
        request.wait = Some(WAIT);
        async move {
            let answer = client.start_process(request).await?.into_inner();
            let exit = answer.process.and_then(|process| process.exit);
            let code = exit.and_then(|exit| exit.code);
            anyhow::ensure!(code == Some(0), "the relay's program ended with {code:?}");
            Ok(())
        }
    }

    /// Starts a program and follows its output.
    pub(crate) async fn follow(&self, argv: &[&str], terminal: bool) -> anyhow::Result<Following> {
        let mut client = self.client.clone();
        let started = client.start_process(request(argv, terminal)).await?;
        let process = started.into_inner().process.context("no process")?;
        let open = v1::StreamOutputRequest {
            message: Some(Message::Open(v1::StreamOutputOpen {
                process_id: process.process_id,
                ..Default::default()
            })),
        };
        let stream = client.stream_output(tokio_stream::once(open)).await?;
        Ok(Following(stream.into_inner()))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Output as it comes.
pub(crate) struct Following(Streaming<v1::StreamOutputResponse>);

impl Following {
    /// Reads to the end and hands out what comes; the number of bytes.
    pub(crate) async fn read_all(mut self, mut take: impl FnMut(&[u8])) -> anyhow::Result<u64> {
        let mut total = 0u64;
        while let Some(message) = self.0.message().await? {
            if let Some(page) = message.page {
                total += page.data.len() as u64;
                take(&page.data);
            }
        }
        Ok(total)
    }
}

fn request(argv: &[&str], terminal: bool) -> v1::StartProcessRequest {
    let argv = argv.iter().map(|word| word.as_bytes().to_vec()).collect();
    v1::StartProcessRequest {
        command: Some(Wire::Argv(v1::ArgvCommand { argv })),
        io: terminal.then(|| Io::Terminal(v1::TerminalIo::default())),
        ..Default::default()
    }
}
