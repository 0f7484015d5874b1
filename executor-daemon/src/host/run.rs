//! The engine's end of the seam: what is asked for by message is done by the
//! engine, and its life is watched.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use executor_proto::id::Epoch;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use super::client::{Answer, HostClient, Life};
use super::message::{Descriptor, Reply, Request};
use crate::limits::Limits;
use crate::process::engine::{Engine, EngineConfig, Opened};
use crate::process::env::Account;
use crate::process::error::ProcessError;
use crate::process::tree::{Containment, ContainmentSettings, Preferred};

/// What an engine is started with.
#[derive(Debug)]
pub struct HostConfig {
    /// Its bounds.
    pub limits: Limits,
    /// The daemon's own environment, from which commands get theirs.
    pub environment: Vec<(Vec<u8>, Vec<u8>)>,
    /// How trees are to be stopped.
    pub means: Preferred,
    /// A program of ours with the hidden mode of a reaper; `None`: found by
    /// itself.
    pub reaper: Option<PathBuf>,
    /// It runs inside a program that is not ours.
    pub embedded: bool,
    /// Between SIGTERM and SIGKILL where no call says otherwise.
    pub grace: Duration,
}

/// The running engine. It ends when it was asked to ([`Request::Shutdown`]),
/// or when every [`HostClient`] is gone.
#[derive(Debug)]
pub struct HostTask {
    tasks: TaskTracker,
}

impl HostTask {
    pub(super) fn new(tasks: TaskTracker) -> Self {
        Self { tasks }
    }

    /// Waits until the engine has ended and nothing of it runs any more.
    pub async fn finished(self) {
        self.tasks.wait().await;
    }
}

/// An engine that has been started.
#[derive(Debug)]
pub struct Running {
    /// The daemon's end of the seam.
    pub client: HostClient,
    /// To wait for its end.
    pub task: HostTask,
}

/// Starts an engine in this process, on the current runtime.
#[must_use]
pub fn start(config: HostConfig) -> Running {
    let grace = config.grace;
    let (local, shutdowns) = Local::new(engine(config));
    let tasks = TaskTracker::new();
    tasks.spawn(live(local.engine.clone(), shutdowns, grace));
    tasks.close();
    Running {
        client: HostClient::local(local),
        task: HostTask::new(tasks),
    }
}

/// Makes an engine, in a new life.
pub(super) fn engine(config: HostConfig) -> Engine {
    let epoch = Epoch::random();
    let containment = Containment::probe(&ContainmentSettings {
        epoch,
        preferred: config.means,
        reaper: config.reaper.clone(),
        embedded: config.embedded,
    });
    tracing::info!(%epoch, means = ?containment.means(), "the process engine starts");
    Engine::new(engine_config(epoch, containment, config))
}

/// What an engine is made of.
pub(super) fn engine_config(
    epoch: Epoch,
    containment: Containment,
    config: HostConfig,
) -> EngineConfig {
    EngineConfig {
        epoch,
        limits: config.limits,
        environment: config.environment,
        account: Account::current(),
        containment,
        grace: config.grace,
    }
}

/// A request to end.
#[derive(Debug)]
pub(super) struct Shutdown {
    grace: Duration,
    over: oneshot::Sender<()>,
}

/// Requests to end that may wait to be heard.
const SHUTDOWNS: usize = 8;

/// The engine as it is asked from within its own process. Every call may be
/// dropped at any await: what has a lasting effect runs in a task of its own.
#[derive(Debug, Clone)]
pub(super) struct Local {
    pub(super) engine: Engine,
    shutdowns: mpsc::Sender<Shutdown>,
}

impl Local {
    pub(super) fn new(engine: Engine) -> (Self, mpsc::Receiver<Shutdown>) {
        let (shutdowns, receiver) = mpsc::channel(SHUTDOWNS);
        (Self { engine, shutdowns }, receiver)
    }

    pub(super) fn life(&self) -> Life {
        Life {
            epoch: self.engine.epoch(),
            means: self.engine.means(),
        }
    }

    pub(super) async fn call(&self, request: Request, descriptors: Vec<Descriptor>) -> Answer {
        let Request::Shutdown { grace } = request else {
            return Box::pin(handle(&self.engine, request, descriptors)).await;
        };
        let (over, is_over) = oneshot::channel();
        self.shutdowns
            .send(Shutdown { grace, over })
            .await
            .map_err(|_| ProcessError::EngineGone)?;
        is_over.await.map_err(|_| ProcessError::EngineGone)?;
        Ok((Reply::Done, Vec::new()))
    }
}

