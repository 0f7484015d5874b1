//! gRPC in, plain calls out. One file a service; nothing is decided here.
//!
//! A call is decoded into a checked value ([`convert`]), passed to the engine
//! or the session registry, and its answer encoded; every refusal goes through
//! one mapping ([`failure`]). What calls share is the [`Core`].

mod convert;
mod ended;
mod failure;
mod file;
mod input;
mod logs;
mod machine;
mod output;
mod process;
mod readers;
mod session;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use executor_proto::id::{MachineId, ProcessId, SessionSecret};
use executor_proto::metadata;
use executor_proto::reason::{Failure, Reason};
use executor_proto::v1::file_service_server::FileServiceServer;
use executor_proto::v1::machine_service_server::MachineServiceServer;
use executor_proto::v1::process_service_server::ProcessServiceServer;
use executor_proto::v1::session_service_server::SessionServiceServer;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Extensions;
use tonic::metadata::MetadataMap;

use self::failure::Call;
use self::file::places::Places;
use self::logs::Logs;
use self::readers::Readers;
use crate::files::Files;
use crate::files::line_index::LineIndexes;
use crate::files::search;
use crate::files::search::crew::Crew;
use crate::host::client::HostClient;
use crate::host::message::{Descriptor, Reply, Request, Target};
use crate::limits::Limits;
use crate::machine::Facts;
use crate::process::error::ProcessError;
use crate::server::auth::{Principal, Scope};
use crate::session::registry::{Credentials, Registry, Session};

/// What the services are made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) engine: HostClient,
    pub(crate) machine: MachineId,
    pub(crate) facts: Facts,
    pub(crate) registry: Registry,
    pub(crate) files: Arc<Files>,
    pub(crate) indexes: Arc<LineIndexes>,
    pub(crate) searches: search::Settings,
    pub(crate) limits: Limits,
}

/// What calls share. One for a server's life.
#[derive(Debug)]
pub(crate) struct Core {
    files: Places,
    /// A change of files has come to its end.
    changed: Arc<Notify>,
    /// Threads of the searches.
    crew: Arc<Crew>,
    parts: Parts,
    logs: Logs,
    readers: Readers,
    tasks: TaskTracker,
    closing: CancellationToken,
    draining: AtomicBool,
}

