//! Inputs that shipped systems got wrong, with the right outcome.

mod env;
pub(crate) mod faults;
mod output;
mod pids;
mod process_start;
mod promises;
mod reconnect;
mod resource;
mod shell;
mod stdin_pty;
mod stop_kill;
mod timeout;

use executor_client::{ExitStatus, Process, Session};
use executor_tests::in_time;

/// All output of a process, to its end, as bytes. Fails on a gap.
async fn everything(process: &Process) -> Vec<u8> {
    let mut stream = process.output();
    let mut all = Vec::new();
    while let Some(event) = in_time("output", stream.next()).await.unwrap() {
        if let executor_client::OutputEvent::Page(page) = event {
            assert_eq!(page.gap, None, "output was lost");
            assert_eq!(page.start, all.len() as u64);
            all.extend_from_slice(&page.data);
        }
    }
    all
}

/// Runs a text in bash with pipes or in a terminal, to the exit.
async fn run_in(session: &Session, terminal: bool, text: &str) -> (ExitStatus, Vec<u8>) {
    let command = session
        .command(text)
        .with_shell(executor_client::v1::Shell::Bash);
    let command = if terminal {
        command.terminal(24, 80)
    } else {
        command
    };
    let done = in_time(text, command.run()).await.unwrap();
    assert_eq!(done.omitted, 0);
    (done.exit.status, done.output)
}
