//! A search under way.
//!
//! ```text
//!  threads of the crew ──► order ──► pieces, one at a time, for who waits
//!        ▲    take the first task, put what came of it in its place   │
//!        └──────────── set to work again once there is room ◄─────────┘
//! ```
//!
//! 1. No thread waits for the client: where too much waits to be told, threads
//!    leave, and are set to work again when a piece was taken. Only the first
//!    unfinished task goes on then, as all others' parts wait for its.
//! 2. What waits to be told is bounded: [`WAITING`], and what the tasks at work
//!    add ([`PART_BYTES`](super::file::PART_BYTES) each).
//! 3. A search goes on without any thread of the crew, on that of
//!    [`Search::next_piece`].
//! 4. Once the search is dropped, its threads end before the next entry or block.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ignore::types::TypesBuilder;
use rustix::io::Errno;

use super::super::cancel::Cancel;
use super::super::entry::Last;
use super::super::error::FileError;
use super::super::fence::Fence;
use super::super::ignore_files::{Sources, operators_text};
use super::super::object::FileKind;
use super::crew::Crew;
use super::file::GrepPlan;
use super::globs::PathGlobs;
use super::order::{Order, Place};
use super::pattern::Matcher;
use super::request::{
    BYTES_DEFAULT, BYTES_MAX, CONTEXT_MAX, Glob, Grep, PATHS_MAX, RESULTS_DEFAULT, RESULTS_MAX,
    Scope, Tell,
};
use super::results::{Entry, FileMatches, Part};
use super::sink::Asked;
use super::summary::Summary;
use super::tree_walk::{Plan, Scratch, Steps, Task, What, prefix_of};

/// Bytes that wait to be told before no more is done.
const WAITING: usize = 2 << 20;
/// Bytes of a piece, about.
const PIECE: usize = 128 << 10;
/// What was found is told at least so often.
const OFTEN: Duration = Duration::from_millis(50);
/// A thread that finds nothing to do leaves after this time.
const IDLE: Duration = Duration::from_millis(100);

/// What was found, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Of a glob.
    pub entries: Vec<Entry>,
    /// Of a grep.
    pub files: Vec<FileMatches>,
    bytes: usize,
}

/// See the module's documentation. Dropping it ends it.
#[derive(Debug)]
pub struct Search {
    shared: Arc<Shared>,
    limits: Limits,
    summary: Summary,
    over: bool,
}

#[derive(Debug)]
struct Limits {
    results: u64,
    bytes: u64,
    /// Results are lines.
    lines: bool,
}

#[derive(Debug)]
struct Shared {
    plan: Plan,
    crew: Arc<Crew>,
    cancel: Cancel,
    state: Mutex<State>,
    /// Something can be told, or all is done.
    told: Condvar,
    /// There may be something to do.
    work: Condvar,
}

/// Its lock is held for a few moves of values, never while anything is read.
#[derive(Debug)]
struct State {
    order: Order<Task, Part>,
    /// Bytes of parts that are done and not told.
    waiting: usize,
    threads: usize,
    broken: bool,
}

/// What the operator says of searches.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// A file with what git ignores everywhere. Read anew for each search; none
    /// is no error.
    pub git_excludes: Option<PathBuf>,
    /// Ignore files above a root count too.
    pub above_roots: bool,
}

impl Search {
    /// Begins to look for paths. Opens what the caller named.
    ///
    /// # Errors
    /// [`FileError::InvalidArgument`], [`FileError::Glob`], and as
    /// [`Fence::object`] for the paths named.
    pub fn glob(
        fence: Arc<Fence>,
        asked: &Glob,
        settings: &Settings,
        crew: &Arc<Crew>,
    ) -> Result<Self, FileError> {
        let limits = Limits {
            results: results(asked.limit)?,
            bytes: BYTES_MAX,
            lines: false,
        };
        let what = What::Glob {
            directories: asked.directories,
        };
        Self::begin(fence, &asked.scope, what, limits, settings, crew)
    }

