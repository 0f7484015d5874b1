//! A command before it runs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use executor_proto::id::ProcessId;
use executor_proto::v1;
use executor_proto::v1::start_process_request::{Command as WireCommand, Io};

use crate::error::ClientError;
use crate::exit::Exit;
use crate::output::{OutputEvent, OutputOptions};
use crate::process::{Process, Started};
use crate::session::{Session, path_bytes, wire_duration};

/// Most output that [`Command::run`] collects.
pub const COLLECTED_BYTES: usize = 16 << 20;

/// Builds the start of a process: made by
/// [`Session::command`](crate::Session::command) and
/// [`Session::program`](crate::Session::program).
///
/// Unless told otherwise: the session's working directory, the environment
/// policy `core`, no input, stdout and stderr in one pipe, no time limit, and
/// a process that waits for no reader.
#[derive(Debug, Clone)]
#[must_use = "a command runs when it is spawned"]
pub struct Command {
    session: Session,
    request: v1::StartProcessRequest,
    environment: v1::Environment,
    pipe: v1::PipeIo,
}

/// A command that ran to its exit, with what it printed.
#[derive(Debug, Clone, PartialEq)]
pub struct Completed {
    /// How it ended.
    pub exit: Exit,
    /// The first [`COLLECTED_BYTES`] of what was printed before the exit.
    pub output: Vec<u8>,
    /// Bytes printed that are not in `output`.
    pub omitted: u64,
}

impl Command {
    pub(crate) fn shell(session: Session, text: Vec<u8>) -> Self {
        Self::new(
            session,
            WireCommand::Shell(v1::ShellCommand {
                shell: v1::Shell::Default.into(),
                text,
            }),
        )
    }

    pub(crate) fn argv(session: Session, argv: Vec<Vec<u8>>) -> Self {
        Self::new(session, WireCommand::Argv(v1::ArgvCommand { argv }))
    }

    fn new(session: Session, command: WireCommand) -> Self {
        Self {
            session,
            request: v1::StartProcessRequest {
                process_id: ProcessId::random().to_string(),
                command: Some(command),
                ..Default::default()
            },
            environment: v1::Environment::default(),
            pipe: v1::PipeIo::default(),
        }
    }

    /// The process's id, for a caller that wants to know it even when the
    /// answer to the start is lost. Else it is random.
    pub fn id(mut self, id: ProcessId) -> Self {
        self.request.process_id = id.to_string();
        self
    }

    /// A name for people; else the command's text.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.request.label = label.into();
        self
    }

    /// The shell of a text; counts for nothing where a program was given.
    pub fn with_shell(mut self, shell: v1::Shell) -> Self {
        if let Some(WireCommand::Shell(command)) = &mut self.request.command {
            command.shell = shell.into();
        }
        self
    }

    /// The working directory: relative to the session's, or absolute inside a
    /// root.
    pub fn cwd(mut self, path: impl AsRef<Path>) -> Self {
        self.request.working_directory = path_bytes(path.as_ref().to_path_buf());
        self
    }

    /// Sets a variable over what the policy gives.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.set.push(v1::EnvironmentVariable {
            name: name.as_ref().as_bytes().to_vec(),
            value: value.as_ref().as_bytes().to_vec(),
        });
        self
    }

    /// Removes a variable that the policy gives.
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.environment
            .unset
            .push(name.as_ref().as_bytes().to_vec());
        self
    }

    /// Which variables it starts from.
    pub fn environment(mut self, policy: v1::EnvironmentPolicy) -> Self {
        self.environment.policy = policy.into();
        self
    }

    /// Adds the settings that keep programs from waiting for a person: no
    /// pager, no editor, no colours, no prompt for a password.
    pub fn quiet(mut self) -> Self {
        self.environment.quiet = true;
        self
    }

    /// Input through a pipe; write it with
    /// [`Process::stdin`](crate::Process::stdin).
    pub fn stdin_pipe(mut self) -> Self {
        self.pipe.stdin = v1::Stdin::Pipe.into();
        self
    }

    /// Two output pipes instead of one.
    pub fn separate_stderr(mut self) -> Self {
        self.pipe.separate_stderr = true;
        self
    }

    /// A terminal instead of pipes, of 1 to 1,000 rows and columns; 0 is the
    /// default of 24 and 80.
    pub fn terminal(mut self, rows: u32, columns: u32) -> Self {
        self.request.io = Some(Io::Terminal(v1::TerminalIo {
            size: Some(v1::TerminalSize { rows, columns }),
        }));
        self
    }

    /// Lets the process wait for one reader with a reader id, as a shell's
    /// pipe does.
    pub fn lossless(mut self) -> Self {
        self.request.flow = v1::Flow::Lossless.into();
        self
    }

    /// Ends the whole tree after this time.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.request.timeout = Some(wire_duration(time));
        self
    }

    /// Ends the whole tree after this time without output.
    pub fn idle_timeout(mut self, time: Duration) -> Self {
        self.request.idle_timeout = Some(wire_duration(time));
        self
    }

    /// How long the start itself waits for the exit, at most 300 s; else it
    /// returns at once.
    pub fn wait(mut self, time: Duration) -> Self {
        self.request.wait = Some(wire_duration(time));
        self
    }

    /// Most output in the answer to the start, at most 65,536 bytes; else
    /// 8,192.
    pub fn max_bytes(mut self, bytes: u32) -> Self {
        self.request.max_bytes = bytes;
        self
    }

    /// Starts it. A lost answer is asked for again under the same id, so that
    /// it runs once. Dropping the future leaves open whether it runs: set
    /// [`Command::id`] to be able to ask.
    ///
    /// # Errors
    /// `CWD_NOT_FOUND` and the other errors of the working directory,
    /// `PROCESS_LIMIT`, `INVALID_ARGUMENT`, `START_OUTCOME_UNKNOWN`; and what
    /// any call can end with. A program that cannot be executed is no error
    /// but a process in state `failed`.
    pub async fn spawn(self) -> Result<Process, ClientError> {
        Ok(self.start().await?.process)
    }

    /// As [`Command::spawn`], with all that the machine answered.
    ///
    /// # Errors
    /// As [`Command::spawn`].
    pub async fn start(self) -> Result<Started, ClientError> {
        let Self {
            session,
            mut request,
            environment,
            pipe,
        } = self;
        request.environment = Some(environment);
        request.io.get_or_insert(Io::Pipe(pipe));
        session.start(request).await
    }

    /// Runs it to its exit and collects what it printed. What descendants
    /// print after the exit is not waited for. Dropping the future leaves it
    /// running.
    ///
    /// # Errors
    /// As [`Command::spawn`] and [`OutputStream::next`](crate::OutputStream::next).
    pub async fn run(self) -> Result<Completed, ClientError> {
        let process = self.lossless().spawn().await?;
        let mut stream = process.stream_output(OutputOptions {
            reader_id: Some(crate::random_name()),
            ..Default::default()
        });
        let mut output = Vec::new();
        let mut exit = None;
        while exit.is_none() {
            match stream.next().await? {
                Some(OutputEvent::Page(page)) => {
                    let room = COLLECTED_BYTES - output.len();
                    output.extend(page.data.iter().take(room));
                }
                Some(OutputEvent::Exit(told)) => exit = Some(*told),
                Some(OutputEvent::End) => {}
                None => break,
            }
        }
        let omitted = stream.cursor() - output.len() as u64;
        let exit = match exit {
            Some(exit) => exit,
            None => process.wait().await?,
        };
        Ok(Completed {
            exit,
            output,
            omitted,
        })
    }
}
