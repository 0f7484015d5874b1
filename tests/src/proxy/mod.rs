//! A proxy in front of a daemon's socket that loses what a network loses, at
//! moments that a test chooses.
//!
//! It passes bytes on as they are. Of HTTP/2 (RFC 9113) it knows only where
//! frames begin, to tell a request that has gone through and an answer that has
//! begun.

mod frames;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::frames::{Frames, Way};
use crate::eventually;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Whoever has passed this many bytes of requests from now on is cut off,
    /// most likely in the middle of one.
    CutAfter(usize),
    /// Whoever has sent a whole request is cut off at once; it is carried out.
    CutAfterRequest,
    /// Requests go on; whoever's answer comes does not get it and is cut off: it
    /// was carried out, and its answer is lost.
    LoseAnswer,
    /// Nothing goes either way, and nobody is cut off.
    Deaf,
    /// Whoever connects is cut off.
    Refuse,
    /// Each piece takes this much longer.
    Slow(Duration),
}

/// See the module's documentation. Ends when dropped, and cuts everybody off.
#[derive(Debug)]
pub struct Proxy {
    directory: TempDir,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    target: Mutex<PathBuf>,
    fault: watch::Sender<Fault>,
    /// Counts the times at which everybody was cut off.
    cuts: watch::Sender<u64>,
    /// Counts connections that a fault has cut.
    struck: watch::Sender<u64>,
}

impl Proxy {
    /// Begins to pass connections on to `target`.
    #[must_use]
    pub fn new(target: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("proxy.sock")).unwrap();
        let shared = Arc::new(Shared {
            target: Mutex::new(target.to_owned()),
            fault: watch::Sender::new(Fault::None),
            cuts: watch::Sender::new(0),
            struck: watch::Sender::new(0),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&shared)));
        Self {
            directory,
            shared,
            _tasks: tasks,
        }
    }

    /// `unix://…` of its own socket.
    #[must_use]
    pub fn address(&self) -> String {
        let path = self.directory.path().join("proxy.sock");
        format!("unix://{}", path.display())
    }

    /// Cuts everybody off, and passes on to another socket from now on.
    pub fn turn_to(&self, target: &Path) {
        target.clone_into(&mut self.shared.target.lock().unwrap());
        self.cut();
    }

    /// From now on, for those who are connected and those who come. A fault that
    /// cuts somebody off is over then, and everything passes again.
    pub fn fault(&self, fault: Fault) {
        self.shared.fault.send_replace(fault);
    }

    /// Cuts everybody off now.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Connections that a fault has cut so far.
    #[must_use]
    pub fn struck(&self) -> u64 {
        *self.shared.struck.borrow()
    }

    /// Waits until a fault has cut somebody off, for which the test sees to
    /// traffic.
    pub async fn over(&self) {
        eventually("a fault to strike", || async {
            (*self.shared.fault.borrow() == Fault::None).then_some(())
        })
        .await;
    }
}

impl Shared {
    /// This connection is cut by `fault`, which is over then. False where
    /// another one has been.
    fn strike(&self, fault: Fault) -> bool {
        let first = self.fault.send_if_modified(|now| {
            let first = *now == fault;
            if first {
                *now = Fault::None;
            }
            first
        });
        if first {
            self.struck.send_modify(|struck| *struck += 1);
        }
        first
    }
}

async fn accept(listener: UnixListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let (client, _) = listener.accept().await.unwrap();
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let mut cuts = shared.cuts.subscribe();
            tokio::select! {
                _ = cuts.changed() => {}
                // However it ends, both ways do.
                _ = carry(client, &shared) => {}
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn carry(client: UnixStream, shared: &Shared) -> io::Result<()> {
    if *shared.fault.borrow() == Fault::Refuse {
        return Ok(());
    }
    hearing(shared).await;
    let target = shared.target.lock().unwrap().clone();
    let daemon = UnixStream::connect(target).await?;
    let (from_client, to_client) = client.into_split();
    let (from_daemon, to_daemon) = daemon.into_split();
    tokio::select! {
        done = pass(from_client, to_daemon, Way::Requests, shared) => done,
        done = pass(from_daemon, to_client, Way::Answers, shared) => done,
    }
}

/// Returns once something goes through.
async fn hearing(shared: &Shared) -> Fault {
    let mut fault = shared.fault.subscribe();
    let heard = fault.wait_for(|fault| *fault != Fault::Deaf).await;
    *heard.unwrap()
}

async fn pass(
    mut from: tokio::net::unix::OwnedReadHalf,
    mut to: tokio::net::unix::OwnedWriteHalf,
    way: Way,
    shared: &Shared,
) -> io::Result<()> {
    let mut frames = Frames::new(way);
    let mut buffer = vec![0; 16 << 10];
    // How much has passed under this fault.
    let (mut last, mut passed) = (Fault::None, 0);
    loop {
        let length = from.read(&mut buffer).await?;
        let mut piece = &buffer[..length];
        if piece.is_empty() {
            return Ok(());
        }
        let whole = frames.take(piece);
        let fault = hearing(shared).await;
        if fault != last {
            (last, passed) = (fault, 0);
        }
        let mut cut = false;
        match (fault, way) {
            (Fault::CutAfter(bytes), Way::Requests) if passed + length >= bytes => {
                cut = shared.strike(fault);
                if cut {
                    piece = &piece[..bytes - passed];
                }
            }
            (Fault::CutAfterRequest, Way::Requests) if whole => cut = shared.strike(fault),
            (Fault::LoseAnswer, Way::Answers) if whole => {
                cut = shared.strike(fault);
                if cut {
                    piece = &[];
                }
            }
            (Fault::Slow(time), _) => tokio::time::sleep(time).await,
            _ => {}
        }
        passed += length;
        to.write_all(piece).await?;
        if cut {
            return Ok(());
        }
    }
}
