//! Commands to a daemon that runs: stop, upgrade.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use executor_daemon::Config;
use executor_daemon::host::{Control, ControlError, socket_beside};
use executor_daemon::server::embed;

/// How long ending may take: the grace of every command, and some.
const STOP: Duration = Duration::from_secs(60);
/// How long an upgrade may take.
const UPGRADE: Duration = Duration::from_secs(90);

/// Ends daemon, host and every command.
pub(crate) fn stop(config: &Config) -> anyhow::Result<()> {
    let control = Control::new(&socket_beside(&config.socket));
    match run(control.stop(STOP))? {
        Ok(()) => super::print(&format!("{}: stopped\n", config.socket.display())),
        Err(ControlError::NotRunning(_)) => super::print(&format!(
            "{}: nothing is running\n",
            config.socket.display()
        )),
        Err(error) => Err(error.into()),
    }
}

/// Makes host and daemon go on as another program.
pub(crate) fn upgrade(config: &Config, program: Option<PathBuf>) -> anyhow::Result<()> {
    let program = match program {
        Some(program) => std::path::absolute(program)?,
        None => std::env::current_exe().context("this program has no name")?,
    };
    let control = Control::new(&socket_beside(&config.socket));
    let status = run(control.upgrade(program.clone(), UPGRADE))?
        .with_context(|| format!("the upgrade to {} was not done", program.display()))?;
    let Some(daemon) = status.daemon else {
        bail!(
            "the process host (pid {}) goes on as release {}, but no daemon is in front of \
             it; start `executor-daemon serve`",
            status.pid,
            status.release
        );
    };
    super::print(&format!(
        "process host: pid {}, release {}\ndaemon: pid {}, release {}\n",
        status.pid, status.release, daemon.pid, daemon.release
    ))
}

fn run<T>(work: impl Future<Output = T>) -> anyhow::Result<T> {
    let runtime = embed::runtime(1).context("the runtime did not start")?;
    Ok(runtime.block_on(work))
}
