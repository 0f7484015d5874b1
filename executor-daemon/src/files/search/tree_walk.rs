//! The walk: what becomes of one task.
//!
//! ```text
//! given ─┬─ directory ─► its names ─┬─ files ─► found
//!        │                 ▲  │  └──┴─ below ─► (a directory)
//!        │                 └──┴─ more of the same
//!        └─ file ─► found ─► rest of it ─► …
//! ```
//!
//! 1. Nothing is opened by a path: a directory from the handle of the one above,
//!    a file from its directory's, never through a link. What was opened is
//!    looked at (fstat(2)) before anything is done with it.
//! 2. Entries come by name as bytes, a directory where its name stands.
//! 3. Whatever is not looked at is counted.
//! 4. Memory is bounded by the depth, which a path's length bounds, and by
//!    [`NAMES`], not by the directories.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use ignore::types::Types;
use rustix::io::Errno;

use super::super::cancel::Cancel;
use super::super::error::FileError;
use super::super::fence::Fence;
use super::super::ignore_files::{IgnoreRules, Present, Sources};
use super::super::object::Object;
use super::super::resolve::Directory;
use super::super::walk::is_procfs;
use super::directory::{
    Content, EntryBuffer, NAMES, Named, Names, Opened, Walked, entry_buffer, read,
};

use super::file::{Finder, GrepPlan, Rest};
use super::globs::PathGlobs;
use super::order::Step;
use super::results::{Entry, Part};
use super::sorting::Sorting;
use super::summary::Counts;

/// What is done, the same for every task.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) fence: Arc<Fence>,
    pub(super) globs: PathGlobs,
    pub(super) types: Types,
    pub(super) hidden: bool,
    pub(super) depth: Option<u32>,
    pub(super) sources: Sources,
    pub(super) kept: Arc<AtomicUsize>,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    Glob { directories: bool },
    Grep(Box<GrepPlan>),
}

/// What can be done next.
#[derive(Debug)]
pub(super) enum Task {
    /// A directory that the caller named.
    Given {
        directory: Directory,
        prefix: Vec<u8>,
    },
    /// A file that the caller named.
    File {
        object: Object,
        path: Vec<u8>,
    },
    Below {
        above: Arc<Walked>,
        name: OsString,
    },
    More {
        directory: Arc<Walked>,
        after: OsString,
    },
    Files {
        directory: Arc<Walked>,
        names: Names,
    },
    Rest(Box<Rest>),
}

/// What a thread keeps from one task to the next.
#[derive(Debug)]
pub(super) struct Scratch {
    entries: EntryBuffer,
    finder: Option<Finder>,
}

impl Scratch {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            entries: entry_buffer(),
            finder: match &plan.what {
                What::Glob { .. } => None,
                What::Grep(grep) => Some(Finder::new(grep)),
            },
        }
    }
}

pub(super) type Steps = Vec<Step<Task, Part>>;

impl Plan {
    /// Does one task.
    ///
    /// # Errors
    /// [`FileError::Cancelled`]. What cannot be read is no error but counted.
    pub(super) fn run(
        &self,
        task: Task,
        scratch: &mut Scratch,
        cancel: &Cancel,
    ) -> Result<Steps, FileError> {
        cancel.check()?;
        match task {
            Task::Given { directory, prefix } => self.given(&directory, prefix, scratch, cancel),
            Task::Below { above, name } => self.below(&above, name, scratch, cancel),
            Task::More { directory, after } => {
                let mut counts = Counts::default();
                let opened = directory
                    .handle()
                    .and_then(|handle| Opened::at(&handle, OsStr::new(".")));
                match opened {
                    Ok(opened) => {
                        let names = read(
                            &opened.handle,
                            Some(&after),
                            NAMES,
                            &mut scratch.entries,
                            cancel,
                        )?;
                        Ok(self.entries(&directory, names, counts))
                    }
                    Err(errno) => {
                        counts.unreadable(without_slash(&directory.prefix), said(errno));
                        Ok(vec![Step::Part(Part::of(counts))])
                    }
                }
            }
            Task::File { object, path } => self.file(&object, path, scratch, cancel),
            Task::Files { directory, names } => self.files(&directory, &names, scratch, cancel),
            Task::Rest(rest) => self.rest(*rest, scratch, cancel),
        }
    }

