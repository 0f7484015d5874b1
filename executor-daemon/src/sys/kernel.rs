//! What this kernel offers, asked without an effect.

use std::ffi::c_void;
use std::ptr;

/// The Landlock ABI (landlock_create_ruleset(2)); 0 when there is none.
#[must_use]
pub fn landlock_abi() -> u32 {
    const VERSION: u32 = 1;
    // SAFETY: with this flag the call takes no structure and returns a number.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            ptr::null::<c_void>(),
            0usize,
            VERSION,
        )
    };
    u32::try_from(answer).unwrap_or(0)
}

/// close_range(2) works.
#[must_use]
pub fn close_range() -> bool {
    // SAFETY: no descriptor has this number, so nothing is closed.
    unsafe { libc::syscall(libc::SYS_close_range, u32::MAX, u32::MAX, 0u32) == 0 }
}

/// clone3(2) is there and not filtered: a structure of no size is refused as
/// such (`EINVAL`).
#[must_use]
pub fn clone3() -> bool {
    // SAFETY: a size of 0 is refused before anything is read or made.
    let answer = unsafe { libc::syscall(libc::SYS_clone3, ptr::null::<c_void>(), 0usize) };
    answer < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL)
}
