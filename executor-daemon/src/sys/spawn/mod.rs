//! Starts a program the way vfork(2) does: the child borrows the caller's
//! memory and the calling thread sleeps until the child has executed its
//! program or failed. Its cost does not grow with the caller's memory.
//!
//! ```text
//! block signals → clone ─┬─ parent: sleeps ─────────────→ reads the failure, if any
//!                        └─ child (own stack): set up → execve, or note failure → _exit
//! ```
//!
//! Invariants:
//! 1. The child runs with every signal blocked until all dispositions are the
//!    default ones, so no handler of the caller ever runs in it.
//! 2. It gets descriptors 0, 1, 2 and nothing else, an empty signal mask,
//!    default dispositions, a session of its own.
//! 3. It begins with the caller's descriptor table, shared, and takes a copy of
//!    the part it needs before it changes anything: what a start costs does not
//!    grow with the descriptors that the caller holds.
//! 4. A failure is known, with its stage, before [`spawn`] returns, and the
//!    child is reaped then. Nothing of the caller changes: no descriptor, no
//!    disposition, no mask.

mod child;
mod clone;
mod places;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use super::signal::BlockAll;
use super::wait;
use crate::process::exit::{SpawnFailure, SpawnStage};
use child::Setup;
use clone::{Method, Stack};
use places::Place;
pub use places::reserve_descriptors;

/// A program to start. Borrowed: the child reads it in place.
#[derive(Debug, Clone, Copy)]
pub struct Program<'a> {
    /// Candidate paths, tried in order as execvp(3) does with `PATH`: one that
    /// is missing lets the next be tried, one without permission is remembered.
    /// None at all fails like a missing one, after everything else was set up.
    pub paths: &'a [CString],
    /// The arguments, the program's name first.
    pub argv: &'a [CString],
    /// `NAME=value`.
    pub envp: &'a [CString],
    /// Entered by fchdir(2).
    pub cwd: BorrowedFd<'a>,
    /// Descriptors 0 to 2.
    pub stdio: Stdio<'a>,
    /// A cgroup v2 directory to begin in.
    pub cgroup: Option<BorrowedFd<'a>>,
}

