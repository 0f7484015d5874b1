//! The daemon's configuration: one checked value.
//!
//! A setting is a key and a value from one of four places; the later one wins:
//! default, file, environment, flag. All of them go through the same check
//! (`settings`), so an error reads the same wherever the value came from: it
//! names the key, the value, where it stands and what is allowed.
//!
//! The environment is read here, once, and nowhere else.

mod settings;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use self::settings::{ConfigError, Origin, Setting, Value};
use crate::files::secret;
use crate::limits::Limits;
use crate::session::record::Access;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl LogFormat {
    /// As it is written in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

/// How command trees are to be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMeansSetting {
    /// The strongest means that works here.
    Auto,
    /// A cgroup v2 for each command.
    Cgroup,
    /// A subreaper for each command.
    Reaper,
    /// Process group and `/proc`.
    BestEffort,
}

/// A root that sessions may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootSetting {
    /// Absolute name.
    pub path: PathBuf,
    /// What may be done.
    pub access: Access,
}

/// The checked configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the Unix socket is.
    pub socket: PathBuf,
    /// Where the machine's identity is kept.
    pub state_dir: PathBuf,
    /// A filter as `info` or `executor_daemon=debug`.
    pub log_level: String,
    /// How log lines look.
    pub log_format: LogFormat,
    /// What sessions get that name no roots, and the most that any gets.
    pub roots: Vec<RootSetting>,
    /// Globs of files that no file operation may touch, in the language of
    /// [`files::secret`](crate::files::secret).
    pub secret_files: Vec<String>,
    /// A file with what git ignores everywhere (`core.excludesFile` in
    /// git-config(1)); searches read it. `None`: there is none.
    pub git_excludes: Option<PathBuf>,
    /// Searches read ignore files above a root as well.
    pub ignore_above_roots: bool,
    /// The configuration file, whether it is there or not: secret itself.
    pub file: Option<PathBuf>,
    /// How trees are stopped.
    pub stop_means: StopMeansSetting,
    /// The program with the hidden mode of a reaper; `None`: this program where
    /// its `main` calls [`reaper_entry`](crate::reaper_entry), else an
    /// `executor-daemon` beside it or in `PATH`.
    pub reaper: Option<PathBuf>,
    /// Between SIGTERM and SIGKILL where no call says otherwise, and when the
    /// daemon ends.
    pub grace: Duration,
    /// All other bounds.
    pub limits: Limits,
    /// Where sessions begin that name no directory, where it is inside a root.
    pub home: Option<PathBuf>,
    /// The environment that commands get theirs from.
    pub environment: Vec<(OsString, OsString)>,
}

/// The configuration file, and what the flags set.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// Named by a flag: it must exist.
    pub file: Option<PathBuf>,
    /// Key and text, in the order of the command line.
    pub flags: Vec<(String, String)>,
}

