//! The daemon's program: flags in, one of a few commands, errors for people.

mod check;
mod control;

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use executor_daemon::Config;
use executor_daemon::config::{LogFormat, Sources};
use executor_daemon::host::{Begin, Handover, answer_trial, process_host};
use executor_daemon::server::{Inheritance, embed, logging, serve};
use executor_daemon::sys::inherit;
use executor_daemon::sys::signal::{block_all, block_child_signals, unblock, unblock_all};
use executor_daemon::sys::spawn::reserve_descriptors;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio_stream::wrappers::SignalStream;
use tokio_stream::{Stream, StreamExt as _};

/// Threads of the process host for launches and files of `/proc`.
const HOST_BLOCKING_THREADS: usize = 16;

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
    Serve {
        #[command(flatten)]
        settings: Settings,
        /// A descriptor, from an earlier image of this program.
        #[arg(long, hide = true)]
        resume: Option<i32>,
    },
    /// End the daemon, its process host and every command.
    Stop(Settings),
    /// Go on as this program: process host and daemon, without ending anything.
    ///
    /// Run it with the program that is to go on. Commands, terminals and output
    /// are kept; clients see a pause.
    Upgrade {
        #[command(flatten)]
        settings: Settings,
        /// The program that is to go on, instead of this one.
        #[arg(long, value_name = "FILE")]
        program: Option<PathBuf>,
    },
    /// Hold commands, terminals and output for a daemon that may come and go.
    ///
    /// `serve` starts it, and finds it again; nobody else needs to. It ends, and
    /// its commands with it, when the daemon is stopped, and at SIGTERM.
    ProcessHost {
        /// Where it listens: beside the daemon's socket.
        #[arg(long, value_name = "PATH", required_unless_present = "try_resume")]
        socket: Option<PathBuf>,
        /// error, warn, info, debug, trace, or per module.
        #[arg(long, value_name = "LEVEL", default_value = "info")]
        log_level: String,
        /// text or json.
        #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = log_format)]
        log_format: LogFormat,
        /// A descriptor, from an earlier image of this program.
        #[arg(long, hide = true)]
        resume: Option<i32>,
        /// Only says whether it could go on with what standard input holds.
        #[arg(long, hide = true, value_name = "NONCE")]
        try_resume: Option<String>,
    },
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
    executor_daemon::sys::memory::one_pool();
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
        Command::Serve { settings, resume } => {
            let config = settings.load()?;
            let inheritance = resume
                .map(|kept| Inheritance::read(adopt(kept)?).context("--resume"))
                .transpose()?;
            logging::start(&config.log_level, config.log_format);
            let runtime =
                embed::runtime(config.limits.threads()).context("the runtime did not start")?;
            let served: anyhow::Result<()> = runtime.block_on(async {
                let signals = signals()?;
                // A program that replaced itself begins with all of them blocked.
                unblock_all();
                Ok(serve(config, inheritance, signals).await?)
            });
            // A launch that hangs in the kernel does not keep the daemon.
            runtime.shutdown_background();
            served
        }
        Command::ProcessHost {
            try_resume: Some(nonce),
            ..
        } => {
            let state = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
            print(&answer_trial(&nonce, state)?)
        }
        Command::ProcessHost {
            socket,
            log_level,
            log_format,
            resume,
            ..
        } => {
            // All but two for good: no other ends what it holds.
            block_all();
            block_child_signals();
            // First of all: the lowest are the best. Starts work without, too.
            let _ = reserve_descriptors();
            let _lines = logging::start_without_waiting(&log_level, log_format);
            host_process(socket.unwrap_or_default(), resume)
        }
        Command::Stop(settings) => control::stop(&settings.load()?),
        Command::Upgrade { settings, program } => control::upgrade(&settings.load()?, program),
        Command::Check { json } => print(&check::report(json)?),
        Command::Config(settings) => print(&settings.load()?.to_toml()),
    }
}

fn log_format(text: &str) -> Result<LogFormat, String> {
    [LogFormat::Text, LogFormat::Json]
        .into_iter()
        .find(|format| format.name() == text)
        .ok_or_else(|| "it is text or json".to_owned())
}

/// Becomes the process host.
fn host_process(socket: PathBuf, resume: Option<i32>) -> anyhow::Result<()> {
    let begin = match resume {
        None => Begin::Fresh {
            socket,
            first: first_connection()?,
        },
        Some(kept) => Begin::Resumed(Box::new(Handover::read(adopt(kept)?).context("--resume")?)),
    };
    // Signals come to this thread alone, so that none is lost when this program
    // is replaced.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .thread_name("executor-blocking")
        .max_blocking_threads(HOST_BLOCKING_THREADS)
        .on_thread_start(block_all)
        .build()
        .context("the runtime did not start")?;
    let hosted: anyhow::Result<()> = runtime.block_on(async {
        let signals = signals()?;
        unblock(&[Signal::TERM, Signal::INT]);
        Ok(process_host(begin, inherit::own_arguments()?, signals).await?)
    });
    // A launch that hangs in the kernel does not keep the host.
    runtime.shutdown_background();
    hosted
}

/// Descriptor 0, where whoever started us made it a socket. It is the null
/// device afterwards, so that the connection ends when we close it.
fn first_connection() -> anyhow::Result<Option<OwnedFd>> {
    let stdin = rustix::stdio::stdin();
    if rustix::net::sockopt::socket_type(stdin).is_err() {
        return Ok(None);
    }
    let first = rustix::io::fcntl_dupfd_cloexec(stdin, 3)?;
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    let null = rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty())?;
    rustix::stdio::dup2_stdin(null)?;
    Ok(Some(first))
}

/// What an earlier image of this program has kept open.
fn adopt(kept: i32) -> anyhow::Result<OwnedFd> {
    let adopted =
        inherit::adopt(&[kept]).context("--resume is for a program that replaces itself")?;
    adopted.into_iter().next().context("one descriptor")
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
