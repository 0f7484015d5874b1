//! The daemon's link to the process host.
//!
//! ```text
//!             end of stream                 found or started
//! Up(life) ─────────────────► Down ─────────────────────────► Up(life)
//!     │ asked to end, then end of stream
//!     └──────────────────────────────────► Over
//! ```
//!
//! 1. While the link is Up its life does not change. A host that is upgraded in
//!    place keeps its connection: the link notices nothing.
//! 2. What was under way when a link went Down is asked again where the same life
//!    of the host is found again, but for what would act twice. Where the host is
//!    lost it is answered `EpochOver`, and never asked of another one.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use executor_proto::id::Epoch;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::task::TaskTracker;

use super::client::{Answer, HostClient, Life};
use super::connection::{Connection, File, Flow};
use super::control::Notice;
use super::find::{Finder, LinkError, Met};
use super::frame::{Frame, FrameError, FrameReader, Kind, decode, encode};
use super::greeting::Predecessor;
use super::message::{Descriptor, Request};
use super::run::{HostTask, Running};
use super::wire::{WireReply, WireRequest, WireSegment};
use crate::process::error::{Left, ProcessError};
use crate::process::log::{RemoteLogs, SegmentFile};
use crate::sys::fdpass::DESCRIPTORS_AT_ONCE;

/// How long a call waits for the next life of the engine.
const NEXT_LIFE: Duration = Duration::from_secs(10);
/// Between two attempts to find or start a host: first and longest.
const AGAIN_FIRST: Duration = Duration::from_millis(50);
const AGAIN_LAST: Duration = Duration::from_secs(5);

/// See the module's documentation. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Link {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: watch::Sender<State>,
    /// The host was asked to end: its end is no loss.
    ending: AtomicBool,
}

#[derive(Debug, Clone)]
enum State {
    Up(Arc<Up>),
    Down,
    Over,
}

/// Notices of a host that may wait to be heard.
const NOTICES: usize = 4;

/// A link that is up.
#[derive(Debug)]
pub struct Linked {
    /// The engine at its other end.
    pub running: Running,
    /// What the host tells its daemon.
    pub notices: mpsc::Receiver<Notice>,
}

/// Finds the host, or starts it, and keeps the link to it.
///
/// # Errors
/// There is no host to be had.
pub async fn link(finder: Finder) -> Result<Linked, LinkError> {
    let (up, reader) = Up::new(finder.meet().await?);
    let (state, _) = watch::channel(State::Up(Arc::clone(&up)));
    let shared = Arc::new(Shared {
        state,
        ending: AtomicBool::new(false),
    });
    let tasks = TaskTracker::new();
    let (tell, notices) = mpsc::channel(NOTICES);
    tasks.spawn(keep(Arc::clone(&shared), finder, up, reader, tell));
    tasks.close();
    Ok(Linked {
        running: Running {
            client: HostClient::linked(Link { shared }),
            task: HostTask::new(tasks),
        },
        notices,
    })
}

