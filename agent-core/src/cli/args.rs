//! The arguments, and the help that a newcomer reads.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use super::duration::parse_duration;
use super::files::args::FileCommand;

/// Run commands on a machine, in pipes or a terminal; follow them, type into
/// them, stop them, and get their exits right. Read its files, and change them
/// without losing anything.
#[derive(Debug, Parser)]
#[command(name = "executor", version, max_term_width = 100, after_help = TOP_EXAMPLES)]
pub(crate) struct Args {
    /// Where the daemon is, as unix:///path/to/daemon.sock. Without it: your
    /// own daemon, started when it is needed.
    #[arg(long, global = true, env = "EXECUTOR_MACHINE", value_name = "ADDRESS")]
    pub(crate) machine: Option<String>,

    /// Print JSON, one object per line; errors too.
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

const TOP_EXAMPLES: &str = "\
Examples:
  executor run cargo build             run a command here and now
  executor run 'make 2>&1 | tail -3'   one quoted text is run by a shell
  executor run --detach ./server       leave it running; prints its id
  executor ps                          what runs, and what has ended
  executor logs -f prc_ab              follow its output (a short id will do)
  executor stop prc_ab                 end it with all that it started
  executor tree                        what is here, without what git ignores
  executor grep TODO src               lines that match, with path and number
  executor edit f --old 1 --new 2      replace text; prints a diff
  echo hi | executor write f           make or replace a file, atomically

Exit codes: 0, or those of the command that ran; 128 + N when signal N ended it; 124 when its
time was over; 125 when executor itself failed; 126 and 127 when the command
could not be executed or was not found.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command and pass its output, its input and its exit code.
    Run(Box<RunArgs>),
    /// List processes, running and finished, of all sessions.
    Ps(PsArgs),
    /// Print the output of a process.
    Logs(LogsArgs),
    /// Type into a process.
    Send(SendArgs),
    /// End processes with all that they started.
    Stop(StopArgs),
    /// Wait for a process to end, and exit with its code.
    Wait(WaitArgs),
    #[command(flatten)]
    File(FileCommand),
}

#[derive(Debug, clap::Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// Give the command a terminal, as large as yours.
    #[arg(long)]
    pub(crate) pty: bool,

    /// Leave the command running, print its id and return.
    #[arg(long, short)]
    pub(crate) detach: bool,

    /// Run it under your daemon, and leave running what it leaves behind.
    #[arg(long)]
    pub(crate) keep: bool,

    /// With --detach: keep a pipe open as input, for `executor send`. Without
    /// it the input is empty. (A terminal always takes input.)
    #[arg(long, requires = "detach", conflicts_with = "pty")]
    pub(crate) stdin: bool,

    /// Run it in this directory instead of the current one.
    #[arg(long, short = 'C', value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,

    /// Set a variable; may be repeated.
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = clap::value_parser!(OsString))]
    pub(crate) env: Vec<OsString>,

    /// End it, and all that it started, after this time: 10s, 5m, 1h30m.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) timeout: Option<Duration>,

    /// End it after this time without output.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) idle_timeout: Option<Duration>,

    /// A name to show in `ps` instead of the command.
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,

    /// Run this text with your shell.
    #[arg(long, short = 'c', value_name = "TEXT", conflicts_with = "command")]
    pub(crate) shell: Option<OsString>,

    /// The command: a program and its arguments. A single word with blanks or
    /// shell characters in it is run by a shell.
    #[arg(
        value_name = "COMMAND",
        required_unless_present = "shell",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) command: Vec<OsString>,
}

const RUN_EXAMPLES: &str = "\
Examples:
  executor run cargo build --release
  executor run 'cd src && ls | wc -l'        a shell runs one quoted text
  executor run -- head -c 1G /dev/zero > f   every byte arrives
  echo hello | executor run cat              input is passed on
  executor run --pty python3 -i              in a terminal
  executor run --timeout 30s ./flaky-test    exit code 124 when it took longer
  executor run --detach --pty python3 -i     leave it; type with executor send

