//! `executor`: run commands on a machine.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    // Both do not return in a process that was started for them; they come
    // before the runtime because they need a process with one thread.
    #[cfg(feature = "local")]
    agent_core::local::reaper_entry();
    cli::daemon::starter_entry();

    cli::main(cli::surroundings::Surroundings::read())
}
