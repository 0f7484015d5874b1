//! What `.rgignore`, `.ignore` and `.gitignore` files say, read by handle.
//!
//! As git and ripgrep have it (gitignore(5)): a deeper file wins over one above
//! it, `.rgignore` wins over `.ignore`, that over `.gitignore`, that over
//! `.git/info/exclude`, and that over git's global excludes; `.gitignore` files
//! count up to the directory that has a `.git`. Those above the directory that is
//! looked at count too, as far as it is inside the roots. A file that is a link is
//! not followed.

use std::ffi::OsStr;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{CWD, Mode, OFlags};

use super::error::FileError;
use super::fence::Fence;
use super::object::{Facts, FileKind, Object};
use super::resolve::Directory;

/// Bytes of one ignore file that are read.
const FILE_BYTES: u64 = 1 << 20;

/// Which files count.
#[derive(Debug, Clone)]
pub(super) struct Sources {
    /// `.rgignore`.
    pub(super) ripgrep: bool,
    /// `.ignore`.
    pub(super) dot: bool,
    /// `.gitignore`.
    pub(super) git: bool,
    /// `.git/info/exclude`.
    pub(super) exclude: bool,
    /// Those of the directories above, inside the roots.
    pub(super) above: bool,
    /// Those of the directories above the roots too: the operator says so.
    pub(super) above_roots: bool,
    /// What belongs to git counts in a repository only.
    pub(super) in_repositories: bool,
    /// What git's global excludes say.
    pub(super) global: Option<Arc<str>>,
}

impl Sources {
    /// For listings.
    pub(super) fn of_listing() -> Self {
        Self {
            ripgrep: false,
            dot: true,
            git: true,
            exclude: true,
            above: true,
            above_roots: false,
            in_repositories: false,
            global: None,
        }
    }
}

/// Which of the names that matter a directory has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Present {
    pub(super) ripgrep: bool,
    pub(super) dot: bool,
    pub(super) git: bool,
    /// `.git`, whatever it is.
    pub(super) repository: bool,
}

impl Present {
    /// Takes notice of a name in the directory.
    pub(super) fn see(&mut self, name: &[u8]) {
        match name {
            b".rgignore" => self.ripgrep = true,
            b".ignore" => self.dot = true,
            b".gitignore" => self.git = true,
            b".git" => self.repository = true,
            _ => {}
        }
    }

    /// Without the names: looks.
    fn of(directory: &Directory) -> Self {
        Self {
            ripgrep: true,
            dot: true,
            git: true,
            repository: Facts::at(&directory.handle, OsStr::new(".git")).is_ok(),
        }
    }
}

/// The rules that hold in one directory: its own, and those of the directories
/// above it.
#[derive(Debug, Clone, Default)]
pub(super) struct IgnoreRules(Option<Arc<Level>>);

#[derive(Debug, Default)]
struct Level {
    ripgrep: Option<Gitignore>,
    dot: Option<Gitignore>,
    git: Option<Gitignore>,
    exclude: Option<Gitignore>,
    global: Option<Gitignore>,
    /// It has a `.git`: `.gitignore` files above are another repository's.
    is_repository: bool,
    /// It, or one above it, does.
    in_repository: bool,
    /// What belongs to git counts.
    git_counts: bool,
    above: IgnoreRules,
}

impl IgnoreRules {
    /// Those of the directories above `directory`, inside the roots.
    pub(super) fn above(fence: &Fence, directory: &Directory, sources: &Sources) -> Self {
        let mut rules = Self::default();
        if !sources.above {
            return rules;
        }
        let mut above: Vec<_> = directory.name.ancestors().skip(1).collect();
        above.reverse();
        for name in above {
            let roots = fence.resolver().roots();
            if roots.containing(name).is_some() {
                if let Ok(directory) = fence.directory(name.as_os_str()) {
                    rules = rules.of_below(fence, &directory, sources);
                }
            } else if sources.above_roots {
                rules = rules.of_operator(name, sources);
            }
        }
        rules
    }

    /// Those of a directory outside the roots, which the operator lets be read.
    fn of_operator(&self, directory: &Path, sources: &Sources) -> Self {
        let read = |counts: bool, name: &str| {
            let text = counts.then(|| operators_text(&directory.join(name)));
            rules_of(&text.flatten()?, directory)
        };
        let is_repository = Facts::at(CWD, directory.join(".git").as_os_str()).is_ok();
        self.with(
            Level {
                ripgrep: read(sources.ripgrep, ".rgignore"),
                dot: read(sources.dot, ".ignore"),
                git: read(sources.git, ".gitignore"),
                exclude: read(sources.exclude && is_repository, ".git/info/exclude"),
                is_repository,
                ..Level::default()
            },
            directory,
            sources,
        )
    }

    /// Those of `directory` and of the directories above it inside the roots.
    pub(super) fn of(fence: &Fence, directory: &Directory, sources: &Sources) -> Self {
        let present = Present::of(directory);
        Self::above(fence, directory, sources).below(fence, directory, sources, present)
    }

