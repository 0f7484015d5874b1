//! Starts reapers and commands under them.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{MemfdFlags, OFlags, SealFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::{Deserialize, Serialize};
use tokio_util::task::TaskTracker;

use super::ARGUMENT;
use super::held::{Held, Line, Watch};
use super::message::{LONGEST, Order, Plan, Report};
use crate::process::env::TAG;
use crate::process::exit::{SpawnFailure, SpawnStage};
use crate::process::tree::containment::{directory, failure, null};
use crate::process::tree::{self, ChildStdio, LaunchPlan, Launched, LeaderState, Tree};
use crate::sys::readiness::readable_within;
use crate::sys::spawn::{Program, Spawned, Stdio, spawn};
use crate::sys::{fdpass, signal, wait};

/// How long a program may take to say that it is a reaper, when it is tried
/// out.
const READY_WITHIN: Duration = Duration::from_secs(5);

/// How long a reaper that was given its order is silent before it is continued.
const TELLS_WITHIN: Duration = Duration::from_millis(100);

/// A program that was seen to be a reaper when asked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::process::tree) struct ReaperProgram {
    path: CString,
}

/// A reaper that runs and waits for its order.
struct Waiting {
    pid: u32,
    pidfd: OwnedFd,
    socket: OwnedFd,
}

impl ReaperProgram {
    /// Starts it once and lets it go again.
    pub(in crate::process::tree) fn try_out(path: &Path) -> io::Result<Self> {
        let program = Self {
            path: CString::new(path.as_os_str().as_bytes())?,
        };
        let reaper = program
            .start()
            .map_err(|failure| io::Error::from_raw_os_error(failure.errno))?;
        let ready = readable_within(reaper.socket.as_fd(), READY_WITHIN)
            && matches!(receive(reaper.socket.as_fd()), Ok(Some(Report::Ready)));
        if !ready {
            let _ = signal::send(reaper.pidfd.as_fd(), libc::SIGKILL);
        }
        drop(reaper.socket);
        let _ = wait::reap_blocking(reaper.pidfd.as_fd());
        if ready {
            Ok(program)
        } else {
            Err(io::Error::other(format!(
                "{} is not a reaper",
                path.display()
            )))
        }
    }

    fn start(&self) -> Result<Waiting, SpawnFailure> {
        let resources = |error: io::Error| failure(SpawnStage::Resources, &error);
        let (socket, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|error| resources(error.into()))?;
        let (root, null) = (
            directory("/").map_err(resources)?,
            null().map_err(resources)?,
        );
        let argument = CString::new(ARGUMENT).unwrap_or_default();
        let Spawned { pid, pidfd } = spawn(&Program {
            paths: std::slice::from_ref(&self.path),
            argv: &[c"executor-reaper".to_owned(), argument],
            envp: &[],
            cwd: root.as_fd(),
            stdio: Stdio::Descriptors([theirs.as_fd(), null.as_fd(), null.as_fd()]),
            cgroup: None,
        })
        .map_err(|failure| SpawnFailure {
            stage: SpawnStage::Reaper,
            ..failure
        })?;
        Ok(Waiting { pid, pidfd, socket })
    }

    /// Starts a reaper and the program under it. Blocks until execve(2) has
    /// succeeded or failed. Must be called inside a runtime.
    pub(in crate::process::tree) fn launch(
        &self,
        plan: LaunchPlan,
        tasks: &TaskTracker,
    ) -> Result<Launched, SpawnFailure> {
        let Waiting { pid, pidfd, socket } = self.start()?;
        let (socket, pidfd) = (Arc::new(socket), Arc::new(pidfd));
        let tag = tag_of(&plan.envp);
        let attempt = Arc::clone(&plan.attempt);
        let begun = |child| attempt.begun(pid, child);
        let leader = order_launch(socket.as_fd(), pidfd.as_fd(), plan, begun);
        attempt.over();
        let held = leader.and_then(|leader| {
            let line = Line {
                pidfd: Arc::clone(&pidfd),
                socket: Arc::clone(&socket),
            };
            let held = Held::new(leader, pid, line, tag.clone());
            let watch = Watch::new(&held);
            let watch = watch.map_err(|error| failure(SpawnStage::Resources, &error))?;
            Ok((held, watch))
        });
        let (held, (watch, told)) = match held {
            Ok(held) => held,
            Err(failure) => {
                // Letting the socket go kills what may run.
                drop(socket);
                let _ = wait::reap_blocking(pidfd.as_fd());
                return Err(failure);
            }
        };
        tasks.spawn(watch.run());
        Ok(Launched {
            pid: held.leader,
            leader: tree::Leader {
                state: LeaderState::Told(told),
                means: held.clone(),
            },
            tree: Tree { means: held },
        })
    }
}

