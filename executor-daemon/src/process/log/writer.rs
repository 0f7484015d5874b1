//! The writing end of a log.
//!
//! A write is: the bytes, then the bits that say whose they are, then counts of
//! newlines, then the new end, then the bell. Readers see nothing of it before
//! the end is stored, and then all.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Stream;
use super::layout::Piece;
use super::reader::LogReader;
use super::scratch;
use super::segment::{Ask, Slot};

/// Writes one log. Dropping it ends the output ([`LogWriter::publish_end`]); the
/// log is then readable as long as there are readers.
#[derive(Debug)]
pub struct LogWriter {
    slot: Arc<Slot>,
    end: u64,
    newlines: u64,
    /// Standard error has written: from then on each byte's stream is noted.
    separate: bool,
    ended: bool,
    retired: bool,
}

impl LogWriter {
    /// The writer goes on where the control block says that the log stands: at
    /// its beginning, or where another writer has left it.
    pub(super) fn new(slot: Arc<Slot>) -> Self {
        let control = slot.place.control();
        let view = control.own_view(slot.place.layout());
        Self {
            end: view.extent.end,
            newlines: control.newlines(),
            separate: view.separate(),
            ended: view.ended(),
            retired: false,
            slot,
        }
    }

    /// One read(2) of at most `limit` bytes from `fd` into the log. It may give
    /// less than there is, at the end of the head, at the end of the ring's
    /// memory and at the largest write; so only 0 means the end of the file. A
    /// `limit` of 0 counts as 1.
    ///
    /// # Errors
    /// Those of read(2), `WouldBlock` among them; nothing was written then.
    pub fn read_from(
        &mut self,
        fd: BorrowedFd<'_>,
        stream: Stream,
        limit: usize,
    ) -> io::Result<usize> {
        self.shrink_if_asked();
        if self.ended {
            return Ok(0);
        }
        let mut piece = self.slot.place.layout().room(self.end);
        piece.length = piece.length.min(limit.max(1));
        let read = self.read_into(piece, fd)?;
        if read > 0 {
            piece.length = read;
            self.publish(piece, stream);
        }
        Ok(read)
    }

    /// Writes bytes. After the end of the output they are ignored.
    pub fn append(&mut self, bytes: &[u8], stream: Stream) {
        let mut left = bytes;
        while !left.is_empty() && !self.ended {
            self.shrink_if_asked();
            let mut piece = self.slot.place.layout().room(self.end);
            let (now, later) = left.split_at(piece.length.min(left.len()));
            piece.length = now.len();
            let place = &self.slot.place;
            place.memory().copy_in(place.bytes(piece), now);
            self.publish(piece, stream);
            left = later;
        }
    }

    /// Says that the process has exited. What was written before is readable by
    /// whoever sees the exit. Repeating it changes nothing.
    pub fn publish_exit(&mut self) {
        self.slot.place.control_mut().set_exited();
        self.slot.shared.ring(&self.slot.place);
    }

    /// Says that no byte will follow. Repeating it changes nothing.
    pub fn publish_end(&mut self) {
        if !self.ended {
            self.ended = true;
            self.slot.place.control_mut().set_ended();
            self.slot.shared.ring(&self.slot.place);
        }
    }

    /// Bytes written so far.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// A reader of this log.
    #[must_use]
    pub fn reader(&self) -> LogReader {
        LogReader::local(Arc::clone(&self.slot))
    }

    /// Gives memory up if the store is short of it. To be called when the `wake`
    /// of this log is notified; writing does it, too.
    pub fn shrink_if_asked(&mut self) {
        let place = &self.slot.place;
        let state = place.state();
        let ask = Ask::of(state.asked.load(Ordering::Acquire));
        if ask == Ask::Nothing {
            return;
        }
        place.drop_tail();
        if ask == Ask::All {
            place.drop_head();
        }
        self.slot.shared.charge(place, place.footprint().sum());
        // An ask for more that came meanwhile is lost here; the store finds its
        // sum too high again and repeats it.
        self.slot.shared.gave(place.key());
        self.slot.shared.ring(place);
    }

