//! The whole daemon inside another program, over streams in memory.
//!
//! It lives on a thread of its own with a single-threaded runtime, and leaves
//! its host program as it is: no signal handler, no subreaper, no wait for
//! children it did not start, no resource limit, no umask, no log subscriber.

use std::io;
use std::sync::mpsc::sync_channel;

use tokio::io::DuplexStream;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;

use super::auth::Peer;
use super::engine::{self, Engine};
use super::{ACCEPTED, Connection, ServeError, run};
use crate::config::Config;
use crate::machine::identity;
use executor_proto::id::MachineId;

/// Bytes that one direction of a stream in memory holds.
const BUFFER: usize = 256 << 10;

/// A daemon inside this program. [`Embedded::shutdown`] ends what it started;
/// dropping it does so in the background, bounded by the configured grace.
#[derive(Debug)]
pub struct Embedded {
    connector: Connector,
    /// Each message is one request to end.
    shutdown: mpsc::Sender<()>,
    over: oneshot::Receiver<()>,
}

impl Embedded {
    /// Makes streams to it.
    #[must_use]
    pub fn connector(&self) -> Connector {
        self.connector.clone()
    }

    /// Ends every command and then the daemon; returns when its thread is
    /// done. Dropping the future lets the same go on in the background.
    pub async fn shutdown(self) {
        // A thread that is gone has ended, which is what is asked for.
        let _ = self.shutdown.try_send(());
        let _ = self.over.await;
    }
}

/// Makes streams to an embedded daemon. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Connector {
    connections: mpsc::Sender<Connection<DuplexStream>>,
}

impl Connector {
    /// A new stream that speaks `executor.v1`. Cancel safe.
    ///
    /// # Errors
    /// `ConnectionRefused` once the daemon has ended.
    pub async fn connect(&self) -> io::Result<DuplexStream> {
        let (ours, theirs) = tokio::io::duplex(BUFFER);
        let connection = Connection::new(theirs, Peer::Embedder);
        self.connections.send(connection).await.map_err(|_| {
            io::Error::new(
                io::ErrorKind::ConnectionRefused,
                "the embedded daemon has ended",
            )
        })?;
        Ok(ours)
    }
}

/// Starts a daemon inside this program. Blocks for a moment, until it serves.
/// Must not be called in a child between fork and exec.
///
/// # Errors
/// See [`ServeError`]; nothing is left behind then.
pub fn embed(config: Config) -> Result<Embedded, ServeError> {
    embed_with(config, engine::embedded)
}

pub(super) fn embed_with(config: Config, start: engine::Start) -> Result<Embedded, ServeError> {
    let (connections, incoming) = mpsc::channel(ACCEPTED);
    let (shutdown, shutdowns) = mpsc::channel(2);
    let (ready, started) = sync_channel(1);
    let (over_tell, over) = oneshot::channel();
    let work = move || {
        // Dropped when the thread ends, however it ends.
        let _over: oneshot::Sender<()> = over_tell;
        let runtime = match runtime(config.limits.threads()) {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = ready.send(Err(ServeError::Start(error.to_string())));
                return;
            }
        };
        runtime.block_on(async move {
            let engine = match start(&config).await {
                Ok(engine) => engine,
                Err(error) => {
                    // Whoever embeds is waiting for it.
                    let _ = ready.send(Err(error));
                    return;
                }
            };
            let _ = ready.send(Ok(()));
            live(&config, engine, incoming, shutdowns).await;
        });
        runtime.shutdown_timeout(super::CLOSING);
    };
    std::thread::Builder::new()
        .name("executor".to_owned())
        .spawn(work)
        .map_err(|error| ServeError::Start(error.to_string()))?;
    started
        .recv()
        .unwrap_or_else(|_| Err(ServeError::Start("its thread ended".to_owned())))?;
    Ok(Embedded {
        connector: Connector { connections },
        shutdown,
        over,
    })
}

async fn live(
    config: &Config,
    engine: Engine,
    incoming: mpsc::Receiver<Connection<DuplexStream>>,
    shutdowns: mpsc::Receiver<()>,
) {
    let machine = identity(&config.state_dir).unwrap_or_else(|error| {
        let machine = MachineId::random();
        tracing::warn!(%error, %machine, "this machine is known by another id at each start");
        machine
    });
    if let Err(error) = run(
        config,
        machine,
        engine,
        incoming,
        ReceiverStream::new(shutdowns),
    )
    .await
    {
        tracing::error!(%error, "the embedded daemon failed");
    }
}

/// The runtime of a daemon, on the thread that calls it.
///
/// # Errors
/// When the kernel gives no epoll instance.
pub fn runtime(blocking_threads: usize) -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .thread_name("executor-blocking")
        .max_blocking_threads(blocking_threads)
        .build()
}
