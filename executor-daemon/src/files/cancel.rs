//! A flag by which the caller of a blocking operation gives it up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(test)]
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use rustix::io::Errno;

use super::error::FileError;

/// Clones are of one flag. It is looked at at least once per 256 KiB read or
/// written, per directory entry and per edit; by what changes something only
/// before the change begins.
#[derive(Debug, Clone)]
pub struct Cancel(Option<Arc<Flag>>);

#[derive(Debug)]
struct Flag {
    raised: AtomicBool,
    /// Looks after which it raises itself.
    #[cfg(test)]
    left: AtomicUsize,
}

/// See [`Cancel::never`].
static NEVER: Cancel = Cancel(None);

impl Default for Cancel {
    fn default() -> Self {
        Self(Some(Arc::new(Flag {
            raised: AtomicBool::new(false),
            #[cfg(test)]
            left: AtomicUsize::new(usize::MAX),
        })))
    }
}

impl Cancel {
    /// A flag that is not raised.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One that cannot be raised, for what is carried through in any case.
    #[must_use]
    pub fn never() -> &'static Self {
        &NEVER
    }

    /// One that is raised after so many looks at it.
    #[cfg(test)]
    pub(super) fn after(looks: usize) -> Self {
        let cancel = Self::new();
        if let Some(flag) = &cancel.0 {
            flag.left.store(looks, SeqCst);
        }
        cancel
    }

    /// Raises it, for good.
    pub fn cancel(&self) {
        if let Some(flag) = &self.0 {
            flag.raised.store(true, Ordering::Relaxed);
        }
    }

    /// # Errors
    /// [`FileError::Cancelled`] once it is raised.
    pub fn check(&self) -> Result<(), FileError> {
        self.errno().map_err(|_| FileError::Cancelled)
    }

    /// Has its owner given up?
    pub(super) fn is_raised(&self) -> bool {
        let Some(flag) = &self.0 else {
            return false;
        };
        #[cfg(test)]
        if flag.left.fetch_sub(1, SeqCst) == 0 {
            self.cancel();
        }
        flag.raised.load(Ordering::Relaxed)
    }

    /// For what knows errno(3) only.
    ///
    /// # Errors
    /// `ECANCELED`, which [`FileError::from_errno`] makes
    /// [`FileError::Cancelled`].
    pub(super) fn errno(&self) -> Result<(), Errno> {
        if self.is_raised() {
            return Err(Errno::CANCELED);
        }
        Ok(())
    }
}