impl Core {
    /// A core that takes calls. To be made in the runtime that serves.
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        let tasks = TaskTracker::new();
        Arc::new(Self {
            files: Places::new(&parts.limits),
            changed: Arc::default(),
            crew: file::search::crew(&parts.limits, &tasks),
            parts,
            logs: Logs::default(),
            readers: Readers::default(),
            tasks,
            closing: CancellationToken::new(),
            draining: AtomicBool::new(false),
        })
    }

    /// From now on nothing new is started or opened.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Ends the streams that are still open.
    pub(crate) fn close(&self) {
        self.closing.cancel();
        self.tasks.close();
    }

    /// Returns when no task of a call is left. Cancel safe.
    pub(crate) async fn finished(&self) {
        self.tasks.wait().await;
    }

    /// The services.
    pub(crate) fn machine_service(self: &Arc<Self>) -> MachineServiceServer<machine::Machines> {
        MachineServiceServer::new(machine::Machines::new(Arc::clone(self)))
    }

    /// See [`Core::machine_service`].
    pub(crate) fn session_service(self: &Arc<Self>) -> SessionServiceServer<session::Sessions> {
        SessionServiceServer::new(session::Sessions::new(Arc::clone(self)))
            .max_decoding_message_size(self.parts.limits.message_bytes)
    }

    /// See [`Core::machine_service`].
    pub(crate) fn process_service(self: &Arc<Self>) -> ProcessServiceServer<process::Processes> {
        ProcessServiceServer::new(process::Processes::new(Arc::clone(self)))
            .max_decoding_message_size(self.parts.limits.message_bytes)
    }

    /// See [`Core::machine_service`].
    pub(crate) fn file_service(self: &Arc<Self>) -> FileServiceServer<file::FileCalls> {
        FileServiceServer::new(file::FileCalls::new(Arc::clone(self)))
            .max_decoding_message_size(self.parts.limits.message_bytes)
    }

    fn accepting(&self) -> Result<(), Failure> {
        if self.draining.load(Ordering::Relaxed) {
            return Err(failure::engine(&ProcessError::ShuttingDown, Call::Other));
        }
        Ok(())
    }

    /// Who calls, for which session; counts as contact.
    async fn caller(
        &self,
        metadata: &MetadataMap,
        extensions: &Extensions,
        scope: Scope,
        call: Call,
    ) -> Result<Caller, Failure> {
        let principal = principal(extensions, scope)?;
        let credentials = credentials(metadata)?;
        let session = self
            .parts
            .registry
            .authenticate(&credentials)
            .await
            .map_err(|error| self.refusal(&error, call))?;
        Ok(Caller { principal, session })
    }

    /// Asks the engine for a caller.
    async fn ask(
        &self,
        caller: &Caller,
        request: Request,
        descriptors: Vec<Descriptor>,
    ) -> Result<(Reply, Vec<Descriptor>), Failure> {
        self.ask_as(caller, request, descriptors, Call::Other).await
    }

    async fn ask_as(
        &self,
        caller: &Caller,
        request: Request,
        descriptors: Vec<Descriptor>,
        call: Call,
    ) -> Result<(Reply, Vec<Descriptor>), Failure> {
        let epoch = caller.session.epoch();
        let answer = self.parts.engine.call_in(epoch, request, descriptors);
        answer.await.map_err(|error| {
            let session = caller.session.id();
            self.parts.registry.forget_if_over(session, &error);
            self.refusal(&error, call)
        })
    }

    /// As [`Core::ask`], for a request that waits up to `wait`: meanwhile the
    /// caller counts as there.
    async fn ask_waiting(
        &self,
        caller: &Caller,
        request: Request,
        wait: Duration,
    ) -> Result<(Reply, Vec<Descriptor>), Failure> {
        let asked = self.ask(caller, request, Vec::new());
        if wait.is_zero() {
            return asked.await;
        }
        self.parts.registry.while_open(&caller.session, asked).await
    }

    /// An engine that is gone because we are ending is no bug.
    fn refusal(&self, error: &ProcessError, call: Call) -> Failure {
        match error {
            ProcessError::EngineGone
                if call == Call::Other && self.draining.load(Ordering::Relaxed) =>
            {
                failure::engine(&ProcessError::ShuttingDown, call)
            }
            error => failure::engine(error, call),
        }
    }
}

/// Who calls.
#[derive(Debug, Clone)]
struct Caller {
    principal: Principal,
    session: Arc<Session>,
}

impl Caller {
    /// Whose process is meant.
    fn target(&self, process: ProcessId, all_sessions: bool) -> Result<Target, Failure> {
        if all_sessions {
            self.principal.require(Scope::Admin)?;
        }
        Ok(Target {
            session: (!all_sessions).then(|| self.session.id()),
            process,
        })
    }
}

/// The checked principal of a request, with a scope. Without one the request
/// did not come through the authentication layer: refused.
fn principal(extensions: &Extensions, scope: Scope) -> Result<Principal, Failure> {
    let principal = extensions.get::<Principal>().cloned().ok_or_else(|| {
        Failure::new(
            Reason::Unauthenticated,
            "the request carries no authenticated principal",
        )
    })?;
    principal.require(scope)?;
    Ok(principal)
}

fn credentials(metadata: &MetadataMap) -> Result<Credentials, Failure> {
    Ok(Credentials {
        session: entry(metadata, metadata::SESSION)?,
        secret: secret(metadata)?,
        epoch: entry(metadata, metadata::EPOCH)?,
    })
}

fn secret(metadata: &MetadataMap) -> Result<SessionSecret, Failure> {
    entry(metadata, metadata::SECRET)
}

/// One entry of a call's metadata. What is wrong is told without the value.
fn entry<T: std::str::FromStr>(metadata: &MetadataMap, key: &'static str) -> Result<T, Failure> {
    let refused = |what: &str| {
        Failure::new(
            Reason::SessionRequired,
            format!(
                "metadata {key} is {what}; open a session with OpenSession and send \
                 its id, secret and epoch with every call"
            ),
        )
        .with("field", key)
    };
    let value = metadata.get(key).ok_or_else(|| refused("missing"))?;
    let text = value.to_str().map_err(|_| refused("not text"))?;
    text.parse().map_err(|_| refused("malformed"))
}