/// Descriptors 0 to 2 of a program.
#[derive(Debug, Clone, Copy)]
pub enum Stdio<'a> {
    /// These. They may be any descriptors, also 0 to 2 and also the same.
    Descriptors([BorrowedFd<'a>; 3]),
    /// This terminal, which becomes the controlling one (tty_ioctl(4)).
    Terminal(&'a CStr),
}

/// Who is told the child's pid while its program is not executed yet, which
/// may take for ever: an executable can lie on a file system that does not
/// answer.
#[derive(Debug, Clone, Copy)]
pub enum Announce<'a> {
    /// Nobody.
    Nobody,
    /// Other threads, by this memory: it holds the pid from the child's first
    /// step until [`spawn`] returns, or the start has failed; 0 before and
    /// after. So a process that is pinned while it holds its pid is the child,
    /// unreaped.
    Memory(&'a AtomicU32),
    /// The other end of this socket, with one datagram right before execve(2):
    /// this byte, and the pid in little-endian order. The descriptor must not
    /// be 0 to 2.
    Datagram(BorrowedFd<'a>, u8),
}

/// A program that runs.
#[derive(Debug)]
pub struct Spawned {
    /// Its process id, which stays its own until it is reaped.
    pub pid: u32,
    /// Refers to it and never to a later process with the same id
    /// (pidfd_open(2)). Close-on-exec.
    pub pidfd: OwnedFd,
}

thread_local! {
    /// The child's stack, kept for the next start of this thread. Free once
    /// the clone has returned: the child has executed or ended by then.
    static STACK: Cell<Option<Stack>> = const { Cell::new(None) };
}

/// Starts `program` and returns once execve(2) has succeeded or the start has
/// failed. Blocks for as long as execve(2) does: call it on a thread that may
/// block. The child is the caller's to reap.
///
/// # Errors
/// Where and why the start failed; nothing of it is left then.
pub fn spawn(program: &Program<'_>) -> Result<Spawned, SpawnFailure> {
    spawn_announced(program, Announce::Nobody)
}

/// [`spawn`], and `announce` tells of the child meanwhile.
///
/// # Errors
/// As [`spawn`].
pub fn spawn_announced(
    program: &Program<'_>,
    announce: Announce<'_>,
) -> Result<Spawned, SpawnFailure> {
    let spawned = spawn_by(program, announce, Method::preferred());
    if let Announce::Memory(pid) = announce {
        pid.store(0, Ordering::Release);
    }
    spawned
}

fn spawn_by(
    program: &Program<'_>,
    announce: Announce<'_>,
    method: Method,
) -> Result<Spawned, SpawnFailure> {
    let paths = pointers(program.paths);
    let argv = pointers(program.argv);
    let envp = pointers(program.envp);
    let (stdio, terminal) = match program.stdio {
        Stdio::Descriptors(fds) => (fds, ptr::null()),
        // Not used with a terminal.
        Stdio::Terminal(path) => ([program.cwd; 3], path.as_ptr()),
    };
    let [stdin, stdout, stderr] = stdio;
    let given = [program.cwd, stdin, stdout, stderr];
    let place = Place::take(given);
    let given = place.as_ref().and_then(Place::descriptors).unwrap_or(given);
    let [cwd, descriptors @ ..] = given.map(|fd| fd.as_raw_fd());
    let (memory, datagram) = match announce {
        Announce::Nobody => (ptr::null(), (-1, 0)),
        Announce::Memory(pid) => (ptr::from_ref(pid), (-1, 0)),
        Announce::Datagram(socket, first) => (ptr::null(), (socket.as_raw_fd(), first)),
    };
    let mut setup = Setup {
        paths: paths.as_ptr(),
        argv: argv.as_ptr(),
        envp: envp.as_ptr(),
        cwd,
        descriptors,
        terminal,
        cgroup: -1,
        memory,
        datagram,
        shares_descriptors: false,
        failed_at: AtomicI32::new(0),
        errno: AtomicI32::new(0),
    };
    let kept = STACK.with(Cell::take);
    let stack = kept.map_or_else(Stack::new, Ok);
    let stack = stack.map_err(|error| failure(SpawnStage::Resources, &error))?;

    let cloned = {
        let _blocked = BlockAll::new();
        clone::clone(method, &mut setup, &stack, program.cgroup)
    };
    STACK.with(|kept| kept.set(Some(stack)));
    // The child has its own copies, and ours would keep pipes open.
    drop(place);
    let (pid, pidfd) = cloned.map_err(|error| {
        let stage =
            match error.raw_os_error() {
                // What clone3 says of a cgroup that cannot be entered (clone(2)).
                Some(
                    libc::EACCES | libc::EBUSY | libc::EOPNOTSUPP | libc::ENODEV | libc::EBADF,
                ) if program.cgroup.is_some() => SpawnStage::Cgroup,
                _ => SpawnStage::Clone,
            };
        failure(stage, &error)
    })?;

    match child::stage(setup.failed_at.load(Ordering::Acquire)) {
        None => Ok(Spawned { pid, pidfd }),
        Some(stage) => {
            // It is in _exit(2) or past it: this wait is short.
            let _ = wait::reap_blocking(pidfd.as_fd());
            Err(SpawnFailure {
                stage,
                errno: setup.errno.load(Ordering::Acquire),
            })
        }
    }
}

fn failure(stage: SpawnStage, error: &std::io::Error) -> SpawnFailure {
    SpawnFailure {
        stage,
        errno: error.raw_os_error().unwrap_or(0),
    }
}

/// A NULL-terminated array as execve(2) wants it. Borrows from `strings`.
fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    let mut array: Vec<_> = strings.iter().map(|string| string.as_ptr()).collect();
    array.push(ptr::null());
    array
}
