//! Finding the user's daemon, and starting it where a command needs it.
//!
//! Two that start at once race on a lock file: the loser waits for the lock,
//! finds the winner's daemon and connects.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use executor_client::{CallOptions, Machine};
use rustix::fs::{Access, FlockOperation};
use rustix::io::Errno;
use tokio::net::UnixStream;
use tokio::time::Instant;

use super::Context;
use super::failure::{CliError, notice};

/// First argument of the hidden mode in which we become the daemon.
const STARTER: &str = "__start-daemon";
/// The address of the machine inside this process, which `run` embeds.
pub(crate) const LOCAL: &str = "local";
/// The daemon's program.
const PROGRAM: &str = "executor-daemon";
/// From its start to its first answer.
const READY_WITHIN: Duration = Duration::from_secs(15);
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How much of a dead daemon's log is shown.
const LOG_SHOWN: u64 = 2_048;
/// A person waits; a daemon that restarts is back before.
const CALL_DEADLINE: Duration = Duration::from_secs(10);

/// The hidden mode: `executor __start-daemon PROGRAM` becomes the daemon, in a
/// session of its own (setsid(2)) so that no terminal's hangup ends it. Does
/// not return when it was started so.
pub(crate) fn starter_entry() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().as_deref() != Some(OsStr::new(STARTER)) {
        return;
    }
    let Some(program) = arguments.next() else {
        return;
    };
    // A process that leads a group already keeps its session; the daemon runs
    // all the same.
    let _ = rustix::process::setsid();
    #[expect(
        clippy::disallowed_methods,
        reason = "becomes the daemon; no child whose tree would have to be accounted for"
    )]
    let error = Command::new(&program).arg("serve").exec();
    notice(format_args!(
        "cannot execute {}: {error}",
        program.display()
    ));
    std::process::exit(super::failure::OWN_FAILURE.into());
}

/// A Unix socket leads to our own machine.
pub(crate) fn is_own_machine(address: Option<&str>) -> bool {
    address.is_none_or(|address| address == LOCAL || address.starts_with("unix:"))
}

/// The machine at `--machine`, or the user's daemon where one runs.
pub(crate) async fn find(context: &Context) -> Result<Option<Machine>, CliError> {
    match &context.address {
        Some(address) if address == LOCAL => Ok(None),
        Some(address) => Ok(Some(prepare(Machine::connect_lazy(address)?))),
        None => find_at(&context.surroundings.daemon_socket()?).await,
    }
}

/// As [`find`], and starts the daemon where none runs.
pub(crate) async fn find_or_start(context: &Context) -> Result<Machine, CliError> {
    if let Some(machine) = find(context).await? {
        return Ok(machine);
    }
    if context.address.as_deref() == Some(LOCAL) {
        return Err(CliError::Usage(
            "the machine \"local\" lives only as long as a `run` in the foreground; \
             leave out --machine to use your daemon"
                .into(),
        ));
    }
    let socket = context.surroundings.daemon_socket()?;
    let state = context.surroundings.state_directory()?;
    let run = state.join("run");
    make_private_directory(&run)?;
    let lock = open_private(&run.join("start.lock"))?;
    let end = Instant::now() + READY_WITHIN;
    // Also looked at while another one holds the lock: it may be a daemon that
    // is up already.
    loop {
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(Errno::WOULDBLOCK) if Instant::now() < end => {}
            Err(error) => {
                return Err(CliError::io(
                    "cannot lock the start of the daemon",
                    error.into(),
                ));
            }
        }
        if let Some(machine) = find_at(&socket).await? {
            return Ok(machine);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    if let Some(machine) = find_at(&socket).await? {
        return Ok(machine);
    }
    start(context, &socket, &state.join("daemon.log")).await
}

/// A machine whose calls give up in a person's time.
pub(crate) fn prepare(machine: Machine) -> Machine {
    machine.with_options(CallOptions {
        deadline: CALL_DEADLINE,
    })
}

async fn find_at(socket: &Path) -> Result<Option<Machine>, CliError> {
    match UnixStream::connect(socket).await {
        Ok(_) => Ok(Some(prepare(Machine::connect_lazy(&address(socket)?)?))),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::NotADirectory => Ok(None),
            _ => {
                let what = format!("cannot connect to the daemon at {}", socket.display());
                Err(CliError::io(what, error))
            }
        },
    }
}

fn address(socket: &Path) -> Result<String, CliError> {
    let path = socket.to_str().ok_or_else(|| {
        CliError::Usage(format!(
            "{} is not UTF-8: choose another place",
            socket.display()
        ))
    })?;
    Ok(format!("unix://{path}"))
}

