//! The process engine as the server needs it.

use std::future::Future;
use std::os::unix::ffi::OsStrExt as _;
use std::pin::Pin;

use executor_proto::id::Epoch;

use super::ServeError;
use crate::config::{Config, StopMeansSetting};
use crate::host::client::HostClient;
use crate::host::{self, HostConfig};
use crate::process::snapshot::StopMeans;
use crate::process::tree::Preferred;

/// A running engine.
pub(crate) struct Engine {
    /// The daemon's end of the seam.
    pub(crate) client: HostClient,
    /// This life of it.
    pub(crate) epoch: Epoch,
    /// How it stops trees.
    pub(crate) means: StopMeans,
    /// Returns when nothing of it runs any more.
    pub(crate) finished: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("epoch", &self.epoch)
            .field("means", &self.means)
            .finish_non_exhaustive()
    }
}

/// Starts an engine, on the current runtime.
pub(crate) type Start = fn(&Config, embedded: bool) -> Result<Engine, ServeError>;

/// The engine of this process.
pub(crate) fn start(config: &Config, embedded: bool) -> Result<Engine, ServeError> {
    let bytes = |text: &std::ffi::OsString| text.as_bytes().to_vec();
    let host = HostConfig {
        limits: config.limits.clone(),
        environment: config
            .environment
            .iter()
            .map(|(name, value)| (bytes(name), bytes(value)))
            .collect(),
        means: match config.stop_means {
            StopMeansSetting::Auto => Preferred::Auto,
            StopMeansSetting::Cgroup => Preferred::Cgroup,
            StopMeansSetting::Reaper => Preferred::Reaper,
            StopMeansSetting::BestEffort => Preferred::BestEffort,
        },
        reaper: config.reaper.clone(),
        embedded,
        grace: config.grace,
    };
    let running = host::start(host);
    Ok(Engine {
        client: running.client,
        epoch: running.epoch,
        means: running.means,
        finished: Box::pin(running.task.finished()),
    })
}
