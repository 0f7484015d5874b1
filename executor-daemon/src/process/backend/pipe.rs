//! Pipes: our ends non-blocking, the child's blocking, as programs expect.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::process::tree::ChildStdio;

/// Both ends of a command's input and output.
#[derive(Debug)]
pub struct Pipes {
    /// To write the command's input; `None` when it has none.
    pub stdin: Option<OwnedFd>,
    /// To read its output, and its errors too unless they are separate.
    pub stdout: OwnedFd,
    /// To read its errors when they are separate.
    pub stderr: Option<OwnedFd>,
    /// The other ends. Output ends only once these are closed on our side.
    pub child: ChildStdio,
}

/// Opens them. Without `stdin` the child reads the null device: end of file at
/// once. Without `separate_stderr` both outputs share one pipe, so that the
/// order of writes is kept.
///
/// # Errors
/// No descriptor or memory to be had.
pub fn open(stdin: bool, separate_stderr: bool) -> io::Result<Pipes> {
    let (ours_in, child_in) = if stdin {
        let (reader, writer) = pipe()?;
        (Some(unblocked(writer)?), reader)
    } else {
        (None, nothing()?)
    };
    let (reader, child_out) = pipe()?;
    let stdout = unblocked(reader)?;
    let (stderr, child_err) = if separate_stderr {
        let (reader, writer) = pipe()?;
        (Some(unblocked(reader)?), writer)
    } else {
        (None, rustix::io::fcntl_dupfd_cloexec(&child_out, 3)?)
    };
    Ok(Pipes {
        stdin: ours_in,
        stdout,
        stderr,
        child: ChildStdio::Pipe {
            stdin: child_in,
            stdout: child_out,
            stderr: child_err,
        },
    })
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe_with(PipeFlags::CLOEXEC)?)
}

/// The flag belongs to this end alone (pipe(7)).
fn unblocked(end: OwnedFd) -> io::Result<OwnedFd> {
    let flags = rustix::fs::fcntl_getfl(&end)?;
    rustix::fs::fcntl_setfl(&end, flags | OFlags::NONBLOCK)?;
    Ok(end)
}

fn nothing() -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    match rustix::fs::open("/dev/null", flags, Mode::empty()) {
        Ok(null) => Ok(null),
        // A bare root without devices: a pipe that nobody writes to ends too.
        Err(rustix::io::Errno::NOENT) => Ok(pipe()?.0),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(end: &OwnedFd) -> bool {
        let flags = rustix::fs::fcntl_getfl(end).unwrap();
        !flags.contains(OFlags::NONBLOCK)
    }

    #[test]
    fn only_our_ends_are_non_blocking() {
        let pipes = open(true, true).unwrap();
        let ChildStdio::Pipe {
            stdin,
            stdout,
            stderr,
        } = &pipes.child
        else {
            panic!("pipes");
        };
        for end in [stdin, stdout, stderr] {
            assert!(blocks(end));
        }
        for end in [
            pipes.stdin.as_ref(),
            Some(&pipes.stdout),
            pipes.stderr.as_ref(),
        ] {
            assert!(!blocks(end.unwrap()));
        }
    }

    #[test]
    fn without_input_the_child_reads_the_end_and_cannot_write() {
        let pipes = open(false, false).unwrap();
        let ChildStdio::Pipe { stdin, .. } = &pipes.child else {
            panic!("pipes");
        };
        assert!(pipes.stdin.is_none());
        assert_eq!(rustix::io::read(stdin, &mut [0; 8]), Ok(0));
        assert_eq!(rustix::io::write(stdin, b"x"), Err(rustix::io::Errno::BADF));
    }
}
