//! What only the master of a pseudo-terminal can do.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sends `signal` to the foreground group of the terminal behind `master`
/// (`TIOCSIG`), as its own key does: SIGINT, SIGQUIT or SIGTSTP.
///
/// # Errors
/// `EINVAL` for other signals, `ENOTTY` for other descriptors.
pub fn signal_foreground(master: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    // SAFETY: this ioctl takes its argument by value and writes no memory.
    let answer = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSIG, signal) };
    if answer == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
