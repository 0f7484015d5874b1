//! From a checked command to what execve(2) takes: which program, with which
//! arguments.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};

use super::env::{DEFAULT_PATH, Variables};
use super::spec::{ARGUMENT_BYTES, Command, Shell};

/// What is executed.
#[derive(Debug)]
pub(crate) struct Program {
    /// Tried in order, as execvp(3) does.
    pub(crate) candidates: Vec<CString>,
    pub(crate) argv: Vec<CString>,
    /// A text too long for one argument; the shell opens it by name, so it
    /// must stay open as long as the process runs.
    pub(crate) script: Option<OwnedFd>,
}

/// Shells whose `-c` takes a POSIX command.
const POSIX_SHELLS: [&[u8]; 5] = [b"sh", b"bash", b"dash", b"zsh", b"ksh"];

impl Program {
    /// # Errors
    /// The kernel gives no memory for a long text.
    pub(crate) fn resolve(command: &Command, environment: &Variables) -> io::Result<Self> {
        match command {
            Command::Argv(argv) => Ok(Self {
                candidates: argv
                    .first()
                    .map_or_else(Vec::new, |name| look_up(name, environment)),
                argv: argv.clone(),
                script: None,
            }),
            Command::Shell { shell, text } => {
                let (name, candidates) = shell_program(*shell, environment);
                let (text, script) = if text.as_bytes().len() > ARGUMENT_BYTES {
                    let script = memory_file(text.as_bytes())?;
                    (sourced(&script), Some(script))
                } else {
                    (text.clone(), None)
                };
                let mut argv = vec![name];
                // The one shell whose start-up file even `-c` reads
                // (`~/.zshenv`, zsh(1)): a command's output is its own.
                if argv.iter().any(|name| name.as_bytes() == b"zsh") {
                    argv.push(CString::from(c"-f"));
                }
                argv.extend([CString::from(c"-c"), text]);
                Ok(Self {
                    candidates,
                    argv,
                    script,
                })
            }
        }
    }
}

/// The command that reads a text from a memory file of ours. The shell opens
/// it through our descriptor table, so that its own descriptors stay 0, 1, 2
/// and its input stays usable.
fn sourced(script: &OwnedFd) -> CString {
    let text = format!(". /proc/{}/fd/{}", std::process::id(), script.as_raw_fd());
    CString::new(text).unwrap_or_default()
}

fn memory_file(text: &[u8]) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create(
        c"executor-command",
        MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
    )?;
    let mut rest = text;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = rest.get(written..).unwrap_or_default();
    }
    rustix::fs::fcntl_add_seals(
        &file,
        SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL,
    )?;
    Ok(file)
}

/// The argument 0 and the candidates of a shell.
fn shell_program(shell: Shell, environment: &Variables) -> (CString, Vec<CString>) {
    let named = |name: &CStr, well_known: &[&CStr]| {
        let mut candidates = look_up(name, environment);
        candidates.extend(well_known.iter().copied().map(CString::from));
        (CString::from(name), candidates)
    };
    match shell {
        Shell::Sh => named(c"sh", &[c"/bin/sh"]),
        Shell::Bash => named(c"bash", &[c"/bin/bash", c"/usr/bin/bash"]),
        Shell::Zsh => named(c"zsh", &[c"/bin/zsh", c"/usr/bin/zsh"]),
        Shell::Default => {
            let own = environment.get(b"SHELL").and_then(|path| {
                let name = path.rsplit(|byte| *byte == b'/').next()?;
                let usable = path.starts_with(b"/") && POSIX_SHELLS.contains(&name);
                usable.then(|| Some((CString::new(name).ok()?, CString::new(path).ok()?)))?
            });
            let (fallback, mut candidates) = named(c"bash", &[c"/bin/bash", c"/usr/bin/bash"]);
            // A machine without bash has sh.
            candidates.push(CString::from(c"/bin/sh"));
            match own {
                Some((name, path)) => {
                    candidates.insert(0, path);
                    (name, candidates)
                }
                None => (fallback, candidates),
            }
        }
    }
}

/// Where a program may be, as execvp(3) looks for it.
fn look_up(name: &CStr, environment: &Variables) -> Vec<CString> {
    let name_bytes = name.to_bytes();
    if name_bytes.contains(&b'/') || name_bytes.is_empty() {
        return vec![CString::from(name)];
    }
    environment
        .get(b"PATH")
        .unwrap_or(DEFAULT_PATH)
        .split(|byte| *byte == b':')
        .filter_map(|directory| {
            // An empty entry is the working directory (execvp(3)).
            let directory = if directory.is_empty() {
                b"."
            } else {
                directory
            };
            CString::new([directory, b"/", name_bytes].concat()).ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(entries: &[(&str, &str)]) -> Variables {
        entries
            .iter()
            .map(|(n, v)| (n.as_bytes().to_vec(), v.as_bytes().to_vec()))
            .collect()
    }

    fn names(candidates: &[CString]) -> Vec<&str> {
        candidates.iter().map(|c| c.to_str().unwrap()).collect()
    }

    #[test]
    fn a_name_is_looked_up_in_the_path_of_the_command() {
        let environment = environment(&[("PATH", "/a::/b")]);
        let command = Command::Argv(vec![CString::from(c"tool"), CString::from(c"-x")]);
        let program = Program::resolve(&command, &environment).unwrap();
        assert_eq!(names(&program.candidates), ["/a/tool", "./tool", "/b/tool"]);
        let command = Command::Argv(vec![CString::from(c"./tool")]);
        let program = Program::resolve(&command, &environment).unwrap();
        assert_eq!(names(&program.candidates), ["./tool"]);
    }

    #[test]
    fn the_default_shell_is_the_users_where_it_is_a_posix_shell() {
        let command = Command::Shell {
            shell: Shell::Default,
            text: CString::from(c"echo 'a' \\ $x"),
        };
        let zsh = Program::resolve(
            &command,
            &environment(&[("SHELL", "/opt/zsh"), ("PATH", "/b")]),
        );
        let zsh = zsh.unwrap();
        assert_eq!(names(&zsh.candidates)[0], "/opt/zsh");
        assert_eq!(names(&zsh.argv), ["zsh", "-f", "-c", "echo 'a' \\ $x"]);
        let named = Command::Shell {
            shell: Shell::Zsh,
            text: CString::from(c"x"),
        };
        let named = Program::resolve(&named, &environment(&[])).unwrap();
        assert_eq!(
            names(&named.argv),
            ["zsh", "-f", "-c", "x"],
            "b089: not even .zshenv is read"
        );
        let fish = Program::resolve(&command, &environment(&[("SHELL", "/bin/fish")])).unwrap();
        assert_eq!(fish.argv[0].as_c_str(), c"bash");
        assert_eq!(fish.candidates.last().unwrap().as_c_str(), c"/bin/sh");
    }

    #[test]
    fn a_text_above_the_kernels_limit_goes_through_memory() {
        let text = |length| CString::new(vec![b'x'; length]).unwrap();
        let shell = Shell::Sh;
        let environment = Variables::default();
        let short = Command::Shell {
            shell,
            text: text(ARGUMENT_BYTES),
        };
        assert!(
            Program::resolve(&short, &environment)
                .unwrap()
                .script
                .is_none()
        );
        let long = Command::Shell {
            shell,
            text: text(ARGUMENT_BYTES + 1),
        };
        let program = Program::resolve(&long, &environment).unwrap();
        assert!(program.script.is_some());
        assert!(program.argv[2].to_bytes().len() < 100);
    }
}
