//! `ProcessService`: starting, looking, output. [`super::input`] has the rest
//! of the bodies.

use std::sync::Arc;

use executor_proto::reason::Failure;
use executor_proto::v1;
use executor_proto::v1::process_service_server::ProcessService;
use tonic::{Extensions, Request, Response, Status, Streaming, metadata::MetadataMap};

use super::convert::check::id;
use super::convert::output::{CheckedOpen, CheckedRead, page as page_to_wire, wait};
use super::convert::process::process as process_to_wire;
use super::convert::start::CheckedStart;
use super::failure::{self, Call, unexpected};
use super::logs::log_of;
use super::output::{OutputStream, Pages};
use super::{Caller, Core};
use crate::host::message::{Descriptor, Reply, Request as Ask, Target};
use crate::process::error::ProcessError;
use crate::process::log::{Gap, LogReader, Page};
use crate::process::snapshot::Snapshot;
use crate::server::auth::Scope;

/// The service.
#[derive(Debug)]
pub(crate) struct Processes {
    pub(super) core: Arc<Core>,
}

impl Processes {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    pub(super) async fn caller(
        &self,
        metadata: &MetadataMap,
        extensions: &Extensions,
        call: Call,
    ) -> Result<Caller, Failure> {
        self.core
            .caller(metadata, extensions, Scope::Processes, call)
            .await
    }

    async fn start(
        &self,
        caller: &Caller,
        start: CheckedStart,
    ) -> Result<v1::StartProcessResponse, Failure> {
        let core = &self.core;
        let max_bytes = start.max_bytes;
        let (process, created, log) = self.started(caller, start).await?;
        if let Some(failure) = failure::out_of_resources(&process) {
            return Err(failure);
        }
        let target = Target {
            session: Some(caller.session.id()),
            process: process.id,
        };
        let page = first_page(log.as_ref(), max_bytes, process.output_end);
        if let Some(log) = log.filter(|_| !process.output_ended) {
            core.logs.keep(target, log);
        }
        Ok(v1::StartProcessResponse {
            process: Some(process_to_wire(process)),
            output: Some(page_to_wire(page)),
            created,
        })
    }

    async fn started(
        &self,
        caller: &Caller,
        start: CheckedStart,
    ) -> Result<(Snapshot, bool, Option<LogReader>), Failure> {
        let core = &self.core;
        let wait = start.wait;
        let session = caller.session.id();
        let directory = caller.session.directory(&start.directory).await;
        let (name, descriptors, refused) = match directory {
            Ok(directory) => (
                directory.name,
                vec![Descriptor::Directory(directory.handle)],
                None,
            ),
            // A start that is repeated finds its process although its
            // directory is gone by now; one that is new comes back as
            // `MissingDescriptor`, and nothing was done.
            Err(error) => {
                let given = start.directory.clone().into();
                (given, Vec::new(), Some(error))
            }
        };
        let ask = Ask::Start {
            session,
            spec: Box::new(start.into_spec(name)),
            wait,
        };
        let registry = &core.parts.registry;
        let epoch = caller.session.epoch();
        let asked = core.parts.engine.call_in(epoch, ask, descriptors);
        let answer = if wait.is_zero() {
            asked.await
        } else {
            registry.while_open(&caller.session, asked).await
        };
        match (answer, refused) {
            (Ok((Reply::Started { process, created }, descriptors)), _) => {
                Ok((*process, created, log_of(descriptors)))
            }
            (Ok(_), _) => Err(unexpected("start")),
            (Err(ProcessError::MissingDescriptor(_)), Some(error)) => {
                Err(failure::working_directory(&error))
            }
            (Err(error), _) => {
                registry.forget_if_over(session, &error);
                Err(core.refusal(&error, Call::Start))
            }
        }
    }

    async fn open_stream(
        &self,
        caller: Caller,
        open: CheckedOpen,
        inbound: Streaming<v1::StreamOutputRequest>,
    ) -> Result<OutputStream, Failure> {
        let core = &self.core;
        let target = caller.target(open.process, open.all_sessions)?;
        let log = core.log(&caller, target).await?;
        // A cursor that cannot be read is refused before a reader is attached.
        let status = log.status().map_err(failure::read)?;
        if open.cursor > status.end {
            return Err(failure::read(crate::process::log::ReadError::Ahead {
                end: status.end,
            }));
        }
        let reader = match open.reader {
            Some(reader) => Some(
                core.attach(&caller, target, reader, open.cursor, inbound)
                    .await?,
            ),
            // What a plain reader acknowledges counts for nothing; its half of
            // the call may end or not.
            None => None,
        };
        let pages = Pages::new(Arc::clone(core), caller, target, log, open.cursor, reader);
        Ok(OutputStream::new(pages))
    }
}

