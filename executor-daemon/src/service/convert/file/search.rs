//! Searching.

use executor_proto::reason::Failure;
use executor_proto::v1;

use super::{kind, path};
use crate::files::search::pattern::{Case, Engine, Pattern};
use crate::files::search::request::{Glob, Grep, Ignore, Scope, Tell};
use crate::files::search::results::{Entry, FileMatches, Line};
use crate::files::search::summary::Summary;

/// A `GlobRequest`.
pub(in crate::service) fn glob(request: v1::GlobRequest) -> Result<Glob, Failure> {
    Ok(Glob {
        scope: scope(request.scope)?,
        directories: request.directories,
        limit: set(request.limit),
    })
}

/// A `GrepRequest`.
pub(in crate::service) fn grep(request: v1::GrepRequest) -> Result<Grep, Failure> {
    let (engine, case, tell) = (request.engine(), request.case(), request.tell());
    Ok(Grep {
        pattern: Pattern {
            text: request.pattern,
            engine: match engine {
                v1::GrepEngine::Unspecified | v1::GrepEngine::Rust => Engine::Rust,
                v1::GrepEngine::Pcre2 => Engine::Pcre2,
            },
            fixed: request.fixed,
            case: match case {
                v1::GrepCase::Unspecified | v1::GrepCase::Sensitive => Case::Sensitive,
                v1::GrepCase::Ignore => Case::Ignore,
                v1::GrepCase::Smart => Case::Smart,
            },
            word: request.word,
            whole_line: request.whole_line,
            multi_line: request.multi_line,
            dot_all: request.dot_all,
        },
        scope: scope(request.scope)?,
        invert: request.invert,
        tell: match tell {
            v1::GrepTell::Unspecified | v1::GrepTell::Lines => Tell::Lines,
            v1::GrepTell::Files => Tell::Files,
            v1::GrepTell::Counts => Tell::Counts,
        },
        before: request.before_context,
        after: request.after_context,
        binary: request.binary,
        file_limit: set(request.file_limit),
        limit: set(request.limit),
        byte_limit: set(request.byte_limit),
        file_bytes: set(request.max_file_bytes),
    })
}

fn scope(scope: Option<v1::SearchScope>) -> Result<Scope, Failure> {
    let scope = scope.unwrap_or_default();
    let paths = scope.paths.into_iter().map(|bytes| path("paths", bytes));
    let counts = |off: bool| !(off || scope.no_ignore);
    Ok(Scope {
        paths: paths.collect::<Result<_, _>>()?,
        globs: scope.globs,
        globs_ignore_case: scope.globs_ignore_case,
        types: scope.types,
        types_not: scope.types_not,
        hidden: scope.hidden,
        ignore: Ignore {
            dot: counts(scope.no_ignore_dot),
            git: counts(scope.no_ignore_vcs),
            exclude: counts(scope.no_ignore_vcs || scope.no_ignore_exclude),
            global: counts(scope.no_ignore_vcs || scope.no_ignore_global),
            above: counts(scope.no_ignore_parent),
            in_repositories: !scope.no_require_git,
        },
        depth: set(scope.max_depth),
    })
}

/// 0 stands for what is not said.
fn set<T: Default + PartialEq>(value: T) -> Option<T> {
    (value != T::default()).then_some(value)
}

/// One path.
pub(in crate::service) fn entry(entry: Entry) -> v1::GlobEntry {
    v1::GlobEntry {
        path: entry.path,
        kind: kind(entry.kind).into(),
    }
}

/// One file with a match.
pub(in crate::service) fn file(file: FileMatches) -> v1::GrepFile {
    v1::GrepFile {
        path: file.path,
        lines: file.lines.into_iter().map(line).collect(),
        matches: file.matches,
        continued: file.continued,
        cut: file.cut,
    }
}

fn line(line: Line) -> v1::GrepLine {
    let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    let spans = line.spans.iter().map(|(start, end)| v1::GrepSpan {
        start: place(*start),
        end: place(*end),
    });
    v1::GrepLine {
        number: line.number,
        offset: line.offset,
        column: line.column,
        context: line.context,
        clipped: line.is_clipped(),
        length: line.length,
        text_start: line.text_start,
        spans: spans.collect(),
        text: line.text,
    }
}

/// The end of a search.
pub(in crate::service) fn summary(summary: &Summary) -> v1::SearchSummary {
    let counts = &summary.counts;
    let problems = counts.problems.iter().map(|problem| v1::SearchProblem {
        path: problem.path.clone(),
        message: problem.message.clone(),
    });
    v1::SearchSummary {
        matches: counts.matches,
        files_matched: counts.files_matched,
        files: counts.files,
        directories: counts.directories,
        bytes: counts.bytes,
        complete: summary.is_complete(),
        limit_reached: summary.limit_reached,
        lines_clipped: counts.lines_clipped,
        files_cut: counts.files_cut,
        ignored: counts.ignored,
        hidden: counts.hidden,
        filtered: counts.filtered,
        too_deep: counts.too_deep,
        links: counts.links,
        special: counts.special,
        secret: counts.secret,
        binary: counts.binary,
        too_large: counts.too_large,
        unreadable: counts.unreadable,
        problems: problems.collect(),
    }
}
