//! How a daemon comes to its process host: it connects to the socket beside its
//! own, or starts a host where nobody answers there.
//!
//! A host that is started gets its first connection as descriptor 0, so that
//! nobody has to wait for its socket. It has a session of its own (setsid(2)):
//! what a terminal sends to the daemon does not reach it.

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tokio::io::Interest;
use tokio::time::Instant;

use super::HostConfig;
use super::client::Life;
use super::connection::{Connection, Flow};
use super::frame::{Frame, FrameReader, Kind, decode, encode};
use super::greeting::{Answer, EngineSettings, Predecessor, Purpose, hello};
use crate::process::log::{Doorbell, RemoteLogs};
use crate::socket;
use crate::sys::readiness::Watched;
use crate::sys::spawn::{Program, Spawned, Stdio, spawn};
use crate::sys::wait;

/// How long a host may take to answer: it may have to end first what another
/// one left.
const ANSWER: Duration = Duration::from_secs(20);
/// Between two attempts.
const AGAIN: Duration = Duration::from_millis(50);
/// How long a host may take to go once it has nothing left to do.
const GONE: Duration = Duration::from_secs(5);

/// Why there is no host.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The socket is there and cannot be used.
    #[error("the process host at {path:?} cannot be reached: {error}")]
    Connect {
        /// Its socket.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is not ours.
    #[error("{path:?} belongs to user {uid}; it was not used")]
    Stranger {
        /// Its socket.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// It says no.
    #[error(
        "the process host at {path:?} cannot serve this daemon: {why}. End it with \
         `executor-daemon stop` of its own release, or start that release's daemon and \
         upgrade from there"
    )]
    Refused {
        /// Its socket.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// It says nothing.
    #[error("the process host at {path:?} does not answer: {why}")]
    Silent {
        /// Its socket.
        path: PathBuf,
        /// What happened.
        why: &'static str,
    },
    /// It could not be started.
    #[error("the process host cannot be started: {0}")]
    Start(io::Error),
}

/// A host that answered.
pub(super) struct Met {
    pub(super) life: Life,
    pub(super) predecessor: Option<Predecessor>,
    pub(super) connection: Arc<Connection>,
    pub(super) reader: FrameReader,
    pub(super) logs: RemoteLogs,
}

/// Finds or starts the host of one daemon.
#[derive(Debug)]
pub struct Finder {
    path: PathBuf,
    program: CString,
    arguments: Vec<CString>,
    settings: EngineSettings,
    /// The host that this daemon has started, which it has to reap.
    child: Mutex<Option<OwnedFd>>,
}

impl Finder {
    /// For the daemon whose socket is `daemon`; a host that has to be started
    /// logs as `log_arguments` say.
    #[must_use]
    pub fn new(daemon: &Path, config: &HostConfig, log_arguments: &[OsString]) -> Self {
        let path = socket_beside(daemon);
        let words = [
            OsString::from("executor-daemon"),
            "process-host".into(),
            "--socket".into(),
            path.clone().into(),
        ];
        Self {
            program: c"/proc/self/exe".to_owned(),
            arguments: words
                .into_iter()
                .chain(log_arguments.iter().cloned())
                .filter_map(|word| CString::new(word.into_vec()).ok())
                .collect(),
            settings: EngineSettings::of(config),
            path,
            child: Mutex::default(),
        }
    }

