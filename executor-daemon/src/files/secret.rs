//! Files that the operator keeps from agents.
//!
//! A list of globs as in a `.gitignore`, later ones over earlier ones, matched
//! against absolute names:
//!
//! - without a leading `/` a glob matches at any depth;
//! - what matches is secret with everything below it, and `dir/**` also makes
//!   `dir` itself secret;
//! - a glob after `!` takes names out again, but nothing below a directory
//!   that is secret;
//! - upper and lower case are one: some file systems open `.ENV` as `.env`.
//!
//! The daemon's own files are secret whatever the list says, and so are the
//! files of a procfs that show a process's memory, environment or descriptors.
//! A procfs is known by its type (statfs(2)), not by where it is mounted.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};
use rustix::fs::{Mode, OFlags};

use super::resolve::Directory;
use super::roots::name_of;
use super::walk::is_procfs;

/// The list where the operator gives none.
pub const DEFAULT: [&str; 12] = [
    ".env",
    ".env.*",
    "!.env.example",
    "*.pem",
    "*.key",
    "id_rsa*",
    "id_ed25519*",
    ".netrc",
    ".pgpass",
    ".aws/credentials",
    ".ssh/**",
    ".gnupg/**",
];

/// What a process's directory in a procfs may not be asked for.
const PROCESS_NAMES: [&str; 15] = [
    "environ",
    "mem",
    "maps",
    "auxv",
    "fd",
    "root",
    "cwd",
    "exe",
    "fdinfo",
    "map_files",
    "numa_maps",
    "pagemap",
    "smaps",
    "smaps_rollup",
    "ns",
];
const PROCFS: &str = "the memory, environment and descriptors of processes in a procfs";
const OWN: &str = "the daemon's own files";

/// A glob that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the glob {glob:?} cannot be used: {why}")]
pub struct GlobError {
    /// As it was given.
    pub glob: String,
    /// Why.
    pub why: String,
}

/// What of the daemon's own is secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Own {
    /// A file, or a directory with all that is in it.
    Path(PathBuf),
    /// All in a directory whose names begin as this one: a socket and what
    /// lies beside it.
    Prefix(PathBuf),
}

/// See the module's documentation.
#[derive(Debug, Clone)]
pub struct SecretFiles {
    globs: GlobSet,
    /// Of each glob in `globs`: its text, and whether it takes names out.
    rules: Vec<(String, bool)>,
    /// Directories that a glob with several components leads through.
    ways: GlobSet,
    own: Vec<Own>,
}

impl SecretFiles {
    /// From the operator's list and the daemon's own paths. Looks at those: may
    /// block.
    ///
    /// # Errors
    /// For a glob that is none.
    pub fn new<T: AsRef<str>>(
        globs: impl IntoIterator<Item = T>,
        own: impl IntoIterator<Item = Own>,
    ) -> Result<Self, GlobError> {
        let mut set = GlobSetBuilder::new();
        let mut ways = GlobSetBuilder::new();
        let mut rules = Vec::new();
        for text in globs {
            let text = text.as_ref();
            let (pattern, out) = match text.strip_prefix('!') {
                Some(pattern) => (pattern, true),
                None => (text, false),
            };
            let wrong = |why: String| GlobError {
                glob: text.to_owned(),
                why,
            };
            let pattern = anchored(pattern).ok_or_else(|| wrong("it is empty".into()))?;
            let glob = compiled(&pattern).map_err(|error| wrong(error.kind().to_string()))?;
            set.add(glob);
            rules.push((text.to_owned(), out));
            if !out {
                for way in ways_of(&pattern) {
                    let cut =
                        |_| wrong("a `/` within `{}`: give each alternative by itself".into());
                    ways.add(compiled(way).map_err(cut)?);
                }
            }
        }
        let built = |builder: GlobSetBuilder| {
            builder.build().map_err(|error| GlobError {
                glob: "(all of them)".to_owned(),
                why: error.to_string(),
            })
        };
        Ok(Self {
            globs: built(set)?,
            rules,
            ways: built(ways)?,
            own: own.into_iter().flat_map(Own::with_true_name).collect(),
        })
    }

    /// The rule that makes `path` (absolute) secret: of itself or of a
    /// directory above it.
    #[must_use]
    pub fn rule(&self, path: &Path) -> Option<&str> {
        if self.own.iter().any(|own| own.has(path)) {
            return Some(OWN);
        }
        let mut above: Vec<_> = path.ancestors().collect();
        above.reverse();
        above.into_iter().find_map(|part| self.rule_by_glob(part))
    }

