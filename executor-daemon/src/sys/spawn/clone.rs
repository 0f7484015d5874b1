//! clone3(2) onto a stack of the child's own, and clone(2) where there is no
//! clone3.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::child::{self, Setup};

/// How the child is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// clone3(2), and clone(2) when the kernel or a filter refuses it.
    Clone3,
    /// clone(2).
    Clone,
}

/// clone3 was refused once; a system call filter does not change its mind.
static REFUSED: AtomicBool = AtomicBool::new(false);

impl Method {
    pub(super) fn preferred() -> Self {
        if REFUSED.load(Ordering::Relaxed) {
            Self::Clone
        } else {
            Self::Clone3
        }
    }
}

/// The child's stack, with a page below it that faults.
#[derive(Debug)]
pub(super) struct Stack {
    base: *mut c_void,
}

impl Stack {
    const GUARD: usize = 64 << 10;
    const SIZE: usize = 64 << 10;
    const WHOLE: usize = Self::GUARD + Self::SIZE;

    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: a fresh anonymous mapping at an address of the kernel's
        // choice; only its upper part is made accessible.
        unsafe {
            let base = libc::mmap(
                ptr::null_mut(),
                Self::WHOLE,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK,
                -1,
                0,
            );
            if base == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let stack = Self { base };
            let usable = base.byte_add(Self::GUARD);
            if libc::mprotect(usable, Self::SIZE, libc::PROT_READ | libc::PROT_WRITE) != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(stack)
        }
    }

    fn bottom(&self) -> *mut c_void {
        self.base.wrapping_byte_add(Self::GUARD)
    }

    fn top(&self) -> *mut c_void {
        self.base.wrapping_byte_add(Self::WHOLE)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and the child that used it
        // has executed or ended.
        unsafe { libc::munmap(self.base, Self::WHOLE) };
    }
}

const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
const FLAGS: c_int = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD;

/// Makes the child and returns when it has executed or ended. Every signal
/// must be blocked in the calling thread.
pub(super) fn clone(
    method: Method,
    setup: &mut Setup,
    stack: &Stack,
    cgroup: Option<BorrowedFd<'_>>,
) -> io::Result<(u32, OwnedFd)> {
    if method == Method::Clone3 {
        match clone3(setup, stack, cgroup) {
            Err(error) if refuses_clone3(&error) => REFUSED.store(true, Ordering::Relaxed),
            answer => return answer,
        }
    }
    setup.cgroup = cgroup.map_or(-1, |fd| fd.as_raw_fd());
    clone_plain(setup, stack)
}

/// The flag for a child that begins with our descriptors, where it can get rid
/// of them again.
fn share_descriptors(setup: &mut Setup) -> c_int {
    setup.shares_descriptors = can_unshare_descriptors();
    if setup.shares_descriptors {
        libc::CLONE_FILES
    } else {
        0
    }
}

/// close_range(2) came with its flag to unshare (Linux 5.9). A call that closes
/// nothing tells whether it is there.
fn can_unshare_descriptors() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    // SAFETY: no descriptor has this number.
    *CAN.get_or_init(|| unsafe {
        libc::syscall(libc::SYS_close_range, u32::MAX, u32::MAX, 0u32) == 0
    })
}

/// ENOSYS: no clone3. EPERM: a filter. EINVAL and E2BIG: a kernel that does not
/// know one of the flags or the structure's size.
fn refuses_clone3(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOSYS | libc::EPERM | libc::EINVAL | libc::E2BIG)
    )
}

fn clone_plain(setup: &mut Setup, stack: &Stack) -> io::Result<(u32, OwnedFd)> {
    let shared = share_descriptors(setup);
    let mut pidfd: RawFd = -1;
    // SAFETY: the child runs `child::run` on its own stack in our memory while
    // this thread sleeps (CLONE_VFORK), so `setup`, `stack` and `pidfd` outlive
    // its use of them; the child only makes async-signal-safe system calls.
    let pid = unsafe {
        libc::clone(
            child::run,
            stack.top(),
            FLAGS | shared | libc::SIGCHLD,
            ptr::from_mut(setup).cast(),
            &raw mut pidfd,
        )
    };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    finish(i64::from(pid), pidfd)
}