    /// The host, found or started. One that closes the connection is being
    /// replaced, or is ending: it is looked for again.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub(super) async fn meet(&self) -> Result<Met, LinkError> {
        let last = Instant::now() + ANSWER;
        loop {
            let met = tokio::time::timeout_at(last, self.attempt()).await;
            match met.unwrap_or_else(|_| Err(self.silent("it took longer than 20 s"))) {
                Err(LinkError::Silent { .. }) if Instant::now() + AGAIN < last => {
                    tokio::time::sleep(AGAIN).await;
                }
                met => return met,
            }
        }
    }

    async fn attempt(&self) -> Result<Met, LinkError> {
        let socket = match connect(&self.path) {
            Ok(socket) => socket,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                ) =>
            {
                self.reap_at_once();
                self.start().await?
            }
            Err(error) => {
                let path = self.path.clone();
                return Err(LinkError::Connect { path, error });
            }
        };
        self.greet(socket).await
    }

    async fn greet(&self, socket: OwnedFd) -> Result<Met, LinkError> {
        let watch = |error| LinkError::Connect {
            path: self.path.clone(),
            error,
        };
        let uid = rustix::net::sockopt::socket_peercred(&socket)
            .map_err(|errno| watch(errno.into()))?
            .uid;
        if uid != rustix::process::geteuid() {
            let (path, uid) = (self.path.clone(), uid.as_raw());
            return Err(LinkError::Stranger { path, uid });
        }
        let connection = Connection::new(socket).map_err(watch)?;
        let purpose = Purpose::Daemon(Box::new(self.settings.clone()));
        let (frame, reader) = ask(&connection, purpose)
            .await
            .ok_or_else(|| self.silent("it closed the connection"))?;
        let answer = decode(&frame.body).map_err(|error| self.refused(&error.to_string()))?;
        let welcome = match answer {
            Answer::Welcome(welcome) => welcome,
            Answer::Refused(why) => return Err(self.refused(&why.to_string())),
            Answer::Control => return Err(self.refused("it took this daemon for a command")),
        };
        let mut files = frame.files.unwrap_or_default().into_iter();
        let (Some(memory), Some(bell)) = (files.next(), files.next()) else {
            return Err(self.refused("it sent no doorbell, or no descriptor is left for it"));
        };
        let doorbell = Doorbell::from_descriptors(memory, bell).map_err(watch)?;
        let logs = RemoteLogs::new(doorbell);
        tracing::info!(
            epoch = %welcome.epoch,
            release = welcome.release,
            schema = welcome.schema,
            "linked to the process host"
        );
        if let Some(before) = &welcome.predecessor {
            tracing::warn!(
                epoch = %before.epoch,
                ended = ?before.left.ended,
                survivors = ?before.left.survivors,
                "a process host was lost; what it left was ended"
            );
        }
        Ok(Met {
            life: Life {
                epoch: welcome.epoch,
                means: welcome.means,
            },
            predecessor: welcome.predecessor,
            connection,
            reader,
            logs,
        })
    }

    /// Starts a host. Returns its first connection.
    async fn start(&self) -> Result<OwnedFd, LinkError> {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|errno| LinkError::Start(errno.into()))?;
        let (program, arguments) = (self.program.clone(), self.arguments.clone());
        let started = tokio::task::spawn_blocking(move || {
            let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
            let null = rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty())?;
            start_program(&program, &arguments, theirs.as_fd(), null.as_fd())
        });
        let spawned = started
            .await
            .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::Other)))
            .map_err(LinkError::Start)?;
        tracing::debug!(pid = spawned.pid, "started a process host");
        *self.child() = Some(spawned.pidfd);
        Ok(ours)
    }

    /// Waits until the host that this daemon started is gone, and reaps it.
    pub(super) async fn reap(&self) {
        let Some(pidfd) = self.child().take() else {
            return;
        };
        let Ok(watched) = Watched::new(pidfd, Interest::READABLE) else {
            return;
        };
        let gone = async {
            while let Ok(mut ready) = watched.readable().await {
                match wait::reap(watched.as_fd()) {
                    Ok(None) => ready.clear_ready(),
                    Ok(Some(_)) | Err(_) => return,
                }
            }
        };
        if tokio::time::timeout(GONE, gone).await.is_err() {
            tracing::warn!("the process host has not ended by now");
        }
    }

    fn reap_at_once(&self) {
        let mut child = self.child();
        let gone = child
            .as_ref()
            .is_some_and(|pidfd| !matches!(wait::reap(pidfd.as_fd()), Ok(None)));
        if gone {
            *child = None;
        }
    }

    fn child(&self) -> std::sync::MutexGuard<'_, Option<OwnedFd>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn silent(&self, why: &'static str) -> LinkError {
        LinkError::Silent {
            path: self.path.clone(),
            why,
        }
    }

    fn refused(&self, why: &str) -> LinkError {
        LinkError::Refused {
            path: self.path.clone(),
            why: why.to_owned(),
        }
    }
}

/// Where the host of the daemon at `daemon` listens.
#[must_use]
pub fn socket_beside(daemon: &Path) -> PathBuf {
    let mut name = daemon.as_os_str().to_owned();
    name.push(".host");
    name.into()
}

/// Connects to a host's socket.
///
/// # Errors
/// Those of connect(2).
pub(super) fn connect(path: &Path) -> io::Result<OwnedFd> {
    socket::connect(path)
}

/// Says hello. Returns the first frame that comes back; `None` when the
/// connection ends before.
pub(super) async fn ask(connection: &Connection, purpose: Purpose) -> Option<(Frame, FrameReader)> {
    let frame = encode(Kind::Hello, 0, &hello(purpose), 0).ok()?;
    connection.send(frame, Vec::new());
    let mut reader = FrameReader::default();
    let mut first = None;
    connection
        .run(&mut reader, |frame| {
            first = Some(frame);
            Flow::Enough
        })
        .await;
    Some((first?, reader))
}

/// Starts a program of ours, in a session of its own, without an environment,
/// with `input` and `output` as descriptors 0 and 1.
pub(super) fn start_program(
    program: &CString,
    arguments: &[CString],
    input: BorrowedFd<'_>,
    output: BorrowedFd<'_>,
) -> io::Result<Spawned> {
    use rustix::fs::{Mode, OFlags};
    let root = rustix::fs::open(
        "/",
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    spawn(&Program {
        paths: std::slice::from_ref(program),
        argv: arguments,
        envp: &[],
        cwd: root.as_fd(),
        stdio: Stdio::Descriptors([input, output, rustix::stdio::stderr()]),
        cgroup: None,
    })
    .map_err(|failure| io::Error::from_raw_os_error(failure.errno))
}
