//! A program that replaces itself (execve(2)) and goes on with its descriptors.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::ptr;

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

use super::signal::BlockAll;

/// Takes over descriptors that an earlier image of this program has kept open,
/// and makes them close-on-exec. Call it once with each: they are owned from
/// then on.
///
/// # Errors
/// `EBADF` when one is not open; `EINVAL` when one is close-on-exec, so that
/// it cannot have been kept, or is named twice. None is taken then.
pub fn adopt(kept: &[RawFd]) -> io::Result<Vec<OwnedFd>> {
    let refused = |errno| io::Error::from_raw_os_error(errno);
    for (at, fd) in kept.iter().enumerate() {
        if *fd <= 2 || kept.iter().take(at).any(|other| other == fd) {
            return Err(refused(libc::EINVAL));
        }
        // SAFETY: F_GETFD takes no pointer and changes nothing.
        let flags = unsafe { libc::fcntl(*fd, libc::F_GETFD) };
        if flags < 0 {
            return Err(io::Error::last_os_error());
        }
        if flags & libc::FD_CLOEXEC != 0 {
            return Err(refused(libc::EINVAL));
        }
    }
    kept.iter()
        .map(|fd| {
            // SAFETY: it is open, and what is open without close-on-exec above
            // 2 was left by the image before this one: everything that this
            // program opens is close-on-exec, so nobody here owns it.
            let fd = unsafe { OwnedFd::from_raw_fd(*fd) };
            fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
            Ok(fd)
        })
        .collect()
}

/// Keeps descriptors open across [`replace`].
///
/// # Errors
/// Those of fcntl(2).
pub fn keep<'a>(descriptors: impl IntoIterator<Item = &'a OwnedFd>) -> io::Result<()> {
    for descriptor in descriptors {
        let flags = fcntl_getfd(descriptor)?;
        fcntl_setfd(descriptor, flags.difference(FdFlags::CLOEXEC))?;
    }
    Ok(())
}

/// Replaces this program. Every signal is blocked across it, so that none is
/// lost or ends the new image before it can act on it: that one unblocks what
/// it wants. Returns only when it failed.
pub fn replace(program: &CStr, argv: &[CString], envp: &[CString]) -> io::Error {
    let pointers = |list: &[CString]| -> Vec<*const libc::c_char> {
        list.iter()
            .map(|entry| entry.as_ptr())
            .chain([ptr::null()])
            .collect()
    };
    let (argv, envp) = (pointers(argv), pointers(envp));
    let _blocked = BlockAll::new();
    // SAFETY: the program's name and both lists are NUL-terminated and outlive
    // the call, which returns only with an error.
    unsafe {
        libc::execve(program.as_ptr(), argv.as_ptr(), envp.as_ptr());
    }
    io::Error::last_os_error()
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd as _, IntoRawFd as _};

    use super::*;

    #[test]
    fn only_what_was_kept_is_adopted() {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        keep([&reader]).expect("kept");
        fcntl_setfd(&writer, FdFlags::CLOEXEC).expect("flags");
        assert!(adopt(&[writer.as_raw_fd()]).is_err());
        assert!(adopt(&[reader.as_raw_fd(), reader.as_raw_fd()]).is_err());
        assert!(adopt(&[0]).is_err());
        let kept = reader.into_raw_fd();
        let adopted = adopt(&[kept]).expect("adopted");
        assert!(
            fcntl_getfd(&adopted[0])
                .expect("flags")
                .contains(FdFlags::CLOEXEC)
        );
        drop(adopted);
        assert!(adopt(&[kept]).is_err());
    }
}
