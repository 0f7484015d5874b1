//! A tree held by a reaper, seen from the engine.
//!
//! ```text
//! running ──Exited──→ leader ended ──reaper ended──→ empty
//!    └──reaper killed─────┴──→ what is left is killed ──→ empty
//! ```

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::Interest;
use tokio::sync::watch;

use super::launch::{KILL_PAUSE, KILL_ROUNDS, receive};
use super::message::{Order, Report};
use crate::process::control::SignalTarget;
use crate::process::exit::{Member, Usage, WaitStatus};
use crate::process::tree::best_effort::Known;
use crate::process::tree::means::Means;
use crate::process::tree::{LeaderExit, proc};
use crate::sys::readiness::Watched;
use crate::sys::{fdpass, signal, wait};

/// The tree of one command.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) leader: u32,
    reaper: u32,
    reaper_pidfd: Arc<OwnedFd>,
    /// `None` once the reaper is gone. Locked for one send, which does not
    /// block.
    socket: Mutex<Option<Arc<OwnedFd>>>,
    /// Once the leader has ended.
    ended: Mutex<Option<Usage>>,
    /// The reaper was reaped, and no process of the tree is left.
    empty: AtomicBool,
}

impl Held {
    pub(super) fn new(
        leader: u32,
        reaper: u32,
        pidfd: Arc<OwnedFd>,
        socket: Arc<OwnedFd>,
    ) -> Arc<Self> {
        Arc::new(Self {
            leader,
            reaper,
            reaper_pidfd: pidfd,
            socket: Mutex::new(Some(socket)),
            ended: Mutex::new(None),
            empty: AtomicBool::new(false),
        })
    }

    fn order(&self, order: Order) -> bool {
        // A command can stop its own reaper, which then obeys nobody.
        let _ = signal::send(self.reaper_pidfd.as_fd(), libc::SIGCONT);
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        socket
            .as_ref()
            .is_some_and(|socket| fdpass::send(socket.as_fd(), &order.encode(), &[]).is_ok())
    }

    fn ended(&self) -> Option<Usage> {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn let_go(&self) {
        self.socket
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }
}

impl Means for Held {
    fn leader(&self) -> u32 {
        self.leader
    }

    fn members(&self) -> Vec<Member> {
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
        self.ended().or(so_far).unwrap_or_default()
    }

    fn leader_ended(&self) {}

    fn release(&self) {}
}

/// Listens to one reaper until it is gone, and reaps it.
pub(super) struct Watch {
    held: Arc<Held>,
    socket: Watched,
    pidfd: Watched,
    exits: watch::Sender<Option<LeaderExit>>,
    /// For the case that the reaper is killed.
    known: Known,
    /// What the environment of the tree's processes holds, where they kept it.
    tag: Option<CString>,
}

impl Watch {
    /// Must be called inside a runtime.
    pub(super) fn new(
        held: &Arc<Held>,
        socket: Arc<OwnedFd>,
        tag: Option<CString>,
    ) -> io::Result<(Self, watch::Receiver<Option<LeaderExit>>)> {
        let (exits, told) = watch::channel(None);
        let watch = Self {
            held: Arc::clone(held),
            socket: Watched::new(socket, Interest::READABLE)?,
            pidfd: Watched::new(Arc::clone(&held.reaper_pidfd), Interest::READABLE)?,
            exits,
            known: Known::new(held.leader),
            tag,
        };
        Ok((watch, told))
    }

    pub(super) async fn run(mut self) {
        let exited = self.listen().await;
        let mut ended_by_itself = false;
        while let Ok(mut ready) = self.pidfd.readable().await {
            match wait::reap(self.pidfd.as_fd()) {
                Ok(None) => ready.clear_ready(),
                Ok(Some(reaped)) => {
                    ended_by_itself = reaped.status == WaitStatus::Code(0);
                    break;
                }
                Err(_) => break,
            }
        }
        if !(exited && ended_by_itself) {
            self.end_remains().await;
        }
        if !exited {
            self.publish(LeaderExit::lost());
        }
        self.held.empty.store(true, Ordering::Release);
    }

    /// Returns when the reaper has closed the socket: true when it has told
    /// of the leader's exit.
    async fn listen(&mut self) -> bool {
        let mut exited = false;
        while let Ok(mut ready) = self.socket.readable().await {
            match receive(self.socket.as_fd()) {
                Ok(Some(Report::Exited(exit))) => {
                    exited = true;
                    // What outlives the leader can no longer be told by its
                    // session once the reaper is gone too.
                    self.known.remember(&proc::descendants(self.held.reaper));
                    self.publish(exit);
                }
                Ok(Some(_)) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Ok(None) | Err(_) => break,
            }
        }
        exited
    }

    fn publish(&self, exit: LeaderExit) {
        *self
            .held
            .ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(exit.usage);
        self.exits.send_replace(Some(exit));
    }

    /// Somebody killed the reaper. Its children went to another parent, and no
    /// status will ever come: what can still be found is ended.
    async fn end_remains(&mut self) {
        tracing::warn!(
            leader = self.held.leader,
            "a reaper was killed; ending its command"
        );
        for _ in 0..KILL_ROUNDS {
            if let Some(tag) = &self.tag {
                self.known.remember(&proc::all_with(tag.to_bytes()));
            }
            if self.known.kill() == 0 {
                return;
            }
            tokio::time::sleep(KILL_PAUSE).await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Also when the runtime ends under it: then the reaper must see its
        // socket close.
        self.held.let_go();
    }
}
