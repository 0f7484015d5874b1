//! The environment of a command: a policy, then `unset`, then `set`, then the
//! presets that lose against all three.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use super::spec::{EnvironmentPolicy, EnvironmentSpec, Io};

/// Where programs are looked for when nothing says so.
pub(crate) const DEFAULT_PATH: &[u8] =
    b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Ties left-over processes to us (`EXECUTOR_TAG=<epoch>/<process id>`).
pub(crate) const TAG: &[u8] = b"EXECUTOR_TAG";

/// Kept by the policy `core`; names that begin with `LC_` too.
const CORE: [&[u8]; 8] = [
    b"PATH", b"HOME", b"USER", b"LOGNAME", b"SHELL", b"LANG", b"TZ", b"TMPDIR",
];

/// Names that look like secrets, for the policy `all`.
const SECRET_PARTS: [&[u8]; 5] = [b"KEY", b"SECRET", b"TOKEN", b"PASSWORD", b"CREDENTIAL"];

const QUIET: [(&[u8], &[u8]); 5] = [
    (b"NO_COLOR", b"1"),
    (b"PAGER", b"cat"),
    (b"GIT_PAGER", b"cat"),
    (b"GIT_EDITOR", b"false"),
    (b"GIT_TERMINAL_PROMPT", b"0"),
];

/// Variables by name, in a stable order.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Variables(BTreeMap<Vec<u8>, Vec<u8>>);

impl Variables {
    pub(crate) fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.0.get(name).map(Vec::as_slice)
    }

    pub(crate) fn set(&mut self, name: &[u8], value: &[u8]) {
        self.0.insert(name.to_vec(), value.to_vec());
    }

    fn set_default(&mut self, name: &[u8], value: &[u8]) {
        self.0
            .entry(name.to_vec())
            .or_insert_with(|| value.to_vec());
    }

    /// `NAME=value`, as execve(2) takes them. What holds a NUL is left out; it
    /// could not have come from an environment.
    pub(crate) fn to_envp(&self) -> Vec<CString> {
        self.0
            .iter()
            .filter_map(|(name, value)| {
                let mut entry = Vec::with_capacity(name.len() + value.len() + 1);
                entry.extend_from_slice(name);
                entry.push(b'=');
                entry.extend_from_slice(value);
                CString::new(entry).ok()
            })
            .collect()
    }
}

impl FromIterator<(Vec<u8>, Vec<u8>)> for Variables {
    fn from_iter<I: IntoIterator<Item = (Vec<u8>, Vec<u8>)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}

/// Who commands run as, from the user database (passwd(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Login name.
    pub name: Vec<u8>,
    /// Home directory.
    pub home: Vec<u8>,
    /// Login shell.
    pub shell: Vec<u8>,
}

impl Account {
    /// The account of this process. Where the user database does not know it,
    /// what such a user can at least do.
    #[must_use]
    pub fn current() -> Self {
        let uid = nix::unistd::geteuid();
        match nix::unistd::User::from_uid(uid) {
            Ok(Some(user)) => Self {
                name: user.name.into_bytes(),
                home: user.dir.into_os_string().into_vec(),
                shell: user.shell.into_os_string().into_vec(),
            },
            Ok(None) | Err(_) => Self {
                name: uid.to_string().into_bytes(),
                home: b"/".to_vec(),
                shell: b"/bin/sh".to_vec(),
            },
        }
    }
}

/// What the policies start from: read once, when the engine starts.
#[derive(Debug, Clone)]
pub(crate) struct Sources {
    own: Variables,
    account: Account,
}

impl Sources {
    /// `own` is the daemon's environment.
    pub(crate) fn new(own: Variables, account: Account) -> Self {
        Self { own, account }
    }

    /// The shell that the account logs in with.
    pub(crate) fn login_shell(&self) -> &[u8] {
        self.own
            .get(b"SHELL")
            .filter(|shell| !shell.is_empty())
            .unwrap_or(&self.account.shell)
    }

