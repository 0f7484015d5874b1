//! A tree held by a reaper, seen from the engine.
//!
//! ```text
//! Listening ──reaper ended after its leader──→ Empty
//!     └──reaper killed──→ Remains ──what is left is killed──→ Empty
//! ```
//!
//! Two descriptors while the reaper lives, its socket and its pidfd; none
//! afterwards.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::launch::{self, receive};
use super::message::{Order, Report, SINCE, VERSION};
use crate::process::control::SignalTarget;
use crate::process::exit::{Member, Usage, WaitStatus};
use crate::process::tree::best_effort::Known;
use crate::process::tree::handover::{MeansState, invalid};
use crate::process::tree::means::Means;
use crate::process::tree::{Leader, LeaderExit, LeaderState, Tree, proc};
use crate::sys::readiness::Watched;
use crate::sys::{fdpass, signal, wait};

/// How often what a killed reaper left is looked for, and between two looks.
const KILL_ROUNDS: usize = 100;
const KILL_PAUSE: Duration = Duration::from_millis(20);

/// The tree of one command.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) leader: u32,
    reaper: u32,
    /// What the environment of the tree's processes holds, where they kept it.
    tag: Option<CString>,
    /// `None` once the reaper is gone. Locked for one send, which does not
    /// block.
    line: Mutex<Option<Line>>,
    /// Once the leader has ended.
    ended: Mutex<Option<LeaderExit>>,
    /// Held while a report is taken or the reaper is reaped, so that a
    /// handover comes before or after, never in between.
    progress: Mutex<Progress>,
    /// The stage is [`Stage::Empty`].
    empty: AtomicBool,
    /// Ends the watch, which leaves everything as it is.
    handed_over: CancellationToken,
}

/// What ties us to a reaper that lives.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) pidfd: Arc<OwnedFd>,
    pub(super) socket: Arc<OwnedFd>,
}

#[derive(Debug)]
struct Progress {
    stage: Stage,
    known: Known,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Stage {
    /// The reaper lives, or has not been reaped.
    Listening,
    /// The reaper was reaped and had not emptied its tree.
    Remains,
    /// The reaper was reaped, and no process of the tree is left.
    Empty,
}

/// What a later image of this program needs. The socket is beside it while
/// the stage is [`Stage::Listening`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::process::tree) struct HeldState {
    leader: u32,
    reaper: u32,
    /// Of the messages that this reaper speaks.
    version: u8,
    tag: Option<CString>,
    stage: Stage,
    ended: Option<LeaderExit>,
    known: Known,
}

impl Held {
    pub(super) fn new(
        leader: launch::Leader,
        reaper: u32,
        line: Line,
        tag: Option<CString>,
    ) -> Arc<Self> {
        let state = HeldState {
            leader: leader.pid(),
            reaper,
            version: VERSION,
            tag,
            stage: Stage::Listening,
            ended: None,
            known: match leader {
                launch::Leader::Reported(leader) => Known::new(leader),
                // The tag alone says what is ours.
                launch::Leader::Orphaned(_) => Known::default(),
            },
        };
        Arc::new(Self::with(state, Some(line)))
    }

    fn with(state: HeldState, line: Option<Line>) -> Self {
        Self {
            leader: state.leader,
            reaper: state.reaper,
            tag: state.tag,
            line: Mutex::new(line),
            ended: Mutex::new(state.ended),
            progress: Mutex::new(Progress {
                stage: state.stage,
                known: state.known,
            }),
            empty: AtomicBool::new(state.stage == Stage::Empty),
            handed_over: CancellationToken::new(),
        }
    }

    fn order(&self, order: Order) -> bool {
        let line = locked(&self.line);
        line.as_ref().is_some_and(|line| {
            // A command can stop its own reaper, which then obeys nobody.
            let _ = signal::send(line.pidfd.as_fd(), libc::SIGCONT);
            fdpass::send(line.socket.as_fd(), &order.encode(), &[]).is_ok()
        })
    }