    fn given(
        &self,
        directory: &Directory,
        prefix: Vec<u8>,
        scratch: &mut Scratch,
        cancel: &Cancel,
    ) -> Result<Steps, FileError> {
        // Opened `O_PATH`, which cannot be read.
        let opened = match Opened::at(&directory.handle, OsStr::new(".")) {
            Ok(opened) => opened,
            Err(errno) => {
                let mut counts = Counts::default();
                counts.unreadable(without_slash(&prefix), said(errno));
                return Ok(vec![Step::Part(Part::of(counts))]);
            }
        };
        let above = IgnoreRules::above(&self.fence, directory, &self.sources);
        let relative = prefix.len();
        self.enter(
            &opened,
            None,
            Named {
                path: directory.name.clone(),
                procfs: is_procfs(&opened.handle),
                prefix,
                relative,
                rules: above,
            },
            scratch,
            cancel,
        )
    }

    fn below(
        &self,
        above: &Arc<Walked>,
        name: OsString,
        scratch: &mut Scratch,
        cancel: &Cancel,
    ) -> Result<Steps, FileError> {
        let mut prefix = above.prefix.clone();
        prefix.extend_from_slice(name.as_bytes());
        let opened = above.handle().and_then(|handle| Opened::at(&handle, &name));
        let opened = match opened {
            Ok(opened) => opened,
            // It went, or something else took its name.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Vec::new()),
            Err(errno) => {
                let mut counts = Counts::default();
                counts.unreadable(&prefix, said(errno));
                return Ok(vec![Step::Part(Part::of(counts))]);
            }
        };
        prefix.push(b'/');
        let same = opened.device == above.device();
        let named = Named {
            path: above.path.join(&name),
            prefix,
            relative: above.relative,
            procfs: if same {
                above.procfs
            } else {
                is_procfs(&opened.handle)
            },
            rules: above.rules.clone(),
        };
        self.enter(&opened, Some((above, name)), named, scratch, cancel)
    }

    fn enter(
        &self,
        opened: &Opened,
        above: Option<(&Arc<Walked>, OsString)>,
        mut named: Named,
        scratch: &mut Scratch,
        cancel: &Cancel,
    ) -> Result<Steps, FileError> {
        let content = read(&opened.handle, None, NAMES, &mut scratch.entries, cancel)?;
        let mut counts = Counts {
            directories: 1,
            ..Counts::default()
        };
        if let Some(errno) = content.error {
            counts.unreadable(without_slash(&named.prefix), said(errno));
        }
        let directory = Directory {
            handle: Arc::clone(&opened.handle),
            name: named.path,
        };
        if content.present != Present::default() {
            named.rules =
                named
                    .rules
                    .below(&self.fence, &directory, &self.sources, content.present);
        }
        named.path = directory.name;
        let above = above.map(|(above, name)| (Arc::clone(above), name));
        let walked = Arc::new(Walked::new(opened, above, named, &self.kept));
        Ok(self.entries(&walked, content, counts))
    }

    /// Sorts out what a directory holds.
    fn entries(&self, directory: &Arc<Walked>, content: Content, counts: Counts) -> Steps {
        Sorting::new(self, directory, counts).all(content)
    }

    pub(super) fn is_hidden(&self, name: &[u8]) -> bool {
        !self.hidden && name.starts_with(b".") && !self.globs.spell_out(name)
    }

    pub(super) fn chosen(&self, relative: &[u8]) -> bool {
        self.globs.choose(relative)
            && !self
                .types
                .matched(Path::new(OsStr::from_bytes(relative)), false)
                .is_ignore()
    }

    fn grep(&self) -> Option<&GrepPlan> {
        match &self.what {
            What::Glob { .. } => None,
            What::Grep(grep) => Some(grep),
        }
    }

