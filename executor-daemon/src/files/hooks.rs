//! Where tests step in between: another program's act at one exact moment.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

type Act = Arc<dyn Fn(&Path) + Send + Sync>;

/// What happens when. Nothing, by default.
#[derive(Default)]
pub(super) struct Hooks {
    act: Mutex<Option<Act>>,
    no_exchange: AtomicBool,
}

impl Hooks {
    /// Does `act` just before each exchange, after the last look at the file.
    pub(super) fn before_commit(&self, act: impl Fn(&Path) + Send + Sync + 'static) {
        *self.act.lock().unwrap() = Some(Arc::new(act));
    }

    /// As on a file system without renameat2(2)'s flags.
    pub(super) fn without_exchange(&self) {
        self.no_exchange.store(true, Ordering::Relaxed);
    }

    pub(super) fn commit(&self, path: &Path) {
        let act = self.act.lock().unwrap().clone();
        if let Some(act) = act {
            act(path);
        }
    }

    pub(super) fn has_no_exchange(&self) -> bool {
        self.no_exchange.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooks")
    }
}