    /// As [`SecretFiles::rule`] where the directory above is known to be no
    /// secret.
    #[must_use]
    pub fn rule_of_child(&self, path: &Path) -> Option<&str> {
        if self.own.iter().any(|own| own.has(path)) {
            return Some(OWN);
        }
        self.rule_by_glob(path)
    }

    /// The rule that makes `name` in `directory` secret because it shows a
    /// process.
    #[must_use]
    pub fn rule_in_procfs(&self, directory: &Directory, name: &OsStr) -> Option<&'static str> {
        let path = directory.name.join(name);
        let mut before = None;
        let named = path.iter().any(|part| {
            let process = before.replace(part).is_some_and(is_number);
            process && is_process_name(part)
        });
        // A process's directory can be mounted elsewhere: then its last name
        // tells.
        ((named || is_process_name(name)) && is_procfs(&directory.handle)).then_some(PROCFS)
    }

    /// Would giving the directory at `path` another name take a secret file's
    /// name from what is in it? (`.aws`, for `.aws/credentials`.)
    #[must_use]
    pub fn leads_to_secret(&self, path: &Path) -> bool {
        self.own.iter().any(|own| own.path().starts_with(path)) || self.ways.is_match(path)
    }

    fn rule_by_glob(&self, path: &Path) -> Option<&str> {
        let candidate = Candidate::new(path);
        if !self.globs.is_match_candidate(&candidate) {
            return None;
        }
        let last = self.globs.matches_candidate(&candidate).into_iter().max()?;
        let (text, out) = self.rules.get(last)?;
        (!out).then_some(text.as_str())
    }
}

impl Own {
    fn path(&self) -> &Path {
        match self {
            Self::Path(path) | Self::Prefix(path) => path,
        }
    }

    fn has(&self, path: &Path) -> bool {
        match self {
            Self::Path(own) => path.starts_with(own),
            Self::Prefix(own) => own.parent().is_some_and(|directory| {
                let below = path.strip_prefix(directory).ok();
                let first = below.and_then(|below| below.iter().next());
                let prefix = own.file_name().unwrap_or_default().as_bytes();
                first.is_some_and(|first| first.as_bytes().starts_with(prefix))
            }),
        }
    }

    /// It and, where links lead to it, its name without them.
    fn with_true_name(self) -> Vec<Self> {
        let there = true_name(self.path());
        let other = there
            .filter(|name| name != self.path())
            .map(|name| match &self {
                Self::Path(_) => Self::Path(name),
                Self::Prefix(_) => Self::Prefix(name),
            });
        std::iter::once(self).chain(other).collect()
    }
}

/// The name without links of a path that is the operator's own and need not
/// exist to its end.
fn true_name(path: &Path) -> Option<PathBuf> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    path.ancestors().find_map(|part| {
        let handle = rustix::fs::open(part, flags, Mode::empty()).ok()?;
        let rest = path.strip_prefix(part).ok()?;
        let name = name_of(&handle)?;
        Some(if rest.as_os_str().is_empty() {
            name
        } else {
            name.join(rest)
        })
    })
}

fn is_process_name(name: &OsStr) -> bool {
    PROCESS_NAMES.iter().any(|known| name == *known)
}

fn is_number(name: &OsStr) -> bool {
    name.as_bytes().iter().all(u8::is_ascii_digit)
}

fn compiled(pattern: &str) -> Result<globset::Glob, globset::Error> {
    GlobBuilder::new(pattern)
        .literal_separator(true)
        .case_insensitive(true)
        .backslash_escape(true)
        .build()
}

/// The glob from `/`. `None` for one that is empty.
fn anchored(pattern: &str) -> Option<String> {
    let mut pattern = pattern;
    while let Some(shorter) = pattern.strip_suffix("/**").or(pattern.strip_suffix('/')) {
        pattern = shorter;
    }
    match pattern {
        "" => None,
        pattern if pattern.starts_with('/') || pattern.starts_with("**/") => {
            Some(pattern.to_owned())
        }
        pattern => Some(format!("**/{pattern}")),
    }
}

