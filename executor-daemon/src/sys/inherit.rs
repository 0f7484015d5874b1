//! A program that replaces itself (execve(2)) and goes on with its descriptors.

use std::ffi::{CStr, CString};
use std::io::{self, Read as _, Seek as _};
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt as _;
use std::ptr;

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

use super::signal::BlockAll;

/// The argument after which the next image is told the number of the descriptor
/// that says what was left to it.
pub const RESUME: &CStr = c"--resume";

/// This program's arguments, without [`RESUME`] and its value.
///
/// # Errors
/// Never on Linux, where arguments hold no NUL.
pub fn own_arguments() -> io::Result<Vec<CString>> {
    let words = std::env::args_os().map(|word| CString::new(word.into_vec()));
    let mut words = words.collect::<Result<Vec<_>, _>>()?;
    if let Some(at) = words.iter().position(|word| word.as_c_str() == RESUME) {
        words.drain(at..words.len().min(at + 2));
    }
    Ok(words)
}

/// All that is in a memory file, from its beginning.
///
/// # Errors
/// Those of read(2).
pub fn read_whole(file: OwnedFd) -> io::Result<Vec<u8>> {
    let mut file = std::fs::File::from(file);
    let mut content = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut content)?;
    Ok(content)
}

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

/// Replaces this program; `kept` stays open across it. Every signal is blocked
/// meanwhile, so that none is lost or ends the new image before it can act on
/// it: that one unblocks what it wants. Returns only when it failed, and then
/// nothing has changed.
pub fn replace(program: &CStr, argv: &[CString], envp: &[CString], kept: &[&OwnedFd]) -> io::Error {
    let error = match close_on_exec(kept, false) {
        Ok(()) => execute(program, argv, envp),
        Err(error) => error,
    };
    // Else a child that is started later would get them.
    let _ = close_on_exec(kept, true);
    error
}

fn close_on_exec(descriptors: &[&OwnedFd], close: bool) -> io::Result<()> {
    for descriptor in descriptors {
        let mut flags = fcntl_getfd(descriptor)?;
        flags.set(FdFlags::CLOEXEC, close);
        fcntl_setfd(descriptor, flags)?;
    }
    Ok(())
}

fn execute(program: &CStr, argv: &[CString], envp: &[CString]) -> io::Error {
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
    fn what_was_to_be_kept_is_close_on_exec_again_after_a_failure() {
        let (reader, _writer) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
        let error = replace(c"/nonexistent/program", &[], &[], &[&reader]);
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let flags = fcntl_getfd(&reader).expect("flags");
        assert!(flags.contains(FdFlags::CLOEXEC));
    }

    #[test]
    fn only_what_was_kept_is_adopted() {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        close_on_exec(&[&reader], false).expect("kept");
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
