//! Clients, commands and bytes that mean harm. Whatever they do, the daemon
//! answers the next call, and nothing is left of them.

pub(crate) mod dice;
mod launches;
mod processes;
mod requests;

use std::time::Duration;

use executor_client::{Reason, SessionCredentials, v1};
use executor_proto::id::{ProcessId, SessionId};
use executor_proto::reason::Failure;
use executor_proto::v1::machine_service_client::MachineServiceClient;
use executor_proto::v1::process_service_client::ProcessServiceClient;
use executor_proto::v1::session_service_client::SessionServiceClient;
use executor_tests::{Daemon, in_time};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

/// A client without any manners of ours: no retries, no checks.
pub(crate) struct Raw {
    channel: Channel,
    session: SessionId,
    secret: String,
    epoch: String,
}

impl Raw {
    pub(crate) async fn new(daemon: &Daemon) -> Self {
        let address = format!("unix:{}", daemon.socket().display());
        let channel = Endpoint::from_shared(address).unwrap().connect_lazy();
        let credentials = SessionCredentials::random();
        let mut raw = Self {
            channel,
            session: credentials.id,
            secret: credentials.secret.to_hex(),
            epoch: String::new(),
        };
        let open = v1::OpenSessionRequest {
            session_id: raw.session.to_string(),
            ..Default::default()
        };
        let opened = raw.sessions().open_session(raw.with(open)).await.unwrap();
        raw.epoch = opened.into_inner().session.unwrap().epoch;
        raw
    }

    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    pub(crate) fn with<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        metadata.insert(
            "executor-session",
            self.session.to_string().parse().unwrap(),
        );
        metadata.insert("executor-secret", self.secret.parse().unwrap());
        if !self.epoch.is_empty() {
            metadata.insert("executor-epoch", self.epoch.parse().unwrap());
        }
        request.set_timeout(Duration::from_secs(20));
        request
    }

    fn machines(&self) -> MachineServiceClient<Channel> {
        MachineServiceClient::new(self.channel.clone())
    }

    fn sessions(&self) -> SessionServiceClient<Channel> {
        SessionServiceClient::new(self.channel.clone())
    }

    fn processes(&self) -> ProcessServiceClient<Channel> {
        ProcessServiceClient::new(self.channel.clone())
    }
}

fn start(text: &str) -> v1::StartProcessRequest {
    v1::StartProcessRequest {
        process_id: ProcessId::random().to_string(),
        created_at: Some(std::time::SystemTime::now().into()),
        command: Some(v1::start_process_request::Command::Shell(
            v1::ShellCommand {
                shell: v1::Shell::Sh.into(),
                text: text.to_owned().into_bytes(),
            },
        )),
        ..Default::default()
    }
}

pub(crate) fn reason(status: &Status) -> Option<Reason> {
    Failure::from_status(status).map(|failure| failure.reason)
}

/// The daemon still does its work, and never panicked.
async fn is_well(daemon: &Daemon) {
    let session = daemon.session().await;
    let done = in_time("echo", session.run("echo well")).await.unwrap();
    assert_eq!(&done.output[..], b"well\n");
    in_time("the end", session.end(Duration::ZERO))
        .await
        .unwrap();
    assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
}
