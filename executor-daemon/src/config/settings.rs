//! Keys and values: where they come from, and what each may be.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::{Config, LogFormat, RootSetting, StopMeansSetting, path_of, shown};
use crate::files::secret::SecretFiles;
use crate::limits::{LimitError, Limits};
use crate::session::record::Access;

/// Largest configuration file.
const FILE_BYTES: u64 = 1 << 20;
/// Longest grace.
const GRACE_MAX: Duration = Duration::from_secs(60);

/// The keys beside `limits.*`.
const KEYS: [&str; 11] = [
    "socket",
    "state_dir",
    "log_level",
    "log_format",
    "roots",
    "secret_files",
    "git_excludes",
    "ignore_above_roots",
    "stop_means",
    "reaper",
    "grace",
];

/// Where a value stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// In the file.
    File(PathBuf),
    /// In this variable.
    Environment(String),
    /// On the command line.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "in {}", path.display()),
            Self::Environment(name) => write!(f, "in the variable {name}"),
            Self::Flag => f.write_str("on the command line"),
        }
    }
}

/// A value before it is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// From anywhere.
    Text(String),
    /// From the environment, where names of files need not be text.
    Raw(OsString),
    /// From the file.
    Integer(i64),
    /// From the file.
    List(Vec<String>),
    /// From the file: of a type that no key takes.
    Other(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Raw(text) => write!(f, "{text:?}"),
            Self::Integer(number) => write!(f, "{number}"),
            Self::List(list) => write!(f, "{list:?}"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// One key, its value and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// As `socket` or `limits.sessions`.
    pub key: String,
    /// Its value.
    pub value: Value,
    /// Where it stands.
    pub origin: Origin,
}

/// Why there is no configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("the configuration file {path:?} cannot be read: {why}")]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The file is no TOML.
    #[error("the configuration file {path:?} is not valid TOML: {why}")]
    Syntax {
        /// Which.
        path: PathBuf,
        /// Where and why.
        why: String,
    },
    /// No such key.
    #[error("there is no setting {key:?} ({origin}); there are {known}")]
    UnknownKey {
        /// As given.
        key: String,
        /// Where it stands.
        origin: Origin,
        /// What there is.
        known: String,
    },
    /// A value that the key does not take.
    #[error("{key} = {value} ({origin}): {allowed}")]
    Invalid {
        /// Which.
        key: String,
        /// As given.
        value: Value,
        /// Where it stands.
        origin: Origin,
        /// What is allowed.
        allowed: String,
    },
}

impl Config {
    /// Checks one setting and puts it in place.
    pub(super) fn apply(&mut self, setting: &Setting) -> Result<(), ConfigError> {
        let refused = |allowed: String| ConfigError::Invalid {
            key: setting.key.clone(),
            value: setting.value.clone(),
            origin: setting.origin.clone(),
            allowed,
        };
        let value = &setting.value;
        if let Some(name) = setting.key.strip_prefix("limits.") {
            let number = value
                .number()
                .ok_or_else(|| refused("it must be a whole number of 0 or more".into()))?;
            return self.limits.set(name, number).map_err(|error| match error {
                LimitError::Unknown => unknown(setting),
                error @ LimitError::OutOfRange { .. } => refused(error.to_string()),
            });
        }
        match setting.key.as_str() {
            "socket" => self.socket = value.path().map_err(refused)?,
            "state_dir" => self.state_dir = value.path().map_err(refused)?,
            "log_level" => self.log_level = value.level().map_err(refused)?,
            "log_format" => {
                self.log_format = value
                    .one_of(&[("text", LogFormat::Text), ("json", LogFormat::Json)])
                    .map_err(refused)?;
            }
            "roots" => self.roots = value.roots().map_err(refused)?,
            "secret_files" => self.secret_files = value.globs().map_err(refused)?,
            "git_excludes" => self.git_excludes = value.path_or_none().map_err(refused)?,
            "ignore_above_roots" => {
                self.ignore_above_roots = value.one_of(&YES_OR_NO).map_err(refused)?;
            }
            "stop_means" => self.stop_means = value.one_of(&STOP_MEANS).map_err(refused)?,
            "reaper" => self.reaper = Some(value.path().map_err(refused)?),
            "grace" => self.grace = value.grace().map_err(refused)?,
            _ => return Err(unknown(setting)),
        }
        Ok(())
    }
}

const YES_OR_NO: [(&str, bool); 2] = [("yes", true), ("no", false)];

const STOP_MEANS: [(&str, StopMeansSetting); 4] = [
    ("auto", StopMeansSetting::Auto),
    ("cgroup", StopMeansSetting::Cgroup),
    ("reaper", StopMeansSetting::Reaper),
    ("best_effort", StopMeansSetting::BestEffort),
];

