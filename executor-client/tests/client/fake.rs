//! A machine of one process, reached over streams that can be cut.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use executor_client::id::Epoch;
use executor_client::{Machine, Process, Reason, Session, SessionOptions, v1};
use executor_proto::reason::Failure;
use executor_proto::v1::file_service_server::FileServiceServer;
use executor_proto::v1::process_service_server::{ProcessService, ProcessServiceServer};
use executor_proto::v1::session_service_server::{SessionService, SessionServiceServer};
use executor_proto::v1::stream_output_request::Message;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status, Streaming};

pub(crate) type Answer<T> = Result<Response<T>, Status>;

/// What the machine does and what was done to it.
#[derive(Default)]
pub(crate) struct State {
    /// All that the process prints.
    pub(crate) output: Vec<u8>,
    /// Bytes up to here are no longer retained.
    pub(crate) dropped: u64,
    /// Where the process itself stopped printing.
    pub(crate) exit_at: u64,
    /// Bytes a page.
    pub(crate) page: usize,
    /// Ids of executed starts, and how often a start was asked for.
    pub(crate) started: Mutex<Vec<String>>,
    pub(crate) start_calls: AtomicUsize,
    /// Refuses every start for this reason.
    pub(crate) refuse_starts: Option<Reason>,
    pub(crate) signals: AtomicUsize,
    pub(crate) stops: AtomicUsize,
    /// The next call is carried out, and its connection cut before the answer.
    pub(crate) lose_next_answer: AtomicBool,
    /// Input as it arrived.
    pub(crate) stdin: Mutex<Vec<u8>>,
    pub(crate) stdin_calls: AtomicUsize,
    pub(crate) stdin_closed: AtomicBool,
    /// Answers to writes wait for a permit, where this is set.
    pub(crate) hold_writes: Option<Semaphore>,
    /// What the test's reader has taken; acknowledgements may not pass it.
    pub(crate) taken: AtomicUsize,
    pub(crate) acknowledged: AtomicUsize,
    pub(crate) reader_ids: Mutex<Vec<String>>,
    pub(crate) keep_alives: AtomicUsize,
    /// Changes to files with their ids, how often one was asked for, and what
    /// version the file has.
    pub(crate) changes: Mutex<Vec<String>>,
    pub(crate) change_calls: AtomicUsize,
    pub(crate) version: Mutex<String>,
    /// Nobody can connect.
    pub(crate) unreachable: AtomicBool,
    pub(crate) connections: Mutex<JoinSet<()>>,
}

impl State {
    /// Ends every connection there is.
    pub(crate) fn cut(&self) {
        self.connections.lock().unwrap().abort_all();
    }

    pub(crate) async fn maybe_lose_answer(&self) {
        if self.lose_next_answer.swap(false, Ordering::SeqCst) {
            self.cut();
            std::future::pending::<()>().await;
        }
    }

    fn process(&self, id: &str) -> v1::Process {
        v1::Process {
            process_id: id.to_owned(),
            state: v1::ProcessState::Running.into(),
            ..Default::default()
        }
    }
}

/// A machine with that state. Each connection ends after the next of
/// `budgets` bytes from either side; after the last one connections live on.
pub(crate) fn machine(state: State, budgets: Vec<usize>) -> (Machine, Arc<State>) {
    let state = Arc::new(state);
    let (streams, incoming) = mpsc::channel::<Result<DuplexStream, std::io::Error>>(4);
    let service = Fake(Arc::clone(&state));
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        tonic::transport::Server::builder()
            .add_service(FileServiceServer::new(service.clone()))
            .add_service(ProcessServiceServer::new(service.clone()))
            .add_service(SessionServiceServer::new(service))
            .serve_with_incoming(ReceiverStream::new(incoming))
            .await
            .unwrap();
    });
    let serving = Arc::new(serving);
    let connections = Arc::clone(&state);
    let budgets = Mutex::new(budgets.into_iter());
    let machine = Machine::from_connector(move || {
        if connections.unreachable.load(Ordering::SeqCst) {
            return refused();
        }
        // The server lives as long as the machine.
        let _serving = Arc::clone(&serving);
        let (ours, near) = tokio::io::duplex(1 << 16);
        let (far, theirs) = tokio::io::duplex(1 << 16);
        let budget = budgets.lock().unwrap().next();
        let budget = budget.unwrap_or(usize::MAX);
        connections
            .connections
            .lock()
            .unwrap()
            .spawn(carry(near, far, budget));
        let streams = streams.clone();
        let connecting: Connecting = Box::pin(async move {
            streams.send(Ok(theirs)).await.unwrap();
            Ok(ours)
        });
        connecting
    });
    (machine, state)
}

type Connecting = Pin<Box<dyn Future<Output = std::io::Result<DuplexStream>> + Send>>;

fn refused() -> Connecting {
    Box::pin(std::future::ready(Err(
        std::io::ErrorKind::ConnectionRefused.into(),
    )))
}

