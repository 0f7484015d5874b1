//! One socket between daemon and process host, from either side.
//!
//! A frame is written by the task that sends it, as far as the socket takes it
//! at once; the rest waits in an outbox that [`Connection::run`] empties. Frames
//! go out in the order in which they were sent.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf as _, Bytes};
use tokio::io::Interest;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::frame::{Frame, FrameReader};
use crate::sys::fdpass;
use crate::sys::readiness::Watched;

/// Most bytes that wait for the other end to read: one that has left so much
/// unread does not read at all.
const OUTBOX: usize = 256 << 20;
/// Bytes of one read.
const READ: usize = 64 << 10;

/// A descriptor that is sent along; ours stays open.
pub(super) type File = Arc<OwnedFd>;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Connection {
    socket: Watched,
    /// Std: held for the non-blocking system calls of one frame.
    outbox: Mutex<Outbox>,
    more: Notify,
    closed: CancellationToken,
}

#[derive(Debug, Default)]
struct Outbox {
    frames: VecDeque<(Bytes, Vec<File>)>,
    bytes: usize,
}

impl Connection {
    /// Takes over a connected socket. Must be called inside a runtime.
    ///
    /// # Errors
    /// It cannot be watched.
    pub(super) fn new(socket: impl Into<File>) -> io::Result<Arc<Self>> {
        let socket = socket.into();
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Arc::new(Self {
            socket: Watched::new(socket, Interest::READABLE | Interest::WRITABLE)?,
            outbox: Mutex::default(),
            more: Notify::new(),
            closed: CancellationToken::new(),
        }))
    }

    /// Sends a frame. Does not block. What cannot be sent because the other
    /// end is gone is dropped; [`Connection::run`] returns then.
    pub(super) fn send(&self, frame: Bytes, files: Vec<File>) {
        let mut outbox = self.outbox();
        outbox.bytes += frame.len();
        let first = outbox.frames.is_empty();
        outbox.frames.push_back((frame, files));
        let flushed = if first {
            self.flush(&mut outbox)
        } else {
            Ok(())
        };
        let (left, bytes) = (!outbox.frames.is_empty(), outbox.bytes);
        drop(outbox);
        if flushed.is_err() || bytes > OUTBOX {
            self.closed.cancel();
        } else if left {
            self.more.notify_one();
        }
    }

    /// Takes what was sent and not written yet, for whoever goes on with the
    /// socket. Nothing is to be sent here afterwards.
    pub(super) fn take_unwritten(&self) -> Vec<(Bytes, Vec<File>)> {
        let mut outbox = self.outbox();
        outbox.bytes = 0;
        outbox.frames.drain(..).collect()
    }

    /// Waits until all that was sent has been written. Cancel safe.
    ///
    /// # Errors
    /// The other end is gone.
    pub(super) async fn flushed(&self) -> io::Result<()> {
        loop {
            {
                let mut outbox = self.outbox();
                self.flush(&mut outbox)?;
                if outbox.frames.is_empty() {
                    return Ok(());
                }
            }
            self.socket.writable().await?.retain_ready();
        }
    }

    /// The socket.
    pub(super) fn file(&self) -> &File {
        self.socket.file()
    }

    /// Nothing more is read or sent.
    pub(super) fn close(&self) {
        self.closed.cancel();
    }

    /// Reads frames and passes them on, in their order, until `take` says
    /// that it has enough, or the other end is gone, or somebody closes. Cancel
    /// safe as far as `reader` is kept.
    pub(super) async fn run(&self, reader: &mut FrameReader, mut take: impl FnMut(Frame) -> Flow) {
        let mut buffer = vec![0; READ];
        loop {
            // What an earlier run has read and not taken comes first.
            loop {
                match reader.next() {
                    Ok(Some(frame)) => {
                        if take(frame) == Flow::Enough {
                            return;
                        }
                    }
                    Ok(None) => break,
                    Err(error) => {
                        tracing::error!(%error, "the other half of the daemon sends what we cannot read");
                        return self.close();
                    }
                }
            }
            let waits = !self.outbox().frames.is_empty();
            let event = tokio::select! {
                biased;
                () = self.closed.cancelled() => return,
                ready = self.socket.readable() => ready.map(drop).map(|()| true),
                ready = self.socket.writable(), if waits => ready.map(drop).map(|()| false),
                () = self.more.notified() => Ok(false),
            };
            let more = match event {
                Ok(true) => self.read(reader, &mut buffer),
                Ok(false) => self.flush(&mut self.outbox()).map(|()| true),
                Err(error) => Err(error),
            };
            if !more.unwrap_or(false) {
                return self.close();
            }
        }
    }

    /// False at the end of the stream.
    fn read(&self, reader: &mut FrameReader, buffer: &mut [u8]) -> io::Result<bool> {
        let received = self.socket.try_io(Interest::READABLE, |socket| {
            fdpass::receive_some(socket, buffer)
        });
        match received {
            Ok(received) => {
                let bytes = buffer.get(..received.bytes).unwrap_or_default();
                reader.push(bytes, received.descriptors);
                Ok(received.bytes > 0)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn flush(&self, outbox: &mut Outbox) -> io::Result<()> {
        while let Some((bytes, files)) = outbox.frames.front_mut() {
            let borrowed: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
            let sent = self.socket.try_io(Interest::WRITABLE, |socket| {
                fdpass::send_some(socket, bytes, &borrowed)
            });
            match sent {
                Ok(sent) => {
                    // They went with the first byte.
                    files.clear();
                    bytes.advance(sent);
                    outbox.bytes -= sent;
                    if bytes.is_empty() {
                        outbox.frames.pop_front();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether whoever takes frames wants the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// It does.
    More,
    /// What is left stays in the reader, or in the socket.
    Enough,
}
