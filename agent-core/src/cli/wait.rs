//! `executor wait`

use executor_client::{Exit, ExitCause};

use super::args::WaitArgs;
use super::failure::{CliError, notice, print_line};
use super::select::select;
use super::session_file::persistent_session;
use super::{Context, daemon, json};

/// As timeout(1) says it: the time was over.
pub(crate) const TIMED_OUT: u8 = 124;

/// Waits for the exit and exits with its code.
pub(crate) async fn run(context: &Context, args: &WaitArgs) -> Result<u8, CliError> {
    let machine = daemon::find_or_start(context).await?;
    let session = persistent_session(context, &machine).await?;
    let process = select(&session, &args.id).await?;
    let exit = match args.timeout {
        None => process.wait().await?,
        Some(timeout) => match process.wait_for(timeout).await? {
            Some(exit) => exit,
            None => {
                notice(format_args!("{} still runs", process.id()));
                return Ok(TIMED_OUT);
            }
        },
    };
    if context.json {
        print_line(json::exit(&exit))?;
    } else {
        tell(&exit);
    }
    Ok(code(&exit))
}

/// Our exit code for the command's exit: its own, 128 + the signal, 124 when
/// its time was over.
pub(crate) fn code(exit: &Exit) -> u8 {
    match exit.cause {
        ExitCause::Timeout | ExitCause::IdleTimeout => TIMED_OUT,
        // The kernel keeps eight bits of a code too (wait(2)).
        _ => u8::try_from(exit.shell_code & 0xff).unwrap_or(u8::MAX),
    }
}

/// Says on stderr why a command ended, where its code alone misleads.
pub(crate) fn tell(exit: &Exit) {
    match &exit.cause {
        ExitCause::SpawnFailed(failure) => notice(&failure.message),
        ExitCause::Timeout => notice("the command's time was over; it was ended"),
        ExitCause::IdleTimeout => notice("the command printed nothing for too long; it was ended"),
        ExitCause::SessionEnded => notice("the session ended, and the command with it"),
        ExitCause::HostShutdown => notice("the daemon was stopped, and the command with it"),
        ExitCause::OutOfMemory => notice("the command used more memory than it may; it was ended"),
        ExitCause::PidsLimit => notice("the command made more processes than it may"),
        ExitCause::OutputLimit => notice("the command printed more than it may; it was ended"),
        ExitCause::Exited
        | ExitCause::Signaled
        | ExitCause::Stopped { .. }
        | ExitCause::Unknown => {}
    }
}

#[cfg(test)]
mod tests {
    use executor_client::v1;

    use super::*;

    #[test]
    fn our_code_is_the_commands() {
        let exit = |shell_code, cause: v1::ExitCause| {
            code(&Exit::from(v1::Exit {
                shell_code,
                cause: cause.into(),
                ..Default::default()
            }))
        };
        assert_eq!(exit(3, v1::ExitCause::Exited), 3);
        assert_eq!(exit(137, v1::ExitCause::Signaled), 137);
        assert_eq!(exit(127, v1::ExitCause::SpawnFailed), 127);
        assert_eq!(exit(143, v1::ExitCause::Timeout), 124);
        assert_eq!(exit(0, v1::ExitCause::IdleTimeout), 124);
    }
}
