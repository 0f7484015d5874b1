//! A process engine that runs nothing: enough of one to see what the server
//! makes of its answers. A command's text says how it behaves:
//!
//! - `say TEXT`: prints TEXT and exits with 0
//! - `leave TEXT`: prints TEXT, exits with 0, and something keeps its output open
//! - anything else: runs until it is stopped, and then prints `bye`

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use executor_proto::id::{Epoch, ProcessId, SessionId};
use tokio::sync::{Notify, watch};
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::host::client::tests::Envelope;
use crate::host::client::{Answer, HostClient, Life};
use crate::host::message::{Descriptor, Reply, Request, Target};
use crate::process::error::ProcessError;
use crate::process::exit::{Cause, Exit, State, Usage, WaitStatus};
use crate::process::log::{Geometry, LogStore, LogWriter, Stream};
use crate::process::snapshot::{Snapshot, StopMeans};
use crate::process::spec::{Command, SpecDigest, StartSpec};
use crate::server::engine::Engine;
use crate::session::record::{SessionCounts, SessionRecord};

struct Process {
    session: SessionId,
    digest: SpecDigest,
    snapshot: Snapshot,
    log: Option<LogWriter>,
    ended: watch::Sender<bool>,
}

#[derive(Default)]
struct Known {
    sessions: HashMap<SessionId, (SessionRecord, Vec<Arc<OwnedFd>>)>,
    over: Vec<SessionId>,
    processes: HashMap<ProcessId, Process>,
    contacts: usize,
    readers: Vec<String>,
}

struct Fake {
    epoch: Epoch,
    logs: LogStore,
    state: Mutex<Known>,
}

pub(super) use crate::server::engine::Starting;

pub(super) fn start(_: &Config) -> Starting<'_> {
    Box::pin(async { Ok(play()) })
}

fn play() -> Engine {
    let epoch = Epoch::random();
    let (client, mut requests) = HostClient::played(Life {
        epoch,
        means: StopMeans::BestEffort,
    });
    let fake = Arc::new(Fake {
        epoch,
        logs: LogStore::new(Geometry::PRODUCTION, 64 << 20),
        state: Mutex::default(),
    });
    let tasks = TaskTracker::new();
    let all = tasks.clone();
    tasks.spawn(async move {
        while let Some(envelope) = requests.recv().await {
            let Envelope {
                request,
                descriptors,
                reply,
            } = envelope;
            let last = matches!(request, Request::Shutdown { .. });
            let fake = Arc::clone(&fake);
            all.spawn(async move {
                let _ = reply.send(fake.answer(request, descriptors).await);
            });
            if last {
                break;
            }
        }
    });
    tasks.close();
    Engine {
        client,
        notices: None,
        finished: Box::pin(async move { tasks.wait().await }),
    }
}

impl Fake {
    async fn answer(&self, request: Request, descriptors: Vec<Descriptor>) -> Answer {
        let directories = descriptors.into_iter().filter_map(|one| match one {
            Descriptor::Directory(handle) => Some(handle),
            Descriptor::Log(_) => None,
        });
        let done = Ok((Reply::Done, Vec::new()));
        match request {
            Request::OpenSession(record) => {
                let id = record.id;
                let entry = (record, directories.collect());
                self.state.lock().unwrap().sessions.insert(id, entry);
                self.session(id, true)
            }
            Request::GrantRoot { session, root } => {
                if let Some((record, handles)) =
                    self.state.lock().unwrap().sessions.get_mut(&session)
                {
                    record.roots.push(root);
                    handles.extend(directories);
                }
                self.session(session, true)
            }
            Request::GetSession(id) => self.session(id, false),
            Request::Contact(id) => {
                self.state.lock().unwrap().contacts += 1;
                self.session(id, false).map(|_| (Reply::Done, Vec::new()))
            }
            Request::EndSession { session, .. } => {
                self.session(session, false)?;
                let mut state = self.state.lock().unwrap();
                state.sessions.remove(&session);
                state.over.push(session);
                let reply = Reply::SessionEnded {
                    ended: 0,
                    survivors: Vec::new(),
                };
                Ok((reply, Vec::new()))
            }
            Request::Start { session, spec, .. } => self.run(session, *spec, directories.count()),
            Request::Get { target, wait } => {
                self.wait(target, wait).await?;
                let snapshot = self.find(target, |process| process.snapshot.clone())?;
                Ok((Reply::Process(Box::new(snapshot)), Vec::new()))
            }
            Request::List { session } => {
                let state = self.state.lock().unwrap();
                let of = |process: &&Process| session.is_none_or(|id| process.session == id);
                let all = state.processes.values().filter(of);
                Ok((
                    Reply::Processes(all.map(|one| one.snapshot.clone()).collect()),
                    Vec::new(),
                ))
            }
            Request::OpenLog(target) => {
                let log = self.find(target, |process| process.log.as_ref().unwrap().reader())?;
                Ok((Reply::Done, vec![Descriptor::Log(log)]))
            }
            Request::AttachReader { reader, .. } => {
                self.state
                    .lock()
                    .unwrap()
                    .readers
                    .push(format!("attach {reader}"));
                done
            }
            Request::Consumed { reader, offset, .. } => {
                let line = format!("consumed {reader} {offset}");
                self.state.lock().unwrap().readers.push(line);
                done
            }
            Request::DetachReader { reader, .. } => {
                self.state
                    .lock()
                    .unwrap()
                    .readers
                    .push(format!("detach {reader}"));
                done
            }
            Request::Stop { target, by, .. } => {
                self.finish(target, Cause::Stopped { by }, "bye")?;
                let process = Box::new(self.find(target, |process| process.snapshot.clone())?);
                let reply = Reply::Stopped {
                    process,
                    means: StopMeans::BestEffort,
                    signalled: 1,
                    survivors: Vec::new(),
                    already_ended: false,
                };
                Ok((reply, Vec::new()))
            }
            // A way for a test to see what the engine was told.
            Request::WriteStdin { .. } => {
                let state = self.state.lock().unwrap();
                let told = state.readers.join(", ");
                Err(ProcessError::MissingDescriptor(told.into()))
            }
            Request::Remove(target) => {
                let mut state = self.state.lock().unwrap();
                state.processes.remove(&target.process);
                done
            }
            Request::Shutdown { .. } => {
                let ids: Vec<_> = self
                    .state
                    .lock()
                    .unwrap()
                    .processes
                    .keys()
                    .copied()
                    .collect();
                for process in ids {
                    let target = Target {
                        session: None,
                        process,
                    };
                    self.finish(target, Cause::HostShutdown, "bye")?;
                }
                done
            }
            other => panic!("not expected: {other:?}"),
        }
    }