fn unknown(setting: &Setting) -> ConfigError {
    let limits = Limits::BOUNDS.iter().map(|bound| bound.name);
    let limits: Vec<_> = limits.map(|name| format!("limits.{name}")).collect();
    ConfigError::UnknownKey {
        key: setting.key.clone(),
        origin: setting.origin.clone(),
        known: format!("{}, {}", KEYS.join(", "), limits.join(", ")),
    }
}

impl Value {
    fn text(&self) -> Option<&OsStr> {
        match self {
            Self::Text(text) => Some(OsStr::new(text)),
            Self::Raw(text) => Some(text),
            Self::Integer(_) | Self::List(_) | Self::Other(_) => None,
        }
    }

    fn number(&self) -> Option<u64> {
        match self {
            Self::Integer(number) => u64::try_from(*number).ok(),
            other => other.text()?.to_str()?.trim().parse().ok(),
        }
    }

    fn path(&self) -> Result<PathBuf, String> {
        self.text()
            .and_then(path_of)
            .ok_or_else(|| "it must be an absolute path".to_owned())
    }

    fn path_or_none(&self) -> Result<Option<PathBuf>, String> {
        if self.text() == Some(OsStr::new("none")) {
            return Ok(None);
        }
        let path = self.text().and_then(path_of).map(Some);
        path.ok_or_else(|| "it must be an absolute path, or \"none\"".to_owned())
    }

    fn one_of<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T, String> {
        let text = self.text();
        let found = choices
            .iter()
            .find(|(name, _)| text == Some(OsStr::new(name)));
        found.map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
            format!("it must be one of {}", names.join(", "))
        })
    }

    fn level(&self) -> Result<String, String> {
        let text = self.text().and_then(OsStr::to_str).unwrap_or_default();
        let valid = !text.is_empty() && text.parse::<tracing_subscriber::filter::Targets>().is_ok();
        valid.then(|| text.to_owned()).ok_or_else(|| {
            "it must be error, warn, info, debug, trace, off, or a list as \
             \"info,executor_daemon=debug\""
                .to_owned()
        })
    }

    fn grace(&self) -> Result<Duration, String> {
        let allowed = || "it must be 0 to 60 seconds, as 2, \"2s\" or \"500ms\"".to_owned();
        let duration = match self {
            Self::Integer(seconds) => u64::try_from(*seconds).ok().map(Duration::from_secs),
            other => other.text().and_then(OsStr::to_str).and_then(duration),
        };
        duration
            .filter(|grace| *grace <= GRACE_MAX)
            .ok_or_else(allowed)
    }

    fn globs(&self) -> Result<Vec<String>, String> {
        let globs: Vec<String> = match self {
            Self::List(list) => list.clone(),
            other => {
                let text = other.text().and_then(OsStr::to_str);
                let text = text.ok_or("it must be a list of globs")?;
                let parts = text.split(',').filter(|part| !part.is_empty());
                parts.map(str::to_owned).collect()
            }
        };
        SecretFiles::new(&globs, []).map_err(|error| error.to_string())?;
        Ok(globs)
    }

    fn roots(&self) -> Result<Vec<RootSetting>, String> {
        let allowed = "it must be a list of one or more absolute paths, each optionally \
                       followed by \":ro\" or \":rw\"";
        let texts: Vec<OsString> = match self {
            Self::List(list) => list.iter().map(OsString::from).collect(),
            other => {
                let text = other.text().ok_or(allowed)?.as_bytes();
                let parts = text.split(|byte| *byte == b',');
                parts
                    .map(|part| OsStr::from_bytes(part).to_owned())
                    .collect()
            }
        };
        let roots: Option<Vec<_>> = texts.iter().map(|text| root(text)).collect();
        roots
            .filter(|roots| !roots.is_empty())
            .ok_or_else(|| allowed.to_owned())
    }
}

fn root(text: &OsStr) -> Option<RootSetting> {
    let bytes = text.as_bytes();
    let (path, access) = if let Some(path) = bytes.strip_suffix(b":ro") {
        (path, Access::ReadOnly)
    } else {
        let path = bytes.strip_suffix(b":rw").unwrap_or(bytes);
        (path, Access::ReadWrite)
    };
    let path = path_of(OsStr::from_bytes(path))?;
    let plain = path
        .components()
        .all(|component| component != std::path::Component::ParentDir);
    plain.then_some(RootSetting { path, access })
}

fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    if let Some(number) = text.strip_suffix("ms") {
        return number.trim().parse().ok().map(Duration::from_millis);
    }
    let number = text.strip_suffix('s').unwrap_or(text);
    number.trim().parse().ok().map(Duration::from_secs)
}

