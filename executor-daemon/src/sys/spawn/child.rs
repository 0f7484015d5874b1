//! What runs between clone and execve, in the caller's memory.
//!
//! Only system calls: no allocation, no lock, no panic, nothing that is not
//! async-signal-safe (signal-safety(7)), because another thread of the caller
//! may have held any lock when this one was cloned.

use std::ffi::{c_char, c_int, c_long, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use crate::process::exit::SpawnStage;

/// All that the child needs. The pointers are to NULL-terminated arrays that
/// outlive the call, because the parent sleeps meanwhile.
pub(super) struct Setup {
    pub(super) paths: *const *const c_char,
    pub(super) argv: *const *const c_char,
    pub(super) envp: *const *const c_char,
    pub(super) cwd: c_int,
    /// For 0, 1, 2; not used with a terminal.
    pub(super) descriptors: [c_int; 3],
    /// NULL without one.
    pub(super) terminal: *const c_char,
    /// A cgroup that clone did not enter; −1 for none.
    pub(super) cgroup: c_int,
    /// Where the child's pid is announced; NULL for nowhere.
    pub(super) memory: *const AtomicU32,
    /// The socket where it is announced, −1 for none, and the first byte.
    pub(super) datagram: (c_int, u8),
    /// It begins with the caller's descriptor table, and has to take its own.
    pub(super) shares_descriptors: bool,
    /// 0 while nothing has failed, else the number of a stage.
    pub(super) failed_at: AtomicI32,
    pub(super) errno: AtomicI32,
}

/// Stages as numbers, since an enum cannot be stored atomically.
const STAGES: [SpawnStage; 6] = [
    SpawnStage::Cgroup,
    SpawnStage::Session,
    SpawnStage::WorkingDirectory,
    SpawnStage::Terminal,
    SpawnStage::Stdio,
    SpawnStage::Exec,
];
const CGROUP: i32 = 1;
const SESSION: i32 = 2;
const WORKING_DIRECTORY: i32 = 3;
const TERMINAL: i32 = 4;
const STDIO: i32 = 5;
const EXEC: i32 = 6;

/// The stage that a number stands for; `None` for "nothing failed".
pub(super) fn stage(number: i32) -> Option<SpawnStage> {
    let index = usize::try_from(number.checked_sub(1)?).ok()?;
    STAGES.get(index).copied()
}

/// Tries of execve(2) while another process holds the file open for writing:
/// a start that began beside ours may hold a copy of a descriptor until it
/// executes. Together about 125 ms.
const BUSY_TRIES: u32 = 50;
const BUSY_PAUSE_NS: c_long = 2_500_000;

/// The first and last function of the child. Never returns.
///
/// `setup` must point to a [`Setup`] that stays valid and unaliased until the
/// child has executed or ended.
pub(super) extern "C" fn run(setup: *mut c_void) -> c_int {
    // SAFETY: the caller of clone passes a pointer to a live `Setup`, and the
    // parent's thread does not run until this process executes or exits.
    let setup = unsafe { &*setup.cast::<Setup>() };
    // SAFETY: NULL, or a value that outlives the parent's sleep.
    let memory = unsafe { setup.memory.as_ref() };
    if let Some(memory) = memory {
        memory.store(pid(), Ordering::SeqCst);
    }
    let (stage, errno) = become_program(setup);
    if let Some(memory) = memory {
        // While it can still be seen to be ours: the parent reaps it next.
        memory.store(0, Ordering::SeqCst);
    }
    setup.errno.store(errno, Ordering::Release);
    setup.failed_at.store(stage, Ordering::Release);
    // SAFETY: _exit(2) runs no handlers and touches no memory.
    unsafe { libc::_exit(127) }
}

/// Returns only on failure, with the stage and errno.
fn become_program(setup: &Setup) -> (i32, i32) {
    if setup.shares_descriptors
        && let Err(errno) = own_descriptors(setup)
    {
        return (STDIO, errno);
    }
    if setup.cgroup >= 0
        && let Err(errno) = enter_cgroup(setup.cgroup)
    {
        return (CGROUP, errno);
    }
    reset_dispositions();
    // SAFETY: plain system call without pointers.
    if unsafe { libc::setsid() } < 0 {
        return (SESSION, errno());
    }
    // Before descriptors 0 to 2 are replaced: the directory may be one of them.
    // SAFETY: plain system call without pointers.
    if unsafe { libc::fchdir(setup.cwd) } < 0 {
        return (WORKING_DIRECTORY, errno());
    }
    if setup.terminal.is_null() {
        if let Err(errno) = place(setup.descriptors) {
            return (STDIO, errno);
        }
    } else if let Err(failure) = open_terminal(setup.terminal) {
        return failure;
    }
    announce(setup.datagram);
    close_above_two();
    // SAFETY: the pointers are those of `Setup`, valid and NULL-terminated.
    (EXEC, unsafe { execute(setup) })
}

fn errno() -> i32 {
    // SAFETY: always points to this thread's errno, which the sleeping parent
    // thread shares and does not look at.
    unsafe { *libc::__errno_location() }
}

fn pid() -> u32 {
    // SAFETY: plain system call without pointers.
    unsafe { libc::getpid() }.cast_unsigned()
}

/// One that cannot be told is learned of later.
fn announce((socket, first): (c_int, u8)) {
    if socket < 0 {
        return;
    }
    let [a, b, c, d] = pid().to_le_bytes();
    let datagram = [first, a, b, c, d];
    // SAFETY: the buffer has the length that is passed.
    unsafe {
        libc::send(
            socket,
            datagram.as_ptr().cast(),
            datagram.len(),
            libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
        );
    }
}

/// Writing 0 moves the writer (cgroups(7)).
fn enter_cgroup(directory: c_int) -> Result<(), i32> {
    // SAFETY: the string literals are NUL-terminated and the buffer has the
    // length that is passed.
    unsafe {
        let procs = libc::openat(
            directory,
            c"cgroup.procs".as_ptr(),
            libc::O_WRONLY | libc::O_CLOEXEC,
        );
        if procs < 0 || libc::write(procs, c"0".as_ptr().cast(), 1) != 1 {
            return Err(errno());
        }
    }
    Ok(())
}

/// `CLONE_CLEAR_SIGHAND` leaves ignored signals ignored (clone(2)), and so
/// does execve(2). 62 plain calls are cheaper than asking which there are.
fn reset_dispositions() {
    // A kernel's sigaction of all zeros: SIG_DFL, no flags, an empty mask.
    let default = [0u64; 4];
    for signal in 1..=64 {
        if signal == libc::SIGKILL || signal == libc::SIGSTOP {
            continue;
        }
        // SAFETY: `default` is as large as the kernel's structure, and no old
        // action is asked for. The table is the child's own (no CLONE_SIGHAND).
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                ptr::null::<c_void>(),
                8usize,
            );
        }
    }
}

