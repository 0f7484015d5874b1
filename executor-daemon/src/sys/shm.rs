//! A piece of memory that several processes may map.
//!
//! It is a sparse memfd (memfd_create(2)), mapped once as a whole and sealed
//! against shrinking and growing, so that no access can meet SIGBUS for want of
//! a page of the file. It is not sealed against writing: who continues the work
//! of its writer must be able to map it again.
//!
//! [`SharedView`] is all that can be done with a mapping for reading;
//! [`SharedMemory`], which is mapped for writing, adds what changes it. So
//! nothing that writes can be called where the kernel would answer with SIGSEGV.
//!
//! **Races.** Bytes may change while they are copied out of here, by a thread or
//! by another process. So no reference to them is ever made: they are touched
//! through raw pointers only, whole copies of plain bytes, of which every value
//! is valid. A caller that can be overtaken must look at its atomics again after
//! the copy and throw away what may have changed (as every sequence lock does).
//! The one exception is [`SharedMemory::count_own`].
//!
//! A position out of bounds is a defect of the caller and panics: it must not
//! become a wild access.

use std::io;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use bytes::BytesMut;
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

#[cfg(test)]
mod tests;

/// Bytes that are counted at a time: they stay in the first-level cache.
const CHUNK: usize = 4096;
/// Without these an access to the mapping could meet SIGBUS.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// A mapping of a memfd, from its first byte to its last, as readers use it.
#[derive(Debug)]
pub(crate) struct SharedView {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone, lives as long as it does and
// is not tied to a thread.
unsafe impl Send for SharedView {}
// SAFETY: shared access goes through atomics or through copies of plain bytes
// by raw pointers; no reference to bytes that can change is ever handed out.
unsafe impl Sync for SharedView {}

impl SharedView {
    /// Maps the memory of another for reading. The descriptor may be closed
    /// afterwards, and may be one of [`SharedMemory::reopen_read_only`].
    ///
    /// # Errors
    /// `InvalidData` when the file is not of `length` bytes or could become
    /// shorter; those of fstat(2), fcntl(2) and mmap(2).
    pub(crate) fn map(file: BorrowedFd<'_>, length: usize) -> io::Result<Self> {
        Self::map_with(file, length, ProtFlags::READ)
    }

    fn map_with(file: BorrowedFd<'_>, length: usize, access: ProtFlags) -> io::Result<Self> {
        let size = rustix::fs::fstat(file)?.st_size;
        let seals = rustix::fs::fcntl_get_seals(file)?;
        if usize::try_from(size) != Ok(length) || !seals.contains(SEALS) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("not a sealed memory of {length} bytes: {size} bytes, {seals:?}"),
            ));
        }
        // SAFETY: the kernel chooses a free address; nothing else is mapped over.
        let base = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                length,
                access,
                MapFlags::SHARED | MapFlags::NORESERVE,
                file,
                0,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, length })
    }

    /// `N` words in a row, to look at.
    ///
    /// # Panics
    /// Out of bounds, or where `at` is not a multiple of eight.
    pub(crate) fn words<const N: usize>(&self, at: usize) -> Words<'_, N> {
        Words(self.array(at))
    }

    /// One word, loaded relaxed.
    ///
    /// # Panics
    /// Out of bounds, or where `at` is not a multiple of eight.
    pub(crate) fn word(&self, at: usize) -> u64 {
        self.words::<1>(at).load(0)
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

    fn array<const N: usize>(&self, at: usize) -> &[AtomicU64; N] {
        assert!(
            at.is_multiple_of(align_of::<AtomicU64>()),
            "atomics are aligned"
        );
        let first = self.at(at, size_of::<[AtomicU64; N]>());
        // SAFETY: in bounds and aligned (the base is a page's); every value is
        // valid; who changes them meanwhile does so atomically; the mapping
        // outlives the borrow. Where it is for reading only, `Words` keeps to
        // relaxed loads, which std says work on such memory.
        unsafe { first.cast().as_ref() }
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

impl Drop for SharedView {
    fn drop(&mut self) {
        // SAFETY: mapped by `map_with` with this length, and nothing borrowed
        // from it can outlive it.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
        debug_assert!(unmapped.is_ok(), "what was mapped can be unmapped");
    }
}

/// Words that can be loaded and not stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Words<'a, const N: usize>(&'a [AtomicU64; N]);

impl<const N: usize> Words<'_, N> {
    /// A word, loaded relaxed; 0 out of bounds.
    pub(crate) fn load(&self, index: usize) -> u64 {
        self.0
            .get(index)
            .map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// A word, and nothing that follows is loaded before it. (A fence, because
    /// only relaxed loads are promised to work on memory for reading only.)
    pub(crate) fn acquire(&self, index: usize) -> u64 {
        let value = self.load(index);
        fence(Ordering::Acquire);
        value
    }
}

/// A mapping for reading and writing, and its file.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    view: SharedView,
    file: Arc<OwnedFd>,
}

impl Deref for SharedMemory {
    type Target = SharedView;

    fn deref(&self) -> &SharedView {
        &self.view
    }
}

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
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        Self::map(file, length)
    }

    /// Maps memory that was made before, here or elsewhere.
    ///
    /// # Errors
    /// `InvalidData` when the file is not of `length` bytes or could become
    /// shorter; `PermissionDenied` when it is open for reading only; those of
    /// fstat(2), fcntl(2) and mmap(2).
    pub(crate) fn map(file: OwnedFd, length: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let view = SharedView::map_with(file.as_fd(), length, access)?;
        Ok(Self {
            view,
            file: Arc::new(file),
        })
    }

    /// The file, open for reading and writing.
    pub(crate) fn file(&self) -> &Arc<OwnedFd> {
        &self.file
    }

    /// A new descriptor of the file that can be mapped for reading only.
    ///
    /// # Errors
    /// Those of open(2); there is no `/proc`.
    pub(crate) fn reopen_read_only(&self) -> io::Result<OwnedFd> {
        // Passing the file's own descriptor on would pass the right to write.
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(path, flags, Mode::empty())?)
    }

    /// `N` atomics in a row.
    ///
    /// # Panics
    /// Out of bounds, or where `at` is not a multiple of eight.
    pub(crate) fn atomics<const N: usize>(&self, at: usize) -> &[AtomicU64; N] {
        self.view.array(at)
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

    /// How often `byte` occurs among bytes that the calling thread alone may
    /// write now: they are counted where they are.
    ///
    /// # Panics
    /// Out of bounds.
    pub(crate) fn count_own(&self, at: usize, length: usize, byte: u8) -> u64 {
        let source = self.at(at, length);
        // SAFETY: in bounds; the bytes do not change during the call, since only
        // one thread at a time may write to one place and it is this one.
        let bytes = unsafe { std::slice::from_raw_parts(source.as_ptr(), length) };
        memchr::memchr_iter(byte, bytes).count() as u64
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
}
