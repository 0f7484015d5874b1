//! `StartProcessRequest` → [`CheckedStart`].

use std::ffi::{CString, OsString};
use std::fmt::Display;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use executor_proto::id::ProcessId;
use executor_proto::reason::{Failure, Reason};
use executor_proto::v1;
use prost::Message as _;

use super::check::{duration, id, invalid, number, size, text, time, timeout};
use super::process::terminal_size;
use crate::files::resolve::PATH_BYTES;
use crate::limits::Limits;
use crate::process::spec::{
    Command, EnvironmentPolicy, EnvironmentSpec, Flow, Io, Shell, SpecDigest, StartSpec,
};

/// Characters of a command's text that make its label.
const LABEL: usize = 200;
/// Bytes of output in a reply where the request names none.
pub(in crate::service) const PAGE_DEFAULT: usize = 8192;

/// A start whose only open question is its directory.
#[derive(Debug)]
pub(in crate::service) struct CheckedStart {
    id: ProcessId,
    digest: SpecDigest,
    created_at: SystemTime,
    label: String,
    command: Command,
    environment: EnvironmentSpec,
    io: Io,
    flow: Flow,
    timeout: Option<Duration>,
    idle_timeout: Option<Duration>,
    /// As the request names it; may be empty.
    pub(in crate::service) directory: OsString,
    /// How long the call waits for the exit.
    pub(in crate::service) wait: Duration,
    /// Output in the reply.
    pub(in crate::service) max_bytes: usize,
}

impl CheckedStart {
    /// Checks a request.
    pub(in crate::service) fn new(
        mut request: v1::StartProcessRequest,
        limits: &Limits,
    ) -> Result<Self, Failure> {
        // Before anything is done for each element: there may be millions.
        sizes(&request, limits)?;
        refuse_what_is_not_built(&request)?;
        let max_wait = Duration::from_secs(limits.wait_seconds as u64);
        let wait = duration("wait", request.wait.take(), Duration::ZERO, max_wait)?;
        let max_bytes = size(
            "max_bytes",
            std::mem::take(&mut request.max_bytes),
            PAGE_DEFAULT,
            limits.read_page_bytes,
        )?;
        // From here the request is the spec, and nothing else.
        let digest = digest(&request);
        let command = command(request.command, limits)?;
        let label = if request.label.is_empty() {
            label(&command)
        } else {
            text("label", request.label, 1, 4096)?
        };
        Ok(Self {
            id: id("process_id", &request.process_id)?,
            digest,
            created_at: time("created_at", request.created_at)?,
            label,
            command,
            environment: environment(request.environment.unwrap_or_default())?,
            io: io(request.io)?,
            flow: match number("flow", request.flow)? {
                v1::Flow::Unspecified | v1::Flow::Drain => Flow::Drain,
                v1::Flow::Lossless => Flow::Lossless,
            },
            timeout: timeout("timeout", request.timeout)?,
            idle_timeout: timeout("idle_timeout", request.idle_timeout)?,
            directory: path("working_directory", request.working_directory)?,
            wait,
            max_bytes,
        })
    }

    /// The spec, once its directory is known by name.
    pub(in crate::service) fn into_spec(self, cwd: PathBuf) -> StartSpec {
        StartSpec {
            id: self.id,
            digest: self.digest,
            created_at: self.created_at,
            label: self.label,
            command: self.command,
            environment: self.environment,
            io: self.io,
            flow: self.flow,
            timeout: self.timeout,
            idle_timeout: self.idle_timeout,
            cwd,
        }
    }
}

/// A path: bytes without NUL, not longer than the kernel takes.
pub(in crate::service) fn path(field: &str, bytes: Vec<u8>) -> Result<OsString, Failure> {
    if bytes.contains(&0) {
        return Err(invalid(field, "a path cannot hold a NUL byte"));
    }
    if bytes.len() > PATH_BYTES {
        let length = bytes.len();
        return Err(invalid(
            field,
            format_args!("{length} bytes; a path has at most {PATH_BYTES}"),
        ));
    }
    Ok(OsString::from_vec(bytes))
}