/// The reaper ended before its child was about to execute the program.
const GONE: SpawnFailure = SpawnFailure {
    stage: SpawnStage::Reaper,
    errno: libc::EPIPE,
};

/// What runs under a reaper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leader {
    /// The reaper's child, and unreaped.
    Reported(u32),
    /// The command began, and its reaper was killed before it could tell more:
    /// by the command itself, most likely. Its pid may be another's by now.
    Orphaned(u32),
}

impl Leader {
    pub(super) fn pid(self) -> u32 {
        let (Self::Reported(pid) | Self::Orphaned(pid)) = self;
        pid
    }
}

/// The entry that ties left-over processes to us.
fn tag_of(envp: &[CString]) -> Option<CString> {
    let is_tag = |entry: &&CString| {
        let rest = entry.to_bytes().strip_prefix(TAG);
        rest.is_some_and(|rest| rest.first() == Some(&b'='))
    };
    envp.iter().find(is_tag).cloned()
}

/// Gives the order and returns the leader. Its pid is told to `begun` before
/// the program is executed.
fn order_launch(
    socket: BorrowedFd<'_>,
    reaper: BorrowedFd<'_>,
    plan: LaunchPlan,
    begun: impl Fn(u32),
) -> Result<Leader, SpawnFailure> {
    let at_reaper = |error: io::Error| failure(SpawnStage::Reaper, &error);
    let (stdio, terminal) = match plan.stdio {
        ChildStdio::Pipe {
            stdin,
            stdout,
            stderr,
        } => (vec![stdin, stdout, stderr], Vec::new()),
        ChildStdio::Terminal { path } => (Vec::new(), vec![path]),
    };
    let file = sealed(&Plan {
        programs: plan.programs,
        argv: plan.argv,
        envp: plan.envp,
        terminal,
    })
    .map_err(|error| failure(SpawnStage::Resources, &error))?;
    let descriptors: Vec<_> = [file.as_fd(), plan.cwd.as_fd()]
        .into_iter()
        .chain(stdio.iter().map(AsFd::as_fd))
        .collect();
    fdpass::send(socket, &Order::Launch.encode(), &descriptors).map_err(at_reaper)?;
    // Ours would keep the pipes open.
    drop(stdio);
    drop(file);
    if receive(socket).map_err(at_reaper)? != Some(Report::Ready) {
        return Err(GONE);
    }
    let mut child = None;
    let leader = loop {
        match (receive(socket), child) {
            (Ok(Some(Report::Begun(pid))), None) => {
                child = Some(pid);
                begun(pid);
                // The leader may have stopped its reaper before that could tell
                // of it.
                while !readable_within(socket, TELLS_WITHIN) {
                    let _ = signal::send(reaper, libc::SIGCONT);
                }
            }
            // Also where the child could not announce itself.
            (Ok(Some(Report::Started(leader))), _) => break Leader::Reported(leader),
            (Ok(Some(Report::Failed(failure))), _) => return Err(failure),
            (_, Some(child)) => break Leader::Orphaned(child),
            (Err(error), None) => return Err(at_reaper(error)),
            (Ok(_), None) => return Err(GONE),
        }
    };
    rustix::fs::fcntl_setfl(socket, OFlags::NONBLOCK).map_err(|error| at_reaper(error.into()))?;
    Ok(leader)
}

/// The plan in a memory file that nobody can change.
fn sealed(plan: &Plan) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(rustix::fs::memfd_create("plan", flags)?);
    file.write_all(&plan.encode())?;
    file.rewind()?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}

/// `None` when the reaper is gone or says what is no report.
pub(super) fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<Report>> {
    let mut buffer = [0; LONGEST];
    let received = fdpass::receive(socket, &mut buffer)?;
    Ok(received.and_then(|(length, _)| Report::decode(buffer.get(..length)?)))
}
