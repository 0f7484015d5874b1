//! Pseudo-terminals (pty(7)). We keep the master; the slave is opened by the
//! child alone, so that its last close is seen as the end of output.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::process::spec::TerminalSize;
use crate::sys::terminal;

/// A terminal without a program yet.
#[derive(Debug)]
pub struct Terminal {
    /// Reads what is shown, writes what is typed. Non-blocking. Reading gives
    /// `EIO` while no program has the terminal open.
    pub master: OwnedFd,
    /// For [`ChildStdio::Terminal`](crate::process::tree::ChildStdio::Terminal).
    pub path: CString,
}

/// Opens one of the given size.
///
/// # Errors
/// No terminal to be had (`kernel.pty.max`), or no `/dev/pts`.
pub fn open(size: TerminalSize) -> io::Result<Terminal> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    let flags = rustix::fs::fcntl_getfl(&master)?;
    rustix::fs::fcntl_setfl(&master, flags | OFlags::NONBLOCK)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    resize(master.as_fd(), size)?;
    let path = ptsname(&master, Vec::new())?;
    Ok(Terminal { master, path })
}

/// Sets the size of the terminal behind `master`; its foreground group gets
/// SIGWINCH when it changes (ioctl_tty(2)).
///
/// # Errors
/// `ENOTTY` for other descriptors.
pub fn resize(master: BorrowedFd<'_>, size: TerminalSize) -> io::Result<()> {
    let size = Winsize {
        ws_row: size.rows(),
        ws_col: size.columns(),
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    Ok(tcsetwinsize(master, size)?)
}

/// Sends SIGINT to the terminal's foreground group, whatever its interrupt
/// character is.
///
/// # Errors
/// `ENOTTY` for other descriptors.
pub fn interrupt(master: BorrowedFd<'_>) -> io::Result<()> {
    terminal::signal_foreground(master, libc::SIGINT)
}

/// Bytes that can be read at once from a terminal or a pipe (`FIONREAD`).
///
/// # Errors
/// `ENOTTY` for other descriptors.
pub fn fionread(fd: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(rustix::io::ioctl_fionread(fd)?)
}
