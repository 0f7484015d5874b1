//! What the user's login shell sets, for the policy `login`: where nvm, cargo,
//! pyenv and their like put themselves into PATH.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use tokio::io::Interest;
use tokio_util::task::TaskTracker;

use super::ends::Ends;
use super::env::{Sources, Variables};
use super::spec::Io;
use super::tree::{Containment, EndMode, LaunchPlan, Launched};

/// How long the shell's start-up files may take.
const TIME: Duration = Duration::from_secs(10);
/// Most bytes an environment may have.
const BYTES: usize = 1 << 20;
/// Start-up files may print; what counts comes after this line.
const MARK: &str = "--executor-environment-follows--";
/// Names that belong to the shell that was asked, not to the user.
const OF_THE_SHELL: [&[u8]; 5] = [b"_", b"SHLVL", b"PWD", b"OLDPWD", b"EXECUTOR_TAG"];

/// Asks the login shell. `None`, with a warning in the log, when it does not
/// answer in time or not with an environment.
pub(crate) async fn capture(
    containment: &Containment,
    sources: &Sources,
    tasks: &TaskTracker,
) -> Option<Variables> {
    let shell = sources.login_shell().to_vec();
    let captured = tokio::time::timeout(TIME, ask(containment, sources, tasks, &shell)).await;
    match captured {
        Ok(Ok(variables)) if variables.get(b"PATH").is_some() => Some(variables),
        outcome => {
            let shell = String::from_utf8_lossy(&shell).into_owned();
            let why = match outcome {
                Ok(Ok(_)) => "it printed no environment".to_owned(),
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("it did not answer within {} s", TIME.as_secs()),
            };
            tracing::warn!(
                shell,
                why,
                "the login shell's environment is not known; using core"
            );
            None
        }
    }
}

async fn ask(
    containment: &Containment,
    sources: &Sources,
    tasks: &TaskTracker,
    shell: &[u8],
) -> std::io::Result<Variables> {
    let core = sources.core();
    let (plan, ends) = plan(shell, &core)?;
    let containment = containment.clone();
    let launched = tokio::task::spawn_blocking(move || containment.launch(plan))
        .await
        .map_err(std::io::Error::other)?
        .map_err(|failure| std::io::Error::from_raw_os_error(failure.errno))?;
    let shell = Asked {
        tasks: tasks.clone(),
        launched: Some(launched),
    };
    let output = read_to_end(ends).await;
    drop(shell);
    Ok(parse(&output?))
}

fn plan(shell: &[u8], core: &Variables) -> std::io::Result<(LaunchPlan, Ends)> {
    let io = Io::Pipe {
        stdin: false,
        separate_stderr: true,
    };
    let (stdio, ends) = Ends::open(io)?;
    let shell = CString::new(shell)?;
    // Interactive, since that is where many installers write to.
    let command = CString::new(format!("printf '\\n{MARK}\\n'; exec env -0"))?;
    let home = core.get(b"HOME").unwrap_or(b"/");
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let cwd: OwnedFd = rustix::fs::open(home, flags, Mode::empty())
        .or_else(|_| rustix::fs::open("/", flags, Mode::empty()))?;
    let plan = LaunchPlan {
        programs: vec![shell.clone()],
        argv: vec![
            shell,
            CString::from(c"-l"),
            CString::from(c"-i"),
            CString::from(c"-c"),
            command,
        ],
        envp: core.to_envp(),
        cwd: Arc::new(cwd),
        stdio,
        attempt: Arc::default(),
    };
    Ok((plan, ends))
}

async fn read_to_end(ends: Ends) -> std::io::Result<Vec<u8>> {
    let [Some(output), _errors] = ends.outputs else {
        return Ok(Vec::new());
    };
    let mut all = Vec::new();
    let mut chunk = [0u8; 4096];
    while all.len() < BYTES {
        output.fd.readable().await?.retain_ready();
        let read = output.fd.try_io(Interest::READABLE, |fd| {
            Ok(rustix::io::read(fd, &mut chunk)?)
        });
        match read {
            Ok(0) => break,
            Ok(n) => all.extend_from_slice(chunk.get(..n).unwrap_or_default()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// Ends the shell and all it started, however the capture went.
struct Asked {
    tasks: TaskTracker,
    launched: Option<Launched>,
}

impl Drop for Asked {
    fn drop(&mut self) {
        let Some(mut launched) = self.launched.take() else {
            return;
        };
        // Bounded: `end` gives up by itself, and the leader is dead after it.
        self.tasks.spawn(async move {
            launched.tree.end(EndMode::Kill).await;
            launched.leader.wait().await;
            launched.tree.release();
        });
    }
}

fn parse(output: &[u8]) -> Variables {
    let mark = format!("\n{MARK}\n");
    let Some(at) = memchr::memmem::rfind(output, mark.as_bytes()) else {
        return Variables::default();
    };
    output
        .get(at + mark.len()..)
        .unwrap_or_default()
        .split(|byte| *byte == 0)
        .filter_map(|entry| {
            let equals = memchr::memchr(b'=', entry)?;
            let (name, value) = (entry.get(..equals)?, entry.get(equals + 1..)?);
            let own = name.is_empty() || OF_THE_SHELL.contains(&name);
            (!own).then(|| (name.to_vec(), value.to_vec()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_start_up_files_print_is_not_taken_for_the_environment() {
        let output = format!("BANNER=1\n{MARK}\nPATH=/a\0X=1=2\nline\0SHLVL=2\0_=x\0=bad\0");
        let variables = parse(output.as_bytes());
        assert_eq!(variables.get(b"PATH"), Some(b"/a".as_slice()));
        assert_eq!(variables.get(b"X"), Some(b"1=2\nline".as_slice()));
        assert_eq!(variables.get(b"SHLVL"), None);
        assert_eq!(variables.get(b"BANNER"), None);
        assert_eq!(parse(b"no mark at all"), Variables::default());
    }
}
