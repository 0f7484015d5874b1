//! How this program takes memory.

/// From now on all threads take memory from one pool: what few of them take for
/// long does not hold a pool of each thread (mallopt(3)). For programs of our own
/// whose work is on one thread. Only the C library has such pools; elsewhere this
/// does nothing.
pub fn one_pool() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets a number of the allocator, which any thread may do at any
    // time.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}
