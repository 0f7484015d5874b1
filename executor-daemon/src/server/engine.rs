//! The process engine as the server needs it.

use std::ffi::OsString;
use std::future::Future;
use std::os::unix::ffi::OsStrExt as _;
use std::pin::Pin;

use tokio::sync::mpsc;

use super::ServeError;
use crate::config::{Config, StopMeansSetting};
use crate::host::client::HostClient;
use crate::host::{self, Finder, HostConfig, Notice, Running};
use crate::process::tree::Preferred;

/// A running engine.
pub(crate) struct Engine {
    /// The daemon's end of the seam.
    pub(crate) client: HostClient,
    /// What a process host of its own tells its daemon.
    pub(crate) notices: Option<mpsc::Receiver<Notice>>,
    /// Returns when nothing of it runs any more.
    pub(crate) finished: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

/// Coming to an engine, on the current runtime.
pub(crate) type Starting<'a> =
    Pin<Box<dyn Future<Output = Result<Engine, ServeError>> + Send + 'a>>;

/// See [`Starting`].
pub(crate) type Start = fn(&Config) -> Starting<'_>;

/// The engine of this process, for a program that embeds us.
pub(crate) fn embedded(config: &Config) -> Starting<'_> {
    Box::pin(async { Ok(running(host::start(host_config(config, true)))) })
}

/// The engine in a process of its own, which outlives this daemon: the one that
/// is there, or a new one.
pub(crate) fn separate(config: &Config) -> Starting<'_> {
    Box::pin(async {
        let logging = [
            ("--log-level", config.log_level.clone()),
            ("--log-format", config.log_format.name().to_owned()),
        ];
        let arguments: Vec<OsString> = logging
            .into_iter()
            .flat_map(|(flag, value)| [flag.into(), value.into()])
            .collect();
        let finder = Finder::new(&config.socket, &host_config(config, false), &arguments);
        let linked = host::link(finder).await?;
        Ok(Engine {
            notices: Some(linked.notices),
            ..running(linked.running)
        })
    })
}

fn running(running: Running) -> Engine {
    Engine {
        notices: None,
        client: running.client,
        finished: Box::pin(running.task.finished()),
    }
}

fn host_config(config: &Config, embedded: bool) -> HostConfig {
    let bytes = |text: &OsString| text.as_bytes().to_vec();
    HostConfig {
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
    }
}