    /// Begins to look for text.
    ///
    /// # Errors
    /// As [`Search::glob`]; [`FileError::Pattern`].
    pub fn grep(
        fence: Arc<Fence>,
        asked: &Grep,
        settings: &Settings,
        crew: &Arc<Crew>,
    ) -> Result<Self, FileError> {
        let bytes = asked.byte_limit.unwrap_or(BYTES_DEFAULT);
        if !(1..=BYTES_MAX).contains(&bytes) {
            return Err(wrong("byte_limit", format!("it must be 1 to {BYTES_MAX}")));
        }
        for (field, lines) in [
            ("before_context", asked.before),
            ("after_context", asked.after),
        ] {
            if lines > CONTEXT_MAX {
                return Err(wrong(
                    field,
                    format!("it must be at most {CONTEXT_MAX} lines"),
                ));
            }
        }
        let context = |lines: u32| usize::try_from(lines).unwrap_or(0);
        let limits = Limits {
            results: results(asked.limit)?,
            bytes,
            lines: asked.tell == Tell::Lines,
        };
        let plan = GrepPlan {
            matcher: Matcher::new(&asked.pattern)?,
            asked: Asked {
                tell: asked.tell,
                file_limit: asked.file_limit,
                spans: !asked.invert,
            },
            invert: asked.invert,
            multi_line: asked.pattern.multi_line,
            before: context(asked.before),
            after: context(asked.after),
            binary: asked.binary,
            file_bytes: asked.file_bytes,
        };
        let what = What::Grep(Box::new(plan));
        Self::begin(fence, &asked.scope, what, limits, settings, crew)
    }

    fn begin(
        fence: Arc<Fence>,
        scope: &Scope,
        what: What,
        limits: Limits,
        settings: &Settings,
        crew: &Arc<Crew>,
    ) -> Result<Self, FileError> {
        let tasks = named(&fence, &scope.paths)?;
        let ignore = scope.ignore;
        let global = settings.git_excludes.as_deref();
        let global = global.filter(|_| ignore.global).and_then(operators_text);
        let plan = Plan {
            fence,
            globs: PathGlobs::new(&scope.globs, scope.globs_ignore_case, "globs")?,
            types: types(scope)?,
            hidden: scope.hidden,
            depth: scope.depth,
            sources: Sources {
                ripgrep: ignore.dot,
                dot: ignore.dot,
                git: ignore.git,
                exclude: ignore.exclude,
                above: ignore.above,
                above_roots: ignore.above && settings.above_roots,
                in_repositories: ignore.in_repositories,
                global,
            },
            kept: Arc::new(AtomicUsize::new(0)),
            what,
        };
        Ok(Self {
            shared: Arc::new(Shared {
                plan,
                crew: Arc::clone(crew),
                cancel: Cancel::new(),
                state: Mutex::new(State {
                    order: Order::new(tasks),
                    waiting: 0,
                    threads: 0,
                    broken: false,
                }),
                told: Condvar::new(),
                work: Condvar::new(),
            }),
            limits,
            summary: Summary::default(),
            over: false,
        })
    }

    /// What was searched so far; all of it once [`Search::next_piece`] gave
    /// `None`.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Bytes that wait to be told.
    #[cfg(test)]
    pub(in super::super) fn waiting(&self) -> usize {
        self.shared.lock().waiting
    }

    /// What was found next; `None` at the end. Blocks.
    ///
    /// # Errors
    /// [`FileError::Cancelled`].
    pub fn next_piece(&mut self, cancel: &Cancel) -> Result<Option<Piece>, FileError> {
        let begun = Instant::now();
        let mut piece = Piece::default();
        let mut scratch = None;
        while !self.over {
            cancel.check()?;
            let mut state = self.shared.lock();
            if state.broken {
                return Err(FileError::from_errno(
                    Errno::IO,
                    "searching",
                    Path::new("what was asked for"),
                ));
            }
            while let Some(part) = state.order.pop() {
                state.waiting = state.waiting.saturating_sub(part.bytes);
                drop(state);
                self.tell(part, &mut piece);
                if self.over || piece.bytes >= PIECE {
                    self.shared.set_to_work();
                    return Ok(Some(piece));
                }
                state = self.shared.lock();
            }
            if state.order.is_done() {
                self.over = true;
                break;
            }
            if begun.elapsed() >= OFTEN && !piece.is_empty() {
                return Ok(Some(piece));
            }
            let threads = state.threads;
            drop(state);
            if !self.shared.set_to_work() && threads == 0 {
                // Nobody else does it.
                let scratch = scratch.get_or_insert_with(|| Scratch::new(&self.shared.plan));
                self.shared.work_once(scratch);
                continue;
            }
            let state = self.shared.lock();
            if !state.order.is_ready() && !state.order.is_done() {
                drop(self.shared.told.wait_timeout(state, OFTEN));
            }
        }
        Ok((!piece.is_empty()).then_some(piece))
    }

