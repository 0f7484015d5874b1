//! `executor run`
//!
//! In the foreground a command has a session of its own, with a lease of 30 s
//! that we renew, and ends with it: on the user's daemon where one runs, else
//! on a machine inside this process. With `--keep` or `--detach` it is the
//! daemon's, in the persistent session.

mod follow;
pub(crate) mod input;
mod request;
pub(crate) mod signals;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

#[cfg(feature = "local")]
use agent_core::local::LocalMachine;
use executor_client::{
    ClientError, Exit, ExitCause, KeepAlive, Lease, Machine, Process, Reason, Session,
    SessionOptions, v1,
};
use serde_json::json;

use super::args::RunArgs;
use super::failure::{CliError, notice, print_line};
use super::session_file::persistent_session;
use super::wait::{code, tell};
use super::{Context, daemon, json};
use follow::{Ended, Follow, GRACE};
use signals::Signals;

/// How long a command outlives us when we are killed.
const LEASE: Duration = Duration::from_secs(30);

/// Runs a command.
pub(crate) async fn run(context: &Context, args: Box<RunArgs>) -> Result<u8, CliError> {
    refuse_unknown_option(&args.command)?;
    if args.detach {
        return detach(context, &args).await;
    }
    let mut signals = Signals::listen()?;
    let place = tokio::select! {
        place = Box::pin(Place::open(context, args.keep)) => place?,
        signal = signals.next_end() => return Ok(128 + signal),
    };
    let result = foreground(context, &args, &place, &mut signals).await;
    place.close(&result).await;
    result
}

/// A mistyped option is not a program: it would be told as one that was not
/// found, or run one of that name.
fn refuse_unknown_option(command: &[OsString]) -> Result<(), CliError> {
    match command.first() {
        Some(word) if word.as_bytes().starts_with(b"-") => Err(CliError::Usage(format!(
            "unknown option {word}; see executor run --help (a program of that name is ./{word})",
            word = word.display()
        ))),
        _ => Ok(()),
    }
}

/// Starts a command and leaves it.
async fn detach(context: &Context, args: &RunArgs) -> Result<u8, CliError> {
    let machine = daemon::find_or_start(context).await?;
    let session = persistent_session(context, &machine).await?;
    let started = request::build(context, args, &session)?.start().await?;
    if let Some(exit) = failed_start(&started.info) {
        tell(&exit);
        return Ok(code(&exit));
    }
    if context.json {
        print_line(json!({"id": started.process.id().to_string()}))?;
    } else {
        print_line(started.process.id())?;
    }
    Ok(0)
}

/// The exit of a command that never ran.
fn failed_start(info: &v1::Process) -> Option<Exit> {
    Exit::of(info).filter(|exit| matches!(exit.cause, ExitCause::SpawnFailed(_)))
}

async fn foreground(
    context: &Context,
    args: &RunArgs,
    place: &Place,
    signals: &mut Signals,
) -> Result<u8, CliError> {
    let started = request::build(context, args, &place.session)?
        .start()
        .await?;
    let process = started.process;
    if context.json {
        print_line(json!({"event": "started", "id": process.id().to_string()}))?;
    }
    let follow = Follow {
        context,
        process: &process,
        pty: args.pty,
        keep: args.keep,
    };
    match follow.to_the_exit(signals).await {
        Ok(Ended::Exit(exit)) => {
            tell_exit(context, &process, &exit, args.keep)?;
            Ok(code(&exit))
        }
        Ok(Ended::Left(code)) => {
            if args.keep {
                notice(format_args!("left running: {}", process.id()));
            }
            Ok(code)
        }
        Err(error) => {
            if args.keep && !is_unreachable(&error) {
                // Nobody reads it any more. The session does not end with us,
                // so it has to be ended by itself.
                let _ = process.stop(GRACE).await;
            }
            if is_unreachable(&error) {
                tell_lost(&process);
            }
            Err(error)
        }
    }
}

fn tell_exit(
    context: &Context,
    process: &Process,
    exit: &Exit,
    keep: bool,
) -> Result<(), CliError> {
    if context.json {
        let mut line = json::exit(exit);
        if let Some(object) = line.as_object_mut() {
            object.insert("event".into(), "exit".into());
            object.insert("id".into(), process.id().to_string().into());
        }
        return print_line(line);
    }
    tell(exit);
    if !exit.residue.is_empty() {
        let names: Vec<_> = exit
            .residue
            .iter()
            .map(|left| format!("{} (pid {})", left.name, left.pid))
            .collect();
        let names = names.join(", ");
        if keep {
            let id = process.id();
            notice(format_args!(
                "left running: {names}; end it with: executor stop {id}"
            ));
        } else {
            notice(format_args!(
                "left behind and ended: {names}; --keep leaves it running"
            ));
        }
    }
    Ok(())
}

/// The daemon may be back later, and the command still be there.
fn tell_lost(process: &Process) {
    let id = process.id();
    notice(format_args!(
        "lost sight of {id}, which may still run: executor ps tells, once a daemon is there again"
    ));
}

fn is_unreachable(error: &CliError) -> bool {
    matches!(
        error,
        CliError::Client(ClientError::Unreachable { .. } | ClientError::DeadlineExceeded { .. })
    )
}

/// Where a foreground command runs.
struct Place {
    session: Session,
    /// The session is the command's own and ends with it.
    own: Option<KeepAlive>,
    #[cfg(feature = "local")]
    local: Option<LocalMachine>,
}

impl Place {
    async fn open(context: &Context, keep: bool) -> Result<Self, CliError> {
        if keep {
            let machine = daemon::find_or_start(context).await?;
            return Ok(Self {
                session: persistent_session(context, &machine).await?,
                own: None,
                #[cfg(feature = "local")]
                local: None,
            });
        }
        #[cfg(feature = "local")]
        return match daemon::find(context).await? {
            Some(machine) => Self::own(&machine, None).await,
            None => {
                let local =
                    LocalMachine::start().map_err(|error| CliError::Embed(error.to_string()))?;
                let machine = daemon::prepare(local.machine().clone());
                Self::own(&machine, Some(local)).await
            }
        };
        #[cfg(not(feature = "local"))]
        return Self::own(&daemon::find_or_start(context).await?).await;
    }

    async fn own(
        machine: &Machine,
        #[cfg(feature = "local")] local: Option<LocalMachine>,
    ) -> Result<Self, CliError> {
        let options = SessionOptions {
            lease: Lease::After(LEASE),
            label: "executor run".into(),
            ..Default::default()
        };
        let session = machine.open_session(options).await?;
        Ok(Self {
            own: Some(session.keep_alive()),
            session,
            #[cfg(feature = "local")]
            local,
        })
    }

    /// Ends what was the command's own, and all that it left behind.
    async fn close(self, result: &Result<u8, CliError>) {
        let reachable = !result.as_ref().is_err_and(is_unreachable);
        if self.own.is_some() && reachable {
            match self.session.end(GRACE).await {
                Ok(answer) if answer.survivors.is_empty() => {}
                Ok(answer) => {
                    let pids: Vec<_> = answer.survivors.iter().map(u32::to_string).collect();
                    notice(format_args!("could not be ended: pids {}", pids.join(", ")));
                }
                // With the daemon went all that it had.
                Err(error) if error.reason() == Some(Reason::Unreachable) => {}
                Err(error) => notice(format_args!("cannot end the session: {error}")),
            }
        }
        #[cfg(feature = "local")]
        if let Some(local) = self.local {
            local.shutdown().await;
        }
    }
}
