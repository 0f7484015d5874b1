//! A session: what one agent or person does on one machine.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use executor_proto::id::{Epoch, ProcessId, SessionId, SessionSecret};
use executor_proto::metadata as key;
use executor_proto::v1;
use executor_proto::v1::machine_service_client::MachineServiceClient;
use executor_proto::v1::process_service_client::ProcessServiceClient;
use executor_proto::v1::session_service_client::SessionServiceClient;
use tokio::task::JoinSet;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::command::{Command, Completed};
use crate::error::ClientError;
use crate::machine::Machine;
use crate::process::{Process, Started};
use crate::retry::{Call, CallOptions, attempts};

/// Who a session is. Whoever holds both acts as the session; `Debug` does not
/// show the secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionCredentials {
    /// Its name.
    pub id: SessionId,
    /// Its key.
    pub secret: SessionSecret,
}

impl SessionCredentials {
    /// Credentials that nobody else has.
    #[must_use]
    pub fn random() -> Self {
        Self {
            id: SessionId::random(),
            secret: SessionSecret::random(),
        }
    }
}

/// After how long without contact the machine ends a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lease {
    /// The machine's default, 1 hour.
    #[default]
    Default,
    /// Never.
    None,
    /// After this time, at most 30 days.
    After(Duration),
}

/// How a session is opened. The default has the machine's default roots, its
/// home directory, a lease of one hour and no label.
#[derive(Debug, Clone, Default)]
pub struct SessionOptions {
    /// What it may use; empty: the machine's default roots.
    pub roots: Vec<v1::Root>,
    /// Absolute, inside a root; `None`: the home directory, else the first
    /// root.
    pub working_directory: Option<PathBuf>,
    /// When it ends by itself.
    pub lease: Lease,
    /// For people; at most 256 characters.
    pub label: String,
}

/// An open session. Cheap to clone. Dropping it ends nothing: call
/// [`Session::end`], or let the lease pass.
#[derive(Debug, Clone)]
pub struct Session {
    inner: Arc<Inner>,
    options: CallOptions,
    all_sessions: bool,
}

#[derive(Debug)]
struct Inner {
    machine: Machine,
    credentials: SessionCredentials,
    epoch: Epoch,
    metadata: Metadata,
    lease: Option<Duration>,
}

/// The three entries of every session-bound call.
#[derive(Debug)]
struct Metadata {
    session: MetadataValue<Ascii>,
    secret: MetadataValue<Ascii>,
    epoch: MetadataValue<Ascii>,
}

impl Session {
    /// Opens the session with these credentials, or finds it where it is open;
    /// then `options` count for nothing. Idempotent; dropping the future may
    /// leave the session open.
    ///
    /// # Errors
    /// `SESSION_ENDED`, `SESSION_SECRET_MISMATCH`, `SESSION_LIMIT`,
    /// `ROOT_UNUSABLE`, errors of the working directory; and what any call can
    /// end with.
    pub async fn open(
        machine: &Machine,
        credentials: SessionCredentials,
        options: SessionOptions,
    ) -> Result<Self, ClientError> {
        let message = v1::OpenSessionRequest {
            session_id: credentials.id.to_string(),
            roots: options.roots,
            working_directory: options
                .working_directory
                .map(path_bytes)
                .unwrap_or_default(),
            lease: match options.lease {
                Lease::Default => None,
                Lease::None => Some(prost_types::Duration::default()),
                Lease::After(time) => Some(wire_duration(time)),
            },
            label: options.label,
        };
        let secret = secret_value(&credentials.secret)?;
        let answer = attempts(
            Call::OpenSession,
            machine.options().deadline,
            Duration::ZERO,
            || {
                let mut service = SessionServiceClient::new(machine.channel());
                let mut request = Request::new(message.clone());
                request.metadata_mut().insert(key::SECRET, secret.clone());
                async move { service.open_session(request).await }
            },
        )
        .await?;
        let session = answer
            .into_inner()
            .session
            .ok_or_else(|| ClientError::Protocol("OpenSession without a session".into()))?;
        Self::from_wire(machine, credentials, &session.epoch, session.lease)
    }

    /// Finds a session that is open; never makes one. Read-only.
    ///
    /// # Errors
    /// `SESSION_NOT_FOUND` when it is not open, also because the machine's
    /// process host was lost meanwhile; `SESSION_ENDED`,
    /// `SESSION_SECRET_MISMATCH`; and what any call can end with.
    pub async fn resume(
        machine: &Machine,
        credentials: SessionCredentials,
    ) -> Result<Self, ClientError> {
        let epoch = attempts(
            Call::GetMachine,
            machine.options().deadline,
            Duration::ZERO,
            || {
                let mut service = MachineServiceClient::new(machine.channel());
                async move { service.get_machine(v1::GetMachineRequest {}).await }
            },
        )
        .await?
        .into_inner()
        .machine
        .ok_or_else(|| ClientError::Protocol("GetMachine without a machine".into()))?
        .epoch;
        let found = Self::from_wire(machine, credentials, &epoch, None)?;
        let lease = found.get().await?.lease;
        Self::from_wire(machine, found.credentials().clone(), &epoch, lease)
    }