fn refuse_what_is_not_built(request: &v1::StartProcessRequest) -> Result<(), Failure> {
    if let Some(field) = request.limits.as_ref().and_then(first_limit) {
        return Err(Failure::new(
            Reason::LimitUnsupported,
            format!(
                "limits.{field} cannot be enforced by this version; nothing was started. \
                 Leave it unset to start without it"
            ),
        )
        .with("field", format_args!("limits.{field}")));
    }
    let unsupported = |field: &str, value: &str| {
        Failure::new(
            Reason::Unsupported,
            format!(
                "{field} {value:?} is not supported by this version; nothing was started. \
                 Leave it unset"
            ),
        )
        .with("field", field)
    };
    match number("sandbox", request.sandbox)? {
        v1::Sandbox::Unspecified | v1::Sandbox::Off => {}
        v1::Sandbox::Workspace => return Err(unsupported("sandbox", "workspace")),
        v1::Sandbox::Strict => return Err(unsupported("sandbox", "strict")),
    }
    if !request.user.is_empty() {
        let user: String = request.user.chars().take(64).collect();
        return Err(unsupported("user", &user));
    }
    Ok(())
}

fn first_limit(limits: &v1::ProcessLimits) -> Option<&'static str> {
    [
        ("memory_bytes", limits.memory_bytes),
        ("pids", limits.pids),
        ("milli_cpus", limits.milli_cpus),
        ("open_files", limits.open_files),
        ("file_size_bytes", limits.file_size_bytes),
        ("core_size_bytes", limits.core_size_bytes),
        ("output_bytes", limits.output_bytes),
    ]
    .into_iter()
    .find_map(|(name, value)| value.map(|_| name))
}

fn digest(request: &v1::StartProcessRequest) -> SpecDigest {
    let hash = blake3::hash(&request.encode_to_vec());
    let mut digest = [0; 16];
    for (to, from) in digest.iter_mut().zip(hash.as_bytes()) {
        *to = *from;
    }
    SpecDigest(digest)
}

fn command(
    command: Option<v1::start_process_request::Command>,
    limits: &Limits,
) -> Result<Command, Failure> {
    use v1::start_process_request::Command as Wire;
    match command {
        None => Err(invalid("command", "set argv or shell")),
        Some(Wire::Argv(command)) => {
            let argv = command
                .argv
                .into_iter()
                .enumerate()
                .map(|(at, argument)| c_string(format_args!("argv[{at}]"), argument))
                .collect::<Result<Vec<_>, _>>()?;
            match argv.first() {
                None => Err(invalid("argv", "it must name a program")),
                Some(program) if program.is_empty() => {
                    Err(invalid("argv[0]", "the program's name is empty"))
                }
                Some(_) => Ok(Command::Argv(argv)),
            }
        }
        Some(Wire::Shell(command)) => {
            within("shell.text", command.text.len(), limits)?;
            Ok(Command::Shell {
                shell: match number("shell.shell", command.shell)? {
                    v1::Shell::Unspecified | v1::Shell::Default => Shell::Default,
                    v1::Shell::Sh => Shell::Sh,
                    v1::Shell::Bash => Shell::Bash,
                    v1::Shell::Zsh => Shell::Zsh,
                },
                text: c_string("shell.text", command.text)?,
            })
        }
    }
}

/// What execve(2) needs for each string beside its bytes: NUL and a pointer.
const PER_STRING: usize = 9;

/// Arguments and environment are within what a command may have.
fn sizes(request: &v1::StartProcessRequest, limits: &Limits) -> Result<(), Failure> {
    use v1::start_process_request::Command as Wire;
    let total = |strings: &mut dyn Iterator<Item = usize>| {
        strings.fold(0, |all: usize, length| {
            all.saturating_add(length).saturating_add(PER_STRING)
        })
    };
    if let Some(Wire::Argv(command)) = &request.command {
        let argv = total(&mut command.argv.iter().map(Vec::len));
        within("argv", argv, limits)?;
    }
    if let Some(environment) = &request.environment {
        let set = environment.set.iter();
        let mut set = set.map(|one| one.name.len().saturating_add(one.value.len()));
        within("environment.set", total(&mut set), limits)?;
        let unset = total(&mut environment.unset.iter().map(Vec::len));
        within("environment.unset", unset, limits)?;
    }
    Ok(())
}

