use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus};

use super::*;

#[test]
fn embedding_needs_no_runtime_and_leaves_no_thread() {
    let here = Here::new();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let session = here.session().await;
        session.start("run").await.unwrap();
        in_time(here.embedded.shutdown()).await;
    });
}

#[tokio::test]
async fn dropping_it_ends_it_in_the_background() {
    let here = Here::new();
    let session = here.session().await;
    let process_id = session
        .start("run")
        .await
        .unwrap()
        .process
        .unwrap()
        .process_id;
    let connector = here.embedded.connector();
    let wait = Some(prost_types::Duration {
        seconds: 300,
        nanos: 0,
    });
    let get = v1::GetProcessRequest {
        process_id,
        wait,
        ..Default::default()
    };
    let mut client = session.processes();
    let request = session.request(get);
    let waiting = async { client.get_process(request).await };
    drop(here.embedded);
    let process = in_time(waiting).await;
    // Either it saw the end, or it came after it.
    if let Ok(process) = process {
        let process = process.into_inner().process.unwrap();
        assert_eq!(process.exit.unwrap().cause(), v1::ExitCause::HostShutdown);
    }
    in_time(async {
        while connector.connect().await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn two_embeddings_in_one_program_are_two_machines_lives() {
    let (one, other) = (Here::new(), Here::new());
    let (a, b) = (one.session().await, other.session().await);
    assert_ne!(a.epoch, b.epoch);
    in_time(one.embedded.shutdown()).await;
    b.start("say still here").await.unwrap();
}

#[tokio::test]
async fn a_state_directory_that_cannot_be_made_costs_the_lasting_id_only() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    config.state_dir = directory.path().join("daemon.toml/state");
    let embedded = embed_with(config, engine::start).unwrap();
    let mut client = MachineServiceClient::new(channel(embedded.connector()));
    let machine = client.get_machine(v1::GetMachineRequest {}).await.unwrap();
    assert!(
        machine
            .into_inner()
            .machine
            .unwrap()
            .machine_id
            .starts_with("mch_")
    );
}

fn refuse(_: &Config) -> engine::Starting<'_> {
    Box::pin(async { Err(crate::ServeError::Start("there is none".to_owned())) })
}

#[tokio::test]
async fn an_embedding_that_cannot_start_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let error = embed_with(config(directory.path()), refuse).unwrap_err();
    assert!(error.to_string().contains("there is none"), "{error}");
}

/// A daemon on its socket, on this test's runtime.
struct Daemon {
    directory: tempfile::TempDir,
    stop: mpsc::Sender<()>,
    tasks: tokio::task::JoinSet<Result<(), crate::ServeError>>,
}

impl Daemon {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (stop, stopped) = mpsc::channel(2);
        let config = config(directory.path());
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(crate::server::serve_with(
            config,
            None,
            ReceiverStream::new(stopped),
            engine::start,
        ));
        Self {
            directory,
            stop,
            tasks,
        }
    }

    async fn channel(&self) -> Channel {
        let path = self.directory.path().join("run/daemon.sock");
        let connect = move |_| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        };
        let endpoint = Endpoint::from_static("http://on.socket");
        in_time(async {
            loop {
                let connect = tower::service_fn(connect.clone());
                if let Ok(channel) = endpoint.connect_with_connector(connect).await {
                    return channel;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }
}

#[tokio::test]
async fn the_socket_serves_its_own_user_and_ends_cleanly() {
    let mut daemon = Daemon::new();
    let channel = daemon.channel().await;
    let session = Session::open(channel.clone()).await;
    let process_id = session
        .start("run")
        .await
        .unwrap()
        .process
        .unwrap()
        .process_id;
    let mut health = HealthClient::new(channel.clone());
    let request = HealthCheckRequest::default();
    let mut watch = health.watch(request).await.unwrap().into_inner();
    let next = in_time(watch.message()).await.unwrap().unwrap();
    assert_eq!(next.status(), ServingStatus::Serving);
    let open = v1::stream_output_request::Message::Open(v1::StreamOutputOpen {
        process_id,
        ..Default::default()
    });
    let open = v1::StreamOutputRequest {
        message: Some(open),
    };
    let request = session.request(tokio_stream::iter([open]));
    let mut output = session
        .processes()
        .stream_output(request)
        .await
        .unwrap()
        .into_inner();
    daemon.stop.send(()).await.unwrap();
    let next = in_time(watch.message()).await.unwrap().unwrap();
    assert_eq!(next.status(), ServingStatus::NotServing);
    let last = in_time(async {
        let mut last = None;
        while let Some(message) = output.message().await.unwrap() {
            last = Some(message);
        }
        last.unwrap()
    })
    .await;
    assert!(last.output_ended, "a stream sees how its process ends");
    in_time(daemon.tasks.join_next())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let socket = daemon.directory.path().join("run/daemon.sock");
    assert!(std::fs::symlink_metadata(socket).is_err());
}

#[tokio::test]
async fn a_second_daemon_on_the_same_socket_says_that_one_is_running() {
    let daemon = Daemon::new();
    let channel = daemon.channel().await;
    let mut second = config(tempfile::tempdir().unwrap().path());
    second.socket = daemon.directory.path().join("run/daemon.sock");
    let never = tokio_stream::pending();
    let error = crate::server::serve_with(second, None, never, engine::start)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("already running"), "{error}");
    Session::open(channel).await;
}

#[tokio::test]
async fn reflection_lists_the_services_in_both_versions() {
    use tonic_reflection::pb;
    let here = Here::new();
    let request = pb::v1::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(
            pb::v1::server_reflection_request::MessageRequest::ListServices(String::new()),
        ),
    };
    let mut client = pb::v1::server_reflection_client::ServerReflectionClient::new(here.channel());
    let answers = client
        .server_reflection_info(tokio_stream::iter([request]))
        .await
        .unwrap();
    let answer = answers.into_inner().message().await.unwrap().unwrap();
    let listed = format!("{answer:?}");
    for service in [
        "executor.v1.ProcessService",
        "executor.v1.SessionService",
        "grpc.health.v1.Health",
    ] {
        assert!(listed.contains(service), "{listed}");
    }
    let request = pb::v1alpha::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(
            pb::v1alpha::server_reflection_request::MessageRequest::ListServices(String::new()),
        ),
    };
    let mut client =
        pb::v1alpha::server_reflection_client::ServerReflectionClient::new(here.channel());
    client
        .server_reflection_info(tokio_stream::iter([request]))
        .await
        .unwrap();
}
