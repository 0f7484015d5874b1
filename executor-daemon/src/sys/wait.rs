//! Reaping, with what the process used.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use crate::process::exit::{Usage, WaitStatus};

/// A process that was reaped: its pid may name another one from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reaped {
    /// What its pid was.
    pub pid: u32,
    /// How it ended.
    pub status: WaitStatus,
    /// What it and the children it has waited for used.
    pub usage: Usage,
}

/// Reaps the child of `pidfd` if it has ended (waitid(2) with `P_PIDFD`, which
/// cannot take the status of a later child with the same pid). Does not block.
///
/// # Errors
/// `ECHILD` when somebody else has reaped it.
pub fn reap(pidfd: BorrowedFd<'_>) -> io::Result<Option<Reaped>> {
    wait_for(
        libc::P_PIDFD,
        pidfd.as_raw_fd(),
        libc::WEXITED | libc::WNOHANG,
    )
}

/// Reaps the child with this pid if it has ended. Does not block. For a
/// process in which nobody else reaps that child: while it is unreaped its
/// pid is its own.
///
/// # Errors
/// `ECHILD` when there is no such child.
pub fn reap_child(pid: u32) -> io::Result<Option<Reaped>> {
    wait_for(libc::P_PID, child_id(pid)?, libc::WEXITED | libc::WNOHANG)
}

/// Whether the child with this pid has ended. It stays unreaped. Does not
/// block.
///
/// # Errors
/// `ECHILD` when there is no such child.
pub fn has_ended(pid: u32) -> io::Result<bool> {
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    Ok(wait_for(libc::P_PID, child_id(pid)?, options)?.is_some())
}

/// The pid of some child that has ended. It stays unreaped, and may be the
/// same one at the next call. Does not block.
///
/// # Errors
/// `ECHILD` when there is no child at all.
pub fn any_ended() -> io::Result<Option<u32>> {
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    Ok(wait_for(libc::P_ALL, 0, options)?.map(|ended| ended.pid))
}

/// 0 would mean a group to waitid(2).
fn child_id(pid: u32) -> io::Result<i32> {
    let id = i32::try_from(pid).ok().filter(|id| *id > 0);
    id.ok_or_else(|| io::Error::from_raw_os_error(libc::ECHILD))
}

/// Reaps the child of `pidfd` and blocks until it has ended.
///
/// # Errors
/// `ECHILD` when somebody else has reaped it.
pub fn reap_blocking(pidfd: BorrowedFd<'_>) -> io::Result<Option<Reaped>> {
    loop {
        match wait_for(libc::P_PIDFD, pidfd.as_raw_fd(), libc::WEXITED) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            answer => return answer,
        }
    }
}

fn wait_for(kind: libc::idtype_t, id: i32, options: i32) -> io::Result<Option<Reaped>> {
    // SAFETY: all-zero bytes are a valid value of both plain C structures, and
    // the kernel writes no more than their size. The system call itself takes
    // an rusage (wait4(2) does not take a pidfd).
    unsafe {
        let mut info = std::mem::zeroed::<libc::siginfo_t>();
        let mut usage = std::mem::zeroed::<libc::rusage>();
        let answer = libc::syscall(
            libc::SYS_waitid,
            kind,
            id,
            &raw mut info,
            options,
            &raw mut usage,
        );
        if answer != 0 {
            return Err(io::Error::last_os_error());
        }
        let pid = u32::try_from(info.si_pid()).unwrap_or(0);
        if pid == 0 {
            return Ok(None);
        }
        let status = match info.si_code {
            libc::CLD_EXITED => WaitStatus::Code(info.si_status()),
            _ => WaitStatus::Signal(info.si_status()),
        };
        Ok(Some(Reaped {
            pid,
            status,
            usage: usage_of(&usage),
        }))
    }
}

/// Reaps any child that has ended. Does not block. Only for a process that is
/// our own from its first instruction: elsewhere it steals statuses.
///
/// # Errors
/// `ECHILD` when there is no child at all.
pub fn reap_any() -> io::Result<Option<Reaped>> {
    let mut status = 0;
    // SAFETY: all-zero bytes are a valid rusage; both pointers are valid.
    let (pid, usage) = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        let options = libc::WNOHANG | libc::__WALL;
        let pid = libc::wait4(-1, &raw mut status, options, &raw mut usage);
        (pid, usage)
    };
    match u32::try_from(pid) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(0) => Ok(None),
        Ok(pid) => Ok(Some(Reaped {
            pid,
            status: if libc::WIFSIGNALED(status) {
                WaitStatus::Signal(libc::WTERMSIG(status))
            } else {
                WaitStatus::Code(libc::WEXITSTATUS(status))
            },
            usage: usage_of(&usage),
        })),
    }
}

fn usage_of(usage: &libc::rusage) -> Usage {
    let time = |value: libc::timeval| {
        Duration::from_secs(u64::try_from(value.tv_sec).unwrap_or(0))
            + Duration::from_micros(u64::try_from(value.tv_usec).unwrap_or(0))
    };
    let count = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
    Usage {
        user_cpu: time(usage.ru_utime),
        system_cpu: time(usage.ru_stime),
        // In kibibytes (getrusage(2)).
        max_rss: count(usage.ru_maxrss).saturating_mul(1024),
        block_inputs: count(usage.ru_inblock),
        block_outputs: count(usage.ru_oublock),
        cgroup_peak: None,
    }
}
