//! What the program was started with, read once.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use super::failure::CliError;

/// Environment, working directory and user.
#[derive(Debug)]
pub(crate) struct Surroundings {
    variables: Vec<(OsString, OsString)>,
    cwd: io::Result<PathBuf>,
    uid: u32,
}

impl Surroundings {
    /// Reads them.
    pub(crate) fn read() -> Self {
        Self {
            variables: std::env::vars_os().collect(),
            cwd: std::env::current_dir(),
            uid: rustix::process::geteuid().as_raw(),
        }
    }

    /// All variables, as they are.
    pub(crate) fn variables(&self) -> &[(OsString, OsString)] {
        &self.variables
    }

    /// One variable.
    pub(crate) fn variable(&self, name: &str) -> Option<&OsStr> {
        self.variables
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_os_str())
    }

    /// The user that we act as.
    pub(crate) fn uid(&self) -> u32 {
        self.uid
    }

    /// `path` as seen from the current directory.
    pub(crate) fn absolute(&self, path: &Path) -> Result<PathBuf, CliError> {
        if path.is_absolute() {
            return Ok(path.to_path_buf());
        }
        match &self.cwd {
            Ok(cwd) => Ok(cwd.join(path)),
            Err(error) => Err(CliError::Io {
                what: "the current directory cannot be used; give one with --cwd".into(),
                source: io::Error::from(error.kind()),
            }),
        }
    }

    /// The current directory.
    pub(crate) fn cwd(&self) -> Result<PathBuf, CliError> {
        // A path of no components adds nothing but a slash.
        self.absolute(Path::new("")).map(|path| {
            let text = path.as_os_str().as_encoded_bytes();
            if text.len() > 1 && text.ends_with(b"/") {
                path.components().collect()
            } else {
                path
            }
        })
    }

    /// Where we keep what outlives us: `$XDG_STATE_HOME/executor`. Relative
    /// values do not count (XDG Base Directory Specification).
    pub(crate) fn state_directory(&self) -> Result<PathBuf, CliError> {
        let absolute = |name| {
            self.variable(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        absolute("XDG_STATE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
            .map(|base| base.join("executor"))
            .ok_or_else(|| {
                CliError::Usage("neither XDG_STATE_HOME nor HOME names a directory".into())
            })
    }

    /// The socket of the user's own daemon.
    pub(crate) fn daemon_socket(&self) -> Result<PathBuf, CliError> {
        if self.uid == 0 {
            return Ok("/run/executor/daemon.sock".into());
        }
        let runtime = self
            .variable("XDG_RUNTIME_DIR")
            .map(Path::new)
            .filter(|path| path.is_absolute());
        match runtime {
            Some(runtime) => Ok(runtime.join("executor/daemon.sock")),
            None => Ok(self.state_directory()?.join("run/daemon.sock")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surroundings(uid: u32, variables: &[(&str, &str)]) -> Surroundings {
        Surroundings {
            variables: variables
                .iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            cwd: Ok("/work/here".into()),
            uid,
        }
    }

    #[test]
    fn the_daemon_is_where_the_user_has_a_place() {
        let socket = |uid, variables| {
            surroundings(uid, variables)
                .daemon_socket()
                .unwrap()
                .into_os_string()
        };
        assert_eq!(socket(0, &[]), "/run/executor/daemon.sock");
        assert_eq!(
            socket(
                1000,
                &[("XDG_RUNTIME_DIR", "/run/user/1000"), ("HOME", "/h")]
            ),
            "/run/user/1000/executor/daemon.sock"
        );
        assert_eq!(
            socket(1000, &[("HOME", "/h")]),
            "/h/.local/state/executor/run/daemon.sock"
        );
        assert_eq!(
            socket(
                1000,
                &[("XDG_STATE_HOME", "/s"), ("XDG_RUNTIME_DIR", "odd")]
            ),
            "/s/executor/run/daemon.sock"
        );
        assert!(surroundings(1000, &[]).daemon_socket().is_err());
    }

    #[test]
    fn a_relative_path_begins_at_the_current_directory() {
        let here = surroundings(1000, &[]);
        assert_eq!(here.cwd().unwrap().as_os_str(), "/work/here");
        assert_eq!(
            here.absolute(Path::new("src")).unwrap(),
            Path::new("/work/here/src")
        );
        assert_eq!(here.absolute(Path::new("/etc")).unwrap(), Path::new("/etc"));
    }
}
