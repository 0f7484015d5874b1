//! Directories that belong to us alone.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

/// Why a directory is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DirectoryError {
    /// Neither there nor to be made.
    #[error("the directory {path:?} cannot be made or opened: {errno}")]
    Unusable {
        /// Which.
        path: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// A link or a file.
    #[error("{path:?} is a link or not a directory; remove it or name another place")]
    NotADirectory {
        /// Which.
        path: PathBuf,
    },
    /// Somebody else could change what is in it.
    #[error("the directory {path:?} belongs to uid {owner}, not to uid {us}; name another place")]
    Foreign {
        /// Which.
        path: PathBuf,
        /// Whose.
        owner: u32,
        /// Who we are.
        us: u32,
    },
    /// Others may enter it.
    #[error(
        "the directory {path:?} has mode {mode:04o} and must have 0700: \
         run chmod 700, or name another place"
    )]
    Open {
        /// Which.
        path: PathBuf,
        /// As it is.
        mode: u32,
    },
}

/// Makes the directory and those above it that are missing, each 0700. What is
/// there stays as it is.
///
/// # Errors
/// As the kernel refuses.
pub fn create_all(path: &Path) -> Result<(), Errno> {
    match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(Errno::NOENT) => {
            let parent = path.parent().filter(|parent| *parent != Path::new(""));
            create_all(parent.ok_or(Errno::NOENT)?)?;
            match rustix::fs::mkdir(path, Mode::RWXU) {
                Err(errno) if errno != Errno::EXIST => Err(errno),
                _ => Ok(()),
            }
        }
        Err(errno) => Err(errno),
    }
}

/// Makes or opens a directory that is ours, not a link, and 0700.
///
/// # Errors
/// See [`DirectoryError`]; nothing that was there is changed.
pub fn open(path: &Path) -> Result<OwnedFd, DirectoryError> {
    let unusable = |errno| DirectoryError::Unusable {
        path: path.to_owned(),
        errno,
    };
    create_all(path).map_err(unusable)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NOTDIR | Errno::LOOP => DirectoryError::NotADirectory {
            path: path.to_owned(),
        },
        errno => unusable(errno),
    })?;
    let stat = rustix::fs::fstat(&directory).map_err(unusable)?;
    let us = rustix::process::geteuid().as_raw();
    if stat.st_uid != us {
        return Err(DirectoryError::Foreign {
            path: path.to_owned(),
            owner: stat.st_uid,
            us,
        });
    }
    let mode = stat.st_mode & 0o777;
    if mode & 0o077 != 0 {
        return Err(DirectoryError::Open {
            path: path.to_owned(),
            mode,
        });
    }
    Ok(directory)
}

/// Opens a file of ours in such a directory, or makes it, 0600 and empty.
///
/// # Errors
/// `EINVAL` for what is no regular file of ours; else as the kernel refuses.
pub fn open_file(directory: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let file = rustix::fs::openat(
        directory,
        name,
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC,
        Mode::RUSR | Mode::WUSR,
    )?;
    let stat = rustix::fs::fstat(&file)?;
    let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !regular || stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(Errno::INVAL);
    }
    Ok(file)
}