async fn start(context: &Context, socket: &Path, log_path: &Path) -> Result<Machine, CliError> {
    let program = locate(context)?;
    let mut log = open_private(log_path)?;
    let log_begin = log
        .seek(SeekFrom::End(0))
        .map_err(|error| CliError::io("cannot use the daemon's log", error))?;
    let mut child = spawn(&program, &log)?;
    let address = address(socket)?;
    let end = Instant::now() + READY_WITHIN;
    loop {
        // Its first answer, not its socket: then it serves.
        let refusal = match Machine::connect(&address).await {
            Ok(machine) => {
                notice(format_args!(
                    "started your daemon (pid {}, log {})",
                    child.id(),
                    log_path.display()
                ));
                return Ok(prepare(machine));
            }
            Err(error) => error,
        };
        let gone = child
            .try_wait()
            .map_err(|error| CliError::io("cannot wait for the daemon", error))?;
        let why = match gone {
            Some(status) => format!("it ended with {status}"),
            None if Instant::now() >= end => format!("no answer within 15 s: {refusal}"),
            None => {
                tokio::time::sleep(LOOK_AGAIN).await;
                continue;
            }
        };
        return Err(CliError::DaemonFailed {
            why,
            log: end_of(&mut log, log_begin),
        });
    }
}

/// Starts us in the hidden mode, with the log as output.
fn spawn(program: &Path, log: &File) -> Result<Child, CliError> {
    let output = || {
        log.try_clone()
            .map(Stdio::from)
            .map_err(|error| CliError::io("cannot use the daemon's log", error))
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "the daemon is to outlive us: it is in nobody's tree"
    )]
    let mut command = Command::new("/proc/self/exe");
    command
        .args([OsStr::new(STARTER), program.as_os_str()])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(output()?)
        .stderr(output()?)
        .spawn()
        .map_err(|error| CliError::io("cannot start the daemon", error))
}

/// The daemon's program: beside ours, then in PATH.
fn locate(context: &Context) -> Result<PathBuf, CliError> {
    let beside = std::env::current_exe()
        .map_err(|error| CliError::io("cannot find my own program", error))?
        .with_file_name(PROGRAM);
    let path = context.surroundings.variable("PATH").unwrap_or_default();
    std::iter::once(beside.clone())
        .chain(std::env::split_paths(path).map(|directory| directory.join(PROGRAM)))
        .find(|candidate| is_program(candidate))
        .ok_or(CliError::NoDaemonProgram { beside })
}

fn is_program(path: &Path) -> bool {
    path.is_absolute() && path.is_file() && rustix::fs::access(path, Access::EXEC_OK).is_ok()
}

/// Makes a directory, and those above it, for us alone.
pub(crate) fn make_private_directory(path: &Path) -> Result<(), CliError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|error| CliError::io(format!("cannot make {}", path.display()), error))
}

/// Opens a file for us alone, never through a link.
fn open_private(path: &Path) -> Result<File, CliError> {
    OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(no_follow())
        .open(path)
        .map_err(|error| CliError::io(format!("cannot open {}", path.display()), error))
}

/// `O_NOFOLLOW` for std's options.
pub(crate) fn no_follow() -> i32 {
    rustix::fs::OFlags::NOFOLLOW.bits().cast_signed()
}

/// The last lines of what was logged since `begin`.
fn end_of(log: &mut File, begin: u64) -> String {
    let mut text = Vec::new();
    let end = log.seek(SeekFrom::End(0)).unwrap_or(begin);
    let from = begin.max(end.saturating_sub(LOG_SHOWN));
    // A log that cannot be read shows nothing; the failure itself is told.
    if log.seek(SeekFrom::Start(from)).is_ok() {
        let _ = log.take(LOG_SHOWN).read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_is_what_was_written_since() {
        use std::io::Write as _;
        let mut log = tempfile::tempfile().unwrap();
        log.write_all(b"an older life\n").unwrap();
        let begin = log.stream_position().unwrap();
        assert_eq!(end_of(&mut log, begin), "");
        log.write_all(b"cannot bind\n").unwrap();
        assert_eq!(end_of(&mut log, begin), "cannot bind");
        log.write_all(&[b'x'; 5_000]).unwrap();
        assert_eq!(end_of(&mut log, begin).len(), 2_048);
    }

    #[tokio::test]
    async fn a_socket_that_is_missing_or_dead_is_no_daemon() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("daemon.sock");
        assert!(find_at(&socket).await.unwrap().is_none());
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        assert!(find_at(&socket).await.unwrap().is_none());
        let _alive = std::os::unix::net::UnixListener::bind(directory.path().join("b")).unwrap();
        assert!(
            find_at(&directory.path().join("b"))
                .await
                .unwrap()
                .is_some()
        );
    }
}