/// The beginning of the output. A log that was given back in between is told
/// as a gap: a cursor never lies. One that could not be opened, for want of a
/// descriptor, says nothing yet.
fn first_page(log: Option<&LogReader>, max: usize, end: u64) -> Page {
    let Some(log) = log else {
        return Page {
            gap: None,
            start: 0,
            data: bytes::Bytes::new(),
            runs: Vec::new(),
            end,
        };
    };
    log.page(0, max).unwrap_or_else(|_| Page {
        gap: (end > 0).then_some(Gap {
            from: 0,
            to: end,
            newlines: None,
        }),
        start: end,
        data: bytes::Bytes::new(),
        runs: Vec::new(),
        end,
    })
}

#[tonic::async_trait]
impl ProcessService for Processes {
    type StreamOutputStream = OutputStream;

    async fn start_process(
        &self,
        request: Request<v1::StartProcessRequest>,
    ) -> Result<Response<v1::StartProcessResponse>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let caller = self.caller(&metadata, &extensions, Call::Start).await?;
        self.core.accepting()?;
        let start = CheckedStart::new(message, &self.core.parts.limits)?;
        Ok(Response::new(self.start(&caller, start).await?))
    }

    async fn get_process(
        &self,
        request: Request<v1::GetProcessRequest>,
    ) -> Result<Response<v1::GetProcessResponse>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let caller = self.caller(&metadata, &extensions, Call::Other).await?;
        let process = id("process_id", &message.process_id)?;
        let target = caller.target(process, message.all_sessions)?;
        let wait = wait(message.wait, &self.core.parts.limits)?;
        let get = Ask::Get { target, wait };
        match self.core.ask_waiting(&caller, get, wait).await? {
            (Reply::Process(snapshot), _) => Ok(Response::new(v1::GetProcessResponse {
                process: Some(process_to_wire(*snapshot)),
            })),
            _ => Err(unexpected("process").into()),
        }
    }

    async fn list_processes(
        &self,
        request: Request<v1::ListProcessesRequest>,
    ) -> Result<Response<v1::ListProcessesResponse>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let caller = self.caller(&metadata, &extensions, Call::Other).await?;
        if message.all_sessions {
            caller.principal.require(Scope::Admin)?;
        }
        let list = Ask::List {
            session: (!message.all_sessions).then(|| caller.session.id()),
        };
        match self.core.ask(&caller, list, Vec::new()).await? {
            (Reply::Processes(all), _) => Ok(Response::new(v1::ListProcessesResponse {
                processes: all.into_iter().map(process_to_wire).collect(),
            })),
            _ => Err(unexpected("list").into()),
        }
    }

    async fn read_output(
        &self,
        request: Request<v1::ReadOutputRequest>,
    ) -> Result<Response<v1::ReadOutputResponse>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let caller = self.caller(&metadata, &extensions, Call::Other).await?;
        let read = CheckedRead::new(&message, &self.core.parts.limits)?;
        let target = caller.target(read.process, read.all_sessions)?;
        let page = self.core.read_output(&caller, target, &read).await?;
        Ok(Response::new(page))
    }

    async fn stream_output(
        &self,
        request: Request<Streaming<v1::StreamOutputRequest>>,
    ) -> Result<Response<OutputStream>, Status> {
        let (metadata, extensions, mut inbound) = request.into_parts();
        let caller = self.caller(&metadata, &extensions, Call::Other).await?;
        let open = CheckedOpen::new(inbound.message().await?)?;
        let stream = self.open_stream(caller, open, inbound).await?;
        Ok(Response::new(stream))
    }

    async fn write_stdin(
        &self,
        request: Request<v1::WriteStdinRequest>,
    ) -> Result<Response<v1::WriteStdinResponse>, Status> {
        self.write(request).await
    }

    async fn resize_terminal(
        &self,
        request: Request<v1::ResizeTerminalRequest>,
    ) -> Result<Response<v1::ResizeTerminalResponse>, Status> {
        self.resize(request).await
    }

    async fn signal_process(
        &self,
        request: Request<v1::SignalProcessRequest>,
    ) -> Result<Response<v1::SignalProcessResponse>, Status> {
        self.signal(request).await
    }

    async fn stop_process(
        &self,
        request: Request<v1::StopProcessRequest>,
    ) -> Result<Response<v1::StopProcessResponse>, Status> {
        self.stop(request).await
    }

    async fn remove_process(
        &self,
        request: Request<v1::RemoveProcessRequest>,
    ) -> Result<Response<v1::RemoveProcessResponse>, Status> {
        self.remove(request).await
    }
}
