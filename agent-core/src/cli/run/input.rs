//! Our own stdin, read by a thread of its own: a read cannot be taken back,
//! and must hold nothing up.

use std::io;
use std::os::fd::BorrowedFd;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::sync::mpsc;

use crate::cli::failure::CliError;
use crate::cli::terminal::input_is_terminal;

/// Bytes of one read.
const CHUNK: usize = 64 << 10;
/// Reads that wait to be sent.
const QUEUE: usize = 4;
/// Between two looks whether we are in the foreground again.
const LOOK_AGAIN: Duration = Duration::from_millis(300);

/// What comes on stdin. The thread stays in its read until the program ends.
#[derive(Debug)]
pub(crate) struct Input {
    chunks: mpsc::Receiver<io::Result<Bytes>>,
}

impl Input {
    /// Starts reading.
    pub(crate) fn start() -> Result<Self, CliError> {
        let (chunks, receiver) = mpsc::channel(QUEUE);
        thread::Builder::new()
            .name("input".into())
            .spawn(move || read_all(&chunks))
            .map_err(|error| CliError::io("cannot start a thread", error))?;
        Ok(Self { chunks: receiver })
    }

    /// The next bytes; `None` at the end of input. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, CliError> {
        self.chunks
            .recv()
            .await
            .transpose()
            .map_err(|error| CliError::io("cannot read stdin", error))
    }
}

fn read_all(chunks: &mpsc::Sender<io::Result<Bytes>>) {
    let stdin = rustix::stdio::stdin();
    let terminal = input_is_terminal();
    let mut buffer = vec![0; CHUNK];
    loop {
        if terminal {
            wait_for_foreground(stdin);
        }
        let chunk = match read(stdin, &mut buffer) {
            Ok([]) => return,
            Ok(bytes) => Ok(Bytes::copy_from_slice(bytes)),
            // The terminal has hung up.
            Err(error) if terminal && error == Errno::IO => return,
            Err(error) => Err(error.into()),
        };
        let failed = chunk.is_err();
        if chunks.blocking_send(chunk).is_err() || failed {
            return;
        }
    }
}

fn read<'a>(fd: BorrowedFd<'_>, buffer: &'a mut [u8]) -> Result<&'a [u8], Errno> {
    loop {
        match rustix::io::read(fd, &mut *buffer) {
            Ok(count) => return Ok(buffer.get(..count).unwrap_or_default()),
            Err(Errno::INTR) => {}
            // Somebody has made it non-blocking.
            Err(Errno::AGAIN) => {
                let mut wanted = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
                match poll(&mut wanted, None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error),
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// A read in the background would stop the whole program (SIGTTIN in
/// termios(3)): `executor run make &` must go on.
fn wait_for_foreground(terminal: BorrowedFd<'_>) {
    let own = rustix::process::getpgrp();
    while rustix::termios::tcgetpgrp(terminal).is_ok_and(|foreground| foreground != own) {
        thread::sleep(LOOK_AGAIN);
    }
}

/// Our stdin is `/dev/null`, so there is nothing to pass.
pub(crate) fn is_null() -> bool {
    rustix::fs::fstat(rustix::stdio::stdin()).is_ok_and(|stat| {
        let device = (
            rustix::fs::major(stat.st_rdev),
            rustix::fs::minor(stat.st_rdev),
        );
        rustix::fs::FileType::from_raw_mode(stat.st_mode).is_char_device() && device == (1, 3)
    })
}