    /// Those of a directory below the one that these hold in, whose names are
    /// not known.
    pub(super) fn of_below(&self, fence: &Fence, directory: &Directory, sources: &Sources) -> Self {
        self.below(fence, directory, sources, Present::of(directory))
    }

    /// Those of a directory below the one that these hold in.
    pub(super) fn below(
        &self,
        fence: &Fence,
        directory: &Directory,
        sources: &Sources,
        present: Present,
    ) -> Self {
        let read = |counts: bool, name: &str| {
            let found = || rules_in(fence, directory, &directory.name, OsStr::new(name));
            counts.then(found).flatten()
        };
        let ripgrep = read(sources.ripgrep && present.ripgrep, ".rgignore");
        let dot = read(sources.dot && present.dot, ".ignore");
        let git = read(sources.git && present.git, ".gitignore");
        let is_repository = present.repository;
        let exclude = (is_repository && sources.exclude)
            .then(|| {
                let info = directory.name.join(".git/info");
                let info = fence.directory(info.as_os_str()).ok()?;
                rules_in(fence, &info, &directory.name, OsStr::new("exclude"))
            })
            .flatten();
        let level = Level {
            ripgrep,
            dot,
            git,
            exclude,
            is_repository,
            ..Level::default()
        };
        self.with(level, &directory.name, sources)
    }

    /// These and those of a directory below.
    fn with(&self, mut level: Level, directory: &Path, sources: &Sources) -> Self {
        if level.is_repository
            && let Some(text) = &sources.global
        {
            level.global = rules_of(text, directory);
        }
        let Level {
            ripgrep,
            dot,
            git,
            exclude,
            global,
            ..
        } = &level;
        let none = [ripgrep, dot, git, exclude, global]
            .into_iter()
            .all(Option::is_none);
        if none && !level.is_repository {
            return self.clone();
        }
        let above = self.0.as_ref().is_some_and(|above| above.in_repository);
        level.in_repository = level.is_repository || above;
        level.git_counts = level.in_repository || !sources.in_repositories;
        level.above = self.clone();
        Self(Some(Arc::new(level)))
    }

    /// There are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Is the entry with this absolute name to be left out? The directories
    /// above it are not.
    pub(super) fn leave_out(&self, path: &Path, is_directory: bool) -> bool {
        self.verdict(path, is_directory).unwrap_or(false)
    }

    /// As [`IgnoreRules::leave_out`]; `None`: nothing is said of it.
    pub(super) fn verdict(&self, path: &Path, is_directory: bool) -> Option<bool> {
        let innermost = self.0.as_deref()?;
        let said = |rules: &Option<Gitignore>| match rules.as_ref()?.matched(path, is_directory) {
            Match::None => None,
            Match::Ignore(_) => Some(true),
            Match::Whitelist(_) => Some(false),
        };
        let verdict = self
            .levels()
            .find_map(|level| said(&level.ripgrep))
            .or_else(|| self.levels().find_map(|level| said(&level.dot)));
        if verdict.is_some() || !innermost.git_counts {
            return verdict;
        }
        self.repository()
            .find_map(|level| said(&level.git))
            .or_else(|| self.repository().find_map(|level| said(&level.exclude)))
            .or_else(|| self.repository().find_map(|level| said(&level.global)))
    }

    /// From the innermost outwards.
    fn levels(&self) -> impl Iterator<Item = &Level> {
        std::iter::successors(self.0.as_deref(), |level| level.above.0.as_deref())
    }

    /// Up to the directory that has the `.git`.
    fn repository(&self) -> impl Iterator<Item = &Level> {
        let mut over = false;
        self.levels().take_while(move |level| {
            let taken = !over;
            over |= level.is_repository;
            taken
        })
    }
}

/// The rules in the file `name` of `directory`, for what is below `base`.
/// `None`: it has none, or cannot be read. A line that is no glob is skipped.
fn rules_in(fence: &Fence, directory: &Directory, base: &Path, name: &OsStr) -> Option<Gitignore> {
    let bytes = read(fence, directory, name).ok()?;
    rules_of(&String::from_utf8_lossy(&bytes), base)
}

/// A file that the operator names, opened by its path.
pub(super) fn operators_text(path: &Path) -> Option<Arc<str>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let facts = Facts::of(&file).ok()?;
    let mut bytes = Vec::new();
    let file = std::fs::File::from(file);
    (facts.kind == FileKind::Regular).then_some(())?;
    file.take(FILE_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into())
}

fn rules_of(text: &str, base: &Path) -> Option<Gitignore> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut builder = GitignoreBuilder::new(base);
    for line in text.lines() {
        // The others hold without it.
        let _ = builder.add_line(None, line);
    }
    builder.build().ok().filter(|rules| !rules.is_empty())
}

fn read(fence: &Fence, directory: &Directory, name: &OsStr) -> Result<Vec<u8>, FileError> {
    let given = Path::new(name);
    let object = Object::look(&fence.child(directory, name, given)?)?;
    let mut bytes = Vec::new();
    object
        .content()?
        .take(FILE_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|error| FileError::from_io(&error, "reading", given))?;
    Ok(bytes)
}
