//! Our own stdout and stderr, written by a thread of their own.
//!
//! A reader of ours that is slow or stopped holds the writer up, and through
//! the bounded queue the stream and the command; the rest of the program goes
//! on: leases are renewed, signals are answered. Pages are written as they
//! are, with one write(2) each where the kernel takes it.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};
use std::thread;

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::sync::{mpsc, oneshot};

use super::failure::CliError;

/// Pages on their way to the writer.
const QUEUE: usize = 2;

/// Where bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Stdout,
    Stderr,
}

enum Order {
    Write(Target, Bytes),
    /// Answer when all before is written.
    Settle(oneshot::Sender<()>),
}

/// The writer's end that we hold.
#[derive(Debug)]
pub(crate) struct Sink {
    orders: mpsc::Sender<Order>,
    /// Why the writer has ended, set before its end of the queue goes.
    failure: Arc<OnceLock<io::Error>>,
}

impl Sink {
    /// Starts the writer.
    pub(crate) fn start() -> Result<Self, CliError> {
        let (orders, mut queue) = mpsc::channel(QUEUE);
        let failure = Arc::new(OnceLock::new());
        let told = Arc::clone(&failure);
        thread::Builder::new()
            .name("output".into())
            .spawn(move || {
                if let Err(error) = carry_out(&mut queue) {
                    // The only writer of this cell.
                    let _ = told.set(error);
                }
            })
            .map_err(|error| CliError::io("cannot start a thread", error))?;
        Ok(Self { orders, failure })
    }

    /// Hands bytes over; waits while the queue is full. Fails when earlier
    /// bytes could not be written.
    pub(crate) async fn write(
        &self,
        target: Target,
        data: impl Into<Bytes>,
    ) -> Result<(), CliError> {
        let data = data.into();
        if data.is_empty() {
            return Ok(());
        }
        match self.orders.send(Order::Write(target, data)).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.failure()),
        }
    }

    /// Waits until all that was handed over is written.
    pub(crate) async fn settle(&self) -> Result<(), CliError> {
        let (told, settled) = oneshot::channel();
        if self.orders.send(Order::Settle(told)).await.is_ok() && settled.await.is_ok() {
            return Ok(());
        }
        Err(self.failure())
    }

    /// Waits until all is written, and ends the writer.
    pub(crate) async fn finish(self) -> Result<(), CliError> {
        self.settle().await
    }

    fn failure(&self) -> CliError {
        match self.failure.get() {
            Some(error) => {
                let again = error
                    .raw_os_error()
                    .map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
                CliError::io("cannot write the output", again)
            }
            None => CliError::BrokenPipe,
        }
    }
}

fn carry_out(queue: &mut mpsc::Receiver<Order>) -> io::Result<()> {
    while let Some(order) = queue.blocking_recv() {
        match order {
            Order::Write(Target::Stdout, data) => write_all(rustix::stdio::stdout(), &data)?,
            Order::Write(Target::Stderr, data) => write_all(rustix::stdio::stderr(), &data)?,
            Order::Settle(told) => {
                // Who asked may have gone.
                let _ = told.send(());
            }
        }
    }
    Ok(())
}

/// Writes all, also to a descriptor that somebody has made non-blocking.
fn write_all(fd: BorrowedFd<'_>, mut data: &[u8]) -> io::Result<()> {
    while !data.is_empty() {
        match rustix::io::write(fd, data) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => data = data.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut wanted = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
                match poll(&mut wanted, None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn all_is_written_to_a_full_pipe_that_does_not_block() {
        let (mut reader, writer) = io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        let data: Vec<u8> = (0..1_000_000u32).map(|n| n.to_le_bytes()[0]).collect();
        let expected = data.clone();
        let writing = thread::spawn(move || write_all(writer.as_fd(), &data));
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        writing.join().unwrap().unwrap();
        assert!(read == expected);
    }

    #[test]
    fn a_reader_that_has_gone_is_an_error() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let error = write_all(writer.as_fd(), b"x").unwrap_err();
        assert!(matches!(CliError::io("", error), CliError::BrokenPipe));
    }
}
