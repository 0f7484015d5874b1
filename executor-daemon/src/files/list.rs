//! The entries of a directory and of those below it.
//!
//! 1. The order is stable: by name as bytes, a directory before what is in it.
//! 2. Directories are opened from the handle of the one above, never by a path
//!    and never through a link.
//! 3. What is not listed is counted: never silence.
//! 4. Memory is bounded, whatever the directories hold and however long the
//!    client takes: of all levels together about `BUFFERED` bytes of names are
//!    kept, the next ones in order. When those of a directory are used up, it is
//!    read again for the names that follow.

use std::collections::{BinaryHeap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::cancel::Cancel;
use super::error::FileError;
use super::fence::Fence;
use super::ignore_files::{IgnoreRules, Sources};
use super::object::{Facts, FileKind};
use super::resolve::Directory;
use crate::limits::Limits;

/// Levels, at most.
pub const DEPTH_MAX: u32 = 8;
/// Entries where nothing is asked for.
pub const LIMIT_DEFAULT: u32 = 10_000;
/// Bytes of names that are kept of one listing.
const BUFFERED: usize = 256 << 10;
/// Of each directory at least so many, even when those above it fill it.
const BUFFERED_OF_EACH: usize = 16 << 10;
/// What a name costs beside its bytes.
const NAME_COST: usize = size_of::<OsString>() + 16;
/// Problems that are told.
const PROBLEMS: usize = 20;

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Options {
    /// 1 (the directory's own entries) to [`DEPTH_MAX`].
    pub depth: u32,
    /// Leave out what ignore files say, and `.git`.
    pub gitignore: bool,
    /// Leave out names that begin with a dot.
    pub skip_hidden: bool,
    /// 1 to `limit_max`.
    pub limit: u32,
    /// What the operator allows (`limits.file_list_entries`).
    pub limit_max: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            depth: 1,
            gitignore: false,
            skip_hidden: false,
            limit: LIMIT_DEFAULT,
            limit_max: Limits::default().file_list_entries,
        }
    }
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Relative to the directory listed.
    pub path: PathBuf,
    /// What the file system says of it; of a link, of the link.
    pub facts: Facts,
    /// Of a link: its text.
    pub link_target: Option<OsString>,
}

/// What was listed and what was not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// Absolute name of the directory, without links.
    pub path: PathBuf,
    /// Entries given out.
    pub entries: u64,
    /// Left out by ignore files or as hidden; a directory counts once.
    pub ignored: u64,
    /// There was more than the limit.
    pub limit_reached: bool,
    /// Directories, or entries of them, that could not be read, and why.
    pub problems: Vec<(PathBuf, String)>,
    /// How many there were.
    pub unreadable: u64,
}

/// A listing that is under way.
#[derive(Debug)]
pub struct Listing {
    fence: Arc<Fence>,
    options: Options,
    /// From the directory listed down to the one that is listed now.
    levels: Vec<Level>,
    summary: Summary,
}

#[derive(Debug)]
struct Level {
    directory: Directory,
    /// Relative to the directory listed.
    path: PathBuf,
    /// In order.
    names: VecDeque<OsString>,
    /// The last one that was taken from them.
    last: OsString,
    /// There are names after these.
    more: bool,
    rules: IgnoreRules,
}

impl Level {
    /// Bytes that its names take.
    fn buffered(&self) -> usize {
        self.names.iter().map(|name| cost(name)).sum()
    }
}

fn cost(name: &OsStr) -> usize {
    name.len() + NAME_COST
}

/// The first names in order of those that are offered, as far as there is room.
struct First {
    names: BinaryHeap<OsString>,
    bytes: usize,
    count_room: usize,
    byte_room: usize,
    /// The first of those there was no room for: none from it on are kept.
    cut: Option<OsString>,
}

impl First {
    fn offer(&mut self, name: &OsStr) {
        if self.cut.as_deref().is_some_and(|cut| name >= cut) {
            return;
        }
        self.bytes += cost(name);
        self.names.push(name.to_owned());
        while self.names.len() > self.count_room
            || (self.bytes > self.byte_room && self.names.len() > 1)
        {
            let Some(last) = self.names.pop() else { break };
            self.bytes -= cost(&last);
            self.cut = Some(last);
        }
    }
}