Without a daemon the command runs inside this program and ends with it. Ctrl-C
interrupts the command, a second one ends it. Processes that the command leaves
behind are named and ended, unless --keep is given. Your environment is passed
as it is.";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  executor ps
  executor ps --running
  executor ps --json | jq -r .id")]
pub(crate) struct PsArgs {
    /// Only those that have not ended.
    #[arg(long, short)]
    pub(crate) running: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  executor logs prc_ab             all that is retained
  executor logs -f prc_ab          and what follows, to the end of output
  executor logs --tail 4096 prc_ab

The newest 1 MiB and the first 64 KiB are retained. What fell out between is
told on stderr: [… N bytes not retained …].")]
pub(crate) struct LogsArgs {
    /// Id of the process, or its beginning.
    pub(crate) id: String,

    /// Go on until no more output can come.
    #[arg(long, short)]
    pub(crate) follow: bool,

    /// Begin this many bytes before the end.
    #[arg(long, value_name = "BYTES")]
    pub(crate) tail: Option<u64>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  executor send prc_ab 'print(6 * 7)' --enter
  executor send prc_ab --eof
  executor send prc_ab - < script.py

The command needs an input: --pty, or --detach --stdin. Accepted means queued:
the program reads it when it reads.")]
pub(crate) struct SendArgs {
    /// Id of the process, or its beginning.
    pub(crate) id: String,

    /// What to type; several words are joined by blanks. A single - sends what
    /// comes on stdin.
    #[arg(allow_hyphen_values = false)]
    pub(crate) text: Vec<OsString>,

    /// Press Enter afterwards: a carriage return for a terminal, a newline
    /// for a pipe.
    #[arg(long)]
    pub(crate) enter: bool,

    /// End the input afterwards: closes a pipe, types Ctrl-D in a terminal.
    #[arg(long)]
    pub(crate) eof: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  executor stop prc_ab              SIGTERM, and SIGKILL after 2 s
  executor stop --grace 30s prc_ab
  executor stop --interrupt prc_ab  as Ctrl-C; the program may go on
  executor stop --kill prc_ab prc_cd")]
pub(crate) struct StopArgs {
    /// Ids of processes, or their beginnings.
    #[arg(required = true)]
    pub(crate) ids: Vec<String>,

    /// Interrupt as Ctrl-C does.
    #[arg(long, conflicts_with_all = ["kill", "grace"])]
    pub(crate) interrupt: bool,

    /// SIGKILL at once.
    #[arg(long, conflicts_with = "grace")]
    pub(crate) kill: bool,

    /// Time between SIGTERM and SIGKILL, at most 60s.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
    pub(crate) grace: Duration,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  executor wait prc_ab; echo $?
  executor wait --timeout 5m prc_ab

Exits with the process's code; 124 when it still runs after --timeout.")]
pub(crate) struct WaitArgs {
    /// Id of the process, or its beginning.
    pub(crate) id: String,

    /// Give up after this time. The process goes on.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) timeout: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_args(words: &[&str]) -> RunArgs {
        let words = ["executor", "run"].iter().chain(words);
        match Args::try_parse_from(words).unwrap().command {
            Command::Run(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        use clap::CommandFactory as _;
        Args::command().debug_assert();
    }

    #[test]
    fn options_end_where_the_command_begins() {
        let args = run_args(&["--pty", "ls", "-la", "--json", "--pty"]);
        assert!(args.pty);
        assert_eq!(args.command, ["ls", "-la", "--json", "--pty"]);
        let args = run_args(&["--", "--odd"]);
        assert_eq!(args.command, ["--odd"]);
    }

    #[test]
    fn a_text_for_the_shell_is_instead_of_a_command() {
        let args = run_args(&["-c", "exit 3"]);
        assert_eq!(args.shell, Some("exit 3".into()));
        assert!(args.command.is_empty());
        assert!(Args::try_parse_from(["executor", "run"]).is_err());
        assert!(Args::try_parse_from(["executor", "run", "-c", "x", "y"]).is_err());
    }

    #[test]
    fn json_stands_before_and_after_the_command_name() {
        for words in [["executor", "--json", "ps"], ["executor", "ps", "--json"]] {
            assert!(Args::try_parse_from(words).unwrap().json);
        }
    }
}
