//! Many commands in one session that do nothing.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use executor_client::v1::ProcessState;
use executor_client::{CallOptions, Command, Process, Session};
use tokio::task::JoinSet;

use crate::figures;

/// Starts under way at a time.
pub(crate) const AT_A_TIME: usize = 64;
/// For what is asked of thousands at once.
const PATIENCE: Duration = Duration::from_secs(300);

/// What they print before they idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prints {
    Nothing,
    /// [`LINE`].
    ALine,
}

/// What each of a crowd prints that prints a line.
pub(crate) const LINE: &str = "here\n";

/// Idle commands. They live until [`Crowd::end`], or until their daemon's
/// host ends.
#[derive(Debug)]
pub(crate) struct Crowd {
    session: Session,
    processes: Vec<Process>,
    /// In the command line of each of them, and of nobody else.
    mark: String,
    /// How long the start of all took.
    pub(crate) started_in: Duration,
    /// Why there are not as many as were wanted.
    pub(crate) refused: Option<String>,
}

impl Crowd {
    /// Starts `count` of them, [`AT_A_TIME`], and waits until all idle. Stops at
    /// the first that cannot be started.
    pub(crate) async fn start(
        session: &Session,
        count: usize,
        prints: Prints,
    ) -> anyhow::Result<Self> {
        let mark = format!("86400.{}", std::process::id());
        let mut crowd = Self {
            session: session.clone(),
            processes: Vec::with_capacity(count),
            mark,
            started_in: Duration::ZERO,
            refused: None,
        };
        let begin = Instant::now();
        let mut starts = JoinSet::new();
        for _ in 0..count {
            if starts.len() >= AT_A_TIME {
                crowd.take(starts.join_next().await);
            }
            if crowd.refused.is_some() {
                break;
            }
            starts.spawn(start(crowd.command(prints)));
        }
        while let Some(started) = starts.join_next().await {
            crowd.take(Some(started));
        }
        crowd.started_in = begin.elapsed();
        crowd.all_are_there().await?;
        Ok(crowd)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.processes.len()
    }

    /// For rows that need as many as were wanted.
    pub(crate) fn complete(&self) -> anyhow::Result<()> {
        match &self.refused {
            None => Ok(()),
            Some(why) => anyhow::bail!("only {} could be started: {why}", self.len()),
        }
    }

    /// One of them; another for each number.
    pub(crate) fn one(&self, number: usize) -> anyhow::Result<&Process> {
        // Not neighbours, which share memory.
        let at = number.wrapping_mul(611) % self.processes.len().max(1);
        self.processes.get(at).context("nobody is there")
    }

    /// What else the process host has started and keeps: the reapers.
    pub(crate) fn beside(&self, host: u32) -> anyhow::Result<Vec<u32>> {
        let children = figures::children(host)?;
        let others = children
            .into_iter()
            .filter(|pid| !figures::command_line(*pid).contains(&self.mark));
        Ok(others.collect())
    }

    /// Ends the session and checks that nothing is left. Returns how long it
    /// took.
    pub(crate) async fn end(self, host: u32) -> anyhow::Result<Duration> {
        let patient = CallOptions { deadline: PATIENCE };
        let begin = Instant::now();
        let session = self.session.clone().with_options(patient);
        let ended = session.end(Duration::ZERO).await?;
        let time = begin.elapsed();
        let survivors = ended.survivors;
        anyhow::ensure!(survivors.is_empty(), "{survivors:?} could not be ended");
        let left = figures::pids_with(&self.mark)?;
        anyhow::ensure!(left.is_empty(), "{left:?} are left");
        let reapers = figures::children(host)?;
        anyhow::ensure!(
            reapers.is_empty(),
            "children of the host are left: {reapers:?}"
        );
        Ok(time)
    }

    fn command(&self, prints: Prints) -> Command {
        match prints {
            Prints::Nothing => self.session.program(["sleep", &self.mark]),
            Prints::ALine => {
                let line = LINE.trim_end();
                let text = format!("echo {line}; exec sleep {}", self.mark);
                self.session.program(["sh", "-c", &text])
            }
        }
    }

    fn take(&mut self, started: Option<Result<anyhow::Result<Process>, tokio::task::JoinError>>) {
        match started {
            Some(Ok(Ok(process))) => self.processes.push(process),
            Some(Ok(Err(error))) => {
                self.refused.get_or_insert(format!("{error:#}"));
            }
            Some(Err(error)) => {
                self.refused.get_or_insert(error.to_string());
            }
            None => {}
        }
    }

    /// Those that were started are what the kernel has.
    async fn all_are_there(&self) -> anyhow::Result<()> {
        let begin = Instant::now();
        loop {
            let (there, started) = (figures::pids_with(&self.mark)?.len(), self.len());
            if there == started {
                return Ok(());
            }
            let late = begin.elapsed() > Duration::from_secs(20);
            anyhow::ensure!(!late, "{started} were started, {there} are there");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Starts one; an answer that it failed is an error too.
async fn start(command: Command) -> anyhow::Result<Process> {
    let started = command.start().await?;
    let state = started.info.state();
    let lives = matches!(state, ProcessState::Starting | ProcessState::Running);
    anyhow::ensure!(lives, "{state:?}: {:?}", started.info.exit);
    Ok(started.process)
}