impl Listing {
    /// Opens the directory that `given` names and reads its names.
    ///
    /// # Errors
    /// [`FileError::InvalidArgument`], as [`Fence::directory`], and as the
    /// system refuses to read it.
    pub fn open(
        fence: Arc<Fence>,
        given: &OsStr,
        options: Options,
        cancel: &Cancel,
    ) -> Result<Self, FileError> {
        let wrong = |field, why: &str| FileError::InvalidArgument {
            field,
            why: why.to_owned(),
        };
        if !(1..=DEPTH_MAX).contains(&options.depth) {
            return Err(wrong("depth", "it must be 1 to 8"));
        }
        let most = options.limit_max;
        if !(1..=most).contains(&options.limit) {
            let why = format!("it must be 1 to {most} entries (limits.file_list_entries)");
            return Err(wrong("limit", &why));
        }
        let directory = fence.directory(given)?;
        let rules = if options.gitignore {
            IgnoreRules::of(&fence, &directory, &Sources::of_listing())
        } else {
            IgnoreRules::default()
        };
        let handle = opened(&directory.handle, OsStr::new("."))
            .map_err(|errno| FileError::from_errno(errno, "listing", Path::new(given)))?;
        let summary = Summary {
            path: directory.name.clone(),
            ..Summary::default()
        };
        let mut listing = Self {
            fence,
            options,
            levels: Vec::new(),
            summary,
        };
        listing.enter(directory, handle, PathBuf::new(), rules, cancel)?;
        Ok(listing)
    }

    /// What was listed so far; the whole once [`Listing::next_entry`] gave
    /// `None`.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Bytes that the names which are kept take.
    #[cfg(test)]
    pub(super) fn buffered(&self) -> usize {
        self.levels.iter().map(Level::buffered).sum()
    }

    /// The next entry; `None` at the end.
    ///
    /// # Errors
    /// [`FileError::Cancelled`]. What cannot be read is no error but counted.
    pub fn next_entry(&mut self, cancel: &Cancel) -> Result<Option<Listed>, FileError> {
        loop {
            cancel.check()?;
            let Some(level) = self.levels.last_mut() else {
                return Ok(None);
            };
            let Some(name) = level.names.pop_front() else {
                if let Some(done) = self.levels.pop()
                    && done.more
                {
                    self.go_on(done, cancel)?;
                }
                continue;
            };
            if level.more {
                level.last.clone_from(&name);
            }
            if self.summary.entries >= u64::from(self.options.limit) {
                self.summary.limit_reached = true;
                self.levels.clear();
                return Ok(None);
            }
            let directory = level.directory.clone();
            let path = level.path.join(&name);
            let facts = match Facts::at(&directory.handle, &name) {
                Ok(facts) => facts,
                // Gone since its directory was read.
                Err(Errno::NOENT) => continue,
                Err(errno) => {
                    self.problem(path, &errno.to_string());
                    continue;
                }
            };
            let link_target = (facts.kind == FileKind::Link)
                .then(|| link_text(&directory, &name))
                .flatten();
            let below = u32::try_from(self.levels.len()).unwrap_or(u32::MAX);
            if facts.kind == FileKind::Directory && below < self.options.depth {
                self.descend(&directory, &name, path.clone(), cancel)?;
            }
            self.summary.entries += 1;
            return Ok(Some(Listed {
                path,
                facts,
                link_target,
            }));
        }
    }

