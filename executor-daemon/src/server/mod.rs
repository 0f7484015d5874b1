//! The server: listeners, authentication, health, and how it ends.
//!
//! One server for every way in: a Unix socket ([`serve`]) or streams in memory
//! ([`embed`]). States:
//!
//! ```text
//! serving ──shutdown──► draining ──engine ended──► closing ──connections gone, or 2 s──► over
//! ```
//!
//! 1. While *draining* health says NOT_SERVING and nothing new is started;
//!    calls and streams go on, and see how their processes end.
//! 2. When *closing*, streams that are still open end with SHUTTING_DOWN.
//! 3. A second request to shut down makes the engine's grace zero.

pub mod auth;
pub mod embed;
mod engine;
mod gate;
pub mod logging;
mod replace;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use executor_proto::id::MachineId;
use executor_proto::v1;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::InterceptorLayer;
use tonic::transport::Server;
use tonic::transport::server::Connected;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tonic_reflection::server::Builder as Reflection;

use self::auth::{Authenticator, Peer};
use self::engine::Engine;
use self::gate::Gate;
pub use self::replace::Inheritance;
use self::replace::Replaceable;

use crate::config::{Config, ConfigError};
use crate::files::Files;
use crate::files::line_index::LineIndexes;
use crate::files::resolve::{Means, ResolveError};
use crate::files::roots::{Root, Roots};
use crate::files::search::Settings;
use crate::files::secret::{Own, SecretFiles};
use crate::host::message::Request;
use crate::host::{LinkError, Notice};
use crate::machine::{Facts, IdentityError, identity};
use crate::service::{Core, Parts};
use crate::session::registry::Registry;
use crate::socket::{Socket, SocketError};

