//! What a person's command asks of the process host, beside its daemon:
//! `executor-daemon upgrade` and `executor-daemon stop`.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;

use super::connection::{Connection, Flow};
use super::find::{ask, connect};
use super::frame::{Kind, decode, encode};
use super::greeting::{Answer, Purpose};
use super::record::Record;
use crate::sys::readiness::Watched;

/// What is asked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum ControlRequest {
    /// → [`ControlReply::Status`].
    Status,
    /// The host, and then its daemon, go on as this program. → `Status` of the
    /// new one, or [`ControlReply::Failed`]; then everything is as it was.
    Upgrade {
        /// Its absolute name.
        #[serde(with = "crate::path_bytes")]
        program: PathBuf,
    },
    /// Daemon and host end, and every command. → [`ControlReply::Stopping`], and
    /// the connection ends when it is done.
    Stop,
}

/// What is answered.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum ControlReply {
    /// Who is there.
    Status(HostStatus),
    /// It begins to end.
    Stopping,
    /// It was not done.
    Failed(String),
}

/// A process host and its daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatus {
    /// Of the host.
    pub pid: u32,
    /// The host's release.
    pub release: String,
    /// Its daemon's, where one is connected.
    pub daemon: Option<DaemonStatus>,
}

impl HostStatus {
    /// Host and daemon, as pidfds (pidfd_open(2)).
    fn processes(&self) -> Vec<OwnedFd> {
        let daemon = self.daemon.as_ref().map(|daemon| daemon.pid);
        std::iter::once(self.pid)
            .chain(daemon)
            .filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
            .filter_map(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
            .collect()
    }
}

/// The daemon in front of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonStatus {
    /// Its pid.
    pub pid: u32,
    /// Its release.
    pub release: String,
    /// Counts the daemons that this host has served.
    pub turn: u64,
}

/// What a host tells its daemon.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Notice {
    /// Go on as this program.
    Upgrade {
        /// Its absolute name.
        #[serde(with = "crate::path_bytes")]
        program: PathBuf,
    },
    /// End, and end me.
    Stop,
}

/// Why a control request was not done.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nobody listens.
    #[error("no process host is running at {0:?}")]
    NotRunning(PathBuf),
    /// It cannot be reached.
    #[error("the process host at {path:?} cannot be reached: {error}")]
    Unreachable {
        /// Its socket.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It says no.
    #[error("{0}")]
    Refused(String),
    /// It did not do it in time.
    #[error("the process host did not answer within {0:?}")]
    Late(Duration),
}

/// A command's connection to a process host.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
}

impl Control {
    /// Of the host that listens at `path`.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    /// Who is there.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub async fn status(&self, within: Duration) -> Result<HostStatus, ControlError> {
        self.status_of(ControlRequest::Status, within).await
    }

    /// Replaces the host's program, and its daemon's.
    ///
    /// # Errors
    /// See [`ControlError`]; unless it came too late, everything is as it was.
    pub async fn upgrade(
        &self,
        program: PathBuf,
        within: Duration,
    ) -> Result<HostStatus, ControlError> {
        self.status_of(ControlRequest::Upgrade { program }, within)
            .await
    }

    /// Ends daemon, host and every command; returns when both are gone.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub async fn stop(&self, within: Duration) -> Result<(), ControlError> {
        let stop = async {
            let (connection, mut reader) = self.connect().await?;
            let status = self
                .call(&connection, &mut reader, &ControlRequest::Status)
                .await?;
            // Held before they can be gone.
            let processes = match status {
                ControlReply::Status(status) => status.processes(),
                ControlReply::Failed(why) => return Err(ControlError::Refused(why)),
                ControlReply::Stopping => Vec::new(),
            };
            let stopping = self.call(&connection, &mut reader, &ControlRequest::Stop);
            if let ControlReply::Failed(why) = stopping.await? {
                return Err(ControlError::Refused(why));
            }
            connection.run(&mut reader, |_| Flow::More).await;
            for process in processes {
                // One that cannot be watched is gone already.
                if let Ok(process) = Watched::new(process, Interest::READABLE) {
                    let _ = process.readable().await;
                }
            }
            if Record::beside(&self.path).is_there() {
                return Err(ControlError::Refused(
                    "the process host was lost while it stopped; start `executor-daemon serve` \
                     and stop it again to end what may be left"
                        .to_owned(),
                ));
            }
            Ok(())
        };
        in_time(within, stop).await
    }

    async fn status_of(
        &self,
        request: ControlRequest,
        within: Duration,
    ) -> Result<HostStatus, ControlError> {
        let asked = async {
            let (connection, mut reader) = self.connect().await?;
            match self.call(&connection, &mut reader, &request).await? {
                ControlReply::Status(status) => Ok(status),
                ControlReply::Failed(why) => Err(ControlError::Refused(why)),
                ControlReply::Stopping => Err(self.unreachable(io::ErrorKind::InvalidData.into())),
            }
        };
        in_time(within, asked).await
    }

    async fn connect(
        &self,
    ) -> Result<(std::sync::Arc<Connection>, super::frame::FrameReader), ControlError> {
        let socket = connect(&self.path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ControlError::NotRunning(self.path.clone())
            }
            _ => self.unreachable(error),
        })?;
        let connection = Connection::new(socket).map_err(|error| self.unreachable(error))?;
        let ended = || self.unreachable(io::ErrorKind::UnexpectedEof.into());
        let (frame, reader) = ask(&connection, Purpose::Control).await.ok_or_else(ended)?;
        match decode::<Answer>(&frame.body) {
            Ok(Answer::Refused(why)) => Err(ControlError::Refused(why.to_string())),
            // One without an engine welcomes nobody; it answers all the same.
            Ok(Answer::Welcome(_) | Answer::Control) => Ok((connection, reader)),
            Err(error) => Err(ControlError::Refused(error.to_string())),
        }
    }

    async fn call(
        &self,
        connection: &Connection,
        reader: &mut super::frame::FrameReader,
        request: &ControlRequest,
    ) -> Result<ControlReply, ControlError> {
        let refused = |error: super::frame::FrameError| ControlError::Refused(error.to_string());
        let frame = encode(Kind::Request, 1, request, 0).map_err(refused)?;
        connection.send(frame, Vec::new());
        let mut reply = None;
        connection
            .run(reader, |frame| {
                reply = (frame.kind == Some(Kind::Reply)).then_some(frame);
                if reply.is_some() {
                    Flow::Enough
                } else {
                    Flow::More
                }
            })
            .await;
        let reply = reply.ok_or_else(|| self.unreachable(io::ErrorKind::UnexpectedEof.into()))?;
        decode(&reply.body).map_err(refused)
    }

    fn unreachable(&self, error: io::Error) -> ControlError {
        ControlError::Unreachable {
            path: self.path.clone(),
            error,
        }
    }
}

async fn in_time<T>(
    within: Duration,
    work: impl Future<Output = Result<T, ControlError>>,
) -> Result<T, ControlError> {
    tokio::time::timeout(within, work)
        .await
        .unwrap_or(Err(ControlError::Late(within)))
}
