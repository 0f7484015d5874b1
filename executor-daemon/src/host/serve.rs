//! The process host: the engine in a process of its own, behind a socket.
//!
//! ```text
//! waiting for a daemon ──Hello──► engine runs ⇄ daemon connected / gone
//!                                     │ asked to end, or SIGTERM
//!                                     ▼
//!                                  ending ──► over
//! ```
//!
//! 1. The engine begins with the first daemon's Hello and ends only when it is
//!    asked to, or when it holds no session and no daemon comes for a minute. A
//!    daemon that goes takes nothing with it.
//! 2. One daemon counts: the newest. The one before is heard to its end first.
//! 3. While no daemon is there, leases stand still, and the time of lossless
//!    readers runs.
//! 4. Nothing here waits for a daemon to read.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as Turn, Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::answering::Answering;
use super::connection::{Connection, Flow};
use super::frame::{FrameReader, Kind, decode, encode};
use super::front::{Front, Who};
use super::greeting::{
    Answer, EngineSettings, Hello, Predecessor, Purpose, RELEASE, Refusal, Welcome, agree, boot_id,
};
use super::message::Request;
use super::record::Record;
use super::run::{self, Local};
use crate::process::engine::Engine;
use crate::process::log::Doorbell;

/// How long whoever connects may take to say what for.
const HELLO: Duration = Duration::from_secs(5);
/// How long a host that holds nothing waits for a daemon.
const IDLE: Duration = Duration::from_secs(60);

/// What the tasks of a host share.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) path: PathBuf,
    /// Of an image that replaces this one.
    pub(super) arguments: Vec<std::ffi::CString>,
    /// Std, like the others here: held for a look-up or a change.
    state: Mutex<Option<Started>>,
    /// A tokio mutex: the next daemon waits until the one before is heard to
    /// its end.
    turn: Turn<()>,
    /// The daemon that is served.
    pub(super) daemon: Mutex<Option<(Who, Arc<Connection>)>>,
    /// Its turn, once it was welcomed: only then it can be told anything.
    pub(super) welcomed: Mutex<u64>,
    turns: Mutex<u64>,
    /// The daemon is to be served no further for now.
    pub(super) parking: watch::Sender<bool>,
    pub(super) parked: Mutex<Option<Front>>,
    /// `daemon` or `parked` is another.
    pub(super) changed: Notify,
    /// Who waits for the end of this process.
    pub(super) stopping: Mutex<Vec<Arc<Connection>>>,
    /// The socket, for an image that replaces this one.
    pub(super) listening: Mutex<Option<super::upgrade::Listening>>,
    pub(super) upgrading: Turn<()>,
    pub(super) closing: CancellationToken,
    pub(super) over: watch::Sender<bool>,
    engines: TaskTracker,
}

/// The engine, once there is one.
#[derive(Debug, Clone)]
pub(super) struct Started {
    pub(super) engine: Local,
    pub(super) settings: EngineSettings,
    pub(super) predecessor: Option<Predecessor>,
}

impl Host {
    pub(super) fn new(path: PathBuf, arguments: Vec<std::ffi::CString>) -> Self {
        Self {
            path,
            arguments,
            state: Mutex::default(),
            turn: Turn::default(),
            daemon: Mutex::default(),
            welcomed: Mutex::default(),
            turns: Mutex::default(),
            parking: watch::Sender::new(false),
            parked: Mutex::default(),
            changed: Notify::new(),
            stopping: Mutex::default(),
            listening: Mutex::default(),
            upgrading: Turn::default(),
            closing: CancellationToken::new(),
            over: watch::Sender::new(false),
            engines: TaskTracker::new(),
        }
    }

    pub(super) fn record(&self) -> Record {
        Record::beside(&self.path)
    }

    pub(super) fn started(&self) -> Option<Started> {
        locked(&self.state).clone()
    }

    /// Ends the engine and returns when it has ended.
    pub(super) async fn end(&self, engine: &Local) {
        let grace = engine.engine.grace();
        // An engine that is gone has ended.
        let _ = engine.call(Request::Shutdown { grace }, Vec::new()).await;
    }

