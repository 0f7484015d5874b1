//! The Unix socket: bound where nobody else can have put something.
//!
//! The directory is ours and 0700, and everything in it is reached through its
//! handle. A lock file beside the socket is held (flock(2)) while the daemon
//! lives, so two never fight for one name. What stands at the socket's name:
//!
//! | found | then |
//! |---|---|
//! | nothing | bound |
//! | a socket of ours that refuses connections | stale: replaced |
//! | a socket that answers, or the lock is held | [`SocketError::AlreadyRunning`] |
//! | a link, a file, somebody else's | [`SocketError::InTheWay`], untouched |
//!
//! At the end the socket is removed only if it is still the one we bound.

pub mod private_directory;

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::net::UnixListener;

use self::private_directory::DirectoryError;

/// Why there is no socket.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SocketError {
    /// Its directory is not safe.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The path names no file in a directory.
    #[error("{path:?} is not the path of a socket: it must be absolute and end in a name")]
    NotAPath {
        /// As given.
        path: PathBuf,
    },
    /// Somebody listens there.
    #[error("a daemon is already running at {path:?}; use it, stop it, or name another socket")]
    AlreadyRunning {
        /// Where.
        path: PathBuf,
    },
    /// Something else stands there.
    #[error("{path:?} is {what} and was left as it is; remove it or name another socket")]
    InTheWay {
        /// What stands there.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// Anything else the kernel says.
    #[error("{path:?} cannot be listened on: {doing} failed: {errno}")]
    System {
        /// Where.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// Why.
        errno: Errno,
    },
}

/// A bound socket. Dropping it removes the file, if it is still ours, and then
/// lets go of the lock.
#[derive(Debug)]
pub struct Socket {
    directory: OwnedFd,
    name: OsString,
    path: PathBuf,
    file: (u64, u64),
    listener: Option<StdListener>,
    lock: OwnedFd,
}

/// A bound socket as a value; its descriptors go beside it.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct SocketState {
    #[serde(with = "crate::path_bytes")]
    path: PathBuf,
    file: (u64, u64),
}

impl SocketState {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Socket {
    /// Binds `path`. Blocks for a moment.
    ///
    /// # Errors
    /// See [`SocketError`]; nothing that was there is changed then.
    pub fn bind(path: &Path) -> Result<Self, SocketError> {
        let not_a_path = || SocketError::NotAPath {
            path: path.to_owned(),
        };
        let name = path.file_name().ok_or_else(not_a_path)?.to_owned();
        let parent = path.parent().filter(|parent| parent.is_absolute());
        let directory = private_directory::open(parent.ok_or_else(not_a_path)?)?;
        let place = Place {
            path,
            directory: &directory,
            name: &name,
        };
        let lock = place.lock()?;
        place.make_room()?;
        let (listener, file) = place.listen()?;
        Ok(Self {
            name,
            path: path.to_owned(),
            file,
            listener: Some(listener),
            lock,
            directory,
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What a later image of this program needs to go on listening: see
    /// [`Socket::adopt`]. The descriptors are its directory, its listener, which
    /// the caller has taken, and its lock.
    #[must_use]
    pub fn kept(&self) -> (SocketState, [&OwnedFd; 2]) {
        let state = SocketState {
            path: self.path.clone(),
            file: self.file,
        };
        (state, [&self.directory, &self.lock])
    }

    /// Goes on with a socket that an earlier image of this program has bound.
    ///
    /// # Errors
    /// Its path names no file.
    pub fn adopt(
        state: SocketState,
        directory: OwnedFd,
        lock: OwnedFd,
        listener: OwnedFd,
    ) -> Result<Self, SocketError> {
        let not_a_path = || SocketError::NotAPath {
            path: state.path.clone(),
        };
        Ok(Self {
            name: state.path.file_name().ok_or_else(not_a_path)?.to_owned(),
            file: state.file,
            listener: Some(StdListener::from(listener)),
            lock,
            directory,
            path: state.path,
        })
    }

    /// The listener, for the current runtime. Once.
    ///
    /// # Errors
    /// When it was taken before, or the runtime cannot watch it.
    pub fn listener(&mut self) -> std::io::Result<UnixListener> {
        let listener = self.listener.take().ok_or(std::io::ErrorKind::NotFound)?;
        UnixListener::from_std(listener)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let found = rustix::fs::statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|stat| file_of(&stat) == self.file) {
            // One that cannot be removed is stale to the next daemon.
            let _ = rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty());
        }
    }
}

/// Connects to a socket that was bound like this. Does not wait for it to be
/// accepted.
///
/// # Errors
/// Those of connect(2) and of opening its directory.
pub fn connect(path: &Path) -> std::io::Result<OwnedFd> {
    let name = path.file_name().ok_or(std::io::ErrorKind::InvalidInput)?;
    let parent = path.parent().ok_or(std::io::ErrorKind::InvalidInput)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(parent, flags, Mode::empty())?;
    let socket = new_socket()?;
    rustix::net::connect(&socket, &address(&directory, name)?)?;
    Ok(socket)
}

/// The name through the directory's handle (proc(5)): the same directory
/// whatever happened to its path, and short enough for unix(7) whatever the
/// path's length.
fn address(directory: &OwnedFd, name: &OsStr) -> Result<SocketAddrUnix, Errno> {
    let directory = format!("/proc/self/fd/{}", directory.as_raw_fd());
    SocketAddrUnix::new(Path::new(&directory).join(name))
}

fn new_socket() -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )
}