fn finish(pid: i64, pidfd: RawFd) -> io::Result<(u32, OwnedFd)> {
    if pidfd < 0 {
        return Err(io::Error::from_raw_os_error(libc::ENOSYS));
    }
    // SAFETY: the kernel has just made this descriptor for us.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    let pid = u32::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    Ok((pid, pidfd))
}

/// `struct clone_args` (clone(2)), 88 bytes.
#[repr(C, align(8))]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

fn clone3(
    setup: &mut Setup,
    stack: &Stack,
    cgroup: Option<BorrowedFd<'_>>,
) -> io::Result<(u32, OwnedFd)> {
    let mut pidfd: RawFd = -1;
    let shared = share_descriptors(setup);
    let mut flags = u64::from((FLAGS | shared).cast_unsigned()) | CLONE_CLEAR_SIGHAND;
    if cgroup.is_some() {
        flags |= CLONE_INTO_CGROUP;
    }
    let args = CloneArgs {
        flags,
        pidfd: (&raw mut pidfd).addr() as u64,
        exit_signal: u64::from(libc::SIGCHLD.cast_unsigned()),
        stack: stack.bottom().addr() as u64,
        stack_size: Stack::SIZE as u64,
        cgroup: cgroup.map_or(0, |fd| u64::from(fd.as_raw_fd().cast_unsigned())),
        ..CloneArgs::default()
    };
    // SAFETY: as in `clone_plain`; `args` and `pidfd` outlive the call.
    let answer = unsafe { clone3_onto(&args, child::run, ptr::from_mut(setup).cast()) };
    if answer < 0 {
        return Err(io::Error::from_raw_os_error(
            i32::try_from(-answer).unwrap_or(libc::EINVAL),
        ));
    }
    finish(answer, pidfd)
}

/// clone3 whose child calls `entry(argument)` on the new stack. Returns the
/// child's pid, or −errno.
///
/// # Safety
/// `args` must be valid, with a stack of its own for the child and
/// `CLONE_VFORK`; `entry` must never return and be fit to run in the caller's
/// memory; `argument` must be what it expects.
#[cfg(target_arch = "x86_64")]
unsafe fn clone3_onto(
    args: &CloneArgs,
    entry: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
) -> i64 {
    let mut answer = libc::SYS_clone3;
    // SAFETY: in the parent this is one system call with its documented
    // clobbers. The child returns from it on the stack given in `args`, which
    // is 16-byte aligned, with all other registers as they were (clone(2)), and
    // leaves this code by a call that does not return.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r8",
            "call r9",
            "ud2",
            "2:",
            inlateout("rax") answer,
            in("rdi") ptr::from_ref(args),
            in("rsi") size_of::<CloneArgs>(),
            in("r8") argument,
            in("r9") entry,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    answer
}

/// See the one for x86_64.
///
/// # Safety
/// The same.
#[cfg(target_arch = "aarch64")]
unsafe fn clone3_onto(
    args: &CloneArgs,
    entry: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
) -> i64 {
    let answer: i64;
    // SAFETY: as for x86_64; the kernel keeps every register but x0.
    unsafe {
        std::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x30, xzr",
            "mov x0, x9",
            "blr x10",
            "brk 1",
            "2:",
            inlateout("x0") ptr::from_ref(args) => answer,
            in("x1") size_of::<CloneArgs>(),
            in("x8") libc::SYS_clone3,
            in("x9") argument,
            in("x10") entry,
            out("x30") _,
        );
    }
    answer
}

/// Elsewhere clone(2) is used.
///
/// # Safety
/// Nothing is done.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn clone3_onto(
    _: &CloneArgs,
    _: extern "C" fn(*mut c_void) -> c_int,
    _: *mut c_void,
) -> i64 {
    -i64::from(libc::ENOSYS)
}
