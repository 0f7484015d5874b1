//! The daemon's program: flags in, one of a few commands, errors for people.

mod check;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use executor_daemon::Config;
use executor_daemon::config::Sources;
use executor_daemon::server::{embed, logging, serve};
use tokio::signal::unix::{SignalKind, signal};
use tokio_stream::wrappers::SignalStream;
use tokio_stream::{Stream, StreamExt as _};

/// Gives AI agents hands on this machine: runs their commands and keeps what
/// they print.
#[derive(Debug, Parser)]
#[command(name = "executor-daemon", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve on a Unix socket until SIGTERM or SIGINT.
    ///
    /// At the signal every command is ended; a second signal kills what is
    /// left at once.
    Serve(Settings),
    /// Say what this machine can enforce.
    Check {
        /// As JSON, for programs.
        #[arg(long)]
        json: bool,
    },
    /// Print the configuration that `serve` would use, as a file.
    Config(Settings),
}

/// Each flag can also be set in the file or by a variable: EXECUTOR_SOCKET,
/// EXECUTOR_LIMITS_SESSIONS and so on. Flags win over variables, variables
/// over the file.
#[derive(Debug, Args)]
struct Settings {
    /// Configuration file (TOML). Default: /etc/executor/daemon.toml for root,
    /// $XDG_CONFIG_HOME/executor/daemon.toml for others, where it exists.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to listen. Its directory is made, or must be yours and 0700.
    #[arg(long, value_name = "PATH")]
    socket: Option<String>,
    /// Where the machine's identity is kept.
    #[arg(long, value_name = "PATH")]
    state_dir: Option<String>,
    /// error, warn, info, debug, trace, or per module.
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// text or json.
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// What sessions may use at most: PATH, PATH:ro, several with commas.
    #[arg(long, value_name = "ROOTS")]
    roots: Option<String>,
    /// How command trees are ended: auto, cgroup, reaper or best_effort.
    #[arg(long, value_name = "MEANS")]
    stop_means: Option<String>,
    /// Time between SIGTERM and SIGKILL, as 2s or 500ms.
    #[arg(long, value_name = "TIME")]
    grace: Option<String>,
    /// A bound, as sessions=100. May be given several times.
    #[arg(long = "limit", value_name = "NAME=NUMBER")]
    limits: Vec<String>,
}

impl Settings {
    fn load(self) -> anyhow::Result<Config> {
        let named = [
            ("socket", self.socket),
            ("state_dir", self.state_dir),
            ("log_level", self.log_level),
            ("log_format", self.log_format),
            ("roots", self.roots),
            ("stop_means", self.stop_means),
            ("grace", self.grace),
        ];
        let mut flags: Vec<(String, String)> = named
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value?)))
            .collect();
        for limit in self.limits {
            let (name, value) = limit
                .split_once('=')
                .with_context(|| format!("--limit {limit}: write it as NAME=NUMBER"))?;
            flags.push((format!("limits.{name}"), value.to_owned()));
        }
        let file = self.config;
        Ok(Config::load(&Sources { file, flags })?)
    }
}

fn main() -> ExitCode {
    executor_daemon::reaper_entry();
    // Before anything makes a thread.
    executor_daemon::sys::signal::block_child_signals();
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to tell where standard error is closed.
            let _ = writeln!(std::io::stderr(), "executor-daemon: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Serve(settings) => {
            let config = settings.load()?;
            logging::start(&config);
            let runtime = embed::runtime(&config).context("the runtime did not start")?;
            let served: anyhow::Result<()> =
                runtime.block_on(async { Ok(serve(config, signals()?).await?) });
            // A launch that hangs in the kernel does not keep the daemon.
            runtime.shutdown_background();
            served
        }
        Command::Check { json } => print(&check::report(json)?),
        Command::Config(settings) => print(&settings.load()?.to_toml()),
    }
}

/// Each SIGTERM and SIGINT.
fn signals() -> anyhow::Result<impl Stream<Item = ()> + Unpin> {
    let terminate = SignalStream::new(signal(SignalKind::terminate())?);
    let interrupt = SignalStream::new(signal(SignalKind::interrupt())?);
    Ok(terminate.merge(interrupt))
}

fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        // Whoever read has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}