fn within(field: &str, length: usize, limits: &Limits) -> Result<(), Failure> {
    let limit = limits.command_bytes;
    if length <= limit {
        return Ok(());
    }
    Err(invalid(
        field,
        format_args!(
            "{length} bytes with what each string takes; a command has at most {limit} \
             (command_bytes). Write it to a file and run that"
        ),
    )
    .with("limit", "command_bytes"))
}

fn c_string(field: impl Display, bytes: Vec<u8>) -> Result<CString, Failure> {
    CString::new(bytes).map_err(|error| {
        let at = error.nul_position();
        invalid(
            &field.to_string(),
            format_args!("it holds a NUL byte at {at}, which no program can be given"),
        )
    })
}

fn environment(environment: v1::Environment) -> Result<EnvironmentSpec, Failure> {
    let policy = match number("environment.policy", environment.policy)? {
        v1::EnvironmentPolicy::Unspecified | v1::EnvironmentPolicy::Core => EnvironmentPolicy::Core,
        v1::EnvironmentPolicy::Login => EnvironmentPolicy::Login,
        v1::EnvironmentPolicy::None => EnvironmentPolicy::None,
        v1::EnvironmentPolicy::All => EnvironmentPolicy::All,
    };
    let set = environment.set.into_iter().enumerate().map(|(at, one)| {
        let name = name(format_args!("environment.set[{at}].name"), one.name)?;
        let value = c_string(format_args!("environment.set[{at}].value"), one.value)?;
        Ok((name, value))
    });
    let unset = environment.unset.into_iter().enumerate();
    Ok(EnvironmentSpec {
        policy,
        set: set.collect::<Result<_, Failure>>()?,
        unset: unset
            .map(|(at, one)| name(format_args!("environment.unset[{at}]"), one))
            .collect::<Result<_, Failure>>()?,
        quiet: environment.quiet,
    })
}

fn name(field: impl Display, bytes: Vec<u8>) -> Result<CString, Failure> {
    if bytes.is_empty() {
        return Err(invalid(
            &field.to_string(),
            "a variable's name cannot be empty",
        ));
    }
    if bytes.contains(&b'=') {
        let shown = String::from_utf8_lossy(&bytes);
        let shown: String = shown.chars().take(64).collect();
        return Err(invalid(
            &field.to_string(),
            format_args!("{shown:?}: a variable's name cannot hold \"=\""),
        ));
    }
    c_string(field, bytes)
}

fn io(io: Option<v1::start_process_request::Io>) -> Result<Io, Failure> {
    use v1::start_process_request::Io as Wire;
    let pipe = match io {
        Some(Wire::Terminal(terminal)) => {
            return terminal_size("terminal.size", terminal.size).map(Io::Terminal);
        }
        Some(Wire::Pipe(pipe)) => pipe,
        None => v1::PipeIo::default(),
    };
    Ok(Io::Pipe {
        stdin: match number("pipe.stdin", pipe.stdin)? {
            v1::Stdin::Unspecified | v1::Stdin::Null => false,
            v1::Stdin::Pipe => true,
        },
        separate_stderr: pipe.separate_stderr,
    })
}

/// The command's text, shortened on a character's boundary.
fn label(command: &Command) -> String {
    // Four bytes a character at most, so no more of a long text is decoded.
    let mut bytes = Vec::new();
    match command {
        Command::Shell { text, .. } => bytes.extend(text.as_bytes().iter().take(LABEL * 4)),
        Command::Argv(argv) => {
            for argument in argv {
                if bytes.len() >= LABEL * 4 {
                    break;
                }
                if !bytes.is_empty() {
                    bytes.push(b' ');
                }
                bytes.extend(argument.as_bytes().iter().take(LABEL * 4));
            }
        }
    }
    let label: String = String::from_utf8_lossy(&bytes)
        .chars()
        .take(LABEL)
        .collect();
    if label.is_empty() {
        // An empty shell text is a command that does nothing; it is still one.
        return "(empty)".to_owned();
    }
    label
}
