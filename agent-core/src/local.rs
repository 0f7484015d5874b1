//! The machine `local`: a daemon inside this process.
//!
//! Nothing to install and no socket: the client reaches it over a stream in
//! memory and knows no difference. It ends with the process, and ends its
//! children with it.

use executor_client::Machine;
use executor_daemon::{Config, Embedded, ServeError, embed};

/// A daemon in this process, and the machine it serves.
///
/// Dropping it ends its children in the background;
/// [`LocalMachine::shutdown`] waits until they have ended.
#[derive(Debug)]
pub struct LocalMachine {
    embedded: Embedded,
    machine: Machine,
}

impl LocalMachine {
    /// Starts it with the settings for embedding. Must be called inside a
    /// tokio runtime.
    ///
    /// # Errors
    /// What keeps the daemon from starting.
    pub fn start() -> Result<Self, ServeError> {
        let embedded = embed(Config::for_embedding())?;
        let connector = embedded.connector();
        let machine = Machine::from_connector(move || {
            let connector = connector.clone();
            async move { connector.connect().await }
        });
        Ok(Self { embedded, machine })
    }

    /// The machine.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Ends its children and then the daemon. Dropping the future leaves the
    /// rest to the background.
    pub async fn shutdown(self) {
        self.embedded.shutdown().await;
    }
}

/// The part of a command's small reaper that runs in our own program. Call it
/// first in `main`, before any runtime or thread: in a process that was
/// started as a reaper it does not return.
pub fn reaper_entry() {
    executor_daemon::reaper_entry();
}