/// The directories that a glob leads through, but those that any name is.
fn ways_of(pattern: &str) -> impl Iterator<Item = &str> {
    pattern
        .match_indices('/')
        .filter_map(|(at, _)| pattern.get(..at))
        .filter(|way| !way.is_empty() && *way != "**")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn default() -> SecretFiles {
        SecretFiles::new(DEFAULT, []).unwrap()
    }

    #[test]
    fn the_default_list_keeps_keys_and_leaves_ordinary_files() {
        let secrets = default();
        for path in [
            "/w/.env",
            "/.env",
            "/w/a/.env.local",
            "/w/.ENV",
            "/w/cert.pem",
            "/w/tls/server.key",
            "/home/u/id_rsa",
            "/home/u/id_rsa.pub",
            "/home/u/id_ed25519_work",
            "/home/u/.netrc",
            "/home/u/.pgpass",
            "/home/u/.aws/credentials",
            "/home/u/.ssh",
            "/home/u/.ssh/config",
            "/home/u/.ssh/a/b/c",
            "/home/u/.gnupg/private-keys-v1.d/x",
            "/w/.env.local/inside",
        ] {
            assert!(secrets.rule(Path::new(path)).is_some(), "{path}");
        }
        for path in [
            "/w/.env.example",
            "/w/.environment",
            "/w/env",
            "/w/a.pem.txt",
            "/w/keys",
            "/w/key",
            "/home/u/.aws",
            "/home/u/.aws/config",
            "/w/aws/credentials",
            "/w/.sshd/x",
            "/",
        ] {
            assert_eq!(secrets.rule(Path::new(path)), None, "{path}");
        }
    }

    #[test]
    fn a_later_glob_wins_but_not_below_a_secret_directory() {
        let globs = [
            "/srv/keys/",
            "*.txt",
            "!read*.txt",
            "readme.txt",
            "!/srv/keys/a",
        ];
        let secrets = SecretFiles::new(globs, []).unwrap();
        let rule = |path: &str| secrets.rule(Path::new(path)).map(str::to_owned);
        assert_eq!(rule("/srv/keys/a").as_deref(), Some("/srv/keys/"));
        assert_eq!(rule("/srv/keys"), Some("/srv/keys/".into()));
        assert_eq!(rule("/x/srv/keys"), None, "anchored");
        assert_eq!(rule("/x/a.txt").as_deref(), Some("*.txt"));
        assert_eq!(rule("/x/reader.txt"), None);
        assert_eq!(rule("/x/readme.txt").as_deref(), Some("readme.txt"));
        let none: [&str; 0] = [];
        let none = SecretFiles::new(none, []).unwrap();
        assert_eq!(none.rule(Path::new("/x/.env")), None);
    }

    #[test]
    fn a_glob_that_is_none_is_named() {
        for glob in ["a[", "{a", "", "!", "/", "/**"] {
            let error = SecretFiles::new(["ok", glob], []).unwrap_err();
            assert_eq!(error.glob, glob, "{error}");
        }
    }

    #[test]
    fn names_that_are_no_text_are_matched() {
        let secrets = default();
        let path = Path::new(OsStr::from_bytes(b"/w/\xff\xfe.pem"));
        assert!(secrets.rule(path).is_some());
    }

    #[test]
    fn a_directory_on_the_way_to_a_secret_file_is_known() {
        let own = [Own::Path("/var/lib/executor".into())];
        let secrets = SecretFiles::new(DEFAULT, own).unwrap();
        for path in ["/home/u/.aws", "/var/lib", "/var"] {
            assert!(secrets.leads_to_secret(Path::new(path)), "{path}");
        }
        for path in ["/home/u", "/w/src", "/var/lib/other"] {
            assert!(!secrets.leads_to_secret(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn the_daemons_own_files_are_secret_by_both_their_names() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().join("t");
        std::fs::create_dir_all(top.join("true/state")).unwrap();
        std::os::unix::fs::symlink("true", top.join("link")).unwrap();
        let own = [
            Own::Path(top.join("link/state/made-later")),
            Own::Prefix(top.join("link/daemon.sock")),
        ];
        let secrets = SecretFiles::new(["!*"], own).unwrap();
        for name in [
            "link/state/made-later",
            "true/state/made-later/x",
            "true/daemon.sock",
            "true/daemon.sock.host",
        ] {
            assert_eq!(secrets.rule(&top.join(name)), Some(OWN), "{name}");
        }
        for name in ["true/state", "true/daemon", "link/other"] {
            assert_eq!(secrets.rule(&top.join(name)), None, "{name}");
        }
    }
}
