//! The daemon replaces its own program (execve(2)): same pid, same socket, new
//! image. Whoever connects meanwhile waits in the socket's queue; connections
//! that are open end, and clients come again, as after a crash.

use std::ffi::{CString, OsStr, OsString};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tokio::net::UnixListener;

use crate::socket::{Socket, SocketError, SocketState};
use crate::sys::inherit;

/// What an earlier image left. Opaque.
#[derive(Debug, Serialize, Deserialize)]
pub struct Inheritance {
    socket: SocketState,
    /// Directory, lock, listener.
    files: [RawFd; 3],
}

impl Inheritance {
    /// Reads what is in `file`.
    ///
    /// # Errors
    /// It is not of a daemon.
    pub fn read(file: OwnedFd) -> io::Result<Self> {
        Ok(serde_json::from_slice(&inherit::read_whole(file)?)?)
    }

    /// Takes the socket over.
    pub(super) fn adopt(self) -> Result<Socket, SocketError> {
        let system = |errno: io::Error| SocketError::System {
            path: self.socket.path().to_owned(),
            doing: "taking it over from an earlier image",
            errno: rustix::io::Errno::from_io_error(&errno).unwrap_or(rustix::io::Errno::IO),
        };
        let files = inherit::adopt(&self.files).map_err(system)?;
        let files: Result<[OwnedFd; 3], _> = files.try_into();
        let [directory, lock, listener] =
            files.map_err(|_| system(io::ErrorKind::InvalidData.into()))?;
        Socket::adopt(self.socket.clone(), directory, lock, listener)
    }
}

/// What it takes to become another program.
#[derive(Debug)]
pub(super) struct Replaceable {
    socket: SocketState,
    files: [OwnedFd; 3],
}

impl Replaceable {
    pub(super) fn new(socket: &Socket, listener: &UnixListener) -> io::Result<Self> {
        let (state, [directory, lock]) = socket.kept();
        Ok(Self {
            socket: state,
            files: [
                directory.try_clone()?,
                lock.try_clone()?,
                listener.as_fd().try_clone_to_owned()?,
            ],
        })
    }

    /// Becomes `program`, with the arguments and variables of this one. Returns
    /// only when that failed; then nothing has changed.
    pub(super) fn become_program(&self, program: &Path) -> io::Error {
        let (told, argv, envp) = match self.prepare() {
            Ok(prepared) => prepared,
            Err(error) => return error,
        };
        let Ok(program) = string(program.into()) else {
            return io::ErrorKind::InvalidInput.into();
        };
        let kept: Vec<_> = self.files.iter().chain([&told]).collect();
        inherit::replace(&program, &argv, &envp, &kept)
    }

    /// What the next image reads, its arguments and its environment.
    fn prepare(&self) -> io::Result<(OwnedFd, Vec<CString>, Vec<CString>)> {
        let inheritance = Inheritance {
            socket: self.socket.clone(),
            files: self.files.each_ref().map(|file| file.as_raw_fd()),
        };
        let file = rustix::fs::memfd_create("executor-daemon", rustix::fs::MemfdFlags::CLOEXEC)?;
        let mut file = std::fs::File::from(file);
        file.write_all(&serde_json::to_vec(&inheritance)?)?;
        let mut argv = inherit::own_arguments()?;
        argv.push(inherit::RESUME.to_owned());
        argv.push(string(file.as_raw_fd().to_string().into())?);
        let variables = std::env::vars_os().map(|(name, value)| {
            let parts = [name.as_os_str(), OsStr::new("="), &value];
            string(parts.into_iter().collect())
        });
        Ok((file.into(), argv, variables.collect::<Result<_, _>>()?))
    }
}

fn string(text: OsString) -> io::Result<CString> {
    Ok(CString::new(text.into_vec())?)
}