    fn file(
        &self,
        object: &Object,
        path: Vec<u8>,
        scratch: &mut Scratch,
        cancel: &Cancel,
    ) -> Result<Steps, FileError> {
        let mut part = Part::default();
        let (Some(grep), Some(finder)) = (self.grep(), &mut scratch.finder) else {
            part.counts.files += 1;
            part.push_entry(Entry {
                path,
                kind: object.facts().kind,
            });
            return Ok(vec![Step::Part(part)]);
        };
        let rest = match object.content() {
            Ok(file) => finder.named(grep, file, path, &mut part, cancel)?,
            Err(error) => {
                part.counts.unreadable(&path, error.to_string());
                None
            }
        };
        Ok(with_rest(part, rest))
    }

    fn files(
        &self,
        directory: &Arc<Walked>,
        names: &Names,
        scratch: &mut Scratch,
        cancel: &Cancel,
    ) -> Result<Steps, FileError> {
        let mut part = Part::default();
        let mut steps = Steps::new();
        let (Some(grep), Some(finder)) = (self.grep(), &mut scratch.finder) else {
            return Ok(steps);
        };
        let handle = match directory.handle() {
            Ok(handle) => handle,
            Err(errno) => {
                part.counts
                    .unreadable(without_slash(&directory.prefix), said(errno));
                return Ok(vec![Step::Part(part)]);
            }
        };
        for (name, _) in names.iter() {
            cancel.check()?;
            let mut shown = directory.prefix.clone();
            shown.extend_from_slice(name);
            let name = OsStr::from_bytes(name);
            if self.is_secret(directory, name) {
                part.counts.secret += 1;
                continue;
            }
            if let Some(rest) =
                finder.in_directory(grep, &handle, name, shown, &mut part, cancel)?
            {
                steps.extend(with_rest(std::mem::take(&mut part), Some(rest)));
            }
        }
        steps.push(Step::Part(part));
        Ok(steps)
    }

    fn rest(&self, rest: Rest, scratch: &mut Scratch, cancel: &Cancel) -> Result<Steps, FileError> {
        let mut part = Part::default();
        let (Some(grep), Some(finder)) = (self.grep(), &mut scratch.finder) else {
            return Ok(Steps::new());
        };
        let rest = finder.go_on(grep, rest, &mut part, cancel)?;
        Ok(with_rest(part, rest))
    }

    pub(super) fn is_secret(&self, directory: &Walked, name: &OsStr) -> bool {
        let secrets = self.fence.secrets();
        let path = directory.path.join(name);
        if secrets.rule_of_child(&path).is_some() {
            return true;
        }
        directory.procfs
            && directory.handle().is_ok_and(|handle| {
                let directory = directory.as_directory(handle);
                secrets.rule_in_procfs(&directory, name).is_some()
            })
    }
}

/// The path that results begin with for what is below `given`.
pub(super) fn prefix_of(given: &Path) -> Vec<u8> {
    let mut prefix = given.as_os_str().as_bytes().to_vec();
    while prefix.starts_with(b"./") {
        let rest = prefix.iter().skip(2).skip_while(|byte| **byte == b'/');
        prefix = rest.copied().collect();
    }
    if prefix == b"." {
        prefix.clear();
    }
    if !prefix.is_empty() && !prefix.ends_with(b"/") {
        prefix.push(b'/');
    }
    prefix
}

/// The path itself.
fn without_slash(prefix: &[u8]) -> &[u8] {
    match prefix {
        b"" => b".",
        b"/" => prefix,
        prefix => prefix.strip_suffix(b"/").unwrap_or(prefix),
    }
}

pub(super) fn said(errno: Errno) -> String {
    match errno {
        Errno::ACCESS | Errno::PERM => "the system denies access to it".to_owned(),
        Errno::STALE => "it was moved while it was searched".to_owned(),
        errno => errno.to_string(),
    }
}

fn with_rest(part: Part, rest: Option<Rest>) -> Steps {
    let rest = rest.map(|rest| Step::Task(Task::Rest(Box::new(rest))));
    std::iter::once(Step::Part(part)).chain(rest).collect()
}
