//! What the process host does with the frames of one daemon.
//!
//! A request that can be answered at once is, before the next frame is looked
//! at; one that waits gets a task. Each is answered once, or was cancelled, or
//! its daemon is gone.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::client;
use super::connection::{Connection, File, Flow};
use super::frame::{Frame, Kind, decode, encode};
use super::message::Descriptor;
use super::run::Local;
use super::wire::{AskedRequest, WireReply, WireSegment};
use crate::process::error::ProcessError;
use crate::process::log::LogReader;

/// See the module's documentation. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Answering {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    engine: Local,
    connection: Arc<Connection>,
    /// Std: held for one look-up or change.
    state: Mutex<State>,
    over: CancellationToken,
    /// Of requests that wait. The engine's own would not do: its end is waited
    /// for here.
    tasks: TaskTracker,
}

#[derive(Debug, Default)]
struct State {
    waiting: HashMap<u64, Waiting>,
    /// Segments whose memory this daemon has been given.
    met: HashSet<u64>,
}

/// A request that is not answered yet.
#[derive(Debug)]
struct Waiting {
    /// As it came, for whoever has to go on with it.
    body: Bytes,
    cancelled: CancellationToken,
}

impl Answering {
    pub(super) fn new(engine: Local, connection: Arc<Connection>) -> Self {
        Self {
            shared: Arc::new(Shared {
                engine,
                connection,
                state: Mutex::default(),
                over: CancellationToken::new(),
                tasks: TaskTracker::new(),
            }),
        }
    }

    /// Takes a frame of the daemon.
    pub(super) fn take(&self, frame: Frame) -> Flow {
        match frame.kind {
            Some(Kind::Request) => self.ask(frame),
            Some(Kind::Cancel) => {
                if let Some(waiting) = self.state().waiting.remove(&frame.id) {
                    waiting.cancelled.cancel();
                }
            }
            // Of a later release, or out of turn.
            Some(Kind::Hello | Kind::Welcome | Kind::Reply | Kind::Notice) | None => {}
        }
        Flow::More
    }

    /// Requests that are not answered, as they came, and the segments that the
    /// daemon has met: for whoever goes on with them. They are not answered here
    /// any more.
    pub(super) fn hand_over(&self) -> (Vec<(u64, Bytes)>, Vec<u64>) {
        self.shared.over.cancel();
        let mut state = self.state();
        let waiting = state.waiting.drain();
        let waiting = waiting.map(|(id, waiting)| (id, waiting.body)).collect();
        (waiting, state.met.iter().copied().collect())
    }

    /// Goes on with what an earlier image has handed over.
    pub(super) fn resume(&self, waiting: Vec<(u64, Bytes)>, met: Vec<u64>) {
        self.state().met = met.into_iter().collect();
        for (id, body) in waiting {
            // What came beside it was used when it began.
            self.take(Frame {
                kind: Some(Kind::Request),
                id,
                body,
                files: Ok(Vec::new()),
            });
        }
    }

    /// The daemon is gone: nobody waits any more.
    pub(super) fn abandon(&self) {
        self.shared.over.cancel();
        self.state().waiting.clear();
    }

    fn ask(&self, frame: Frame) {
        let Frame {
            id, body, files, ..
        } = frame;
        let Ok(asked) = decode::<AskedRequest>(&body) else {
            return self.reply(id, Err(ProcessError::NotUnderstood));
        };
        let Ok(files) = files else {
            let errno = libc::EMFILE;
            return self.reply(id, Err(ProcessError::OutOfResources { errno }));
        };
        for segment in &asked.missing {
            self.state().met.remove(segment);
        }
        let directories = files
            .into_iter()
            .map(|file| Descriptor::Directory(Arc::new(file)))
            .collect();
        let engine = self.shared.engine.clone();
        let mut answer =
            Box::pin(async move { engine.call(asked.request.bounded(), directories).await });
        // Whoever has to wait is woken by its own task below, which asks again.
        let mut nobody = Context::from_waker(Waker::noop());
        if let Poll::Ready(answer) = answer.as_mut().poll(&mut nobody) {
            return self.reply(id, answer);
        }
        let cancelled = self.shared.over.child_token();
        let waiting = Waiting {
            // Of its own: what was read with it is not kept.
            body: Bytes::copy_from_slice(&body),
            cancelled: cancelled.clone(),
        };
        self.state().waiting.insert(id, waiting);
        let answering = self.clone();
        self.shared.tasks.spawn(async move {
            let answer = tokio::select! {
                biased;
                answer = answer => answer,
                () = cancelled.cancelled() => return,
            };
            if answering.state().waiting.remove(&id).is_some() {
                answering.reply(id, answer);
            }
        });
    }

    fn reply(&self, id: u64, answer: client::Answer) {
        let (result, descriptors) = match answer {
            Ok((reply, descriptors)) => (Ok(reply), descriptors),
            Err(error) => (Err(error), Vec::new()),
        };
        let mut files: Vec<File> = Vec::new();
        let mut logs = Vec::new();
        for descriptor in descriptors {
            match descriptor {
                Descriptor::Directory(directory) => files.push(directory),
                Descriptor::Log(log) => logs.push(log),
            }
        }
        let directories = files.len();
        let (segments, live) = self.introduce(&logs, &mut files);
        let reply = WireReply {
            result,
            directories,
            logs: logs.iter().map(LogReader::address).collect(),
            segments,
            live,
        };
        match encode(Kind::Reply, id, &reply, files.len()) {
            Ok(frame) => self.shared.connection.send(frame, files),
            Err(error) => {
                tracing::error!(%error, "an answer cannot be sent");
                self.shared.connection.close();
            }
        }
    }

    /// Memory that the daemon meets for the first time, and then all there is.
    fn introduce(&self, logs: &[LogReader], files: &mut Vec<File>) -> (Vec<WireSegment>, Vec<u64>) {
        let store = self.shared.engine.engine.logs();
        let mut segments = Vec::new();
        let mut state = self.state();
        for log in logs {
            let id = log.address().segment;
            if state.met.contains(&id) {
                continue;
            }
            let segment = match store.segment(id) {
                Ok(Some(segment)) => segment,
                Ok(None) => continue,
                Err(error) => {
                    tracing::error!(%error, "the memory of a log cannot be passed on");
                    continue;
                }
            };
            state.met.insert(id);
            files.push(segment.file);
            segments.push(WireSegment {
                id,
                number: segment.number,
                geometry: segment.geometry,
            });
        }
        if segments.is_empty() {
            return (segments, Vec::new());
        }
        let live = store.live();
        state.met.retain(|id| live.contains(id));
        (segments, live)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