    fn descend(
        &mut self,
        above: &Directory,
        name: &OsStr,
        path: PathBuf,
        cancel: &Cancel,
    ) -> Result<(), FileError> {
        // No secret directory is looked into.
        if let Err(error) = self.fence.child(above, name, &path) {
            self.problem(path, &error.to_string());
            return Ok(());
        }
        let handle = match opened(&above.handle, name) {
            Ok(handle) => handle,
            // It went, or something else took its name.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(errno) => {
                self.problem(path, &errno.to_string());
                return Ok(());
            }
        };
        let directory = Directory {
            handle: Arc::new(handle),
            name: above.name.join(name),
        };
        let rules = self.levels.last().map(|level| level.rules.clone());
        let mut rules = rules.unwrap_or_default();
        if self.options.gitignore {
            rules = rules.of_below(&self.fence, &directory, &Sources::of_listing());
        }
        let reader = match opened(&directory.handle, OsStr::new(".")) {
            Ok(reader) => reader,
            Err(errno) => {
                self.problem(path, &errno.to_string());
                return Ok(());
            }
        };
        self.enter(directory, reader, path, rules, cancel)
    }

    /// Reads the names of a directory.
    fn enter(
        &mut self,
        directory: Directory,
        reader: OwnedFd,
        path: PathBuf,
        rules: IgnoreRules,
        cancel: &Cancel,
    ) -> Result<(), FileError> {
        let level = Level {
            directory,
            path,
            names: VecDeque::new(),
            last: OsString::new(),
            more: false,
            rules,
        };
        self.read(level, reader, cancel)
    }

    /// Reads the names that follow in a directory whose first ones were told.
    fn go_on(&mut self, level: Level, cancel: &Cancel) -> Result<(), FileError> {
        match opened(&level.directory.handle, OsStr::new(".")) {
            Ok(reader) => self.read(level, reader, cancel),
            Err(errno) => {
                self.problem(level.path, &errno.to_string());
                Ok(())
            }
        }
    }

    /// The first names in order after the level's last, as many as may still be
    /// told and one more, or as there is room for.
    fn read(
        &mut self,
        mut level: Level,
        reader: OwnedFd,
        cancel: &Cancel,
    ) -> Result<(), FileError> {
        let left = u64::from(self.options.limit).saturating_sub(self.summary.entries);
        let buffered: usize = self.levels.iter().map(Level::buffered).sum();
        let mut first = First {
            names: BinaryHeap::new(),
            bytes: 0,
            count_room: usize::try_from(left)
                .unwrap_or(usize::MAX)
                .saturating_add(1),
            byte_room: BUFFERED.saturating_sub(buffered).max(BUFFERED_OF_EACH),
            cut: None,
        };
        let entries = match Dir::new(reader) {
            Ok(entries) => entries,
            Err(errno) => {
                self.problem(level.path, &errno.to_string());
                return Ok(());
            }
        };
        for entry in entries {
            cancel.check()?;
            let entry = match entry {
                Ok(entry) => entry,
                Err(errno) => {
                    self.problem(level.path.clone(), &errno.to_string());
                    break;
                }
            };
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            // What is left out was counted when the directory was first read.
            if name == "." || name == ".." || (level.more && name <= level.last.as_os_str()) {
                continue;
            }
            if self.is_left_out(&level.directory, name, entry.file_type(), &level.rules) {
                self.summary.ignored += u64::from(!level.more);
                continue;
            }
            first.offer(name);
        }
        level.more = first.cut.is_some();
        level.names = first.names.into_sorted_vec().into();
        self.levels.push(level);
        Ok(())
    }

    fn is_left_out(
        &self,
        directory: &Directory,
        name: &OsStr,
        kind: FileType,
        rules: &IgnoreRules,
    ) -> bool {
        if self.options.skip_hidden && name.as_bytes().starts_with(b".") {
            return true;
        }
        if !self.options.gitignore {
            return false;
        }
        let is_directory = match kind {
            FileType::Directory => true,
            // Not every file system tells.
            FileType::Unknown => Facts::at(&directory.handle, name)
                .is_ok_and(|facts| facts.kind == FileKind::Directory),
            _ => false,
        };
        name == ".git" || rules.leave_out(&directory.name.join(name), is_directory)
    }

    fn problem(&mut self, path: PathBuf, message: &str) {
        self.summary.unreadable += 1;
        if self.summary.problems.len() < PROBLEMS {
            self.summary.problems.push((path, message.to_owned()));
        }
    }
}

fn opened(directory: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

fn link_text(directory: &Directory, name: &OsStr) -> Option<OsString> {
    use std::os::unix::ffi::OsStringExt as _;
    let text = rustix::fs::readlinkat(&directory.handle, name, Vec::new()).ok()?;
    Some(OsString::from_vec(text.into_bytes()))
}
