//! Writing into a file instead of replacing it: not atomic, and only where a
//! replacement would lose something and the caller asked for it.

use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::instance::write_all_at;

/// Bytes that are copied at a time.
const CHUNK: usize = 256 << 10;

/// The regular file that an `O_PATH` handle is, opened to be written; neither
/// made nor truncated.
pub(super) fn reopen_for_writing(handle: &OwnedFd) -> Result<OwnedFd, Errno> {
    if rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(handle)?.st_mode)
        != rustix::fs::FileType::RegularFile
    {
        return Err(Errno::INVAL);
    }
    // The way to open what an O_PATH handle is (open(2), proc(5)).
    let link = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match rustix::fs::open(&link, flags, Mode::empty()) {
        Err(Errno::ACCESS) => {
            let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            rustix::fs::open(link, flags, Mode::empty())
        }
        opened => opened,
    }
}

/// Makes the first `length` bytes of `image` the whole content of `file`.
pub(super) fn copy_over(image: &OwnedFd, file: &OwnedFd, length: u64) -> Result<(), Errno> {
    copy(image, file, length)?;
    rustix::fs::ftruncate(file, length)
}

/// Copies the first `length` bytes; both files may be anywhere.
pub(super) fn copy(from: &OwnedFd, to: &OwnedFd, length: u64) -> Result<(), Errno> {
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    while at < length {
        let want = usize::try_from(length - at).map_or(CHUNK, |left| left.min(CHUNK));
        let part = buffer.get_mut(..want).unwrap_or_default();
        match rustix::io::pread(from, &mut *part, at) {
            // Shorter than it was said to be.
            Ok(0) => return Err(Errno::IO),
            Ok(count) => {
                write_all_at(to, part.get(..count).unwrap_or_default(), at)?;
                at += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
