//! Whether a program can go on with a host: it is run and asked. What it says
//! proves that it is one of ours and names the formats that it reads; given a
//! state, it has read it before it says so.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::time::Duration;

use executor_proto::id::Epoch;
use rustix::pipe::{PipeFlags, pipe_with};
use serde::{Deserialize, Serialize};

use super::find::start_program;
use super::greeting::RELEASE;
use super::upgrade::{FORMAT, Handover};
use crate::process::{log, tree};
use crate::sys::readiness::readable_within;
use crate::sys::spawn::Spawned;
use crate::sys::{signal, wait};

/// How long a program may take to answer.
const ANSWERS: Duration = Duration::from_secs(10);

/// What a program reads.
#[derive(Debug, Serialize, Deserialize)]
struct Reads {
    /// What it was asked with.
    nonce: String,
    /// Formats of the whole, of logs, and of reapers' messages.
    host: Vec<u32>,
    logs: Vec<u32>,
    reapers: Vec<u32>,
}

/// What this program answers when it is tried with `nonce`; `state` is what it
/// has to read first, where its standard input holds something.
///
/// # Errors
/// It cannot go on with that.
pub fn answer_trial(nonce: &str, state: OwnedFd) -> io::Result<String> {
    if rustix::fs::fstat(&state)?.st_size > 0 {
        Handover::read(state)?;
    }
    let reads = Reads {
        nonce: nonce.to_owned(),
        host: vec![FORMAT],
        logs: vec![log::FORMAT],
        reapers: vec![tree::REAPER_VERSION.into()],
    };
    Ok(serde_json::to_string(&reads)?)
}

/// Runs programs.
#[derive(Debug)]
pub(super) struct Trial;

impl Trial {
    /// Blocks until `program` has said that it can go on, with `state` or with
    /// any of this release. An error says for people why not.
    pub(super) fn of(program: &Path, state: Option<&OwnedFd>) -> Result<(), String> {
        let name = program.display();
        let nonce = Epoch::random().to_string();
        let said = run(program, &nonce, state).map_err(|error| format!("{name}: {error}"))?;
        let reads = serde_json::from_slice::<Reads>(&said)
            .ok()
            .filter(|reads| reads.nonce == nonce)
            .ok_or_else(|| {
                format!("{name} is no executor-daemon that can go on with release {RELEASE}")
            })?;
        let fits = reads.host.contains(&FORMAT)
            && reads.logs.contains(&log::FORMAT)
            && reads.reapers.contains(&tree::REAPER_VERSION.into());
        if fits {
            Ok(())
        } else {
            Err(format!(
                "{name} cannot go on with what release {RELEASE} holds; upgrade to a release \
                 between the two first"
            ))
        }
    }
}

fn run(program: &Path, nonce: &str, state: Option<&OwnedFd>) -> io::Result<Vec<u8>> {
    let string = |text: &OsStr| CString::new(text.as_bytes()).map_err(io::Error::from);
    let words = ["executor-daemon", "process-host", "--try-resume", nonce];
    let words: Result<Vec<_>, _> = words
        .into_iter()
        .map(|word| CString::new(OsString::from(word).into_vec()))
        .collect();
    let (answer, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    let null = rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty())?;
    let input = state.map_or(null.as_fd(), OwnedFd::as_fd);
    let started = start_program(
        &string(program.as_os_str())?,
        &words?,
        input,
        theirs.as_fd(),
    );
    let Spawned { pid, pidfd: child } = started?;
    drop(theirs);
    if !readable_within(child.as_fd(), ANSWERS) {
        // With what it has started: it leads a session of its own.
        let _ = signal::send_to_group(pid, libc::SIGKILL);
        let _ = wait::reap_blocking(child.as_fd());
        return Err(io::Error::from(io::ErrorKind::TimedOut));
    }
    let reaped = wait::reap_blocking(child.as_fd())?;
    if !reaped.is_some_and(|reaped| reaped.status.is_success()) {
        return Err(io::Error::other(
            "it cannot go on with what this host holds, or is another program",
        ));
    }
    let mut said = Vec::new();
    File::from(answer).take(4096).read_to_end(&mut said)?;
    Ok(said)
}
