//! What `.ignore` and `.gitignore` files say, read by handle.
//!
//! As git and ripgrep have it (gitignore(5)): a deeper file wins over one above
//! it, `.ignore` wins over `.gitignore`, and that over `.git/info/exclude`;
//! `.gitignore` files count up to the directory that has a `.git`. Those above
//! the directory that is looked at count too, as far as it is inside the roots.
//! A file that is a link is not followed.

use std::ffi::OsStr;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::error::FileError;
use super::fence::Fence;
use super::object::{Facts, Object};
use super::resolve::Directory;

/// Bytes of one ignore file that are read.
const FILE_BYTES: u64 = 1 << 20;

/// The rules that hold in one directory: its own, and those of the directories
/// above it.
#[derive(Debug, Clone, Default)]
pub(super) struct IgnoreRules(Option<Arc<Level>>);

#[derive(Debug)]
struct Level {
    /// `.ignore`, `.gitignore` and `.git/info/exclude`.
    dot: Option<Gitignore>,
    git: Option<Gitignore>,
    exclude: Option<Gitignore>,
    /// It has a `.git`: `.gitignore` files above are another repository's.
    is_repository: bool,
    above: IgnoreRules,
}

impl IgnoreRules {
    /// Those of `directory` and of the directories above it inside the roots.
    pub(super) fn of(fence: &Fence, directory: &Directory) -> Self {
        let mut rules = Self::default();
        let mut above: Vec<_> = directory.name.ancestors().skip(1).collect();
        above.reverse();
        for name in above {
            let roots = fence.resolver().roots();
            if roots.containing(name).is_none() {
                continue;
            }
            if let Ok(directory) = fence.directory(name.as_os_str()) {
                rules = rules.below(fence, &directory);
            }
        }
        rules.below(fence, directory)
    }

    /// Those of a directory below the one that these hold in.
    pub(super) fn below(&self, fence: &Fence, directory: &Directory) -> Self {
        let is_repository = Facts::at(&directory.handle, OsStr::new(".git")).is_ok();
        let read = |name: &str| {
            let directory = directory.clone();
            rules_in(fence, &directory, &directory.name, OsStr::new(name))
        };
        let (dot, git) = (read(".ignore"), read(".gitignore"));
        let exclude = is_repository
            .then(|| {
                let info = directory.name.join(".git/info");
                let info = fence.directory(info.as_os_str()).ok()?;
                rules_in(fence, &info, &directory.name, OsStr::new("exclude"))
            })
            .flatten();
        if dot.is_none() && git.is_none() && exclude.is_none() && !is_repository {
            return self.clone();
        }
        Self(Some(Arc::new(Level {
            dot,
            git,
            exclude,
            is_repository,
            above: self.clone(),
        })))
    }

    /// Is the entry with this absolute name to be left out? The directories
    /// above it are not.
    pub(super) fn leave_out(&self, path: &Path, is_directory: bool) -> bool {
        let said = |rules: &Option<Gitignore>| match rules.as_ref()?.matched(path, is_directory) {
            Match::None => None,
            Match::Ignore(_) => Some(true),
            Match::Whitelist(_) => Some(false),
        };
        self.levels()
            .find_map(|level| said(&level.dot))
            .or_else(|| self.repository().find_map(|level| said(&level.git)))
            .or_else(|| self.repository().find_map(|level| said(&level.exclude)))
            .unwrap_or(false)
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
    let text = String::from_utf8_lossy(&bytes);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
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
