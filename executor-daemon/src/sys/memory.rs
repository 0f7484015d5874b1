//! How this program takes memory and gives it back. Only the GNU C library can
//! be told; elsewhere this does nothing.

use std::sync::atomic::{AtomicBool, Ordering};

/// [`one_pool`] was called.
static OURS: AtomicBool = AtomicBool::new(false);

/// From now on all threads take memory from one pool: what few of them take for
/// long does not hold a pool of each thread (mallopt(3)). For programs of our own
/// whose work is on one thread.
pub fn one_pool() {
    OURS.store(true, Ordering::Relaxed);
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets a number of the allocator, which any thread may do at any
    // time.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives free memory back to the system (malloc_trim(3)), in a program that has
/// called [`one_pool`]: the memory of one that embeds us is its own. Takes some
/// milliseconds where much is free.
pub fn give_back() {
    if !OURS.load(Ordering::Relaxed) {
        return;
    }
    #[cfg(target_env = "gnu")]
    // SAFETY: it touches free memory only, under the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}
