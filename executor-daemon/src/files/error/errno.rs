//! What the system says, as errors of the module.

use std::path::Path;

use rustix::io::Errno;

use super::super::resolve::ResolveError;
use super::FileError;

impl FileError {
    /// What the system said while `doing` something (as `reading`) with what
    /// was given as `given`.
    #[must_use]
    pub fn from_errno(errno: Errno, doing: &'static str, given: &Path) -> Self {
        let given = given.to_owned();
        match errno {
            Errno::NOENT => Self::NotFound {
                given,
                candidates: Vec::new(),
            },
            Errno::NOTDIR => Self::Resolve(ResolveError::NotADirectory { given }),
            Errno::ACCESS | Errno::PERM => Self::Resolve(ResolveError::PermissionDenied { given }),
            Errno::NAMETOOLONG | Errno::LOOP => {
                ResolveError::from_errno(errno, given.as_os_str()).into()
            }
            Errno::NOSPC | Errno::DQUOT => Self::NoSpace { given },
            Errno::ISDIR => Self::IsADirectory { given },
            Errno::CANCELED => Self::Cancelled,
            Errno::ROFS => Self::FileSystemReadOnly { given, doing },
            Errno::BUSY | Errno::TXTBSY => Self::InUse {
                given,
                doing,
                errno,
            },
            Errno::AGAIN => Self::NotNow { given, doing },
            Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS => Self::FileSystemRefuses {
                given,
                doing,
                errno,
            },
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Self::OutOfResources {
                given,
                doing,
                errno,
            },
            errno => Self::Io {
                given,
                doing,
                errno,
            },
        }
    }

    /// As [`FileError::from_errno`], from an error of the standard library.
    #[must_use]
    pub fn from_io(error: &std::io::Error, doing: &'static str, given: &Path) -> Self {
        let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
        Self::from_errno(errno, doing, given)
    }
}

impl From<ResolveError> for FileError {
    fn from(error: ResolveError) -> Self {
        match error {
            ResolveError::NotFound { given } => Self::NotFound {
                given,
                candidates: Vec::new(),
            },
            // What the module knows a reason for has it wherever it came from.
            ResolveError::Other { given, errno } => Self::from_errno(errno, "opening", &given),
            error => Self::Resolve(error),
        }
    }
}