    /// Adds a part to a piece, as far as the limits go.
    fn tell(&mut self, part: Part, piece: &mut Piece) {
        let Part {
            entries,
            files,
            mut counts,
            ..
        } = part;
        let (mut matches, mut files_matched) = (0, 0);
        for entry in entries {
            if !self.room(1) {
                break;
            }
            matches += 1;
            self.take(1, entry.path.len());
            piece.bytes += entry.path.len() + 16;
            piece.entries.push(entry);
        }
        for file in files {
            let Some(file) = self.cut_to_limit(file) else {
                break;
            };
            matches += file.matches;
            files_matched += u64::from(!file.continued);
            piece.bytes += file.path.len() + 16;
            let lines = file.lines.iter().map(|line| line.text.len() + 32);
            piece.bytes += lines.sum::<usize>();
            piece.files.push(file);
        }
        // What was not told was not found, as far as the caller can see.
        (counts.matches, counts.files_matched) = (matches, files_matched);
        self.summary.counts += counts;
        if self.summary.limit_reached {
            self.over = true;
            self.shared.give_up();
        }
    }

    fn room(&mut self, results: u64) -> bool {
        let room = self.limits.results >= results && self.limits.bytes > 0;
        self.summary.limit_reached |= !room;
        room
    }

    fn take(&mut self, results: u64, bytes: usize) {
        self.limits.results = self.limits.results.saturating_sub(results);
        self.limits.bytes = self.limits.bytes.saturating_sub(bytes as u64);
    }

    /// As much of it as may be told. `None`: nothing.
    fn cut_to_limit(&mut self, mut file: FileMatches) -> Option<FileMatches> {
        if !self.room(1) {
            return None;
        }
        if !self.limits.lines {
            self.take(1, file.path.len());
            return Some(file);
        }
        let mut told = 0;
        for (at, line) in file.lines.iter().enumerate() {
            // Lines behind the last one that may be told belong to it.
            if (!line.context && self.limits.results == 0) || self.limits.bytes == 0 {
                self.summary.limit_reached = true;
                file.lines.truncate(at);
                file.matches = told;
                break;
            }
            let matches = u64::from(!line.context);
            told += matches;
            self.limits.results -= matches;
            self.limits.bytes = self.limits.bytes.saturating_sub(line.text.len() as u64);
        }
        Some(file)
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        self.shared.give_up();
    }
}

impl Piece {
    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.files.is_empty()
    }
}

impl Shared {
    /// A thread that panics leaves the state whole: it is changed by moves only.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets one more thread to work, if there is work and a thread.
    fn set_to_work(self: &Arc<Self>) -> bool {
        {
            let mut state = self.lock();
            let wanted = state.order.queued().min(self.crew.each());
            if !state.may_work() || state.threads >= wanted {
                return false;
            }
            state.threads += 1;
        }
        let thread = Working(Arc::clone(self));
        let set = self.crew.set_to_work(move || thread.0.work());
        // Where there is none, what was to be done was dropped with its count.
        set
    }

    fn work(self: &Arc<Self>) {
        let mut scratch = None;
        while let Some((place, task)) = self.next_task() {
            self.set_to_work();
            let scratch = scratch.get_or_insert_with(|| Scratch::new(&self.plan));
            self.run(&place, task, scratch);
        }
    }