/// Puts three descriptors onto 0, 1, 2 whatever their numbers are.
fn place(mut descriptors: [c_int; 3]) -> Result<(), i32> {
    // First out of the way, so that none is overwritten before it is copied.
    for descriptor in &mut descriptors {
        if *descriptor < 3 {
            // SAFETY: plain system call without pointers.
            *descriptor = unsafe { libc::fcntl(*descriptor, libc::F_DUPFD_CLOEXEC, 3) };
            if *descriptor < 0 {
                return Err(errno());
            }
        }
    }
    for (target, descriptor) in (0..3).zip(descriptors) {
        // The copy is without close-on-exec (dup(2)).
        // SAFETY: plain system call without pointers.
        if unsafe { libc::dup2(descriptor, target) } < 0 {
            return Err(errno());
        }
    }
    Ok(())
}

/// A session leader without a controlling terminal gets the first one that it
/// opens without `O_NOCTTY` (open(2)), with its own group in the foreground.
fn open_terminal(path: *const c_char) -> Result<(), (i32, i32)> {
    // SAFETY: `path` is NUL-terminated and outlives the call.
    let terminal = unsafe { libc::open(path, libc::O_RDWR) };
    if terminal < 0 {
        return Err((TERMINAL, errno()));
    }
    for target in 0..3 {
        // SAFETY: plain system call without pointers.
        if unsafe { libc::dup2(terminal, target) } < 0 {
            return Err((STDIO, errno()));
        }
    }
    Ok(())
}

/// Takes a table of its own with what is needed, and what lies below it.
fn own_descriptors(setup: &Setup) -> Result<(), i32> {
    let [stdin, stdout, stderr] = setup.descriptors;
    let (socket, _) = setup.datagram;
    let mut last = 2;
    for needed in [setup.cwd, stdin, stdout, stderr, setup.cgroup, socket] {
        if needed > last {
            last = needed;
        }
    }
    let first_unneeded = last.cast_unsigned().wrapping_add(1);
    // SAFETY: it closes nothing of the caller's: the copy is made first.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first_unneeded,
            u32::MAX,
            libc::CLOSE_RANGE_UNSHARE,
        )
    };
    if answer == 0 { Ok(()) } else { Err(errno()) }
}

fn close_above_two() {
    // SAFETY: the child has its own descriptor table (no CLONE_FILES), so this
    // closes nothing of the parent.
    unsafe {
        if libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32) == 0 {
            return;
        }
        // Before Linux 5.9, or filtered: one by one, as far as the limit goes.
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        let last = if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            c_int::try_from(limit.rlim_cur).unwrap_or(c_int::MAX)
        } else {
            1024
        };
        for descriptor in 3..last.min(1 << 20) {
            libc::close(descriptor);
        }
    }
}

/// Returns only on failure, with errno.
///
/// # Safety
/// The three arrays of `setup` must be valid and NULL-terminated.
unsafe fn execute(setup: &Setup) -> i32 {
    let nothing = 0u64;
    // SAFETY: the mask has the kernel's size; no old mask is asked for.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const nothing,
            ptr::null::<c_void>(),
            8usize,
        );
    }
    let mut refused = false;
    let mut path = setup.paths;
    // SAFETY: `path` walks an array that ends with NULL and stops there.
    while let candidate = unsafe { *path }
        && !candidate.is_null()
    {
        // SAFETY: as promised by the caller.
        match unsafe { execute_one(candidate, setup) } {
            libc::ENOENT | libc::ENOTDIR => {}
            libc::EACCES => refused = true,
            other => return other,
        }
        // SAFETY: the element just read was not the last one.
        path = unsafe { path.add(1) };
    }
    if refused { libc::EACCES } else { libc::ENOENT }
}

/// # Safety
/// `path` must be NUL-terminated, the arrays of `setup` NULL-terminated.
unsafe fn execute_one(path: *const c_char, setup: &Setup) -> i32 {
    let mut tries = 0;
    loop {
        // SAFETY: as promised by the caller.
        unsafe { libc::execve(path, setup.argv, setup.envp) };
        let errno = errno();
        tries += 1;
        if errno != libc::ETXTBSY || tries == BUSY_TRIES {
            return errno;
        }
        let pause = libc::timespec {
            tv_sec: 0,
            tv_nsec: BUSY_PAUSE_NS,
        };
        // SAFETY: `pause` is valid; the remaining time is not asked for.
        unsafe { libc::nanosleep(&raw const pause, ptr::null_mut()) };
    }
}
