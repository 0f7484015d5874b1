//! From the arguments of `run` to a command.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use executor_client::{Command, Session, v1};

use crate::cli::args::RunArgs;
use crate::cli::failure::CliError;
use crate::cli::{Context, daemon, terminal};

use super::input;

/// Characters that mean something to a shell. A single word without them is a
/// program.
const SHELL_CHARACTERS: &[u8] = b"|&;<>()$`\\\"'*?[{~!#";

/// The command that the arguments describe, for this session.
pub(super) fn build(
    context: &Context,
    args: &RunArgs,
    session: &Session,
) -> Result<Command, CliError> {
    let command = match what(args) {
        What::Text(text) => session.command(text.as_bytes()),
        What::Argv => session.program(args.command.iter().map(|word| word.clone().into_vec())),
    };
    let command = place(context, args, command)?;
    let mut command = io(args, command);
    if let Some(label) = &args.label {
        command = command.label(label);
    }
    if let Some(timeout) = args.timeout {
        command = command.timeout(timeout);
    }
    if let Some(timeout) = args.idle_timeout {
        command = command.idle_timeout(timeout);
    }
    Ok(command)
}

enum What<'a> {
    Text(&'a OsStr),
    Argv,
}

fn what(args: &RunArgs) -> What<'_> {
    match (&args.shell, args.command.as_slice()) {
        (Some(text), _) => What::Text(text),
        (None, [one]) if is_text(one) => What::Text(one),
        _ => What::Argv,
    }
}

fn is_text(word: &OsStr) -> bool {
    word.as_bytes()
        .iter()
        .any(|byte| byte.is_ascii_whitespace() || SHELL_CHARACTERS.contains(byte))
}

/// Where and with which variables. On our own machine: here, and with ours as
/// they are. On another one: what a login there gives.
fn place(context: &Context, args: &RunArgs, mut command: Command) -> Result<Command, CliError> {
    let surroundings = &context.surroundings;
    if daemon::is_own_machine(context.address.as_deref()) {
        let cwd = match &args.cwd {
            Some(cwd) => surroundings.absolute(cwd)?,
            None => surroundings.cwd()?,
        };
        command = command.environment(v1::EnvironmentPolicy::None);
        for (name, value) in surroundings.variables() {
            if name.is_empty() || name.as_bytes().contains(&b'=') || name == "PWD" {
                continue;
            }
            command = command.env(name, value);
        }
        command = command.env("PWD", &cwd).cwd(cwd);
    } else {
        command = command.environment(v1::EnvironmentPolicy::Login);
        if let Some(cwd) = &args.cwd {
            command = command.cwd(cwd);
        }
        if let Some(term) = surroundings.variable("TERM").filter(|_| args.pty) {
            command = command.env("TERM", term);
        }
    }
    for pair in &args.env {
        let (name, value) = split_variable(pair)?;
        command = command.env(name, value);
    }
    Ok(command)
}

fn split_variable(pair: &OsStr) -> Result<(&OsStr, &OsStr), CliError> {
    let bytes = pair.as_bytes();
    bytes
        .iter()
        .position(|byte| *byte == b'=')
        .filter(|at| *at > 0)
        .and_then(|at| bytes.split_at_checked(at))
        .map(|(name, value)| {
            let value = value.get(1..).unwrap_or_default();
            (OsStr::from_bytes(name), OsStr::from_bytes(value))
        })
        .ok_or_else(|| {
            CliError::Usage(format!(
                "--env {} is not NAME=VALUE",
                pair.to_string_lossy()
            ))
        })
}

fn io(args: &RunArgs, command: Command) -> Command {
    if args.pty {
        let (rows, columns) = terminal::size().unwrap_or((0, 0));
        let command = command.terminal(rows, columns);
        return if args.detach {
            command
        } else {
            command.lossless()
        };
    }
    if args.detach {
        // One pipe, so that the log has the order of writing.
        return if args.stdin {
            command.stdin_pipe()
        } else {
            command
        };
    }
    let command = command.separate_stderr().lossless();
    if input::is_null() {
        command
    } else {
        command.stdin_pipe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_with_blanks_or_shell_characters_is_a_text() {
        for text in [
            "ls -l", "a|b", "~/x", "$HOME/x", "a\nb", "echo*", "x&", "f()",
        ] {
            assert!(is_text(OsStr::new(text)), "{text}");
        }
        for program in ["ls", "./a-b_c.d", "/usr/bin/x", "é", "a=b", "a%b,c:d@e+f"] {
            assert!(!is_text(OsStr::new(program)), "{program}");
        }
    }

    #[test]
    fn a_variable_is_a_name_and_a_value() {
        let split = |text: &'static str| {
            split_variable(OsStr::new(text))
                .map(|(name, value)| (name.to_str().unwrap(), value.to_str().unwrap()))
        };
        assert_eq!(split("A=b=c").unwrap(), ("A", "b=c"));
        assert_eq!(split("A=").unwrap(), ("A", ""));
        split("A").unwrap_err();
        split("=b").unwrap_err();
    }
}