    fn from_wire(
        machine: &Machine,
        credentials: SessionCredentials,
        epoch: &str,
        lease: Option<prost_types::Duration>,
    ) -> Result<Self, ClientError> {
        let epoch: Epoch = epoch
            .parse()
            .map_err(|error| ClientError::Protocol(format!("epoch of the session: {error}")))?;
        let lease = lease
            .and_then(|lease| Duration::try_from(lease).ok())
            .filter(|lease| !lease.is_zero());
        let metadata = Metadata {
            session: ascii(&credentials.id.to_string())?,
            secret: secret_value(&credentials.secret)?,
            epoch: ascii(&epoch.to_string())?,
        };
        Ok(Self {
            options: machine.options(),
            inner: Arc::new(Inner {
                machine: machine.clone(),
                credentials,
                epoch,
                metadata,
                lease,
            }),
            all_sessions: false,
        })
    }

    /// Its name.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.inner.credentials.id
    }

    /// What [`Session::open`] and [`Session::resume`] need to find it again.
    #[must_use]
    pub fn credentials(&self) -> &SessionCredentials {
        &self.inner.credentials
    }

    /// The life of the process host that it belongs to.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.inner.epoch
    }

    /// The machine it is on.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.inner.machine
    }

    /// The same session, with other options for every call.
    #[must_use]
    pub fn with_options(mut self, options: CallOptions) -> Self {
        self.options = options;
        self
    }

    /// The same session, whose calls act on the processes of all sessions.
    /// Needs the scope `admin`; the machine checks it at each call.
    #[must_use]
    pub fn with_all_sessions(mut self) -> Self {
        self.all_sessions = true;
        self
    }

    /// The session as the machine has it. Read-only, cancel safe; counts as
    /// contact.
    ///
    /// # Errors
    /// `HOST_LOST`, `SESSION_NOT_FOUND`, `SESSION_ENDED`; and what any call
    /// can end with.
    pub async fn get(&self) -> Result<v1::Session, ClientError> {
        let message = v1::GetSessionRequest {};
        attempts(
            Call::GetSession,
            self.options.deadline,
            Duration::ZERO,
            || {
                let (mut service, request) = (self.session_service(), self.request(message));
                async move { service.get_session(request).await }
            },
        )
        .await?
        .into_inner()
        .session
        .ok_or_else(|| ClientError::Protocol("GetSession without a session".into()))
    }

    /// Adds a directory to the session's roots, or gives a root another mode.
    /// Within the operator's roots only; a client whose own right does not go
    /// so far is refused. Idempotent.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`, `PATH_OUTSIDE_ROOTS`, `ROOT_UNUSABLE`; and what any
    /// call can end with.
    pub async fn grant_root(&self, root: v1::Root) -> Result<v1::GrantRootResponse, ClientError> {
        let message = v1::GrantRootRequest { root: Some(root) };
        let answer = attempts(
            Call::GrantRoot,
            self.options.deadline,
            Duration::ZERO,
            || {
                let (mut service, request) =
                    (self.session_service(), self.request(message.clone()));
                async move { service.grant_root(request).await }
            },
        )
        .await?;
        Ok(answer.into_inner())
    }

    /// Renews the lease for as long as the guard lives. Nothing is sent for a
    /// session without a lease. Must be called inside a tokio runtime.
    #[must_use = "the lease is renewed only while the guard lives"]
    pub fn keep_alive(&self) -> KeepAlive {
        let mut task = JoinSet::new();
        if let Some(lease) = self.inner.lease {
            task.spawn(keep_alive(self.clone(), lease / 3));
        }
        KeepAlive { _task: task }
    }

    /// Ends the session's processes and what they left behind, then forgets
    /// them. `grace` is the time between SIGTERM and SIGKILL, at most 60 s.
    /// Idempotent. Dropping the future does not take the end back once it was
    /// sent.
    ///
    /// # Errors
    /// `HOST_LOST`; and what any call can end with.
    pub async fn end(&self, grace: Duration) -> Result<v1::EndSessionResponse, ClientError> {
        let message = v1::EndSessionRequest {
            grace: Some(wire_duration(grace)),
        };
        let answer = attempts(
            Call::EndSession,
            self.options.deadline + grace,
            grace,
            || {
                let (mut service, request) = (self.session_service(), self.request(message));
                async move { service.end_session(request).await }
            },
        )
        .await?;
        Ok(answer.into_inner())
    }

    /// A command given as text, run by a shell: `SHELL -c TEXT`.
    pub fn command(&self, text: impl Into<Vec<u8>>) -> Command {
        Command::shell(self.clone(), text.into())
    }

    /// A command given as a program and its arguments. Nothing is quoted or
    /// expanded.
    pub fn program<A: Into<Vec<u8>>>(&self, argv: impl IntoIterator<Item = A>) -> Command {
        Command::argv(self.clone(), argv.into_iter().map(Into::into).collect())
    }

    /// Runs a text in a shell to its exit and returns what it printed, stdout
    /// and stderr in the order of writing. Dropping the future leaves the
    /// command running.
    ///
    /// # Errors
    /// As [`Command::spawn`] and [`crate::OutputStream::next`]. A non-zero
    /// exit is a normal result.
    pub async fn run(&self, text: impl Into<Vec<u8>>) -> Result<Completed, ClientError> {
        self.command(text).run().await
    }

    /// Starts what the request says, under the request's id; most callers use
    /// [`Session::command`]. Dropping the future leaves open whether the
    /// command runs: ask for its id.
    ///
    /// # Errors
    /// As [`Command::spawn`].
    pub async fn start(&self, request: v1::StartProcessRequest) -> Result<Started, ClientError> {
        Process::start(self, request).await
    }

    /// A process by its id. Asks nothing of the machine.
    #[must_use]
    pub fn process(&self, id: ProcessId) -> Process {
        Process::new(self.clone(), id)
    }

    /// The processes in the order of their start. Read-only, cancel safe.
    ///
    /// # Errors
    /// What any call can end with.
    pub async fn list(&self) -> Result<Vec<v1::Process>, ClientError> {
        let message = v1::ListProcessesRequest {
            all_sessions: self.all_sessions,
        };
        let answer = self
            .call(
                Call::ListProcesses,
                Duration::ZERO,
                &message,
                |mut service, request| async move { service.list_processes(request).await },
            )
            .await?;
        Ok(answer.processes)
    }

    pub(crate) fn acts_on_all_sessions(&self) -> bool {
        self.all_sessions
    }

    pub(crate) fn options(&self) -> CallOptions {
        self.options
    }

    /// One call of the process service, by the table. `wait` is how long the
    /// machine may take on top of the deadline.
    pub(crate) async fn call<M, R, F, Fut>(
        &self,
        call: Call,
        wait: Duration,
        message: &M,
        send: F,
    ) -> Result<R, ClientError>
    where
        M: Clone,
        F: Fn(ProcessServiceClient<Channel>, Request<M>) -> Fut,
        Fut: Future<Output = Result<Response<R>, Status>>,
    {
        let deadline = self.options.deadline.saturating_add(wait);
        let answer = attempts(call, deadline, wait, || {
            send(self.process_service(), self.request(message.clone()))
        })
        .await?;
        Ok(answer.into_inner())
    }

    pub(crate) fn process_service(&self) -> ProcessServiceClient<Channel> {
        ProcessServiceClient::new(self.inner.machine.channel())
    }

    fn session_service(&self) -> SessionServiceClient<Channel> {
        SessionServiceClient::new(self.inner.machine.channel())
    }

    /// A request that acts as this session.
    pub(crate) fn request<M>(&self, message: M) -> Request<M> {
        let mut request = Request::new(message);
        let entries = request.metadata_mut();
        let metadata = &self.inner.metadata;
        entries.insert(key::SESSION, metadata.session.clone());
        entries.insert(key::SECRET, metadata.secret.clone());
        entries.insert(key::EPOCH, metadata.epoch.clone());
        request
    }
}

