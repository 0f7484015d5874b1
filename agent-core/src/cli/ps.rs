//! `executor ps`

use std::time::SystemTime;

use executor_client::State;

use super::args::PsArgs;
use super::failure::{CliError, print_line};
use super::session_file::persistent_session;
use super::{Context, daemon, json, table};

/// Lists processes in the order of their start.
pub(crate) async fn run(context: &Context, args: &PsArgs) -> Result<u8, CliError> {
    let machine = daemon::find_or_start(context).await?;
    let session = persistent_session(context, &machine).await?;
    let mut processes = session.list().await?;
    if args.running {
        processes.retain(|process| !State::from(process.state()).is_final());
    }
    if context.json {
        for process in &processes {
            print_line(json::process(process))?;
        }
        return Ok(0);
    }
    for line in table::processes(&processes, SystemTime::now()) {
        print_line(line)?;
    }
    Ok(0)
}
