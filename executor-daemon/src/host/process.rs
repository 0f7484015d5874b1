//! The process host's program: what it listens on, how it begins and ends.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_stream::{Stream, StreamExt as _};
use tokio_util::task::TaskTracker;

use super::serve::Host;
use super::upgrade::{Handover, Resumed};
use crate::socket::{Socket, SocketError};

/// Connections that are served at a time.
const CONNECTIONS: usize = 64;
/// Time before accept(2) is tried again when it failed.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// How long a host that is ending may hold the socket.
const ENDING: Duration = Duration::from_secs(10);
/// Between two attempts to bind.
const BIND_AGAIN: Duration = Duration::from_millis(20);

/// Why there is no host.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// Its socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The socket cannot be watched, or what an earlier image left cannot be
    /// gone on with.
    #[error("the process host cannot begin: {0}")]
    Begin(#[from] io::Error),
    /// Nobody came.
    #[error("no daemon was here for 60 s and no session is open; the process host ends")]
    NoDaemon,
}

/// How a host begins.
#[derive(Debug)]
pub enum Begin {
    /// Anew.
    Fresh {
        /// Where it listens.
        socket: PathBuf,
        /// A connection that is there already.
        first: Option<OwnedFd>,
    },
    /// As an earlier image of this program left it.
    Resumed(Box<Handover>),
}

/// Runs a process host until it is asked to end by its daemon or by `signals`,
/// each item of which is one request to end. `arguments` are those that an image
/// is given which replaces this one.
///
/// # Errors
/// See [`HostError`].
pub async fn process_host(
    begin: Begin,
    arguments: Vec<CString>,
    mut signals: impl Stream<Item = ()> + Unpin,
) -> Result<(), HostError> {
    let tasks = TaskTracker::new();
    let (mut socket, host, first) = match begin {
        Begin::Fresh { socket, first } => {
            let bound = bind(&socket).await?;
            (bound, Arc::new(Host::new(socket, arguments)), first)
        }
        Begin::Resumed(handover) => {
            let Resumed {
                socket,
                host,
                front,
                asked,
            } = handover.resume(arguments)?;
            let host = Arc::new(host);
            host.go_on(front, asked, &tasks);
            (socket, host, None)
        }
    };
    let listener = socket.listener()?;
    host.keep_listener(&listener, &socket)?;
    if let Some(first) = first {
        tasks.spawn(Arc::clone(&host).serve(first));
    }
    tasks.spawn(accept(Arc::clone(&host), listener, tasks.clone()));
    let mut over = host.over.subscribe();
    let outcome = tokio::select! {
        _ = over.wait_for(|over| *over) => Ok(()),
        () = host.idle() => Err(HostError::NoDaemon),
        () = end_at(&host, &mut signals) => Ok(()),
    };
    host.closing.cancel();
    host.parking.send_replace(false);
    tasks.close();
    tasks.wait().await;
    // One that never had an engine has left nothing, and what another one left is
    // still to be ended.
    if host.started().is_some() {
        host.record().remove();
    }
    drop(socket);
    tracing::info!("the process host ends");
    outcome
}

/// Binds the socket. A host that is ending may still hold it for a moment.
async fn bind(path: &Path) -> Result<Socket, SocketError> {
    let last = Instant::now() + ENDING;
    loop {
        match Socket::bind(path) {
            Err(SocketError::AlreadyRunning { .. }) if Instant::now() < last => {
                tokio::time::sleep(BIND_AGAIN).await;
            }
            bound => return bound,
        }
    }
}

async fn accept(host: Arc<Host>, listener: UnixListener, tasks: TaskTracker) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let stream = tokio::select! {
            stream = listener.accept() => stream,
            () = host.closing.cancelled() => return,
        };
        match stream.and_then(|(stream, _)| owned(stream)) {
            Ok(stream) => {
                let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                    continue;
                };
                let host = Arc::clone(&host);
                tasks.spawn(async move {
                    host.serve(stream).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a daemon could not be accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

fn owned(stream: UnixStream) -> io::Result<OwnedFd> {
    Ok(stream.into_std()?.into())
}

/// Ends the engine at the first signal, and hurries at each further one.
/// Returns when it has ended.
async fn end_at(host: &Host, signals: &mut (impl Stream<Item = ()> + Unpin)) {
    if signals.next().await.is_none() {
        return std::future::pending().await;
    }
    let Some(engine) = host.started().map(|started| started.engine) else {
        return;
    };
    let mut ended = std::pin::pin!(host.end(&engine));
    loop {
        tokio::select! {
            () = &mut ended => return,
            Some(()) = signals.next() => engine.engine.hurry(),
        }
    }
}