async fn keep(
    shared: Arc<Shared>,
    finder: Finder,
    mut up: Arc<Up>,
    mut reader: FrameReader,
    notices: mpsc::Sender<Notice>,
) {
    loop {
        up.run(&mut reader, &notices).await;
        if shared.ending.load(Ordering::Acquire) {
            shared.state.send_replace(State::Over);
            up.end();
            finder.reap().await;
            return;
        }
        tracing::error!(epoch = %up.life.epoch, "the link to the process host ended; looking for it");
        shared.state.send_replace(State::Down);
        up.end();
        let mut pause = AGAIN_FIRST;
        let met = loop {
            if shared.ending.load(Ordering::Acquire) {
                shared.state.send_replace(State::Over);
                return;
            }
            match finder.meet().await {
                Ok(met) => break met,
                Err(error) => tracing::error!(%error, "there is no process host"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(AGAIN_LAST);
        };
        if met.life.epoch == up.life.epoch {
            tracing::info!("it is still there; nothing is lost");
        }
        (up, reader) = Up::new(met);
        if shared.ending.load(Ordering::Acquire) {
            // It was asked to end while it could not hear that.
            let grace = Duration::ZERO;
            let last = WireRequest {
                request: Request::Shutdown { grace },
                missing: Vec::new(),
            };
            if let Ok(frame) = encode(Kind::Request, 0, &last, 0) {
                up.connection.send(frame, Vec::new());
            }
        }
        shared.state.send_replace(State::Up(Arc::clone(&up)));
    }
}

impl Link {
    async fn up(&self) -> Result<Arc<Up>, ProcessError> {
        let mut state = self.shared.state.subscribe();
        let waited = tokio::time::timeout(
            NEXT_LIFE,
            state.wait_for(|state| !matches!(state, State::Down)),
        );
        match waited.await {
            Ok(Ok(state)) => match &*state {
                State::Up(up) => Ok(Arc::clone(up)),
                State::Down | State::Over => Err(ProcessError::EngineGone),
            },
            Ok(Err(_)) | Err(_) => Err(ProcessError::EngineGone),
        }
    }

    pub(super) async fn life(&self) -> Result<Life, ProcessError> {
        Ok(self.up().await?.life)
    }

    pub(super) async fn check(&self, epoch: Epoch) -> Result<(), ProcessError> {
        self.up().await?.check(epoch)
    }

    pub(super) async fn call(
        &self,
        epoch: Option<Epoch>,
        request: Request,
        descriptors: Vec<Descriptor>,
    ) -> Answer {
        if matches!(request, Request::Shutdown { .. }) {
            self.shared.ending.store(true, Ordering::Release);
        }
        let mut up = self.up().await?;
        loop {
            if let Some(epoch) = epoch {
                up.check(epoch)?;
            }
            let answer = up.call(&request, descriptors.clone()).await;
            if !matches!(answer, Err(ProcessError::EngineGone)) || !request.harmless_twice() {
                return answer;
            }
            // The link ended. If the host lives, it is asked again; if not, what
            // it was asked has an unknown outcome, and that is the answer.
            let before = up.life.epoch;
            up = self.up().await?;
            if up.life.epoch != before {
                return match epoch {
                    Some(epoch) => up.check(epoch).and(answer),
                    None => answer,
                };
            }
        }
    }
}

/// One life of the link.
#[derive(Debug)]
struct Up {
    life: Life,
    predecessor: Option<Predecessor>,
    connection: Arc<Connection>,
    logs: RemoteLogs,
    next: AtomicU64,
    /// Std: held for one look-up or change.
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The connection has ended.
    over: bool,
    calls: HashMap<u64, oneshot::Sender<Answer>>,
    /// Segments that could not be mapped.
    missing: Vec<u64>,
}

impl Up {
    fn new(met: Met) -> (Arc<Self>, FrameReader) {
        let up = Self {
            life: met.life,
            predecessor: met.predecessor,
            connection: met.connection,
            logs: met.logs,
            next: AtomicU64::new(1),
            waiting: Mutex::default(),
        };
        (Arc::new(up), met.reader)
    }

    fn check(&self, asked: Epoch) -> Result<(), ProcessError> {
        if asked == self.life.epoch {
            return Ok(());
        }
        let before = self.predecessor.as_ref();
        let left = before.filter(|before| before.epoch == asked);
        Err(ProcessError::EpochOver {
            asked,
            current: self.life.epoch,
            left: left.map(|before| Left {
                ended: before.left.ended.len(),
                survivors: before.left.survivors.clone(),
            }),
        })
    }

    /// Reads until the stream ends.
    async fn run(&self, reader: &mut FrameReader, notices: &mpsc::Sender<Notice>) {
        tokio::select! {
            () = self.connection.run(reader, |frame| {
                self.take(frame, notices);
                Flow::More
            }) => {}
            listened = self.logs.listen() => {
                if let Err(error) = listened {
                    tracing::error!(%error, "the doorbell of the process host cannot be watched");
                }
                self.connection.close();
            }
        }
    }

    /// Nobody will answer any more.
    fn end(&self) {
        self.connection.close();
        let calls = {
            let mut waiting = self.waiting();
            waiting.over = true;
            std::mem::take(&mut waiting.calls)
        };
        drop(calls);
        self.logs.close();
    }

    async fn call(&self, request: &Request, descriptors: Vec<Descriptor>) -> Answer {
        let files: Vec<File> = descriptors
            .into_iter()
            .filter_map(|descriptor| match descriptor {
                Descriptor::Directory(directory) => Some(directory),
                Descriptor::Log(_) => None,
            })
            .collect();
        if files.len() > DESCRIPTORS_AT_ONCE {
            return Err(ProcessError::OutOfResources { errno: libc::E2BIG });
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let missing = std::mem::take(&mut self.waiting().missing);
        let asked = WireRequest { request, missing };
        let frame = encode(Kind::Request, id, &asked, files.len()).map_err(unwritable)?;
        let (tell, answer) = oneshot::channel();
        {
            let mut waiting = self.waiting();
            if waiting.over {
                return Err(ProcessError::EngineGone);
            }
            waiting.calls.insert(id, tell);
        }
        let call = Call { up: self, id };
        self.connection.send(frame, files);
        let answer = answer.await;
        drop(call);
        answer.unwrap_or(Err(ProcessError::EngineGone))
    }

    fn take(&self, frame: Frame, notices: &mpsc::Sender<Notice>) {
        match frame.kind {
            Some(Kind::Reply) => {}
            Some(Kind::Notice) => {
                match decode(&frame.body) {
                    // Where nobody takes them, or one is waiting, it is enough.
                    Ok(notice) => drop(notices.try_send(notice)),
                    Err(error) => {
                        tracing::warn!(%error, "a notice of the process host is not known")
                    }
                }
                return;
            }
            _ => return,
        }
        let tell = self.waiting().calls.remove(&frame.id);
        // Also where nobody waits any more: the memory of logs may come with it,
        // of which later answers speak.
        let answer = self.answer(frame);
        if let Some(tell) = tell {
            // Whoever asked may be gone by now.
            let _ = tell.send(answer);
        }
    }

    fn answer(&self, frame: Frame) -> Answer {
        let reply: WireReply = decode(&frame.body).map_err(unreadable)?;
        // Those that found no room here are missing at the end.
        let mut files = frame.files.unwrap_or_else(|got| got).into_iter();
        let mut descriptors: Vec<_> = files
            .by_ref()
            .take(reply.directories)
            .map(|file| Descriptor::Directory(Arc::new(file)))
            .collect();
        if descriptors.len() < reply.directories {
            let errno = libc::EMFILE;
            return Err(ProcessError::OutOfResources { errno });
        }
        self.meet(&reply.segments, files, &reply.live);
        for address in reply.logs {
            match self.logs.reader(address) {
                Some(log) => descriptors.push(Descriptor::Log(log)),
                // What was asked for is done all the same.
                None => self.waiting().missing.push(address.segment),
            }
        }
        Ok((reply.result?, descriptors))
    }

    fn meet(&self, segments: &[WireSegment], files: impl Iterator<Item = OwnedFd>, live: &[u64]) {
        if segments.is_empty() {
            return;
        }
        self.logs.retain(live);
        for (segment, file) in segments.iter().zip(files) {
            let added = self.logs.add(&SegmentFile {
                id: segment.id,
                number: segment.number,
                geometry: segment.geometry,
                file: Arc::new(file),
            });
            if let Err(error) = added {
                tracing::error!(%error, "the memory of logs cannot be mapped");
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call under way. Dropped before its answer, the host is told.
struct Call<'a> {
    up: &'a Up,
    id: u64,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if self.up.waiting().calls.remove(&self.id).is_some()
            && let Ok(frame) = encode(Kind::Cancel, self.id, &(), 0)
        {
            self.up.connection.send(frame, Vec::new());
        }
    }
}

fn unwritable(error: FrameError) -> ProcessError {
    tracing::error!(%error, "a request cannot be sent to the process host");
    ProcessError::OutOfResources { errno: libc::E2BIG }
}

fn unreadable(error: FrameError) -> ProcessError {
    tracing::error!(%error, "an answer of the process host cannot be read");
    ProcessError::NotUnderstood
}