/// Carries bytes both ways until the budget is used up or a side ends.
async fn carry(near: DuplexStream, far: DuplexStream, mut budget: usize) {
    let (mut near_read, mut near_write) = tokio::io::split(near);
    let (mut far_read, mut far_write) = tokio::io::split(far);
    let (mut up, mut down) = ([0u8; 4096], [0u8; 4096]);
    while budget > 0 {
        let written = tokio::select! {
            n = near_read.read(&mut up) => {
                let n = n.unwrap().min(budget);
                far_write.write_all(&up[..n]).await.map(|()| n)
            }
            n = far_read.read(&mut down) => {
                let n = n.unwrap().min(budget);
                near_write.write_all(&down[..n]).await.map(|()| n)
            }
        };
        match written {
            Ok(0) | Err(_) => return,
            Ok(n) => budget -= n,
        }
    }
}

/// A session on such a machine, and a handle on its process.
pub(crate) async fn process(state: State, budgets: Vec<usize>) -> (Process, Arc<State>) {
    let (session, state) = session(state, budgets).await;
    (
        session.process(executor_client::id::ProcessId::random()),
        state,
    )
}

pub(crate) async fn session(state: State, budgets: Vec<usize>) -> (Session, Arc<State>) {
    let (machine, state) = machine(state, budgets);
    let session = machine
        .open_session(SessionOptions {
            lease: executor_client::Lease::After(std::time::Duration::from_millis(60)),
            ..Default::default()
        })
        .await
        .unwrap();
    (session, state)
}

#[derive(Clone)]
pub(crate) struct Fake(pub(crate) Arc<State>);

#[tonic::async_trait]
impl SessionService for Fake {
    async fn open_session(
        &self,
        request: Request<v1::OpenSessionRequest>,
    ) -> Answer<v1::OpenSessionResponse> {
        assert!(request.metadata().get("executor-secret").unwrap().len() == 64);
        let request = request.into_inner();
        Ok(Response::new(v1::OpenSessionResponse {
            session: Some(v1::Session {
                session_id: request.session_id,
                epoch: Epoch::random().to_string(),
                lease: request.lease,
                ..Default::default()
            }),
            created: true,
        }))
    }

    async fn get_session(
        &self,
        _: Request<v1::GetSessionRequest>,
    ) -> Answer<v1::GetSessionResponse> {
        Err(Status::unimplemented("not here"))
    }

    async fn keep_alive(&self, _: Request<v1::KeepAliveRequest>) -> Answer<v1::KeepAliveResponse> {
        self.0.keep_alives.fetch_add(1, Ordering::SeqCst);
        Ok(Response::new(v1::KeepAliveResponse {}))
    }

    async fn grant_root(
        &self,
        request: Request<v1::GrantRootRequest>,
    ) -> Answer<v1::GrantRootResponse> {
        assert!(request.get_ref().root.is_some());
        self.0.maybe_lose_answer().await;
        Ok(Response::new(v1::GrantRootResponse::default()))
    }

    async fn end_session(
        &self,
        _: Request<v1::EndSessionRequest>,
    ) -> Answer<v1::EndSessionResponse> {
        Err(Status::unimplemented("not here"))
    }
}

#[tonic::async_trait]
impl ProcessService for Fake {
    async fn start_process(
        &self,
        request: Request<v1::StartProcessRequest>,
    ) -> Answer<v1::StartProcessResponse> {
        for key in ["executor-session", "executor-secret", "executor-epoch"] {
            assert!(request.metadata().contains_key(key), "{key}");
        }
        let request = request.into_inner();
        assert!(request.created_at.is_some());
        self.0.start_calls.fetch_add(1, Ordering::SeqCst);
        if let Some(reason) = self.0.refuse_starts {
            return Err(Failure::new(reason, "refused").into());
        }
        let created = {
            let mut started = self.0.started.lock().unwrap();
            let new = !started.contains(&request.process_id);
            if new {
                started.push(request.process_id.clone());
            }
            new
        };
        self.0.maybe_lose_answer().await;
        Ok(Response::new(v1::StartProcessResponse {
            process: Some(self.0.process(&request.process_id)),
            output: None,
            created,
        }))
    }

    async fn get_process(
        &self,
        _: Request<v1::GetProcessRequest>,
    ) -> Answer<v1::GetProcessResponse> {
        Err(Status::unimplemented("not here"))
    }

    async fn list_processes(
        &self,
        _: Request<v1::ListProcessesRequest>,
    ) -> Answer<v1::ListProcessesResponse> {
        Err(Status::unimplemented("not here"))
    }

    async fn read_output(
        &self,
        _: Request<v1::ReadOutputRequest>,
    ) -> Answer<v1::ReadOutputResponse> {
        Err(Status::unimplemented("not here"))
    }

    type StreamOutputStream =
        Pin<Box<dyn Stream<Item = Result<v1::StreamOutputResponse, Status>> + Send>>;