impl Config {
    /// The configuration of the daemon: flags over environment over file over
    /// defaults.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn load(sources: &Sources) -> Result<Self, ConfigError> {
        Self::load_from(sources, std::env::vars_os().collect())
    }

    /// For an embedding in another program: the defaults, and nothing of a
    /// file or of `EXECUTOR_*`, which are the daemon's.
    #[must_use]
    pub fn for_embedding() -> Self {
        Self::defaults(std::env::vars_os().collect())
    }

    /// As [`Config::load`], in a given environment.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn load_from(
        sources: &Sources,
        environment: Vec<(OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let mut config = Self::defaults(environment);
        let named = sources
            .file
            .clone()
            .or_else(|| variable(&config.environment, "EXECUTOR_CONFIG").map(PathBuf::from));
        let file = match named {
            Some(path) => Some((path, true)),
            None => default_file(&config.environment).map(|path| (path, false)),
        };
        config.file = file.as_ref().map(|(path, _)| path.clone());
        if let Some((path, must_exist)) = file {
            for setting in settings::from_file(&path, must_exist)? {
                config.apply(&setting)?;
            }
        }
        for setting in settings::from_environment(&config.environment) {
            config.apply(&setting)?;
        }
        for (key, text) in &sources.flags {
            config.apply(&Setting {
                key: key.clone(),
                value: Value::Text(text.clone()),
                origin: Origin::Flag,
            })?;
        }
        Ok(config)
    }

    fn defaults(environment: Vec<(OsString, OsString)>) -> Self {
        let home = variable(&environment, "HOME").map(PathBuf::from);
        let home = home.filter(|home| home.is_absolute());
        Self {
            socket: default_socket(&environment),
            state_dir: default_state(&environment),
            log_level: "info".to_owned(),
            log_format: LogFormat::Text,
            roots: vec![RootSetting {
                path: PathBuf::from("/"),
                access: Access::ReadWrite,
            }],
            secret_files: secret::DEFAULT.map(str::to_owned).to_vec(),
            git_excludes: default_git_excludes(&environment),
            ignore_above_roots: false,
            file: None,
            stop_means: StopMeansSetting::Auto,
            reaper: None,
            grace: Duration::from_secs(2),
            limits: Limits::default(),
            home,
            environment,
        }
    }

    /// Every key with its value, as the file takes it.
    #[must_use]
    pub fn to_toml(&self) -> String {
        settings::to_toml(self)
    }
}

/// A variable that is set to something.
fn variable(environment: &[(OsString, OsString)], name: &str) -> Option<OsString> {
    environment
        .iter()
        .find(|(key, value)| key == name && !value.is_empty())
        .map(|(_, value)| value.clone())
}

fn absolute(environment: &[(OsString, OsString)], name: &str) -> Option<PathBuf> {
    // The XDG base directory specification: what is not absolute is ignored.
    variable(environment, name)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn default_file(environment: &[(OsString, OsString)]) -> Option<PathBuf> {
    if is_root() {
        return Some(PathBuf::from("/etc/executor/daemon.toml"));
    }
    let base = absolute(environment, "XDG_CONFIG_HOME")
        .or_else(|| Some(absolute(environment, "HOME")?.join(".config")))?;
    Some(base.join("executor/daemon.toml"))
}

fn default_socket(environment: &[(OsString, OsString)]) -> PathBuf {
    if is_root() {
        return PathBuf::from("/run/executor/daemon.sock");
    }
    default_user_socket(environment)
}

fn default_user_socket(environment: &[(OsString, OsString)]) -> PathBuf {
    match absolute(environment, "XDG_RUNTIME_DIR") {
        Some(base) => base.join("executor/daemon.sock"),
        None => user_state(environment).join("run/daemon.sock"),
    }
}

fn default_state(environment: &[(OsString, OsString)]) -> PathBuf {
    if is_root() {
        return PathBuf::from("/var/lib/executor");
    }
    user_state(environment)
}

fn user_state(environment: &[(OsString, OsString)]) -> PathBuf {
    absolute(environment, "XDG_STATE_HOME")
        .or_else(|| Some(absolute(environment, "HOME")?.join(".local/state")))
        // Without a home there is nothing of the user's own; what cannot be
        // made there is told when it is tried.
        .map_or_else(
            || PathBuf::from("/var/lib/executor"),
            |base| base.join("executor"),
        )
}

/// Where git itself looks unless it is told otherwise (gitignore(5)).
fn default_git_excludes(environment: &[(OsString, OsString)]) -> Option<PathBuf> {
    let base = absolute(environment, "XDG_CONFIG_HOME")
        .or_else(|| Some(absolute(environment, "HOME")?.join(".config")))?;
    Some(base.join("git/ignore"))
}

/// A path from text that may hold bytes that are no UTF-8.
fn path_of(text: &OsStr) -> Option<PathBuf> {
    let path = PathBuf::from(OsString::from_vec(text.as_bytes().to_vec()));
    path.is_absolute().then_some(path)
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