    fn ended(&self) -> Option<LeaderExit> {
        *locked(&self.ended)
    }

    /// `None` after a handover: what happens from then on is the successor's.
    fn progress(&self) -> Option<MutexGuard<'_, Progress>> {
        let progress = locked(&self.progress);
        (!self.handed_over.is_cancelled()).then_some(progress)
    }
}

/// A poisoned value is whole: each change is one assignment, and what is
/// known is only ever added to.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Means for Held {
    fn leader(&self) -> u32 {
        self.leader
    }

    fn look(&self) -> Vec<Member> {
        let found = proc::descendants(self.reaper);
        // Looked at after the walk: until the reaper is reaped, its pid is its
        // own.
        if self.is_empty() {
            return Vec::new();
        }
        found
            .iter()
            .filter(|stat| stat.alive())
            .map(proc::Stat::member)
            .collect()
    }

    fn is_empty(&self) -> bool {
        self.empty.load(Ordering::Acquire)
    }

    fn terminate(&self) -> usize {
        let members = self.members().len();
        if self.order(Order::Terminate) {
            members
        } else {
            0
        }
    }

    fn kill(&self) {
        self.order(Order::Kill);
    }

    fn signal(&self, to: SignalTarget, number: i32) -> bool {
        self.ended().is_none() && self.order(Order::Signal(to, number))
    }

    fn usage(&self) -> Usage {
        let so_far = proc::stat(self.leader)
            .ok()
            .filter(|stat| stat.parent == self.reaper)
            .map(|stat| stat.usage());
        let in_all = self.ended().map(|exit| exit.usage);
        in_all.or(so_far).unwrap_or_default()
    }

    fn leader_ended(&self) {}

    fn release(&self) {}

    fn export(&self) -> (MeansState, Vec<Arc<OwnedFd>>) {
        let progress = locked(&self.progress);
        self.handed_over.cancel();
        let line = locked(&self.line).clone();
        let stage = match (progress.stage, &line) {
            // Its runtime ended under it, and the reaper kills what it has.
            (Stage::Listening, None) => Stage::Remains,
            (stage, _) => stage,
        };
        let state = HeldState {
            leader: self.leader,
            reaper: self.reaper,
            version: VERSION,
            tag: self.tag.clone(),
            stage,
            ended: self.ended(),
            known: progress.known.clone(),
        };
        let files = line
            .filter(|_| stage == Stage::Listening)
            .map(|line| line.socket);
        (MeansState::Reaper(state), files.into_iter().collect())
    }
}

/// Goes on with a tree of an earlier image of this program. Must be called
/// inside a runtime.
pub(in crate::process::tree) fn resume(
    mut state: HeldState,
    files: &[Arc<OwnedFd>],
    tasks: &TaskTracker,
) -> io::Result<(Leader, Tree)> {
    let line = if state.stage == Stage::Listening {
        if !(SINCE..=VERSION).contains(&state.version) {
            return Err(invalid("the reaper speaks another version"));
        }
        let socket = files.first().ok_or_else(|| invalid("no socket"))?;
        // Our child and unreaped: its pid is its own.
        let pidfd = proc::pin(state.reaper).inspect_err(|_| state.stage = Stage::Remains);
        pidfd.ok().map(|pidfd| Line {
            pidfd: Arc::new(pidfd),
            socket: Arc::clone(socket),
        })
    } else {
        None
    };
    let held = Arc::new(Held::with(state, line));
    let (watch, told) = Watch::new(&held)?;
    if !held.is_empty() {
        tasks.spawn(watch.run());
    }
    let leader = Leader {
        state: LeaderState::Told(told),
        means: held.clone(),
    };
    Ok((leader, Tree { means: held }))
}

/// Follows the reaper of one tree until the tree is empty.
#[derive(Debug)]
pub(super) struct Watch {
    held: Arc<Held>,
    /// Socket and pidfd of a reaper that lives.
    line: Option<(Watched, Watched)>,
    exits: watch::Sender<Option<LeaderExit>>,
}