    /// Returns when no daemon has been here for a while and nothing is held
    /// for one.
    pub(super) async fn idle(&self) {
        loop {
            let changed = self.changed.notified();
            if locked(&self.daemon).is_some() {
                changed.await;
                continue;
            }
            tokio::select! {
                () = changed => continue,
                () = tokio::time::sleep(IDLE) => {}
            }
            let holds = |started: &Started| started.engine.engine.holds_sessions();
            if locked(&self.state)
                .as_ref()
                .is_none_or(|started| !holds(started))
            {
                return;
            }
        }
    }

    /// Serves whoever connected, until it is gone.
    pub(super) async fn serve(self: Arc<Self>, socket: OwnedFd) {
        let peer = match rustix::net::sockopt::socket_peercred(&socket) {
            Ok(peer) if peer.uid == rustix::process::geteuid() => peer,
            Ok(_) | Err(_) => {
                tracing::warn!("another user's connection was closed");
                return;
            }
        };
        let Ok(connection) = Connection::new(socket) else {
            return;
        };
        let mut reader = FrameReader::default();
        let hello = tokio::time::timeout(HELLO, first(&connection, &mut reader)).await;
        let hello = match hello {
            Ok(Some(Ok(hello))) => hello,
            Ok(Some(Err(refusal))) => return refuse(&connection, refusal),
            Ok(None) | Err(_) => return,
        };
        let agreed = agree(&hello).and_then(|schema| {
            if hello.boot_id == boot_id() {
                Ok(schema)
            } else {
                Err(Refusal::Boot)
            }
        });
        let who = |schema| Who {
            schema,
            release: hello.release.clone(),
            pid: peer.pid.as_raw_nonzero().get().unsigned_abs(),
            turn: self.next_turn(),
        };
        match (agreed, hello.purpose) {
            (Err(refusal), _) => refuse(&connection, refusal),
            (Ok(schema), Purpose::Daemon(settings)) => {
                self.serve_daemon(connection, reader, who(schema), *settings)
                    .await;
            }
            (Ok(_), Purpose::Control) => self.serve_control(connection, reader).await,
        }
    }

    async fn serve_daemon(
        &self,
        connection: Arc<Connection>,
        reader: FrameReader,
        who: Who,
        settings: EngineSettings,
    ) {
        // One that comes while the host is replaced has to come again.
        let mut parking = self.parking.subscribe();
        if parking.wait_for(|park| !park).await.is_err() {
            return;
        }
        // The one before is heard to its end: what it sent is done first.
        let before = locked(&self.daemon).replace((who.clone(), Arc::clone(&connection)));
        if let Some((_, before)) = before {
            before.close();
        }
        let _turn = self.turn.lock().await;
        let turn = who.turn;
        let begun = self.engine(settings).await;
        let begun = begun.and_then(|started| {
            let doorbell = doorbell().map_err(|error| Refusal::Failed(error.to_string()))?;
            Ok((started, doorbell))
        });
        let (started, (doorbell, bell)) = match begun {
            Ok(begun) => begun,
            Err(refusal) => {
                refuse(&connection, refusal);
                return self.daemon_left(turn);
            }
        };
        let engine = started.engine;
        let life = engine.life();
        let welcome = Answer::Welcome(Welcome {
            schema: who.schema,
            release: RELEASE.to_owned(),
            epoch: life.epoch,
            means: life.means,
            predecessor: started.predecessor,
        });
        let Ok(frame) = encode(Kind::Welcome, 0, &welcome, 2) else {
            return self.daemon_left(turn);
        };
        engine.engine.logs().attach(doorbell);
        connection.send(frame, bell.to_vec());
        *locked(&self.welcomed) = turn;
        engine.engine.leases_go_on();
        self.changed.notify_waiters();
        let front = Front {
            answering: Answering::new(engine.clone(), Arc::clone(&connection)),
            who,
            connection,
            reader,
            doorbell: bell,
        };
        self.serve_front(&engine, front).await;
    }

    /// A daemon is not served any more.
    pub(super) fn daemon_left(&self, turn: u64) {
        let mut daemon = locked(&self.daemon);
        if daemon.as_ref().is_some_and(|(who, _)| who.turn == turn) {
            *daemon = None;
        }
        drop(daemon);
        self.changed.notify_waiters();
    }

