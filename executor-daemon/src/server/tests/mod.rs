//! The server over memory and over its socket, before an engine that runs
//! nothing.

mod calls;
mod engine;
mod ways_in;

use std::time::{Duration, SystemTime};

use executor_proto::id::{ProcessId, SessionId, SessionSecret};
use executor_proto::reason::{Failure, Reason};
use executor_proto::v1;
use executor_proto::v1::machine_service_client::MachineServiceClient;
use executor_proto::v1::process_service_client::ProcessServiceClient;
use executor_proto::v1::session_service_client::SessionServiceClient;
use hyper_util::rt::TokioIo;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::embed::{Connector, Embedded, embed_with};
use crate::config::{Config, Sources};

/// A machine in memory, with everything of its own.
struct Here {
    embedded: Embedded,
    directory: tempfile::TempDir,
}

impl Here {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path());
        Self {
            embedded: embed_with(config, engine::start).unwrap(),
            directory,
        }
    }

    fn channel(&self) -> Channel {
        channel(self.embedded.connector())
    }

    async fn session(&self) -> Session {
        Session::open(self.channel()).await
    }
}

fn config(directory: &std::path::Path) -> Config {
    let flags = [
        ("state_dir", directory.join("state")),
        ("socket", directory.join("run/daemon.sock")),
    ];
    let flags = flags.map(|(key, path)| (key.to_owned(), path.display().to_string()));
    let file = directory.join("daemon.toml");
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&file)
        .unwrap();
    let sources = Sources {
        file: Some(file),
        flags: flags.to_vec(),
    };
    let home = ("HOME".into(), directory.as_os_str().to_owned());
    Config::load_from(&sources, vec![home]).unwrap()
}

fn channel(connector: Connector) -> Channel {
    let connect = move |_| {
        let connector = connector.clone();
        async move { connector.connect().await.map(TokioIo::new) }
    };
    Endpoint::from_static("http://in.memory")
        .connect_with_connector_lazy(tower::service_fn(connect))
}

/// A session and its metadata.
#[derive(Clone)]
struct Session {
    channel: Channel,
    id: SessionId,
    secret: SessionSecret,
    epoch: String,
}

impl Session {
    async fn open(channel: Channel) -> Self {
        let mut session = Self {
            channel,
            id: SessionId::random(),
            secret: SessionSecret::random(),
            epoch: String::new(),
        };
        let opened = session
            .open_again(v1::OpenSessionRequest::default())
            .await
            .unwrap();
        assert!(opened.created);
        session.epoch = opened.session.unwrap().epoch;
        session
    }

    async fn open_again(
        &self,
        mut request: v1::OpenSessionRequest,
    ) -> Result<v1::OpenSessionResponse, Status> {
        request.session_id = self.id.to_string();
        let mut request = Request::new(request);
        let secret = self.secret.to_hex().parse().unwrap();
        request.metadata_mut().insert("executor-secret", secret);
        let mut client = SessionServiceClient::new(self.channel.clone());
        client
            .open_session(request)
            .await
            .map(tonic::Response::into_inner)
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        metadata.insert("executor-session", self.id.to_string().parse().unwrap());
        metadata.insert("executor-secret", self.secret.to_hex().parse().unwrap());
        metadata.insert("executor-epoch", self.epoch.parse().unwrap());
        request
    }

    fn sessions(&self) -> SessionServiceClient<Channel> {
        SessionServiceClient::new(self.channel.clone())
    }

    fn processes(&self) -> ProcessServiceClient<Channel> {
        ProcessServiceClient::new(self.channel.clone())
    }

    async fn start(&self, text: &str) -> Result<v1::StartProcessResponse, Status> {
        self.start_as(start_request(text)).await
    }

    async fn start_as(
        &self,
        start: v1::StartProcessRequest,
    ) -> Result<v1::StartProcessResponse, Status> {
        let started = self.processes().start_process(self.request(start)).await;
        started.map(tonic::Response::into_inner)
    }
}

fn start_request(text: &str) -> v1::StartProcessRequest {
    v1::StartProcessRequest {
        process_id: ProcessId::random().to_string(),
        created_at: Some(SystemTime::now().into()),
        command: Some(v1::start_process_request::Command::Shell(
            v1::ShellCommand {
                shell: 0,
                text: text.into(),
            },
        )),
        ..Default::default()
    }
}

fn reason<T: std::fmt::Debug>(answer: Result<T, Status>) -> Reason {
    failure(answer).reason
}

fn failure<T: std::fmt::Debug>(answer: Result<T, Status>) -> Failure {
    let status = answer.unwrap_err();
    Failure::from_status(&status).unwrap_or_else(|| panic!("no reason: {status:?}"))
}

/// Whatever is awaited in a test comes, or the test fails.
async fn in_time<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .expect("nothing came within 20 s")
}