    /// `None`: there is nothing to do for this thread.
    fn next_task(&self) -> Option<(Place, Task)> {
        let mut state = self.lock();
        let begun = Instant::now();
        loop {
            if self.cancel.check().is_err() || state.order.is_done() {
                return None;
            }
            if state.order.queued() > 0 {
                return state.may_work().then(|| state.order.take())?;
            }
            let left = IDLE.checked_sub(begun.elapsed())?;
            let woken = self.work.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Does one task on this thread, if there is one.
    fn work_once(&self, scratch: &mut Scratch) {
        let next = {
            let mut state = self.lock();
            state.order.take()
        };
        if let Some((place, task)) = next {
            self.run(&place, task, scratch);
        }
    }

    fn run(&self, place: &Place, task: Task, scratch: &mut Scratch) {
        let done = Done {
            shared: self,
            place,
            steps: Some(Steps::new()),
        };
        let steps = self.plan.run(task, scratch, &self.cancel);
        done.with(steps.unwrap_or_default());
    }

    fn give_up(&self) {
        self.cancel.cancel();
        self.lock().order.clear();
        self.work.notify_all();
    }
}

impl State {
    /// There is room for what would come of it, or all that waits waits for it.
    fn may_work(&self) -> bool {
        self.waiting < WAITING || (self.order.first_is_queued() && !self.order.is_ready())
    }
}

/// A thread that counts as long as it is there.
struct Working(Arc<Shared>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.lock().threads -= 1;
        self.0.told.notify_all();
    }
}

/// Puts what came of a task in its place, whatever happens.
struct Done<'a> {
    shared: &'a Shared,
    place: &'a Place,
    steps: Option<Steps>,
}

impl Done<'_> {
    fn with(mut self, steps: Steps) {
        self.steps = Some(steps);
        drop(self);
    }
}

impl Drop for Done<'_> {
    fn drop(&mut self) {
        let steps = self.steps.take().unwrap_or_default();
        let bytes = steps.iter().map(|step| match step {
            super::order::Step::Part(part) => part.bytes,
            super::order::Step::Task(_) => 0,
        });
        let bytes: usize = bytes.sum();
        let mut state = self.shared.lock();
        if std::thread::panicking() {
            tracing::error!("a thread that searched panicked; the search ends");
            state.broken = true;
        }
        state.waiting += bytes;
        let before = state.order.queued();
        state.order.finish(self.place, steps);
        let more = state.order.queued() > before;
        // Who waits looks often enough; to wake it for each part costs more.
        let tell = state.order.is_done() || state.waiting >= PIECE || state.broken;
        drop(state);
        if more {
            self.shared.work.notify_all();
        }
        if tell {
            self.shared.told.notify_all();
        }
    }
}

/// What the caller named, opened.
fn named(fence: &Arc<Fence>, paths: &[PathBuf]) -> Result<Vec<Task>, FileError> {
    if paths.len() > PATHS_MAX {
        let why = format!("there are {}, above the limit of {PATHS_MAX}", paths.len());
        return Err(wrong("paths", why));
    }
    if paths.is_empty() {
        let directory = fence.directory(std::ffi::OsStr::new(""))?;
        return Ok(vec![Task::Given {
            directory,
            prefix: Vec::new(),
        }]);
    }
    let open = |path: &PathBuf| {
        let given = path.as_os_str();
        let object = fence.object(given, Last::Follow)?;
        Ok(match object.facts().kind {
            FileKind::Directory => Task::Given {
                directory: fence.directory(given)?,
                prefix: prefix_of(path),
            },
            FileKind::Regular => Task::File {
                object,
                path: std::os::unix::ffi::OsStrExt::as_bytes(given).to_vec(),
            },
            kind => {
                return Err(FileError::NotARegularFile {
                    given: path.clone(),
                    kind,
                });
            }
        })
    };
    paths.iter().map(open).collect()
}

fn types(scope: &Scope) -> Result<ignore::types::Types, FileError> {
    let mut builder = TypesBuilder::new();
    if scope.types.is_empty() && scope.types_not.is_empty() {
        return builder
            .build()
            .map_err(|error| wrong("types", error.to_string()));
    }
    builder.add_defaults();
    for name in &scope.types {
        builder.select(name);
    }
    for name in &scope.types_not {
        builder.negate(name);
    }
    builder.build().map_err(|error| {
        let why = match error {
            ignore::Error::UnrecognizedFileType(name) => {
                format!("there is no file type {name:?}; use a glob instead")
            }
            error => error.to_string(),
        };
        wrong("types", why)
    })
}

fn results(limit: Option<u32>) -> Result<u64, FileError> {
    let limit = limit.unwrap_or(RESULTS_DEFAULT);
    if !(1..=RESULTS_MAX).contains(&limit) {
        return Err(wrong("limit", format!("it must be 1 to {RESULTS_MAX}")));
    }
    Ok(limit.into())
}

fn wrong(field: &'static str, why: String) -> FileError {
    FileError::InvalidArgument { field, why }
}