    async fn stream_output(
        &self,
        request: Request<Streaming<v1::StreamOutputRequest>>,
    ) -> Answer<Self::StreamOutputStream> {
        let mut requests = request.into_inner();
        let Some(Message::Open(open)) = requests.message().await?.unwrap().message else {
            return Err(Status::invalid_argument("open first"));
        };
        self.0.reader_ids.lock().unwrap().push(open.reader_id);
        let state = Arc::clone(&self.0);
        let (pages, stream) = mpsc::channel(1);
        let mut tasks = JoinSet::new();
        let watching = Arc::clone(&state);
        tasks.spawn(async move {
            while let Ok(Some(request)) = requests.message().await {
                let Some(Message::Consumed(offset)) = request.message else {
                    continue;
                };
                let offset = usize::try_from(offset).unwrap();
                assert!(offset <= watching.taken.load(Ordering::SeqCst));
                watching.acknowledged.fetch_max(offset, Ordering::SeqCst);
            }
        });
        tasks.spawn(async move {
            for message in messages(&state, open.cursor) {
                if pages.send(Ok(message)).await.is_err() {
                    return;
                }
            }
            // The client ends the stream after the last message.
            pages.closed().await;
        });
        let stream = ReceiverStream::new(stream).map(move |message| {
            let _alive = &tasks;
            message
        });
        Ok(Response::new(Box::pin(stream)))
    }

    async fn write_stdin(
        &self,
        request: Request<v1::WriteStdinRequest>,
    ) -> Answer<v1::WriteStdinResponse> {
        let request = request.into_inner();
        let state = &self.0;
        state.stdin_calls.fetch_add(1, Ordering::SeqCst);
        let offset = {
            let mut stdin = state.stdin.lock().unwrap();
            let accepted = stdin.len();
            let begin = usize::try_from(request.offset).unwrap();
            if begin > accepted {
                return Err(Failure::new(Reason::StdinOffsetGap, "a hole").into());
            }
            // A repeat is either the last write as it was or nothing new.
            if begin == accepted {
                stdin.extend_from_slice(&request.data);
            } else {
                assert!(begin + request.data.len() <= accepted);
            }
            if request.close {
                state.stdin_closed.store(true, Ordering::SeqCst);
            }
            stdin.len() as u64
        };
        state.maybe_lose_answer().await;
        if let Some(hold) = &state.hold_writes {
            hold.acquire().await.unwrap().forget();
        }
        Ok(Response::new(v1::WriteStdinResponse {
            offset,
            queued_bytes: 0,
            closed: request.close,
        }))
    }

    async fn resize_terminal(
        &self,
        _: Request<v1::ResizeTerminalRequest>,
    ) -> Answer<v1::ResizeTerminalResponse> {
        Err(Status::unimplemented("not here"))
    }

    async fn signal_process(
        &self,
        request: Request<v1::SignalProcessRequest>,
    ) -> Answer<v1::SignalProcessResponse> {
        self.0.signals.fetch_add(1, Ordering::SeqCst);
        self.0.maybe_lose_answer().await;
        Ok(Response::new(v1::SignalProcessResponse {
            process: Some(self.0.process(&request.into_inner().process_id)),
            delivered: true,
        }))
    }

    async fn stop_process(
        &self,
        request: Request<v1::StopProcessRequest>,
    ) -> Answer<v1::StopProcessResponse> {
        self.0.stops.fetch_add(1, Ordering::SeqCst);
        self.0.maybe_lose_answer().await;
        Ok(Response::new(v1::StopProcessResponse {
            process: Some(self.0.process(&request.into_inner().process_id)),
            ..Default::default()
        }))
    }

    async fn remove_process(
        &self,
        _: Request<v1::RemoveProcessRequest>,
    ) -> Answer<v1::RemoveProcessResponse> {
        Err(Status::unimplemented("not here"))
    }
}

/// All that a stream from `cursor` says.
fn messages(state: &State, cursor: u64) -> Vec<v1::StreamOutputResponse> {
    let mut messages = Vec::new();
    let total = state.output.len() as u64;
    let mut at = cursor;
    let mut exit = Some(v1::Exit {
        code: Some(0),
        cause: v1::ExitCause::Exited.into(),
        output_end: state.exit_at,
        ..Default::default()
    });
    loop {
        if at >= state.exit_at && exit.is_some() {
            messages.push(v1::StreamOutputResponse {
                exit: exit.take(),
                ..Default::default()
            });
        }
        if at == total {
            break;
        }
        let gap = (at < state.dropped).then_some(v1::OutputGap {
            from: at,
            to: state.dropped,
            newlines: None,
        });
        let start = at.max(state.dropped);
        let until = if start < state.exit_at {
            state.exit_at
        } else {
            total
        };
        let end = until.min(start + state.page as u64);
        let range = usize::try_from(start).unwrap()..usize::try_from(end).unwrap();
        messages.push(v1::StreamOutputResponse {
            page: Some(v1::OutputPage {
                gap,
                start,
                data: Bytes::copy_from_slice(&state.output[range]),
                next_cursor: end,
                runs: Vec::new(),
                end: total,
            }),
            ..Default::default()
        });
        at = end;
    }
    messages.push(v1::StreamOutputResponse {
        output_ended: true,
        ..Default::default()
    });
    messages
}
