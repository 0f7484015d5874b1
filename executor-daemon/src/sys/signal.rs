//! Signals: sent by descriptor or to a group, blocked, and read as data.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

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