    /// The policy `core`.
    pub(crate) fn core(&self) -> Variables {
        let mut core: Variables = self
            .own
            .0
            .iter()
            .filter(|(name, _)| CORE.contains(&name.as_slice()) || name.starts_with(b"LC_"))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        self.fill_in(&mut core);
        core
    }

    fn all(&self) -> Variables {
        let secret = |name: &[u8]| {
            let upper = name.to_ascii_uppercase();
            SECRET_PARTS
                .iter()
                .any(|part| memchr::memmem::find(&upper, part).is_some())
        };
        let mut all: Variables = self
            .own
            .0
            .iter()
            .filter(|(name, _)| !secret(name) && !name.starts_with(b"EXECUTOR_"))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        self.fill_in(&mut all);
        all
    }

    /// What an init system leaves out.
    fn fill_in(&self, variables: &mut Variables) {
        variables.set_default(b"PATH", DEFAULT_PATH);
        variables.set_default(b"HOME", &self.account.home);
        variables.set_default(b"USER", &self.account.name);
        variables.set_default(b"LOGNAME", &self.account.name);
        variables.set_default(b"SHELL", &self.account.shell);
    }

    /// The environment of one command. `login` is what the login shell sets;
    /// where it could not be captured, the policy `login` is `core`.
    pub(crate) fn build(
        &self,
        spec: &EnvironmentSpec,
        login: Option<&Variables>,
        io: Io,
        cwd: &Path,
        tag: &str,
    ) -> Variables {
        let mut variables = match spec.policy {
            EnvironmentPolicy::None => Variables::default(),
            EnvironmentPolicy::All => self.all(),
            EnvironmentPolicy::Core => self.core(),
            EnvironmentPolicy::Login => {
                let mut variables = login.cloned().unwrap_or_else(|| self.core());
                self.fill_in(&mut variables);
                variables
            }
        };
        // Start-up files of non-interactive shells run only when the caller
        // names them: a command's output is its own.
        variables.0.remove(b"BASH_ENV".as_slice());
        variables.0.remove(b"ENV".as_slice());
        for name in &spec.unset {
            variables.0.remove(name.to_bytes());
        }
        for (name, value) in &spec.set {
            variables.set(name.to_bytes(), value.to_bytes());
        }
        if spec.quiet {
            for (name, value) in QUIET {
                variables.set_default(name, value);
            }
        }
        match io {
            Io::Terminal(_) => variables.set_default(b"TERM", b"xterm-256color"),
            Io::Pipe { .. } if spec.quiet => variables.set_default(b"TERM", b"dumb"),
            Io::Pipe { .. } => {}
        }
        if spec.policy != EnvironmentPolicy::None {
            let has_locale = [b"LANG".as_slice(), b"LC_ALL", b"LC_CTYPE"]
                .iter()
                .any(|name| variables.get(name).is_some_and(|value| !value.is_empty()));
            if !has_locale {
                variables.set(b"LANG", b"C.UTF-8");
            }
            // Keeps the name through links that the caller used; a shell
            // checks it against the directory before it believes it.
            variables.set(b"PWD", cwd.as_os_str().as_bytes());
        }
        variables.set(TAG, tag.as_bytes());
        variables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(own: &[(&str, &str)]) -> Sources {
        let own = own
            .iter()
            .map(|(n, v)| (n.as_bytes().to_vec(), v.as_bytes().to_vec()))
            .collect();
        let account = Account {
            name: b"ada".to_vec(),
            home: b"/home/ada".to_vec(),
            shell: b"/bin/bash".to_vec(),
        };
        Sources::new(own, account)
    }

    fn spec(policy: EnvironmentPolicy) -> EnvironmentSpec {
        EnvironmentSpec {
            policy,
            unset: Vec::new(),
            set: Vec::new(),
            quiet: false,
        }
    }

    const PIPE: Io = Io::Pipe {
        stdin: false,
        separate_stderr: false,
    };

    fn build(sources: &Sources, spec: &EnvironmentSpec, io: Io) -> Variables {
        sources.build(spec, None, io, Path::new("/w"), "epo/prc")
    }

    fn text<'a>(variables: &'a Variables, name: &str) -> Option<&'a str> {
        variables
            .get(name.as_bytes())
            .map(|v| std::str::from_utf8(v).unwrap())
    }

    #[test]
    fn core_is_complete_when_the_daemon_has_no_environment_at_all() {
        let built = build(&sources(&[]), &spec(EnvironmentPolicy::Core), PIPE);
        for (name, value) in [
            ("HOME", "/home/ada"),
            ("USER", "ada"),
            ("LOGNAME", "ada"),
            ("SHELL", "/bin/bash"),
            ("LANG", "C.UTF-8"),
            ("PWD", "/w"),
        ] {
            assert_eq!(text(&built, name), Some(value), "{name}");
        }
        assert!(text(&built, "PATH").unwrap().contains("/usr/bin"));
        assert_eq!(text(&built, "TERM"), None);
    }

    #[test]
    fn core_takes_nothing_but_its_names() {
        let own = [
            ("LC_TIME", "de_DE"),
            ("AWS_SECRET", "x"),
            ("FOO", "1"),
            ("LANG", "de_DE.UTF-8"),
        ];
        let built = build(&sources(&own), &spec(EnvironmentPolicy::Core), PIPE);
        assert_eq!(text(&built, "LC_TIME"), Some("de_DE"));
        assert_eq!(text(&built, "LANG"), Some("de_DE.UTF-8"));
        assert_eq!(text(&built, "FOO"), None);
        assert_eq!(text(&built, "AWS_SECRET"), None);
    }

    #[test]
    fn all_leaves_out_what_looks_like_a_secret_and_our_own() {
        let own = [
            ("FOO", "1"),
            ("my_api_key", "x"),
            ("GITHUB_TOKEN", "x"),
            ("DB_PASSWORD", "x"),
            ("X_CREDENTIALS", "x"),
            ("EXECUTOR_SOCKET", "x"),
            ("BASH_ENV", "/x"),
        ];
        let built = build(&sources(&own), &spec(EnvironmentPolicy::All), PIPE);
        assert_eq!(text(&built, "FOO"), Some("1"));
        for (name, _) in &own[1..] {
            assert_eq!(text(&built, name), None, "{name}");
        }
    }

    #[test]
    fn none_holds_only_the_tag_and_what_is_set() {
        let mut spec = spec(EnvironmentPolicy::None);
        spec.set = vec![(CString::from(c"A"), CString::from(c"b=c"))];
        let built = build(&sources(&[("FOO", "1")]), &spec, PIPE);
        assert_eq!(
            built.to_envp(),
            [
                CString::from(c"A=b=c"),
                CString::from(c"EXECUTOR_TAG=epo/prc")
            ]
        );
    }

    #[test]
    fn presets_lose_against_policy_and_caller() {
        let mut spec = spec(EnvironmentPolicy::Core);
        spec.quiet = true;
        spec.set = vec![(CString::from(c"PAGER"), CString::from(c"less"))];
        let pipe = build(&sources(&[]), &spec, PIPE);
        assert_eq!(text(&pipe, "PAGER"), Some("less"));
        assert_eq!(text(&pipe, "GIT_PAGER"), Some("cat"));
        assert_eq!(text(&pipe, "GIT_EDITOR"), Some("false"));
        assert_eq!(text(&pipe, "TERM"), Some("dumb"));
        let terminal = build(
            &sources(&[]),
            &spec,
            Io::Terminal(super::super::spec::TerminalSize::DEFAULT),
        );
        assert_eq!(text(&terminal, "TERM"), Some("xterm-256color"));
    }

    #[test]
    fn unset_comes_before_set() {
        let mut spec = spec(EnvironmentPolicy::Core);
        spec.unset = vec![CString::from(c"HOME"), CString::from(c"USER")];
        spec.set = vec![(CString::from(c"USER"), CString::from(c"eve"))];
        let built = build(&sources(&[]), &spec, PIPE);
        assert_eq!(text(&built, "HOME"), None);
        assert_eq!(text(&built, "USER"), Some("eve"));
    }
}
