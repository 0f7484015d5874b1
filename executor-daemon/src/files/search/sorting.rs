//! What a directory holds, sorted out: what is told, what is searched, what is
//! gone into, and what is passed over and why.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::FileType;
use rustix::io::Errno;

use super::super::object::{Facts, FileKind};
use super::super::resolve::PATH_BYTES;
use super::directory::{Content, Names, Walked};
use super::order::Step;
use super::results::{Entry, Part};
use super::summary::Counts;
use super::tree_walk::{Plan, Steps, Task, What, said};

/// Files that are searched in one go.
const FILES: usize = 16;
/// Entries of one part.
const ENTRIES: usize = 1024;

/// What a directory holds, while it is sorted out.
pub(super) struct Sorting<'a> {
    plan: &'a Plan,
    directory: &'a Arc<Walked>,
    steps: Steps,
    part: Part,
    /// To be searched.
    files: Names,
    /// The absolute name of the entry.
    path: Vec<u8>,
    /// As results have it.
    shown: Vec<u8>,
}

impl<'a> Sorting<'a> {
    /// `counts`: what is known of the directory already.
    pub(super) fn new(plan: &'a Plan, directory: &'a Arc<Walked>, counts: Counts) -> Self {
        let mut path = directory.path.as_os_str().as_bytes().to_vec();
        if !path.ends_with(b"/") {
            path.push(b'/');
        }
        Self {
            plan,
            directory,
            steps: Steps::new(),
            part: Part::of(counts),
            files: Names::default(),
            path,
            shown: directory.prefix.clone(),
        }
    }

    /// What comes of all of them.
    pub(super) fn all(mut self, content: Content) -> Steps {
        let (path, shown) = (self.path.len(), self.shown.len());
        for (name, kind) in content.names.iter() {
            self.path.truncate(path);
            self.path.extend_from_slice(name);
            self.shown.truncate(shown);
            self.shown.extend_from_slice(name);
            self.entry(name, kind);
        }
        self.end(content.more_after)
    }

    fn entry(&mut self, name: &[u8], kind: FileType) {
        let kind = match kind {
            // Not every file system tells.
            FileType::Unknown => match self.look(name) {
                Ok(kind) => kind,
                Err(Errno::NOENT) => return,
                Err(errno) => {
                    self.part.counts.unreadable(&self.shown, said(errno));
                    return;
                }
            },
            kind => FileKind::of(kind),
        };
        let is_directory = kind == FileKind::Directory;
        if name == b".git" && self.plan.sources.git {
            self.part.counts.ignored += 1;
            return;
        }
        let rules = &self.directory.rules;
        let verdict = if rules.is_empty() {
            None
        } else {
            rules.verdict(Path::new(OsStr::from_bytes(&self.path)), is_directory)
        };
        match verdict {
            Some(true) => {
                self.part.counts.ignored += 1;
                return;
            }
            None if self.plan.is_hidden(name) => {
                self.part.counts.hidden += 1;
                return;
            }
            _ => {}
        }
        match kind {
            FileKind::Directory => self.subdirectory(name),
            FileKind::Regular => self.file(name),
            FileKind::Link => {
                self.part.counts.links += 1;
                if matches!(self.plan.what, What::Glob { .. }) && self.is_chosen() {
                    self.tell(kind);
                }
            }
            _ => self.part.counts.special += 1,
        }
    }

    fn subdirectory(&mut self, name: &[u8]) {
        let relative = self.shown.get(self.directory.relative..);
        if self
            .plan
            .globs
            .leave_out_directory(relative.unwrap_or_default())
        {
            self.part.counts.filtered += 1;
            return;
        }
        if matches!(self.plan.what, What::Glob { directories: true }) && self.is_chosen() {
            self.tell(FileKind::Directory);
        }
        if self
            .plan
            .depth
            .is_some_and(|depth| self.directory.depth >= depth)
        {
            self.part.counts.too_deep += 1;
            return;
        }
        // What is in it could not be named.
        if self.path.len() + 2 > PATH_BYTES {
            self.part
                .counts
                .unreadable(&self.shown, "its name is longer than a path may be");
            return;
        }
        let name = OsStr::from_bytes(name);
        if self.plan.is_secret(self.directory, name) {
            self.part.counts.secret += 1;
            return;
        }
        self.flush();
        self.steps.push(Step::Task(Task::Below {
            above: Arc::clone(self.directory),
            name: name.to_owned(),
        }));
    }

    fn file(&mut self, name: &[u8]) {
        if !self.is_chosen() {
            self.part.counts.filtered += 1;
            return;
        }
        if matches!(self.plan.what, What::Glob { .. }) {
            self.tell(FileKind::Regular);
            return;
        }
        self.files.push(name, FileType::RegularFile);
        if self.files.len() >= FILES {
            self.flush();
        }
    }

    fn tell(&mut self, kind: FileKind) {
        self.part.counts.files += 1;
        self.part.push_entry(Entry {
            path: self.shown.clone(),
            kind,
        });
        if self.part.entries.len() >= ENTRIES {
            self.flush();
        }
    }

    fn is_chosen(&self) -> bool {
        let relative = self.shown.get(self.directory.relative..);
        self.plan.chosen(relative.unwrap_or_default())
    }

    /// What comes now stands behind what there is so far.
    fn flush(&mut self) {
        if !self.part.is_empty() {
            self.steps.push(Step::Part(std::mem::take(&mut self.part)));
        }
        if !self.files.is_empty() {
            self.steps.push(Step::Task(Task::Files {
                directory: Arc::clone(self.directory),
                names: std::mem::take(&mut self.files),
            }));
        }
    }

    fn end(mut self, more_after: Option<OsString>) -> Steps {
        self.flush();
        if let Some(after) = more_after {
            self.steps.push(Step::Task(Task::More {
                directory: Arc::clone(self.directory),
                after,
            }));
        }
        self.steps
    }

    fn look(&self, name: &[u8]) -> Result<FileKind, Errno> {
        let handle = self.directory.handle()?;
        Facts::at(&handle, OsStr::from_bytes(name)).map(|facts| facts.kind)
    }
}