/// Watches leases, and ends the engine when somebody asks, or when nobody can
/// ask any more. What is asked while it ends is still answered: how processes
/// ended is what clients want to know then.
pub(super) async fn live(engine: Engine, mut shutdowns: mpsc::Receiver<Shutdown>, grace: Duration) {
    let leases = engine.clone();
    let mut leases = std::pin::pin!(async move { leases.watch_leases().await });
    let mut asked = Vec::new();
    let mut ending = std::pin::pin!(None);
    loop {
        let shutdown = tokio::select! {
            shutdown = shutdowns.recv() => shutdown,
            () = &mut leases => None,
            () = over(ending.as_mut()) => break,
        };
        match shutdown {
            Some(Shutdown { grace, over }) => {
                asked.push(over);
                if ending.is_none() {
                    ending.set(Some(engine.shut_down(grace)));
                } else if grace.is_zero() {
                    engine.hurry();
                }
            }
            None => {
                if ending.is_none() {
                    ending.set(Some(engine.shut_down(grace)));
                }
                over(ending.as_mut()).await;
                break;
            }
        }
    }
    shutdowns.close();
    while let Some(shutdown) = shutdowns.recv().await {
        asked.push(shutdown.over);
    }
    engine.finished().await;
    for over in asked {
        // Whoever asked may be gone.
        let _ = over.send(());
    }
}

/// The end of the shutdown, once there is one.
async fn over<F: Future<Output = ()>>(ending: Pin<&mut Option<F>>) {
    match ending.as_pin_mut() {
        Some(ending) => ending.await,
        None => std::future::pending().await,
    }
}

/// Asks the engine.
pub(super) async fn handle(
    engine: &Engine,
    request: Request,
    descriptors: Vec<Descriptor>,
) -> Answer {
    let done = |()| (Reply::Done, Vec::new());
    match request {
        Request::OpenSession(record) => {
            let (opened, created) = engine.open_session(record, directories(descriptors))?;
            Ok(session(engine, opened, created))
        }
        Request::GetSession(id) => Ok(session(engine, engine.get_session(id)?, false)),
        Request::GrantRoot { session: id, root } => {
            let directory = directories(descriptors).pop();
            let (opened, added) = engine.grant_root(id, root, directory)?;
            Ok(session(engine, opened, added))
        }
        Request::Contact(id) => engine.contact(id).map(done),
        Request::EndSession { session, grace } => {
            let ended = engine.end_session(session, grace).await?;
            let reply = Reply::SessionEnded {
                ended: ended.ended,
                survivors: ended.survivors,
            };
            Ok((reply, Vec::new()))
        }
        Request::Start {
            session,
            spec,
            wait,
        } => {
            let cwd = directories(descriptors).pop();
            let (process, created) = engine.start(session, spec, cwd, wait).await?;
            let reply = Reply::Started {
                process: Box::new(process.snapshot()),
                created,
            };
            Ok((reply, vec![Descriptor::Log(process.log.clone())]))
        }
        Request::Get { target, wait } => {
            let process = engine.get(target, wait).await?;
            Ok((Reply::Process(Box::new(process.snapshot())), Vec::new()))
        }
        Request::List { session } => {
            let processes = engine.list(session)?;
            let snapshots = processes.iter().map(|process| process.snapshot()).collect();
            Ok((Reply::Processes(snapshots), Vec::new()))
        }
        Request::OpenLog(target) => Ok((Reply::Done, vec![Descriptor::Log(engine.log(target)?)])),
        Request::AttachReader {
            target,
            reader,
            consumed,
        } => engine.attach_reader(target, &reader, consumed).map(done),
        Request::Consumed {
            target,
            reader,
            offset,
        } => engine.consumed(target, &reader, offset).map(done),
        Request::DetachReader { target, reader } => engine.detach_reader(target, &reader).map(done),
        Request::WriteStdin {
            target,
            write,
            wait,
        } => {
            let (offset, queued, closed) = engine.write_stdin(target, &write, wait).await?;
            Ok((
                Reply::StdinAccepted {
                    offset,
                    queued,
                    closed,
                },
                Vec::new(),
            ))
        }
        Request::Resize { target, size } => engine.resize(target, size).map(done),
        Request::Signal { target, signal, to } => {
            let (process, delivered) = engine.signal(target, signal, to)?;
            Ok((
                Reply::Signalled {
                    process: Box::new(process),
                    delivered,
                },
                Vec::new(),
            ))
        }
        Request::Stop { target, mode, by } => {
            let stopped = engine.stop(target, mode, by).await?;
            let reply = Reply::Stopped {
                means: stopped.process.means,
                process: Box::new(stopped.process),
                signalled: stopped.signalled,
                survivors: stopped.survivors,
                already_ended: stopped.already_ended,
            };
            Ok((reply, Vec::new()))
        }
        Request::Remove(target) => engine.remove(target).map(done),
        // Not the engine's to do: it is ended by whoever watches its life.
        Request::Shutdown { .. } => Err(ProcessError::ShuttingDown),
    }
}

fn session(engine: &Engine, opened: Opened, created: bool) -> (Reply, Vec<Descriptor>) {
    let (record, counts, directories) = opened;
    let reply = Reply::Session {
        record,
        epoch: engine.epoch(),
        counts,
        created,
    };
    (
        reply,
        directories.into_iter().map(Descriptor::Directory).collect(),
    )
}

fn directories(descriptors: Vec<Descriptor>) -> Vec<Arc<OwnedFd>> {
    descriptors
        .into_iter()
        .filter_map(|descriptor| match descriptor {
            Descriptor::Directory(directory) => Some(directory),
            Descriptor::Log(_) => None,
        })
        .collect()
}