/// The settings of a file; none where it need not exist and does not.
pub(super) fn from_file(path: &Path, must_exist: bool) -> Result<Vec<Setting>, ConfigError> {
    let unreadable = |why: String| ConfigError::Unreadable {
        path: path.to_owned(),
        why,
    };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => std::fs::File::from(file),
        Err(Errno::NOENT) if !must_exist => return Ok(Vec::new()),
        Err(errno) => return Err(unreadable(errno.to_string())),
    };
    let mut text = String::new();
    let mut limited = std::io::Read::take(file, FILE_BYTES + 1);
    std::io::Read::read_to_string(&mut limited, &mut text)
        .map_err(|error| unreadable(error.to_string()))?;
    if text.len() as u64 > FILE_BYTES {
        return Err(unreadable(format!("it has more than {FILE_BYTES} bytes")));
    }
    let table: toml::Table =
        text.parse()
            .map_err(|error: toml::de::Error| ConfigError::Syntax {
                path: path.to_owned(),
                why: error.to_string(),
            })?;
    let mut settings = Vec::new();
    flatten("", table, &Origin::File(path.to_owned()), &mut settings);
    Ok(settings)
}

fn flatten(prefix: &str, table: toml::Table, origin: &Origin, settings: &mut Vec<Setting>) {
    for (key, value) in table {
        let key = format!("{prefix}{key}");
        let value = match value {
            // One level: deeper ones are unknown keys, and named as such.
            toml::Value::Table(inner) => {
                flatten(&format!("{key}."), inner, origin, settings);
                continue;
            }
            toml::Value::String(text) => Value::Text(text),
            toml::Value::Integer(number) => Value::Integer(number),
            toml::Value::Array(list) if list.iter().all(toml::Value::is_str) => Value::List(
                list.into_iter()
                    .filter_map(|one| one.as_str().map(str::to_owned))
                    .collect(),
            ),
            other => Value::Other(other.to_string()),
        };
        settings.push(Setting {
            key,
            value,
            origin: origin.clone(),
        });
    }
}

/// `EXECUTOR_SOCKET` and the like. A name that is none of ours is ignored
/// (others use the prefix too), but for limits, where it is a mistake.
pub(super) fn from_environment(environment: &[(OsString, OsString)]) -> Vec<Setting> {
    let mut settings = Vec::new();
    for (name, value) in environment {
        let Some(name) = name.to_str() else { continue };
        let Some(short) = name.strip_prefix("EXECUTOR_") else {
            continue;
        };
        let short = short.to_ascii_lowercase();
        let key = match short.strip_prefix("limits_") {
            Some(limit) => format!("limits.{limit}"),
            None if KEYS.contains(&short.as_str()) => short,
            None => continue,
        };
        settings.push(Setting {
            key,
            value: Value::Raw(value.clone()),
            origin: Origin::Environment(name.to_owned()),
        });
    }
    settings
}

/// The whole configuration as a file.
pub(super) fn to_toml(config: &Config) -> String {
    let mut table = toml::Table::new();
    let mut put = |key: &str, value: toml::Value| table.insert(key.to_owned(), value);
    put("socket", shown(&config.socket).into());
    put("state_dir", shown(&config.state_dir).into());
    put("log_level", config.log_level.clone().into());
    let format = match config.log_format {
        LogFormat::Text => "text",
        LogFormat::Json => "json",
    };
    put("log_format", format.into());
    let roots = config.roots.iter().map(|root| {
        let suffix = match root.access {
            Access::ReadOnly => ":ro",
            Access::ReadWrite => "",
        };
        toml::Value::from(format!("{}{suffix}", shown(&root.path)))
    });
    put("roots", roots.collect::<Vec<_>>().into());
    let secret = config.secret_files.iter().cloned();
    put(
        "secret_files",
        secret.map(toml::Value::from).collect::<Vec<_>>().into(),
    );
    let excludes = config.git_excludes.as_deref();
    let excludes = excludes.map_or_else(|| "none".to_owned(), shown);
    put("git_excludes", excludes.into());
    let above = if config.ignore_above_roots {
        "yes"
    } else {
        "no"
    };
    put("ignore_above_roots", above.into());
    let means = STOP_MEANS
        .iter()
        .find(|(_, means)| *means == config.stop_means);
    put("stop_means", means.map_or("auto", |(name, _)| name).into());
    if let Some(reaper) = &config.reaper {
        put("reaper", shown(reaper).into());
    }
    put("grace", format!("{}ms", config.grace.as_millis()).into());
    let mut limits = toml::Table::new();
    for (name, value) in config.limits.values() {
        limits.insert(
            name.to_owned(),
            toml::Value::Integer(value.parse().unwrap_or(i64::MAX)),
        );
    }
    put("limits", limits.into());
    table.to_string()
}