/// Renews a session's lease until it is dropped. Made by
/// [`Session::keep_alive`].
#[derive(Debug)]
pub struct KeepAlive {
    /// Aborted when dropped.
    _task: JoinSet<()>,
}

/// Ends by itself when the machine says that the session is over; a machine
/// that cannot be reached is asked again.
async fn keep_alive(session: Session, period: Duration) {
    loop {
        tokio::time::sleep(period).await;
        let message = v1::KeepAliveRequest {};
        let answer = attempts(Call::KeepAlive, period, Duration::ZERO, || {
            let (mut service, request) = (session.session_service(), session.request(message));
            async move { service.keep_alive(request).await }
        })
        .await;
        if matches!(answer, Err(ClientError::Refused { .. })) {
            return;
        }
    }
}

/// A time for the wire; what does not fit is as long as can be said.
pub(crate) fn wire_duration(time: Duration) -> prost_types::Duration {
    prost_types::Duration::try_from(time).unwrap_or(prost_types::Duration {
        seconds: i64::MAX,
        nanos: 0,
    })
}

/// A name as the kernel has it.
pub(crate) fn path_bytes(path: PathBuf) -> Vec<u8> {
    use std::os::unix::ffi::OsStringExt as _;
    path.into_os_string().into_vec()
}

fn ascii(text: &str) -> Result<MetadataValue<Ascii>, ClientError> {
    MetadataValue::try_from(text)
        .map_err(|_| ClientError::Protocol("an identifier that metadata cannot carry".into()))
}

/// Marked sensitive, so that no layer below logs or indexes it.
fn secret_value(secret: &SessionSecret) -> Result<MetadataValue<Ascii>, ClientError> {
    let mut value = MetadataValue::try_from(Bytes::from(secret.to_hex()))
        .map_err(|_| ClientError::Protocol("a secret that metadata cannot carry".into()))?;
    value.set_sensitive(true);
    Ok(value)
}
