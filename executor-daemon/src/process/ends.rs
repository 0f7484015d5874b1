//! Our ends of a command's input and output, registered with the runtime
//! before the command is started: what cannot be watched is not started.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::io::Interest;

use super::backend::{pipe, pty};
use super::log::Stream;
use super::spec::Io;
use super::tree::ChildStdio;
use crate::sys::readiness::Watched;

/// What output is read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum OutputKind {
    Pipe,
    /// The master of a terminal.
    Terminal,
}

/// One source of output.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) fd: Watched,
    pub(crate) kind: OutputKind,
    pub(crate) stream: Stream,
    /// The pipe was given more room already.
    pub(crate) grown: bool,
}

/// All of one command, non-blocking.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) outputs: [Option<Output>; 2],
    pub(crate) input: Option<Watched>,
    /// Of a terminal.
    pub(crate) master: Option<Arc<OwnedFd>>,
}

impl Ends {
    /// Opens what `io` asks for: the child's ends and ours. Must be called
    /// where a tokio runtime is entered.
    ///
    /// # Errors
    /// No descriptors, no terminals, no watches are left.
    pub(crate) fn open(io: Io) -> io::Result<(ChildStdio, Self)> {
        match io {
            Io::Pipe {
                stdin,
                separate_stderr,
            } => {
                let pipes = pipe::open(stdin, separate_stderr)?;
                let stdout = output(pipes.stdout, OutputKind::Pipe, Stream::Stdout)?;
                let stderr = pipes
                    .stderr
                    .map(|fd| output(fd, OutputKind::Pipe, Stream::Stderr))
                    .transpose()?;
                let input = pipes
                    .stdin
                    .map(|fd| Watched::new(fd, Interest::WRITABLE))
                    .transpose()?;
                Ok((
                    pipes.child,
                    Self {
                        outputs: [Some(stdout), stderr],
                        input,
                        master: None,
                    },
                ))
            }
            Io::Terminal(size) => {
                let terminal = pty::open(size)?;
                let master = Arc::new(terminal.master);
                // A descriptor of its own: epoll(7) knows each only once.
                let writer = rustix::io::fcntl_dupfd_cloexec(&master, 3)?;
                let reader = output(Arc::clone(&master), OutputKind::Terminal, Stream::Stdout)?;
                let ends = Self {
                    outputs: [Some(reader), None],
                    input: Some(Watched::new(writer, Interest::WRITABLE)?),
                    master: Some(master),
                };
                Ok((
                    ChildStdio::Terminal {
                        path: terminal.path,
                    },
                    ends,
                ))
            }
        }
    }
}

fn output(fd: impl Into<Arc<OwnedFd>>, kind: OutputKind, stream: Stream) -> io::Result<Output> {
    let fd = Watched::new(fd, Interest::READABLE)?;
    Ok(Output {
        fd,
        kind,
        stream,
        grown: false,
    })
}