struct Place<'a> {
    path: &'a Path,
    directory: &'a OwnedFd,
    name: &'a OsString,
}

impl Place<'_> {
    fn system(&self, doing: &'static str, errno: Errno) -> SocketError {
        SocketError::System {
            path: self.path.to_owned(),
            doing,
            errno,
        }
    }

    fn in_the_way(&self, what: &'static str) -> SocketError {
        SocketError::InTheWay {
            path: self.path.to_owned(),
            what,
        }
    }

    fn lock(&self) -> Result<OwnedFd, SocketError> {
        let mut name = self.name.clone();
        name.push(".held");
        let lock =
            private_directory::open_file(self.directory, &name).map_err(|errno| match errno {
                Errno::LOOP | Errno::INVAL | Errno::ISDIR | Errno::NXIO => SocketError::InTheWay {
                    path: self.path.with_file_name(&name),
                    what: "no file of ours",
                },
                errno => self.system("opening its lock file", errno),
            })?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(lock),
            Err(Errno::WOULDBLOCK) => Err(SocketError::AlreadyRunning {
                path: self.path.to_owned(),
            }),
            Err(errno) => Err(self.system("locking", errno)),
        }
    }

    /// Removes a stale socket of ours, and nothing else.
    fn make_room(&self) -> Result<(), SocketError> {
        let found = rustix::fs::statat(self.directory, self.name, AtFlags::SYMLINK_NOFOLLOW);
        let stat = match found {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(self.system("looking at it", errno)),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Socket => {}
            FileType::Symlink => return Err(self.in_the_way("a link")),
            FileType::Directory => return Err(self.in_the_way("a directory")),
            _ => return Err(self.in_the_way("not a socket")),
        }
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(self.in_the_way("another user's socket"));
        }
        if !self.refuses()? {
            return Err(SocketError::AlreadyRunning {
                path: self.path.to_owned(),
            });
        }
        // Under the lock, in a directory that only we can change, the name is
        // still the socket that refused.
        rustix::fs::unlinkat(self.directory, self.name, AtFlags::empty())
            .map_err(|errno| self.system("removing the stale socket", errno))
    }

    fn refuses(&self) -> Result<bool, SocketError> {
        let socket = self.new_socket()?;
        match rustix::net::connect(&socket, &self.address()?) {
            Err(Errno::CONNREFUSED) => Ok(true),
            // Connected, or its queue is full: somebody has it open.
            Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS) => Ok(false),
            Err(errno) => Err(self.system("connecting to what is there", errno)),
        }
    }

    fn listen(&self) -> Result<(StdListener, (u64, u64)), SocketError> {
        let socket = self.new_socket()?;
        rustix::net::bind(&socket, &self.address()?)
            .map_err(|errno| self.system("binding", errno))?;
        // bind(2) applies the umask, which belongs to the whole program; the
        // directory keeps everybody out meanwhile.
        rustix::fs::chmodat(
            self.directory,
            self.name,
            Mode::RUSR | Mode::WUSR,
            AtFlags::empty(),
        )
        .map_err(|errno| self.system("setting its mode", errno))?;
        let stat = rustix::fs::statat(self.directory, self.name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| self.system("looking at it", errno))?;
        rustix::net::listen(&socket, 1024).map_err(|errno| self.system("listening", errno))?;
        Ok((StdListener::from(socket), file_of(&stat)))
    }

    fn new_socket(&self) -> Result<OwnedFd, SocketError> {
        new_socket().map_err(|errno| self.system("making a socket", errno))
    }

    fn address(&self) -> Result<SocketAddrUnix, SocketError> {
        address(self.directory, self.name).map_err(|errno| self.system("naming it", errno))
    }
}

fn file_of(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

#[cfg(test)]
mod tests;
