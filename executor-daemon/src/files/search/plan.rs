//! A request becomes what a search does: checked, compiled, and what the caller
//! named opened.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use ignore::types::{Types, TypesBuilder};

use super::super::entry::Last;
use super::super::error::FileError;
use super::super::fence::Fence;
use super::super::ignore_files::{Sources, operators_text};
use super::super::object::FileKind;
use super::file::GrepPlan;
use super::globs::PathGlobs;
use super::pattern::Matcher;
use super::request::{
    BYTES_DEFAULT, BYTES_MAX, CONTEXT_MAX, Glob, Grep, PATHS_MAX, RESULTS_DEFAULT, RESULTS_MAX,
    Scope, Tell,
};
use super::sink::Asked;
use super::tree_walk::{Plan, Task, What, prefix_of};

/// What the operator says of searches.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// A file with what git ignores everywhere. Read anew for each search; none
    /// is no error.
    pub git_excludes: Option<PathBuf>,
    /// Ignore files above a root count too.
    pub above_roots: bool,
}

/// How much is told.
#[derive(Debug)]
pub(super) struct Limits {
    pub(super) results: u64,
    pub(super) bytes: u64,
    /// Results are lines.
    pub(super) lines: bool,
}

/// What a glob does.
pub(super) fn of_glob(asked: &Glob) -> Result<(What, Limits), FileError> {
    let limits = Limits {
        results: results(asked.limit)?,
        bytes: BYTES_MAX,
        lines: false,
    };
    let what = What::Glob {
        directories: asked.directories,
    };
    Ok((what, limits))
}

/// What a grep does.
pub(super) fn of_grep(asked: &Grep) -> Result<(What, Limits), FileError> {
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
    Ok((what, limits))
}

/// The plan for all tasks, and the first of them.
pub(super) fn begin(
    fence: Arc<Fence>,
    scope: &Scope,
    what: What,
    settings: &Settings,
) -> Result<(Plan, Vec<Task>), FileError> {
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
    Ok((plan, tasks))
}

/// What the caller named, opened.
fn named(fence: &Arc<Fence>, paths: &[PathBuf]) -> Result<Vec<Task>, FileError> {
    if paths.len() > PATHS_MAX {
        let why = format!("there are {}, above the limit of {PATHS_MAX}", paths.len());
        return Err(wrong("paths", why));
    }
    if paths.is_empty() {
        let directory = fence.directory(OsStr::new(""))?;
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
                path: given.as_bytes().to_vec(),
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

fn types(scope: &Scope) -> Result<Types, FileError> {
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