    /// Ends the output and leaves what is needed to keep the log readable.
    #[must_use = "dropping it forgets the log"]
    pub fn retire(mut self) -> RetiredLog {
        self.finish();
        RetiredLog {
            slot: Arc::clone(&self.slot),
        }
    }

    /// Asks as the store does.
    #[cfg(test)]
    pub(super) fn ask(&self, ask: Ask) {
        let asked = &self.slot.place.state().asked;
        asked.store(ask as u8, Ordering::Release);
    }

    /// One read(2) into a place of the log.
    fn read_into(&self, piece: Piece, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let place = &self.slot.place;
        let at = place.bytes(piece);
        if scratch::is_aligned(at) {
            return place.memory().read_from_fd(at, piece.length, fd);
        }
        let scratches = &self.slot.shared.scratches;
        let mut scratch = scratches.take();
        let buffer = scratch.aligned(piece.length);
        let read = rustix::io::retry_on_intr(|| rustix::io::read(fd, &mut *buffer));
        if let Some(bytes) = read.ok().and_then(|read| buffer.get(..read)) {
            place.memory().copy_in(at, bytes);
        }
        scratches.put_back(scratch);
        Ok(read?)
    }

    fn publish(&mut self, piece: Piece, stream: Stream) {
        let place = &self.slot.place;
        let control = place.control_mut();
        if stream == Stream::Stderr && !self.separate {
            // Bits never touched are zeros, so all before is standard output.
            self.separate = true;
            control.set_separate();
        }
        if self.separate {
            place.mark(piece, stream == Stream::Stderr);
        }
        self.newlines = self.count(piece.length as u64);
        self.end += piece.length as u64;
        control.publish(self.end, self.newlines);
        self.slot.shared.ring(place);
        self.charge();
    }

    /// Newlines up to `length` bytes behind the end, with the counts on the way.
    fn count(&self, length: u64) -> u64 {
        let (place, layout) = (&self.slot.place, self.slot.place.layout());
        let control = place.control_mut();
        let stop = self.end + length;
        let (mut at, mut newlines) = (self.end, self.newlines);
        while at < stop {
            let next = layout.next_count(at).min(stop);
            newlines += place.own_newlines(at, next);
            if let Some(index) = layout.count_at(next) {
                control.set_count(index, newlines);
                if next == layout.head() {
                    control.set_head_newlines(newlines);
                }
            }
            at = next;
        }
        newlines
    }

    fn charge(&mut self) {
        let (shared, place) = (&self.slot.shared, &self.slot.place);
        let footprint = place.footprint().sum();
        if footprint != place.state().charged.load(Ordering::Relaxed) {
            shared.charge(place, footprint);
            if shared.over_budget() {
                shared.squeeze();
                self.shrink_if_asked();
            }
        }
    }

    fn finish(&mut self) {
        self.publish_end();
        if !self.retired {
            self.retired = true;
            self.slot.shared.retire(&self.slot.place);
        }
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.finish();
    }
}

/// A log whose output has ended. It stays readable, as far as memory allows,
/// until this is dropped: then it is forgotten, and every reader finds it gone.
#[derive(Debug)]
pub struct RetiredLog {
    slot: Arc<Slot>,
}

impl RetiredLog {
    pub(super) fn new(slot: Arc<Slot>) -> Self {
        Self { slot }
    }

    /// How many logs of the store had retired before this one, roughly: memory
    /// is taken back from the lowest first.
    #[must_use]
    pub fn age(&self) -> u64 {
        self.slot.place.state().retired_at.load(Ordering::Relaxed)
    }

    /// A reader of this log.
    #[must_use]
    pub fn reader(&self) -> LogReader {
        LogReader::local(Arc::clone(&self.slot))
    }
}

impl Drop for RetiredLog {
    fn drop(&mut self) {
        self.slot.give_back();
    }
}
