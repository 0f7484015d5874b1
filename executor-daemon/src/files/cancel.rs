//! A flag by which the caller of a blocking operation gives it up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::FileError;

/// Clones are of one flag. It is looked at at least once per 256 KiB read and
/// per directory entry.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A flag that is not raised.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Raises it, for good.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// # Errors
    /// [`FileError::Cancelled`] once it is raised.
    pub fn check(&self) -> Result<(), FileError> {
        if self.0.load(Ordering::Relaxed) {
            return Err(FileError::Cancelled);
        }
        Ok(())
    }
}
