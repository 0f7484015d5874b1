//! `executor stop`

use executor_client::{Exit, State, v1};

use super::args::StopArgs;
use super::failure::{CliError, OWN_FAILURE, notice, print_line, report};
use super::select::select;
use super::session_file::persistent_session;
use super::{Context, daemon, json, table};

/// Stops each process; one that fails does not keep the others.
pub(crate) async fn run(context: &Context, args: &StopArgs) -> Result<u8, CliError> {
    let machine = daemon::find_or_start(context).await?;
    let session = persistent_session(context, &machine).await?;
    let mut code = 0;
    for id in &args.ids {
        match stop(context, &session, args, id).await {
            Ok(true) => {}
            Ok(false) => code = OWN_FAILURE,
            Err(CliError::BrokenPipe) => return Err(CliError::BrokenPipe),
            Err(error) => {
                report(&error, context.json);
                code = OWN_FAILURE;
            }
        }
    }
    Ok(code)
}

/// True when nothing of it is left that should not be.
async fn stop(
    context: &Context,
    session: &executor_client::Session,
    args: &StopArgs,
    id: &str,
) -> Result<bool, CliError> {
    let process = select(session, id).await?;
    let answer = if args.interrupt {
        process.interrupt().await?
    } else if args.kill {
        process.kill().await?
    } else {
        process.stop(args.grace).await?
    };
    if context.json {
        print_line(result(&answer))?;
    } else {
        print_line(sentence(&answer, args.interrupt))?;
    }
    if answer.survivors.is_empty() || args.interrupt {
        return Ok(true);
    }
    if !context.json {
        let pids: Vec<_> = answer.survivors.iter().map(u32::to_string).collect();
        notice(format_args!("still there: pids {}", pids.join(", ")));
    }
    Ok(false)
}

fn result(answer: &v1::StopProcessResponse) -> serde_json::Value {
    let means = match answer.means() {
        v1::StopMeans::Unspecified => "unspecified",
        v1::StopMeans::Cgroup => "cgroup",
        v1::StopMeans::Reaper => "reaper",
        v1::StopMeans::BestEffort => "best_effort",
    };
    serde_json::json!({
        "process": answer.process.as_ref().map(json::process),
        "means": means,
        "signalled": answer.signalled,
        "survivors": answer.survivors,
        "already_ended": answer.already_ended,
    })
}

fn sentence(answer: &v1::StopProcessResponse, interrupt: bool) -> String {
    let process = answer.process.clone().unwrap_or_default();
    let state = State::from(process.state());
    let exit =
        Exit::of(&process).map_or_else(String::new, |exit| format!(", exit {}", table::how(&exit)));
    let verb = match (answer.already_ended, interrupt) {
        (true, _) => "had ended",
        (false, true) => "interrupted",
        (false, false) => "stopped",
    };
    format!("{}  {verb}: {}{exit}", process.process_id, state.name())
}
