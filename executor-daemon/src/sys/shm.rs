//! A piece of memory that several processes may map.
//!
//! It is a sparse memfd (memfd_create(2)), mapped once as a whole and sealed
//! against shrinking and growing, so that no access can meet SIGBUS for want of
//! a page of the file. It is not sealed against writing: who continues the work
//! of its writer must be able to map it again.
//!
//! **Races.** Bytes may change while they are copied out of here, by a thread or
//! by another process. So no reference to them is ever made: they are touched
//! through raw pointers only, whole copies of plain bytes, of which every value
//! is valid. A caller that can be overtaken must look at its atomics again after
//! the copy and throw away what may have changed (as every sequence lock does).
//!
//! A position out of bounds is a defect of the caller and panics: it must not
//! become a wild access.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use bytes::BytesMut;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// Bytes that are counted at a time: they stay in the first-level cache.
const CHUNK: usize = 4096;

/// A mapping of a memfd, from its first byte to its last.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    base: NonNull<u8>,
    length: usize,
    file: OwnedFd,
}

// SAFETY: the mapping belongs to this value alone, lives as long as it does and
// is not tied to a thread.
unsafe impl Send for SharedMemory {}
// SAFETY: shared access goes through atomics or through copies of plain bytes
// by raw pointers; no reference to bytes that can change is ever handed out.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Makes `length` bytes of zeros, which take memory as they are touched.
    ///
    /// # Errors
    /// Those of memfd_create(2), ftruncate(2), fcntl(2) and mmap(2).
    pub(crate) fn create(name: &str, length: usize) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Kernels before 6.3 know no NOEXEC_SEAL; some later ones insist on it.
        let file = rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL)
            .or_else(|_| rustix::fs::memfd_create(name, flags))?;
        rustix::fs::ftruncate(&file, length as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        // SAFETY: the kernel chooses a free address; nothing else is mapped over.
        let base = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &file,
                0,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, length, file })
    }

    /// `N` atomics in a row.
    ///
    /// # Panics
    /// Out of bounds, or where `at` is not a multiple of eight.
    pub(crate) fn atomics<const N: usize>(&self, at: usize) -> &[AtomicU64; N] {
        assert!(
            at.is_multiple_of(align_of::<AtomicU64>()),
            "atomics are aligned"
        );
        let first = self.at(at, size_of::<[AtomicU64; N]>());
        // SAFETY: in bounds and aligned (the base is a page's); every value is
        // valid; who changes them meanwhile does so atomically; the mapping
        // outlives the borrow.
        unsafe { first.cast().as_ref() }
    }

    /// Copies bytes out, behind what is in `buffer`.
    ///
    /// # Panics
    /// Out of bounds.
    pub(crate) fn append_to(&self, at: usize, length: usize, buffer: &mut BytesMut) {
        let source = self.at(at, length);
        buffer.reserve(length);
        let target = buffer.spare_capacity_mut();
        assert!(
            length <= target.len(),
            "reserve gives what it was asked for"
        );
        // SAFETY: both are valid for `length` bytes and cannot overlap: one is
        // the mapping, which lends nothing out, the other the caller's own.
        unsafe {
            ptr::copy_nonoverlapping(source.as_ptr(), target.as_mut_ptr().cast(), length);
        }
        let filled = buffer.len() + length;
        // SAFETY: the capacity was reserved and the bytes up to here are written.
        unsafe { buffer.set_len(filled) };
    }

    /// Copies bytes in. Only one thread at a time may write to one place.
    ///
    /// # Panics
    /// Out of bounds.
    pub(crate) fn copy_in(&self, at: usize, bytes: &[u8]) {
        let target = self.at(at, bytes.len());
        // SAFETY: both are valid for the length; a slice from outside cannot lie
        // in the mapping, which lends nothing out.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), target.as_ptr(), bytes.len()) };
    }

    /// One read(2) straight into the mapping, repeated only when a signal
    /// interrupts it. 0 is the end of the file. Only one thread at a time may
    /// write to one place.
    ///
    /// # Errors
    /// Those of read(2), `WouldBlock` among them.
    ///
    /// # Panics
    /// Out of bounds.
    pub(crate) fn read_from_fd(
        &self,
        at: usize,
        length: usize,
        fd: BorrowedFd<'_>,
    ) -> io::Result<usize> {
        let target = self.at(at, length);
        loop {
            // SAFETY: the kernel writes at most `length` bytes to a place that
            // is valid for them and to which no reference exists.
            let count = unsafe { libc::read(fd.as_raw_fd(), target.as_ptr().cast(), length) };
            if let Ok(count) = usize::try_from(count) {
                return Ok(count);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// How often `byte` occurs.
    ///
    /// # Panics
    /// Out of bounds.
    pub(crate) fn count(&self, at: usize, length: usize, byte: u8) -> u64 {
        let source = self.at(at, length);
        let mut chunk = [MaybeUninit::<u8>::uninit(); CHUNK];
        let mut counted = 0;
        let mut done = 0;
        while done < length {
            let step = CHUNK.min(length - done);
            // SAFETY: `done + step` is at most `length`, for which the source was
            // checked; `step` fits the chunk; the two are different memory.
            let copied = unsafe {
                ptr::copy_nonoverlapping(
                    source.as_ptr().add(done),
                    chunk.as_mut_ptr().cast(),
                    step,
                );
                std::slice::from_raw_parts(chunk.as_ptr().cast::<u8>(), step)
            };
            counted += memchr::memchr_iter(byte, copied).count() as u64;
            done += step;
        }
        counted
    }

    /// Gives the memory of whole pages back; they read as zeros from now on
    /// (`FALLOC_FL_PUNCH_HOLE` in fallocate(2)).
    ///
    /// # Errors
    /// Those of fallocate(2).
    ///
    /// # Panics
    /// Out of bounds.
    pub(crate) fn punch(&self, at: usize, length: usize) -> io::Result<()> {
        self.at(at, length);
        if length == 0 {
            return Ok(());
        }
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::io::retry_on_intr(|| {
            rustix::fs::fallocate(&self.file, mode, at as u64, length as u64)
        })?;
        Ok(())
    }

    /// Bytes of memory that are taken.
    #[cfg(test)]
    pub(crate) fn allocated(&self) -> u64 {
        let blocks = rustix::fs::fstat(&self.file).expect("fstat").st_blocks;
        u64::try_from(blocks).expect("a count") * 512
    }

    /// Seals of the file (fcntl(2)).
    #[cfg(test)]
    fn seals(&self) -> SealFlags {
        rustix::fs::fcntl_get_seals(&self.file).expect("seals")
    }

    fn at(&self, at: usize, length: usize) -> NonNull<u8> {
        assert!(
            at <= self.length && length <= self.length - at,
            "{length} bytes at {at} are outside of {} bytes of shared memory",
            self.length
        );
        // SAFETY: `at` is at most the length of the mapping.
        unsafe { self.base.add(at) }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped by `create` with this length, and nothing borrowed from
        // it can outlive it.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
        debug_assert!(unmapped.is_ok(), "what was mapped can be unmapped");
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn takes_memory_when_touched_and_gives_it_back() {
        let memory = SharedMemory::create("test", 1 << 20).expect("memory");
        assert_eq!(memory.allocated(), 0);
        memory.copy_in(8192, b"bytes");
        assert_eq!(memory.allocated(), 4096);
        let mut out = BytesMut::from(&b"some "[..]);
        memory.append_to(8192, 5, &mut out);
        assert_eq!(&out[..], b"some bytes");
        memory.punch(8192, 4096).expect("hole");
        assert_eq!(memory.allocated(), 0);
    }

    #[test]
    fn can_neither_shrink_nor_grow_but_be_written() {
        let memory = SharedMemory::create("test", 4096).expect("memory");
        let seals = memory.seals();
        assert!(seals.contains(SealFlags::SHRINK | SealFlags::GROW));
        assert!(!seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE | SealFlags::SEAL));
    }

    #[test]
    fn reads_a_descriptor_to_its_end() {
        let memory = SharedMemory::create("test", 4096).expect("memory");
        let (reader, writer) = rustix::pipe::pipe().expect("pipe");
        rustix::io::write(&writer, b"a\nb\n\n").expect("write");
        drop(writer);
        assert_eq!(memory.read_from_fd(10, 3, reader.as_fd()).expect("read"), 3);
        assert_eq!(memory.read_from_fd(13, 9, reader.as_fd()).expect("read"), 2);
        assert_eq!(memory.read_from_fd(15, 9, reader.as_fd()).expect("read"), 0);
        assert_eq!(memory.count(10, 5, b'\n'), 3);
    }

    #[test]
    fn counts_across_chunks() {
        let memory = SharedMemory::create("test", 4 * CHUNK).expect("memory");
        memory.copy_in(1, &vec![b'\n'; 3 * CHUNK]);
        assert_eq!(memory.count(0, 4 * CHUNK, b'\n'), 3 * CHUNK as u64);
        assert_eq!(memory.count(2, CHUNK + 1, b'\n'), CHUNK as u64 + 1);
    }

    #[test]
    fn atomics_are_where_the_bytes_are() {
        let memory = SharedMemory::create("test", 4096).expect("memory");
        memory.atomics::<2>(16)[1].store(u64::MAX, Ordering::Relaxed);
        assert_eq!(memory.count(0, 4096, 0xff), 8);
        assert_eq!(memory.count(24, 8, 0xff), 8);
    }

    #[test]
    #[should_panic(expected = "outside")]
    fn nothing_is_touched_out_of_bounds() {
        let memory = SharedMemory::create("test", 4096).expect("memory");
        memory.copy_in(4092, b"bytes");
    }
}