/// What health tells of; "" is the server as a whole.
const SERVICES: [&str; 5] = [
    "",
    "executor.v1.MachineService",
    "executor.v1.SessionService",
    "executor.v1.ProcessService",
    "executor.v1.FileService",
];
/// Connections that wait to be served.
const ACCEPTED: usize = 64;
/// Time before accept(2) is tried again when it failed.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// How long the engine may take once somebody is impatient.
const IMPATIENT: Duration = Duration::from_secs(2);
/// HTTP/2 flow control of one stream and of one connection, and the largest
/// frame, in bytes.
const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
const FRAME: u32 = 256 << 10;
/// How long connections may take to end once nothing is left to be told.
const CLOSING: Duration = Duration::from_secs(2);

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The identity.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A root of the configuration.
    #[error("roots: {0}")]
    Root(ResolveError),
    /// The process host.
    #[error(transparent)]
    Host(#[from] LinkError),
    /// A runtime, thread or service could not be made.
    #[error("the server did not start: {0}")]
    Start(String),
    /// It ended by itself.
    #[error("the server failed: {0}")]
    Transport(#[from] tonic::transport::Error),
    /// The listener failed.
    #[error("the listener failed: {0}")]
    Io(#[from] io::Error),
}

/// Serves on the Unix socket of `config` until `shutdown` says so, then ends
/// every command. Each item of `shutdown` is one request to end; the second
/// one is impatient. `inheritance` is what an earlier image of this program left,
/// where there was one. Must run on a runtime whose thread it may keep busy.
///
/// # Errors
/// See [`ServeError`]; nothing is left behind then.
pub async fn serve(
    config: Config,
    inheritance: Option<Inheritance>,
    shutdown: impl Stream<Item = ()> + Unpin,
) -> Result<(), ServeError> {
    serve_with(config, inheritance, shutdown, engine::separate).await
}

async fn serve_with(
    config: Config,
    inheritance: Option<Inheritance>,
    shutdown: impl Stream<Item = ()> + Unpin,
    start: engine::Start,
) -> Result<(), ServeError> {
    let path = config.socket.clone();
    let mut socket = tokio::task::spawn_blocking(move || match inheritance {
        Some(inheritance) => inheritance.adopt(),
        None => Socket::bind(&path),
    })
    .await
    .map_err(|error| ServeError::Start(error.to_string()))??;
    let machine = identity(&config.state_dir)?;
    let listener = socket.listener()?;
    let replaceable = Replaceable::new(&socket, &listener)?;
    let mut engine = start(&config).await?;
    let told = told(engine.notices.take(), replaceable);
    let shutdown = shutdown.merge(told);
    let (accepted, incoming) = mpsc::channel(ACCEPTED);
    let tasks = TaskTracker::new();
    tasks.spawn(accept(listener, accepted, config.limits.connections));
    tasks.close();
    tracing::info!(socket = %socket.path().display(), %machine, "serving");
    let served = run(&config, machine, engine, incoming, shutdown).await;
    tasks.wait().await;
    drop(socket);
    tracing::info!("ended");
    served
}

/// What the process host tells, where there is one: an item for each request to
/// end. Becomes another program where that is asked for.
fn told(
    notices: Option<mpsc::Receiver<Notice>>,
    replaceable: Replaceable,
) -> Pin<Box<dyn Stream<Item = ()> + Send>> {
    let Some(notices) = notices else {
        return Box::pin(tokio_stream::empty());
    };
    Box::pin(
        ReceiverStream::new(notices).filter_map(move |notice| match notice {
            Notice::Stop => Some(()),
            Notice::Upgrade { program } => {
                tracing::info!(program = %program.display(), "going on as another program");
                let error = replaceable.become_program(&program);
                tracing::error!(%error, "that failed; going on as before");
                None
            }
        }),
    )
}

/// Accepts until nobody takes connections any more.
async fn accept(
    listener: UnixListener,
    accepted: mpsc::Sender<Connection<UnixStream>>,
    limit: usize,
) {
    let places = Arc::new(Semaphore::new(limit));
    let mut told = false;
    loop {
        let stream = tokio::select! {
            stream = listener.accept() => stream,
            () = accepted.closed() => return,
        };
        match stream {
            Ok((stream, _)) => {
                let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                    // Once, until there was room again: the log is bounded too.
                    if !std::mem::replace(&mut told, true) {
                        tracing::warn!(limit, "limits.connections is reached; closing new ones");
                    }
                    continue;
                };
                told = false;
                // SO_PEERCRED: who connected, as of connect(2).
                let uid = stream.peer_cred().ok().map(|cred| cred.uid());
                let connection = Connection::new(stream, Peer::User(uid)).holding(place);
                if accepted.send(connection).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                // Nearly always: no descriptor left. Somebody will close one.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

/// Serves connections until `shutdown`, then ends the engine.
async fn run<S>(
    config: &Config,
    machine: MachineId,
    mut engine: Engine,
    incoming: mpsc::Receiver<Connection<S>>,
    mut shutdown: impl Stream<Item = ()> + Unpin,
) -> Result<(), ServeError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let surroundings = look_around(config).await?;
    let core = core(config, machine, &engine, surroundings);
    core.watch_sessions();
    let (health, health_service) = tonic_health::server::health_reporter();
    say(&health, ServingStatus::Serving).await;
    let reflection = Reflection::configure()
        .register_encoded_file_descriptor_set(v1::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
    let older_reflection = Reflection::configure()
        .register_encoded_file_descriptor_set(v1::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
    let not_built = |error: tonic_reflection::server::Error| ServeError::Start(error.to_string());
    let authenticator = Authenticator::new(rustix::process::geteuid().as_raw());
    let router = Server::builder()
        .max_concurrent_streams(u32::try_from(config.limits.concurrent_streams).ok())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME)
        .layer(Gate::new(&config.limits))
        .layer(InterceptorLayer::new(authenticator))
        .add_service(health_service)
        .add_service(reflection.build_v1().map_err(not_built)?)
        .add_service(older_reflection.build_v1alpha().map_err(not_built)?)
        .add_service(core.machine_service())
        .add_service(core.session_service())
        .add_service(core.process_service())
        .add_service(core.file_service());
    let closing = CancellationToken::new();
    let incoming = ReceiverStream::new(incoming).map(Ok::<_, io::Error>);
    let serving = router.serve_with_incoming_shutdown(incoming, closing.cancelled());
    let mut serving = std::pin::pin!(serving);
    let lifecycle = async {
        shutdown.next().await;
        core.drain();
        say(&health, ServingStatus::NotServing).await;
        // Connections go on, so that everybody sees how the engine ends.
        end(&mut engine, config.grace, &mut shutdown).await;
    };
    let served = tokio::select! {
        biased;
        served = &mut serving => Some(served),
        () = lifecycle => None,
    };
    core.close();
    closing.cancel();
    let served = match served {
        // The listener failed. What was started does not outlive it.
        Some(served) => {
            core.drain();
            end(&mut engine, config.grace, &mut shutdown).await;
            served
        }
        None => match tokio::time::timeout(CLOSING, &mut serving).await {
            Ok(served) => served,
            Err(_) => {
                tracing::info!("connections that did not end were cut");
                Ok(())
            }
        },
    };
    if tokio::time::timeout(CLOSING, core.finished())
        .await
        .is_err()
    {
        tracing::warn!("calls that did not end were cut");
    }
    Ok(served?)
}

async fn say(health: &HealthReporter, status: ServingStatus) {
    for name in SERVICES {
        health.set_service_status(name, status).await;
    }
}

/// Ends the engine: with `grace`, and without any once somebody asks again.
async fn end(
    engine: &mut Engine,
    grace: Duration,
    shutdown: &mut (impl Stream<Item = ()> + Unpin),
) {
    let client = engine.client.clone();
    let finished = async {
        let asked = client.call(Request::Shutdown { grace }, Vec::new());
        // An engine that is gone has ended.
        let _ = asked.await;
        engine.finished.as_mut().await;
    };
    let mut finished = std::pin::pin!(finished);
    tokio::select! {
        () = &mut finished => return,
        Some(()) = shutdown.next() => {}
        else => {}
    }
    tracing::info!("asked again to end: killing what is left");
    let at_once = Request::Shutdown {
        grace: Duration::ZERO,
    };
    let killed = async {
        let _ = client.call(at_once, Vec::new()).await;
        finished.await;
    };
    tokio::select! {
        () = killed => {}
        () = tokio::time::sleep(IMPATIENT) => {
            tracing::error!("the engine did not end in time; leaving it to the system");
        }
    }
}

/// What is asked of the system once. Blocks nobody.
async fn look_around(config: &Config) -> Result<Surroundings, ServeError> {
    let settings = config.roots.clone();
    let globs = config.secret_files.clone();
    let own = [
        Some(Own::Path(config.state_dir.clone())),
        Some(Own::Prefix(config.socket.clone())),
        config.file.clone().map(Own::Path),
    ];
    let state = config.state_dir.clone();
    let limits = config.limits.clone();
    let look = move || {
        let roots: Result<Vec<_>, _> = settings
            .iter()
            .map(|root| Root::open(&root.path, root.access))
            .collect();
        let secrets = SecretFiles::new(&globs, own.into_iter().flatten());
        Ok(Surroundings {
            roots: Roots::new(roots.map_err(ServeError::Root)?),
            secrets: secrets.map_err(|error| ServeError::Start(error.to_string()))?,
            facts: Facts::collect(),
            // What those before us left half-done is finished first.
            files: Files::with_limits(&state, &limits),
        })
    };
    tokio::task::spawn_blocking(look)
        .await
        .map_err(|error| ServeError::Start(error.to_string()))?
}

/// What the daemon stands in.
struct Surroundings {
    roots: Roots,
    secrets: SecretFiles,
    facts: Facts,
    files: Files,
}

fn core(
    config: &Config,
    machine: MachineId,
    engine: &Engine,
    surroundings: Surroundings,
) -> Arc<Core> {
    let Surroundings {
        roots,
        secrets,
        facts,
        files,
    } = surroundings;
    let means = if facts.probe.openat2 {
        Means::Kernel
    } else {
        Means::Walk
    };
    let registry = Registry::new(
        engine.client.clone(),
        roots,
        config.home.clone(),
        means,
        secrets,
        &config.limits,
    );
    Core::new(Parts {
        engine: engine.client.clone(),
        machine,
        facts,
        registry,
        files: Arc::new(files),
        indexes: Arc::new(LineIndexes::new(config.limits.file_indexes)),
        searches: Settings {
            git_excludes: config.git_excludes.clone(),
            above_roots: config.ignore_above_roots,
        },
        limits: config.limits.clone(),
    })
}

/// A connection and who is at its other end.
#[derive(Debug)]
struct Connection<S> {
    stream: S,
    peer: Peer,
    /// One of those that the listener gives out; kept for its drop.
    place: Option<OwnedSemaphorePermit>,
}

impl<S> Connection<S> {
    fn new(stream: S, peer: Peer) -> Self {
        Self {
            stream,
            peer,
            place: None,
        }
    }

    fn holding(mut self, place: OwnedSemaphorePermit) -> Self {
        self.place = Some(place);
        self
    }
}

impl<S> Connected for Connection<S> {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
