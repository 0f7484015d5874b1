//! The floor: the same steps without any server.
//!
//! `std::process::Command` starts by posix_spawn(3) when nothing forbids it:
//! no pre_exec, no uid, no changed PATH; strace(1) shows
//! `clone3(CLONE_VM|CLONE_VFORK|…)`.

use std::fs::File;
use std::io::{self, PipeReader, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::Context as _;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// Bytes of one read(2).
const READ: usize = 64 << 10;

/// Starts a program with no input and both outputs in one pipe.
pub(crate) fn start(argv: &[&str]) -> anyhow::Result<(Child, PipeReader)> {
    let (reader, writer) = io::pipe()?;
    let mut command = command(argv)?;
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer);
    Ok((command.spawn()?, reader))
}

/// Starts a program on a terminal of its own.
pub(crate) fn start_on_terminal(argv: &[&str]) -> anyhow::Result<(Child, File)> {
    let (master, slave) = open_terminal()?;
    let mut command = command(argv)?;
    command
        .stdin(slave.try_clone()?)
        .stdout(slave.try_clone()?)
        .stderr(slave);
    Ok((command.spawn()?, File::from(master)))
}

fn command(argv: &[&str]) -> anyhow::Result<Command> {
    let (program, arguments) = argv.split_first().context("no program")?;
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}

/// Master and slave of a new terminal; the master closes at exec.
pub(crate) fn open_terminal() -> anyhow::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let slave = rustix::fs::open(name, flags, Mode::empty())?;
    Ok((master, slave))
}

/// Reads until nobody can write any more and hands out what comes.
pub(crate) fn read_all(mut from: impl Read, mut take: impl FnMut(&[u8])) -> anyhow::Result<u64> {
    let mut buffer = vec![0u8; READ];
    let mut total = 0u64;
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(total),
            Ok(n) => {
                total += n as u64;
                take(buffer.get(..n).unwrap_or_default());
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // EIO: how a terminal's master tells that the last slave closed.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
                return Ok(total);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Starts a program, reads its output to the end and waits for it.
pub(crate) fn run(argv: &[&str]) -> anyhow::Result<()> {
    let (child, output) = start(argv)?;
    finish(child, output, |_| {})?;
    Ok(())
}

/// Reads to the end and waits; the number of bytes.
pub(crate) fn finish(
    mut child: Child,
    output: impl Read,
    take: impl FnMut(&[u8]),
) -> anyhow::Result<u64> {
    let total = read_all(output, take)?;
    succeeded(child.wait()?)?;
    Ok(total)
}

fn succeeded(status: ExitStatus) -> anyhow::Result<()> {
    anyhow::ensure!(status.success(), "the floor's program ended with {status}");
    Ok(())
}

/// This program, for its modes.
pub(crate) fn this_program() -> anyhow::Result<String> {
    let program = std::env::current_exe()?;
    text(&program)
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> anyhow::Result<String> {
    let text = path.to_str().context("a path that is no text")?;
    Ok(text.to_owned())
}
