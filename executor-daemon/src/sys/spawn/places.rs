//! Low descriptor numbers, kept for what a child is given.
//!
//! A child needs four descriptors of ours and must not have the others. It
//! begins with our table, shared, and takes a copy of its lower part only
//! (close_range(2), `CLOSE_RANGE_UNSHARE`). What it needs is new, and so has
//! high numbers in a process that holds thousands: copying those and closing
//! them one by one would cost more than all the rest of a start. So a process
//! that is all our own sets low numbers aside for it, once, at its beginning.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{Mode, OFlags};
use rustix::io::DupFlags;
use rustix::process::Resource;

/// The working directory, and descriptors 0 to 2.
const NEEDED: usize = 4;
/// Starts at once that find a place, at most; further ones go without.
const PLACES: u64 = 24;
/// Of so many descriptors that the process may have, one place is taken.
const PLACE_OF: u64 = 128;

static FREE: Mutex<Option<Free>> = Mutex::new(None);

struct Free {
    /// What stands where nothing is needed.
    null: OwnedFd,
    places: Vec<[OwnedFd; NEEDED]>,
}

fn free() -> MutexGuard<'static, Option<Free>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the lowest free descriptors aside. For a process that is all our own,
/// before it opens others; elsewhere starts work without. Repeating changes
/// nothing.
///
/// # Errors
/// No descriptor is to be had.
pub fn reserve_descriptors() -> io::Result<()> {
    let mut free = free();
    if free.is_some() {
        return Ok(());
    }
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let null = rustix::fs::open("/dev/null", flags, Mode::empty())?;
    let copy = || rustix::io::fcntl_dupfd_cloexec(&null, 3);
    let place = |_| -> io::Result<_> { Ok([copy()?, copy()?, copy()?, copy()?]) };
    let limit = rustix::process::getrlimit(Resource::Nofile).current;
    let count = (limit.unwrap_or(u64::MAX) / PLACE_OF).min(PLACES);
    let places = (0..count).map(place).collect::<io::Result<_>>()?;
    *free = Some(Free { null, places });
    Ok(())
}

/// Low copies of what one child is given, gone when this is dropped.
pub(super) struct Place(Option<[OwnedFd; NEEDED]>);

impl Place {
    /// `None` where there is none: then the descriptors serve as they are.
    pub(super) fn take(needed: [BorrowedFd<'_>; NEEDED]) -> Option<Self> {
        let taken = free().as_mut().and_then(|free| free.places.pop())?;
        let mut place = Self(Some(taken));
        place.put(needed).ok()?;
        Some(place)
    }

    fn put(&mut self, needed: [BorrowedFd<'_>; NEEDED]) -> io::Result<()> {
        let own = self.0.iter_mut().flatten();
        for (own, needed) in own.zip(needed) {
            rustix::io::dup3(needed, own, DupFlags::CLOEXEC)?;
        }
        Ok(())
    }

    pub(super) fn descriptors(&self) -> Option<[BorrowedFd<'_>; NEEDED]> {
        let [cwd, stdin, stdout, stderr] = self.0.as_ref()?;
        Some([cwd.as_fd(), stdin.as_fd(), stdout.as_fd(), stderr.as_fd()])
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut free = free();
        if let (Some(free), Some(mut taken)) = (free.as_mut(), self.0.take()) {
            let null = free.null.as_fd();
            let emptied = taken
                .iter_mut()
                .all(|own| rustix::io::dup3(null, own, DupFlags::CLOEXEC).is_ok());
            // A copy that stayed would keep a pipe open; closed it does not.
            if emptied {
                free.places.push(taken);
            }
        }
    }
}
