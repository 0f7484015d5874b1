//! A command in the foreground: its output to ours, our input to it, our
//! signals to it, until its exit.

use std::time::Duration;

use executor_client::{
    Exit, OutputEvent, OutputOptions, OutputStream, Process, random_name, runs, v1,
};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::input::{self, Input};
use super::signals::{Signals, Wish};
use crate::cli::failure::{CliError, notice};
use crate::cli::logs::tell_gap;
use crate::cli::sink::{Sink, Target};
use crate::cli::terminal::{RawMode, size};
use crate::cli::{Context, json};

/// Between SIGTERM and SIGKILL.
pub(super) const GRACE: Duration = Duration::from_secs(2);
/// After the command was ended: how long whoever reads our output may still
/// hold it up.
const LAST_PAGES: Duration = Duration::from_secs(5);
/// What Ctrl-C leaves in a shell.
const INTERRUPTED: u8 = 128 + 2;
/// End of input at the start of a line of a terminal (termios(3)).
const VEOF: u8 = 4;

/// How following came to its end.
#[derive(Debug)]
pub(super) enum Ended {
    /// The command has ended.
    Exit(Box<Exit>),
    /// We leave it, with this exit code.
    Left(u8),
}

/// What is followed, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Follow<'a> {
    pub(super) context: &'a Context,
    pub(super) process: &'a Process,
    /// It has a terminal.
    pub(super) pty: bool,
    /// It is to go on when we are told to end.
    pub(super) keep: bool,
}

impl Follow<'_> {
    /// Follows to the exit; all that the command itself printed is written by
    /// then.
    pub(super) async fn to_the_exit(self, signals: &mut Signals) -> Result<Ended, CliError> {
        let sink = Sink::start()?;
        let _raw = if self.pty { RawMode::enter() } else { None };
        let mut pump = JoinSet::new();
        if self.pty || !input::is_null() {
            pump.spawn(pass_input(self.process.clone(), self.pty));
        }
        let stream = self.process.stream_output(OutputOptions {
            cursor: 0,
            reader_id: Some(random_name()),
        });
        let printing = print(stream, self.process, &sink, self.context.json);
        tokio::pin!(printing);
        let mut answers = Answers::default();
        loop {
            tokio::select! {
                exit = &mut printing => return exit.map(Ended::Exit),
                wish = signals.next() => {
                    if let Some(code) = answers.give(self, wish) {
                        return Ok(Ended::Left(code));
                    }
                }
                code = answers.progress() => return Ok(Ended::Left(code)),
            }
        }
    }
}

/// What was done about signals so far.
#[derive(Debug, Default)]
struct Answers {
    interrupts: u32,
    /// The exit code that the signal to end stands for.
    ending: Option<u8>,
    /// When we leave, read or unread.
    leave_at: Option<Instant>,
    running: JoinSet<()>,
}

impl Answers {
    /// Begins to do what is wished; the code when it is to leave at once.
    fn give(&mut self, follow: Follow<'_>, wish: Wish) -> Option<u8> {
        let process = follow.process.clone();
        match wish {
            Wish::Resize => {
                if let Some((rows, columns)) = size().filter(|_| follow.pty) {
                    self.running.spawn(async move {
                        // Too late is too late: it has ended.
                        let _ = process.resize(rows, columns).await;
                    });
                }
                None
            }
            Wish::Interrupt if self.ending.is_none() => {
                self.interrupts += 1;
                if self.interrupts == 1 {
                    self.running.spawn(async move {
                        if let Err(error) = process.interrupt().await {
                            notice(format_args!("cannot interrupt it: {error}"));
                        }
                    });
                } else {
                    self.end(process, INTERRUPTED);
                }
                None
            }
            Wish::Terminate(signal) if self.ending.is_none() => {
                let code = 128 + signal;
                if follow.keep {
                    return Some(code);
                }
                self.end(process, code);
                None
            }
            // Asked to end while ending.
            Wish::Interrupt | Wish::Terminate(_) => self.ending,
        }
    }

    fn end(&mut self, process: Process, code: u8) {
        self.ending = Some(code);
        self.running.spawn(async move {
            if let Err(error) = process.stop(GRACE).await {
                notice(format_args!("cannot stop it: {error}"));
            }
        });
    }

    /// Goes on with what was begun; returns when it is time to leave. Cancel
    /// safe.
    async fn progress(&mut self) -> u8 {
        loop {
            if self.running.join_next().await.is_none() {
                match (self.ending, self.leave_at) {
                    (Some(code), Some(at)) => {
                        tokio::time::sleep_until(at).await;
                        return code;
                    }
                    (Some(_), None) => self.leave_at = Some(Instant::now() + LAST_PAGES),
                    (None, _) => std::future::pending().await,
                }
            }
        }
    }
}

/// Writes the output until the exit.
async fn print(
    mut stream: OutputStream,
    process: &Process,
    sink: &Sink,
    json: bool,
) -> Result<Box<Exit>, CliError> {
    let exit = loop {
        match stream.next().await? {
            Some(OutputEvent::Page(page)) if json => print_json(&page, sink).await?,
            Some(OutputEvent::Page(page)) => print_page(&page, sink).await?,
            Some(OutputEvent::Exit(exit)) => break exit,
            Some(OutputEvent::End) => {}
            None => break Box::new(process.wait().await?),
        }
    };
    sink.settle().await?;
    Ok(exit)
}

async fn print_page(page: &v1::OutputPage, sink: &Sink) -> Result<(), CliError> {
    if let Some(gap) = &page.gap {
        sink.settle().await?;
        tell_gap(gap);
    }
    for (stream, data) in runs(page) {
        let target = match stream {
            v1::OutputStream::Stderr => Target::Stderr,
            _ => Target::Stdout,
        };
        sink.write(target, data).await?;
    }
    Ok(())
}

async fn print_json(page: &v1::OutputPage, sink: &Sink) -> Result<(), CliError> {
    if let Some(gap) = &page.gap {
        let line = format!("{}\n", json::gap(gap));
        sink.write(Target::Stdout, line).await?;
    }
    let mut offset = page.start;
    for (stream, data) in runs(page) {
        let line = format!("{}\n", json::output(stream, offset, &data));
        offset += data.len() as u64;
        sink.write(Target::Stdout, line).await?;
    }
    Ok(())
}

/// Passes our input on and ends the command's with ours. A command that takes
/// no more ends it too, as a broken pipe does.
async fn pass_input(process: Process, terminal: bool) {
    let mut input = match Input::start() {
        Ok(input) => input,
        Err(error) => return notice(error),
    };
    let mut stdin = process.stdin();
    let mut at_line_start = true;
    loop {
        match input.next().await {
            Ok(Some(data)) => {
                at_line_start = data.last() == Some(&b'\n');
                if stdin.write(data).await.is_err() {
                    return;
                }
            }
            Ok(None) => break,
            Err(error) => {
                notice(error);
                break;
            }
        }
    }
    // Whether the command still wants to know does not matter any more.
    if terminal {
        // The first ends an unfinished line, the next one is at its start.
        let end = if at_line_start {
            &[VEOF][..]
        } else {
            &[VEOF, VEOF]
        };
        let _ = stdin.write(end.to_vec()).await;
    } else {
        let _ = stdin.close().await;
    }
}
