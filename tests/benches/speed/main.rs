//! What executor costs, each figure against its floor in the same run.
//!
//! ```text
//! cargo build --release --workspace
//! cargo bench -p executor-tests -- [ROW…] [--quick] [--means MEANS]
//! ```
//!
//! Every step is done in turn by three subjects: the *floor* (the same step
//! without any server, `floor`), the *bare relay* (the smallest gRPC server
//! that does the step, `relay`) and the *daemon* (the release binary, with
//! its process host, through `executor-client`). All of them are processes of their own on Unix
//! sockets; the client runs here, on a current-thread runtime. What is told
//! is the ratio: an absolute time says more about the machine than about us.

#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark starts programs by itself, to compare"
)]

mod bulk;
mod crowd;
mod daemon;
mod figures;
mod files;
mod floor;
mod host;
mod idle;
mod latency;
mod relay;
mod restart;
mod search;
mod spawn;
mod stamp;
mod stats;

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::daemon::Daemon;
use crate::relay::Relay;
use crate::stats::Report;

/// Name and what it measures.
const ROWS: [(&str, &str); 15] = [
    ("P1", "start `true` → exit known, one at a time"),
    ("P2", "the same for `bash -c true`"),
    ("P3", "child's write → bytes at the client"),
    ("P5", "1 GiB written, nobody reads"),
    ("P6", "1 GiB streamed to one client"),
    ("P7", "256 MiB through a terminal to one client"),
    ("P8", "64 and 1,000 concurrent `true`"),
    ("P9", "1,000 and 10,000 idle processes"),
    ("P10", "idle daemon: memory, start → ready"),
    ("P11", "P1 beside 1,000 idle processes"),
    (
        "P12",
        "the daemon killed under 1,000 processes → a read answers",
    ),
    ("F1", "a page deep in a 1 GiB text, and the next"),
    ("F2", "a literal and a regex over a large source tree"),
    ("F3", "the paths of 100,000 files"),
    ("F5", "one line of a 1 MiB file edited, durable"),
];

/// Set in the process that measures.
const CLEAN: &str = "EXECUTOR_SPEED";

/// What the rows need.
pub(crate) struct Bench {
    relay: Relay,
    options: Options,
    report: Report,
}

impl Bench {
    /// A daemon with these lines of configuration, for one row: each has its
    /// own, and stops it, so that no row measures what another left in memory.
    async fn daemon(&self, more: &str) -> anyhow::Result<Daemon> {
        Daemon::start(&self.options.means, more).await
    }
}

/// What was asked for on the command line.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    /// Fewer rounds and less data.
    quick: bool,
    /// `stop_means` of the configuration.
    means: String,
    rows: BTreeSet<String>,
}

impl Options {
    fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        let mut options = Self {
            means: "auto".into(),
            ..Self::default()
        };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--bench" => {}
                "--quick" => options.quick = true,
                "--means" => {
                    let means = rest.next();
                    options.means = means.context("--means wants a value")?.clone();
                }
                row if ROWS.iter().any(|(name, _)| *name == row) => {
                    options.rows.insert(row.to_owned());
                }
                other => {
                    let rows = ROWS.map(|(name, what)| format!("  {name:<4} {what}\n"));
                    bail!("there is no row {other:?}; there are\n{}", rows.concat());
                }
            }
        }
        Ok(options)
    }

    fn wants(&self, row: &str) -> bool {
        self.rows.is_empty() || self.rows.contains(row)
    }

    /// A count or a size: all of it, or a part of it with `--quick`.
    pub(crate) fn scaled(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["relay", socket] => return relay::serve(socket),
        ["stamp", count] => return stamp::write(count.parse()?),
        _ => {}
    }
    if !words.contains(&"--bench") {
        return say("the benchmarks run under `cargo bench`");
    }
    let options = Options::parse(&arguments)?;
    if std::env::var_os(CLEAN).is_none() {
        return Err(in_a_clean_environment(&arguments));
    }
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(run(options))
}

/// cargo sets LD_LIBRARY_PATH for what it runs; every child of the floor would
/// look there first, and the daemon's children would not.
fn in_a_clean_environment(arguments: &[String]) -> anyhow::Error {
    let kept = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TMPDIR"];
    let environment = std::env::vars_os().filter(|(name, _)| kept.iter().any(|kept| name == kept));
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return error.into(),
    };
    Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(environment)
        .env(CLEAN, "1")
        .exec()
        .into()
}

async fn run(options: Options) -> anyhow::Result<()> {
    raise_descriptor_limit()?;
    let relay = Relay::start().await?;
    let daemon = Daemon::start(&options.means, "").await?;
    let report = Report::new(daemon.means().await?);
    daemon.stop().await?;
    let mut bench = Bench {
        relay,
        options,
        report,
    };
    for (row, what) in ROWS {
        if !bench.options.wants(row) {
            continue;
        }
        progress(&format!("{row}: {what}"))?;
        let done = match row {
            "P1" => spawn::one_at_a_time(&mut bench, "P1", &["true"], 1.35).await,
            "P2" => spawn::one_at_a_time(&mut bench, "P2", &["bash", "-c", "true"], 1.3).await,
            "P3" => latency::run(&mut bench).await,
            "P5" => bulk::unread(&mut bench).await,
            "P6" => bulk::streamed(&mut bench).await,
            "P7" => bulk::terminal(&mut bench).await,
            "P8" => spawn::concurrent(&mut bench).await,
            "P9" => idle::processes(&mut bench).await,
            "P10" => idle::alone(&mut bench).await,
            "P11" => spawn::beside_idle(&mut bench).await,
            "P12" => restart::run(&mut bench).await,
            "F1" => files::deep_lines(&mut bench).await,
            "F2" => search::grep(&mut bench).await,
            "F3" => search::glob(&mut bench).await,
            _ => files::edit(&mut bench).await,
        };
        // What was measured so far is worth telling all the same.
        if let Err(error) = done {
            bench
                .report
                .note(format!("{row} has no figures: {error:#}"));
        }
    }
    say(&bench.report.to_string())
}

/// Thousands of commands hold thousands of pipes, here and in what is started.
fn raise_descriptor_limit() -> anyhow::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).context("raising the limit of open files")
}

fn say(text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

fn progress(text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    Ok(writeln!(std::io::stderr(), "{text}")?)
}
