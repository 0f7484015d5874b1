//! Signals: sent by descriptor or to a group, blocked, and read as data.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Blocks every signal in the calling thread until dropped.
#[derive(Debug)]
pub struct BlockAll {
    before: u64,
}

impl BlockAll {
    /// Blocks. Nests.
    #[must_use]
    pub fn new() -> Self {
        Self {
            before: set_mask(u64::MAX),
        }
    }
}

impl Default for BlockAll {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for BlockAll {
    fn drop(&mut self) {
        set_mask(self.before);
    }
}

/// Blocks every signal in the calling thread for good: for a program of ours
/// that has one thread and reads what it needs from [`child_signals`].
pub fn block_all() {
    set_mask(u64::MAX);
}

/// Sets the calling thread's mask by the system call itself (the C library
/// keeps two signals to itself) and returns the one before.
fn set_mask(mask: u64) -> u64 {
    let mut before = 0u64;
    // SAFETY: both masks have the kernel's size of 8 bytes; changing the mask
    // of the own thread breaks no invariant of memory.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const mask,
            &raw mut before,
            8usize,
        );
    }
    before
}

/// Sends `signal` (0 only asks) to exactly the process of `pidfd`
/// (pidfd_send_signal(2)).
///
/// # Errors
/// `ESRCH` once it was reaped, `EPERM`, `EINVAL` for no signal.
pub fn send(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    // SAFETY: no siginfo is passed; the descriptor is borrowed for the call.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            ptr::null::<libc::siginfo_t>(),
            0u32,
        )
    };
    if answer == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Sends `signal` to the child `pid` (kill(2)).
///
/// The caller must know that it is its child and unreaped: only then the
/// number is certainly its own. What cannot be a child is refused.
///
/// # Errors
/// `EPERM` for a refused pid or without permission, `EINVAL` for no signal.
pub fn send_to_child(pid: u32, signal: i32) -> io::Result<()> {
    let pid = i32::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: plain system calls without pointers.
    unsafe {
        if pid <= 1 || pid == libc::getpid() {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        if libc::kill(pid, signal) == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

/// Sends `signal` to the process group of `leader` (kill(2)).
///
/// The caller must know that the leader is unreaped: only then the number is
/// certainly its own. Groups 0 and 1 and the caller's own are refused, since
/// they mean "myself" and "everybody" to kill(2).
///
/// # Errors
/// `EPERM` for a refused group or without permission, `ESRCH`, `EINVAL`.
pub fn send_to_group(leader: u32, signal: i32) -> io::Result<()> {
    let group = i32::try_from(leader).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: plain system calls without pointers.
    unsafe {
        if group <= 1 || group == libc::getpgrp() {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        if libc::kill(-group, signal) == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

/// [`block_child_signals`] was called.
static CHILD_SIGNALS_BLOCKED: AtomicBool = AtomicBool::new(false);

/// Makes SIGCHLD readable from [`child_signals`] in a program that is all our
/// own: blocked in the calling thread and in those it makes later, neither
/// ignored nor handled, and silent when a child only stops. The first thing in
/// `main`, before there is a second thread; again after each execve(2).
///
/// Programs that [`spawn`](super::spawn::spawn) starts know nothing of it:
/// they begin with an empty mask and default dispositions.
pub fn block_child_signals() {
    // SAFETY: all-zero bytes are a valid action (SIG_DFL) and a valid place
    // for a set, which is initialised before it is used.
    let done = unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        action.sa_sigaction = libc::SIG_DFL;
        action.sa_flags = libc::SA_NOCLDSTOP;
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) == 0
            // Children of a program that ignores SIGCHLD reap themselves.
            && libc::sigaction(libc::SIGCHLD, &raw const action, ptr::null_mut()) == 0
    };
    CHILD_SIGNALS_BLOCKED.store(done, Ordering::Release);
}

/// Whether this program's `main` has called [`block_child_signals`].
#[must_use]
pub fn child_signals_blocked() -> bool {
    CHILD_SIGNALS_BLOCKED.load(Ordering::Acquire)
}

/// Takes all that is pending from [`child_signals`]: the pids of children that
/// have ended. Some of them only: the kernel keeps one pending SIGCHLD
/// (signal(7)) and tells nothing of those that come meanwhile.
///
/// # Errors
/// The descriptor is none of [`child_signals`].
pub fn take_child_signals(signals: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    /// `sizeof(struct signalfd_siginfo)`, and where `ssi_pid` is in it.
    const SIZE: usize = 128;
    const PID: std::ops::Range<usize> = 12..16;
    let mut pids = Vec::new();
    let mut buffer = [0u8; 4 * SIZE];
    loop {
        let read = match rustix::io::read(signals, &mut buffer) {
            Ok(read) => read,
            Err(rustix::io::Errno::AGAIN) => return Ok(pids),
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        let infos = buffer.get(..read).unwrap_or_default().chunks_exact(SIZE);
        let pid = |info: &[u8]| Some(u32::from_ne_bytes(info.get(PID)?.try_into().ok()?));
        pids.extend(infos.filter_map(pid));
        if read < buffer.len() {
            return Ok(pids);
        }
    }
}

/// A descriptor that is readable while SIGCHLD is pending (signalfd(2)), which
/// must be blocked. Non-blocking, close-on-exec.
///
/// # Errors
/// No descriptor to be had.
pub fn child_signals() -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by sigemptyset before it is used, and the
    // new descriptor is owned by nobody else.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Unblocks every signal in the calling thread.
pub fn unblock_all() {
    set_mask(0);
}

/// Unblocks these signals in the calling thread, and no other.
pub fn unblock(signals: &[rustix::process::Signal]) {
    let bits = signals.iter().map(|signal| 1u64 << (signal.as_raw() - 1));
    let bits = bits.fold(0, |all, bit| all | bit);
    // The mask can only be set as a whole.
    let before = set_mask(u64::MAX);
    set_mask(before & !bits);
}