    fn session(&self, id: SessionId, created: bool) -> Answer {
        let state = self.state.lock().unwrap();
        if state.over.contains(&id) {
            return Err(ProcessError::SessionEnded(id));
        }
        let (record, directories) = state
            .sessions
            .get(&id)
            .ok_or(ProcessError::SessionNotFound(id))?;
        let reply = Reply::Session {
            record: record.clone(),
            epoch: self.epoch,
            counts: SessionCounts {
                running: 0,
                kept: state.processes.len(),
            },
            created,
        };
        Ok((
            reply,
            directories
                .iter()
                .cloned()
                .map(Descriptor::Directory)
                .collect(),
        ))
    }

    fn run(&self, session: SessionId, spec: StartSpec, directories: usize) -> Answer {
        let target = Target {
            session: Some(session),
            process: spec.id,
        };
        let created = !self.state.lock().unwrap().processes.contains_key(&spec.id);
        if created {
            if directories != 1 {
                return Err(ProcessError::MissingDescriptor(spec.cwd));
            }
            let (mut log, _) = self.logs.create(Arc::new(Notify::new())).unwrap();
            let Command::Shell { text, .. } = &spec.command else {
                panic!("a text")
            };
            let text = text.to_str().unwrap().to_owned();
            let (verb, rest) = text.split_once(' ').unwrap_or((&text, ""));
            log.append(rest.as_bytes(), Stream::Stdout);
            let process = Process {
                session,
                digest: spec.digest,
                snapshot: snapshot(session, &spec),
                log: Some(log),
                ended: watch::Sender::new(false),
            };
            self.state
                .lock()
                .unwrap()
                .processes
                .insert(spec.id, process);
            if verb == "say" || verb == "leave" {
                self.exit(target, Cause::Exited, verb == "say")?;
            }
        }
        self.find(target, |process| {
            if process.digest != spec.digest {
                return Err(ProcessError::IdConflict(spec.id));
            }
            let log = process.log.as_ref().unwrap().reader();
            let snapshot = Box::new(process.snapshot.clone());
            Ok((
                Reply::Started {
                    process: snapshot,
                    created,
                },
                vec![Descriptor::Log(log)],
            ))
        })?
    }

    fn find<T>(
        &self,
        target: Target,
        look: impl FnOnce(&mut Process) -> T,
    ) -> Result<T, ProcessError> {
        let mut state = self.state.lock().unwrap();
        state
            .processes
            .get_mut(&target.process)
            .filter(|one| target.session.is_none_or(|session| one.session == session))
            .map(look)
            .ok_or(ProcessError::NotFound(target.process))
    }

    fn finish(&self, target: Target, cause: Cause, word: &str) -> Result<(), ProcessError> {
        let over = self.find(target, |process| {
            let over = process.snapshot.output_ended;
            if !over {
                process
                    .log
                    .as_mut()
                    .unwrap()
                    .append(word.as_bytes(), Stream::Stdout);
            }
            over
        })?;
        if over {
            Ok(())
        } else {
            self.exit(target, cause, true)
        }
    }

    fn exit(&self, target: Target, cause: Cause, ends: bool) -> Result<(), ProcessError> {
        self.find(target, |process| {
            let log = process.log.as_mut().unwrap();
            if process.snapshot.exit.is_none() {
                process.snapshot.state = State::Exited;
                process.snapshot.exit = Some(Exit {
                    status: Some(WaitStatus::Code(0)),
                    cause,
                    forced: false,
                    ended_at: SystemTime::now(),
                    usage: Usage::default(),
                    residue: Vec::new(),
                    output_end: log.end(),
                });
                log.publish_exit();
            }
            process.snapshot.output_end = log.end();
            if ends {
                log.publish_end();
                process.snapshot.output_ended = true;
            }
            process.ended.send_replace(true);
        })
    }

    async fn wait(&self, target: Target, wait: Duration) -> Result<(), ProcessError> {
        let mut ended = self.find(target, |process| process.ended.subscribe())?;
        let _ = tokio::time::timeout(wait, ended.wait_for(|ended| *ended)).await;
        Ok(())
    }
}

fn snapshot(session: SessionId, spec: &StartSpec) -> Snapshot {
    Snapshot {
        id: spec.id,
        session,
        label: spec.label.clone(),
        cwd: spec.cwd.clone(),
        state: State::Running,
        exit: None,
        pid: Some(1),
        created_at: spec.created_at,
        started_at: Some(SystemTime::now()),
        terminal: None,
        output_end: 0,
        output_dropped: 0,
        output_ended: false,
        held_open_by: Vec::new(),
        stdin_writers: Vec::new(),
        stdin_open: false,
        means: StopMeans::BestEffort,
        usage: Usage::default(),
    }
}
