//! The command line: one file per command, and what they share.

mod args;
pub(crate) mod daemon;
mod duration;
mod failure;
mod files;
mod json;
mod logs;
mod ps;
mod run;
mod select;
mod send;
mod session_file;
mod sink;
mod stop;
pub(crate) mod surroundings;
mod table;
mod terminal;
mod wait;

use std::process::ExitCode;

use clap::Parser as _;

use args::{Args, Command};
use failure::{CliError, OWN_FAILURE};
use surroundings::Surroundings;

/// Runs what the arguments say.
pub(crate) fn main(surroundings: Surroundings) -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help and version are no failure. Nobody to print to is none of
            // ours either.
            if !error.use_stderr() {
                let _ = error.print();
                return ExitCode::SUCCESS;
            }
            // What cannot be read as a whole may still say how to be answered.
            if std::env::args_os().any(|argument| argument == "--json") {
                let usage = error.render().to_string();
                failure::report(&CliError::Usage(usage.trim_end().to_owned()), true);
            } else {
                let _ = error.print();
            }
            return ExitCode::from(OWN_FAILURE);
        }
    };
    let json = args.json;
    match run(surroundings, args) {
        Ok(code) => {
            run::signals::die_of_interrupt(code);
            ExitCode::from(code)
        }
        Err(error) => {
            failure::report(&error, json);
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(surroundings: Surroundings, args: Args) -> Result<u8, CliError> {
    // One thread: there is little to do at once, and streams are faster so.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::io("cannot start the runtime", error))?;
    let context = Context {
        surroundings,
        address: args.machine,
        json: args.json,
    };
    let code = runtime.block_on(async {
        match args.command {
            Command::Run(options) => Box::pin(run::run(&context, options)).await,
            Command::Ps(options) => ps::run(&context, &options).await,
            Command::Logs(options) => logs::run(&context, &options).await,
            Command::Send(options) => send::run(&context, &options).await,
            Command::Stop(options) => stop::run(&context, &options).await,
            Command::Wait(options) => wait::run(&context, &options).await,
            Command::File(command) => Box::pin(files::run(&context, command)).await,
        }
    });
    // A thread that reads our input may still be in its read.
    runtime.shutdown_background();
    code
}

/// What every command needs.
#[derive(Debug)]
pub(crate) struct Context {
    surroundings: Surroundings,
    /// `--machine` or EXECUTOR_MACHINE.
    address: Option<String>,
    json: bool,
}
