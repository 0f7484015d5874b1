//! The engine's end of the seam: a loop that takes requests, asks the engine,
//! and answers.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use executor_proto::id::Epoch;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use super::client::{Answer, Envelope, HostClient};
use super::message::{Descriptor, Reply, Request};
use crate::limits::Limits;
use crate::process::engine::{Engine, EngineConfig, Opened};
use crate::process::env::Account;
use crate::process::snapshot::StopMeans;
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
    /// This life of the engine.
    pub epoch: Epoch,
    /// How it stops trees.
    pub means: StopMeans,
    /// To wait for its end.
    pub task: HostTask,
}

/// Starts an engine on the current runtime.
#[must_use]
pub fn start(config: HostConfig) -> Running {
    let epoch = Epoch::random();
    let containment = Containment::probe(&ContainmentSettings {
        epoch,
        preferred: config.means,
        reaper: config.reaper,
        embedded: config.embedded,
    });
    let means = containment.means();
    tracing::info!(%epoch, ?means, "the process engine starts");
    let engine = Engine::new(EngineConfig {
        epoch,
        limits: config.limits,
        environment: config.environment,
        account: Account::current(),
        containment,
        grace: config.grace,
    });
    let (client, requests) = HostClient::channel();
    let tasks = TaskTracker::new();
    tasks.spawn(serve(engine, requests, config.grace));
    tasks.close();
    Running {
        client,
        epoch,
        means,
        task: HostTask { tasks },
    }
}

async fn serve(engine: Engine, mut requests: mpsc::Receiver<Envelope>, grace: Duration) {
    let leases = engine.clone();
    let mut leases = std::pin::pin!(async move { leases.watch_leases().await });
    let mut asked = Vec::new();
    let mut ending = std::pin::pin!(None);
    loop {
        let envelope = tokio::select! {
            envelope = requests.recv() => envelope,
            () = &mut leases => None,
            () = over(ending.as_mut()) => break,
        };
        match envelope {
            // What is asked while the engine ends is still answered: how
            // processes ended is what clients want to know then.
            Some(Envelope {
                request: Request::Shutdown { grace },
                reply,
                ..
            }) => {
                asked.push(reply);
                if ending.is_none() {
                    ending.set(Some(engine.shut_down(grace)));
                } else if grace.is_zero() {
                    engine.hurry();
                }
            }
            Some(envelope) => {
                let asked = engine.clone();
                engine.tasks().spawn(answer(asked, envelope));
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
    requests.close();
    while let Some(envelope) = requests.recv().await {
        engine.tasks().spawn(answer(engine.clone(), envelope));
    }
    for reply in asked {
        // Whoever asked may be gone.
        let _ = reply.send(Ok((Reply::Done, Vec::new())));
    }
    engine.tasks().close();
    engine.tasks().wait().await;
}

/// The end of the shutdown, once there is one.
async fn over<F: Future<Output = ()>>(ending: Pin<&mut Option<F>>) {
    match ending.as_pin_mut() {
        Some(ending) => ending.await,
        None => std::future::pending().await,
    }
}

async fn answer(engine: Engine, envelope: Envelope) {
    let Envelope {
        request,
        descriptors,
        mut reply,
    } = envelope;
    let answer = tokio::select! {
        biased;
        answer = handle(&engine, request, descriptors) => answer,
        // Nobody waits any more. What has an effect goes on in its own task.
        () = reply.closed() => return,
    };
    let _ = reply.send(answer);
}

async fn handle(engine: &Engine, request: Request, descriptors: Vec<Descriptor>) -> Answer {
    let done = |()| (Reply::Done, Vec::new());
    match request {
        Request::OpenSession(record) => {
            let (opened, created) = engine.open_session(record, directories(descriptors))?;
            Ok(session(engine, opened, created))
        }
        Request::GetSession(id) => Ok(session(engine, engine.get_session(id)?, false)),
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
        Request::Shutdown { .. } => Ok(done(())),
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