impl Watch {
    /// Must be called inside a runtime.
    pub(super) fn new(held: &Arc<Held>) -> io::Result<(Self, watch::Receiver<Option<LeaderExit>>)> {
        let (exits, told) = watch::channel(held.ended());
        let line = locked(&held.line).clone();
        let watched = |line: Line| {
            Ok::<_, io::Error>((
                Watched::new(line.socket, Interest::READABLE)?,
                Watched::new(line.pidfd, Interest::READABLE)?,
            ))
        };
        let watch = Self {
            held: Arc::clone(held),
            line: line.map(watched).transpose()?,
            exits,
        };
        Ok((watch, told))
    }

    pub(super) async fn run(mut self) {
        let handed_over = self.held.handed_over.clone();
        // Every step between two awaits is whole under `progress`, so that it
        // may end at any of them.
        let _ = handed_over.run_until_cancelled(self.follow()).await;
    }

    /// `None` when there was a handover, or the runtime is ending.
    async fn follow(&mut self) -> Option<()> {
        if let Some((socket, pidfd)) = &self.line {
            self.listen(socket).await?;
            self.reap(pidfd).await?;
        }
        // Closes both descriptors.
        self.line = None;
        locked(&self.held.line).take();
        if self.held.progress()?.stage == Stage::Remains {
            self.end_remains().await?;
        }
        let mut progress = self.held.progress()?;
        if self.held.ended().is_none() {
            self.publish(LeaderExit::with_its_reaper());
        }
        progress.stage = Stage::Empty;
        self.held.empty.store(true, Ordering::Release);
        Some(())
    }

    /// Returns when the reaper has closed the socket.
    async fn listen(&self, socket: &Watched) -> Option<()> {
        loop {
            // Fails when the runtime is ending.
            let mut ready = socket.readable().await.ok()?;
            let mut progress = self.held.progress()?;
            match receive(socket.as_fd()) {
                Ok(Some(Report::Exited(exit))) => {
                    // What outlives the leader can no longer be told by its
                    // session once the reaper is gone too.
                    let left = proc::descendants(self.held.reaper);
                    progress.known.remember(&left);
                    self.publish(exit);
                }
                Ok(Some(_)) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Ok(None) | Err(_) => return Some(()),
            }
        }
    }

    async fn reap(&self, pidfd: &Watched) -> Option<()> {
        loop {
            let mut ready = pidfd.readable().await.ok()?;
            let mut progress = self.held.progress()?;
            let by_itself = match wait::reap(pidfd.as_fd()) {
                Ok(None) => {
                    ready.clear_ready();
                    continue;
                }
                Ok(Some(reaped)) => reaped.status == WaitStatus::Code(0),
                Err(_) => false,
            };
            // Else only what follows can say that it is empty.
            if !by_itself || self.held.ended().is_none() {
                progress.stage = Stage::Remains;
            }
            return Some(());
        }
    }

    fn publish(&self, exit: LeaderExit) {
        *locked(&self.held.ended) = Some(exit);
        self.exits.send_replace(Some(exit));
    }

    /// Somebody killed the reaper. Its children went to another parent, and no
    /// status will ever come: what can still be found is ended.
    async fn end_remains(&self) -> Option<()> {
        tracing::warn!(
            leader = self.held.leader,
            "a reaper was killed; ending its command"
        );
        for _ in 0..KILL_ROUNDS {
            let killed = self
                .held
                .progress()?
                .known
                .kill_remains(self.held.tag.as_deref());
            if killed == 0 {
                break;
            }
            tokio::time::sleep(KILL_PAUSE).await;
        }
        Some(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Also when the runtime ends under it: then the reaper must see its
        // socket close. After a handover the successor's descriptor keeps it
        // open.
        locked(&self.held.line).take();
    }
}
