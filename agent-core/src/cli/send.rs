//! `executor send`

use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

use bytes::Bytes;
use executor_client::{Process, StdinWriter, v1};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde_json::json;
use tokio::time::Instant;

use super::args::SendArgs;
use super::daemon::{make_private_directory, no_follow};
use super::failure::{CliError, print_line};
use super::run::input;
use super::select::select;
use super::session_file::persistent_session;
use super::{Context, daemon};

/// How long a text waits for room in the queue.
const PATIENCE: Duration = Duration::from_secs(10);
/// Ctrl-D: the terminal's end of input at the start of a line (termios(3)).
const VEOF: &[u8] = b"\x04";

/// Queues input for a process.
pub(crate) async fn run(context: &Context, args: &SendArgs) -> Result<u8, CliError> {
    let from_stdin = matches!(args.text.as_slice(), [one] if one == "-");
    if args.text.is_empty() && !args.enter && !args.eof {
        return Err(CliError::Usage(
            "nothing to send: give a text, -, --enter or --eof".into(),
        ));
    }
    let machine = daemon::find_or_start(context).await?;
    let session = persistent_session(context, &machine).await?;
    let process = select(&session, &args.id).await?;
    let terminal = process.info().await?.terminal.is_some();
    let ending = ending(args, terminal);
    let close = args.eof && !terminal;
    let mut writer;
    if from_stdin {
        // May last as long as we have input: a writer of its own.
        writer = process.stdin();
        let mut input = input::Input::start()?;
        while let Some(data) = input.next().await? {
            writer.write(data).await?;
        }
        writer.write(ending).await?;
        if close {
            writer.close().await?;
        }
    } else {
        let mut data = joined(args);
        data.extend_from_slice(&ending);
        let _turn = take_turn(context).await?;
        writer = shared_writer(context, &process).await?;
        writer.write(data).await?;
        if close {
            writer.close().await?;
        }
    }
    if context.json {
        print_line(json!({
            "id": process.id().to_string(),
            "writer": writer.id(),
            "offset": writer.offset(),
            "closed": close,
        }))?;
    }
    Ok(0)
}

fn joined(args: &SendArgs) -> Vec<u8> {
    let words: Vec<&[u8]> = args.text.iter().map(|word| word.as_bytes()).collect();
    words.join(&b' ')
}

/// What follows the text: Enter is a carriage return where a terminal reads
/// it, for programs in raw mode know no other.
fn ending(args: &SendArgs, terminal: bool) -> Bytes {
    let mut ending = Vec::new();
    if args.enter {
        ending.push(if terminal { b'\r' } else { b'\n' });
    }
    if args.eof && terminal {
        ending.extend_from_slice(VEOF);
    }
    ending.into()
}

/// All texts of one user go through one writer per process, which has a bound
/// on writers. It goes on where the machine says that it is.
async fn shared_writer(context: &Context, process: &Process) -> Result<StdinWriter, CliError> {
    let id = format!("executor-send-{}", context.surroundings.uid());
    let info: v1::Process = process.info().await?;
    let offset = info
        .stdin_writers
        .iter()
        .find(|writer| writer.writer_id == id)
        .map_or(0, |writer| writer.offset);
    Ok(process.stdin_as(id, offset).with_patience(PATIENCE))
}

/// Two texts at once would both go on at the same offset, and one be taken for
/// a repeat of the other.
async fn take_turn(context: &Context) -> Result<File, CliError> {
    let state = context.surroundings.state_directory()?;
    make_private_directory(&state)?;
    let path = state.join("send.lock");
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(no_follow())
        .open(&path)
        .map_err(|error| CliError::io(format!("cannot open {}", path.display()), error))?;
    // The one before may use up its own patience.
    let end = Instant::now() + 3 * PATIENCE;
    loop {
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(lock),
            Err(Errno::WOULDBLOCK) if Instant::now() < end => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(error) => {
                let what = format!("cannot lock {}", path.display());
                return Err(CliError::io(what, error.into()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(text: &[&str], enter: bool, eof: bool) -> SendArgs {
        SendArgs {
            id: "prc_x".into(),
            text: text.iter().map(Into::into).collect(),
            enter,
            eof,
        }
    }

    #[test]
    fn words_are_joined_and_enter_is_what_the_reader_expects() {
        let words = args(&["print(1,", "2)"], true, true);
        assert_eq!(joined(&words), b"print(1, 2)");
        assert_eq!(ending(&words, true), b"\r\x04".as_slice());
        assert_eq!(ending(&words, false), b"\n".as_slice());
        assert!(ending(&args(&["x"], false, false), true).is_empty());
    }
}
