//! Log lines: structured, to standard error. Never a secret, never output of a
//! command.

use std::io::IsTerminal as _;

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::LogFormat;

/// Lines that may wait to be written.
const LINES: usize = 1_000;

/// Sends this program's log lines to standard error. For the daemon's own
/// program, once; an embedding program has its own.
/// `level` is a level, or levels per module, as the configuration has them.
pub fn start(level: &str, format: LogFormat) {
    start_to(level, format, std::io::stderr);
}

/// As [`start`], but nobody waits for whoever reads standard error: what does not
/// fit the queue is dropped. Lines are written as long as the returned value
/// lives.
pub fn start_without_waiting(level: &str, format: LogFormat) -> WorkerGuard {
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(LINES)
        .thread_name("executor-log")
        .finish(std::io::stderr());
    start_to(level, format, writer);
    guard
}

fn start_to(
    level: &str,
    format: LogFormat,
    writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
) {
    // The configuration has checked it.
    let filter: Targets = level.parse().unwrap_or_default();
    let registry = tracing_subscriber::registry().with(filter);
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(writer);
    let started = match format {
        LogFormat::Text => registry.with(lines).try_init(),
        LogFormat::Json => registry.with(lines.json()).try_init(),
    };
    if let Err(error) = started {
        tracing::debug!(%error, "log lines go elsewhere already");
    }
}