    /// The engine, started with the first daemon's settings.
    async fn engine(&self, settings: EngineSettings) -> Result<Started, Refusal> {
        if let Some(started) = locked(&self.state).as_mut() {
            let config = settings.clone().into_config();
            let engine = &started.engine.engine;
            engine.reconfigure(config.limits, config.environment, config.grace);
            started.settings = settings;
            return Ok(started.clone());
        }
        let record = self.record();
        let config = settings.clone().into_config();
        let begun = tokio::task::spawn_blocking(move || {
            let predecessor = record.end_left_overs();
            (predecessor, run::engine(config))
        });
        let (predecessor, engine) = begun
            .await
            .map_err(|error| Refusal::Failed(error.to_string()))?;
        if let Err(error) = self.record().write(&engine) {
            tracing::warn!(%error, "a successor will not know what this host left");
        }
        Ok(self.watch(engine, settings, predecessor))
    }

    /// Watches an engine's life from now on.
    pub(super) fn watch(
        &self,
        engine: Engine,
        settings: EngineSettings,
        predecessor: Option<Predecessor>,
    ) -> Started {
        let grace = settings.grace;
        let (local, shutdowns) = Local::new(engine.clone());
        let over = self.over.clone();
        self.engines.spawn(async move {
            run::live(engine, shutdowns, grace).await;
            over.send_replace(true);
        });
        let started = Started {
            engine: local,
            settings,
            predecessor,
        };
        *locked(&self.state) = Some(started.clone());
        started
    }

    /// Goes on with the daemon of an earlier image, and answers who had asked
    /// for this one.
    pub(super) fn go_on(
        self: &Arc<Self>,
        front: Option<Front>,
        asked: Option<super::upgrade::Asked>,
        tasks: &TaskTracker,
    ) {
        let Some(started) = self.started() else {
            return;
        };
        if let Some(front) = front {
            let connection = Arc::clone(&front.connection);
            *locked(&self.welcomed) = front.who.turn;
            *locked(&self.daemon) = Some((front.who.clone(), connection));
            let (host, engine) = (Arc::clone(self), started.engine);
            tasks.spawn(async move {
                let _turn = host.turn.lock().await;
                host.serve_front(&engine, front).await;
            });
        } else {
            started.engine.engine.daemon_gone();
        }
        if let Some(asked) = asked {
            let host = Arc::clone(self);
            tasks.spawn(async move { host.answer_upgrade(asked).await });
        }
    }

    pub(super) fn turns(&self) -> u64 {
        *locked(&self.turns)
    }

    pub(super) fn set_turns(&self, turns: u64) {
        *locked(&self.turns) = turns;
    }

    fn next_turn(&self) -> u64 {
        let mut turns = locked(&self.turns);
        *turns += 1;
        *turns
    }
}

/// A doorbell, and its descriptors for its daemon and for later.
fn doorbell() -> io::Result<(Doorbell, [Arc<OwnedFd>; 2])> {
    let doorbell = Doorbell::new()?;
    let [memory, event] = doorbell.descriptors();
    let kept = [
        Arc::new(memory.try_clone_to_owned()?),
        Arc::new(event.try_clone_to_owned()?),
    ];
    Ok((doorbell, kept))
}

/// What whoever connected says of itself; `None` where it says nothing.
async fn first(
    connection: &Connection,
    reader: &mut FrameReader,
) -> Option<Result<Hello, Refusal>> {
    let mut first = None;
    connection
        .run(reader, |frame| {
            first = Some(frame);
            Flow::Enough
        })
        .await;
    let frame = first.filter(|frame| frame.kind == Some(Kind::Hello))?;
    let hello = decode(&frame.body);
    Some(hello.map_err(|error| {
        tracing::warn!(%error, "whoever connected speaks another language");
        Refusal::not_ours()
    }))
}

fn refuse(connection: &Connection, refusal: Refusal) {
    tracing::warn!(%refusal, "a daemon was refused");
    if let Ok(frame) = encode(Kind::Welcome, 0, &Answer::Refused(refusal), 0) {
        connection.send(frame, Vec::new());
    }
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
