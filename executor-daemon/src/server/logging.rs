//! Log lines: structured, to standard error. Never a secret, never output of a
//! command.

use std::io::IsTerminal as _;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::{Config, LogFormat};

/// Sends this program's log lines to standard error. For the daemon's own
/// program, once; an embedding program has its own.
pub fn start(config: &Config) {
    // The configuration has checked it.
    let filter: Targets = config.log_level.parse().unwrap_or_default();
    let registry = tracing_subscriber::registry().with(filter);
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let started = match config.log_format {
        LogFormat::Text => registry.with(lines).try_init(),
        LogFormat::Json => registry.with(lines.json()).try_init(),
    };
    if let Err(error) = started {
        tracing::debug!(%error, "log lines go elsewhere already");
    }
}
