//! Reading.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use executor_proto::reason::Failure;
use executor_proto::v1;

use super::super::check::invalid;
use super::{bytes, info, kind, label, path, time};
use crate::files::entry::Last;
use crate::files::list::{LIMIT_DEFAULT, Listed, Options, Summary};
use crate::files::object::Facts;
use crate::files::read_lines::{Lines, ReadLines};
use crate::files::stat::Stat;
use crate::files::text::line_ending::LineEnding;
use crate::files::version::{Digest, Version};
use crate::limits::Limits;

/// A `StatFileRequest`.
pub(in crate::service) struct CheckedStat {
    pub(in crate::service) path: PathBuf,
    pub(in crate::service) last: Last,
    pub(in crate::service) with_digest: bool,
}

impl CheckedStat {
    /// Checks a request.
    pub(in crate::service) fn new(request: v1::StatFileRequest) -> Result<Self, Failure> {
        Ok(Self {
            path: path("path", request.path)?,
            last: if request.no_follow {
                Last::Keep
            } else {
                Last::Follow
            },
            with_digest: request.with_digest,
        })
    }
}

/// What a name leads to.
pub(in crate::service) fn stat(stat: &Stat) -> v1::StatFileResponse {
    v1::StatFileResponse {
        file: Some(info(&stat.path, &stat.facts, stat.link_target.as_deref())),
        digest: digest(stat.digest),
    }
}

/// A page that is asked for.
pub(in crate::service) fn read_lines(
    request: v1::ReadLinesRequest,
    limits: &Limits,
) -> Result<(PathBuf, ReadLines), Failure> {
    let default = ReadLines::default();
    let asked = ReadLines {
        offset: request.offset.unwrap_or(default.offset),
        limit: request
            .limit
            .unwrap_or(default.limit.min(limits.file_read_lines)),
        limit_max: limits.file_read_lines,
        encoding: label(request.encoding),
        clip_long_lines: request.clip_long_lines,
        in_line: request.in_line,
        page_bytes: limits.read_page_bytes,
    };
    Ok((path("path", request.path)?, asked))
}

/// A page.
pub(in crate::service) fn lines(lines: Lines) -> v1::ReadLinesResponse {
    v1::ReadLinesResponse {
        file: Some(info(&lines.path, &lines.facts, None)),
        first_line: lines.first_line,
        lines: lines.lines,
        next_offset: lines.next_offset,
        next_in_line: lines.next_in_line,
        total_lines: lines.total_lines,
        digest: digest(lines.digest),
        encoding: lines.encoding.name().to_owned(),
        bom: lines.encoding.has_bom(),
        line_ending: line_ending(lines.line_ending).into(),
        unterminated: lines.unterminated,
        text: Bytes::from(lines.text),
    }
}

fn line_ending(ending: LineEnding) -> v1::LineEnding {
    match ending {
        LineEnding::None => v1::LineEnding::None,
        LineEnding::Lf => v1::LineEnding::Lf,
        LineEnding::CrLf => v1::LineEnding::Crlf,
        LineEnding::Mixed => v1::LineEnding::Mixed,
    }
}

/// A `ReadBytesRequest`.
pub(in crate::service) struct CheckedRange {
    pub(in crate::service) path: PathBuf,
    pub(in crate::service) offset: u64,
    pub(in crate::service) length: Option<u64>,
    pub(in crate::service) version: Option<Version>,
}

impl CheckedRange {
    /// Checks a request.
    pub(in crate::service) fn new(request: v1::ReadBytesRequest) -> Result<Self, Failure> {
        let version = label(request.version).map(|text| text.parse());
        Ok(Self {
            path: path("path", request.path)?,
            offset: request.offset,
            length: request.length,
            version: version
                .transpose()
                .map_err(|error| invalid("version", error))?,
        })
    }
}

/// The first message of a range.
pub(in crate::service) fn range_begins(
    path: &Path,
    facts: &Facts,
    offset: u64,
) -> v1::ReadBytesResponse {
    v1::ReadBytesResponse {
        file: Some(info(path, facts, None)),
        offset,
        data: Bytes::new(),
    }
}

/// A listing that is asked for.
pub(in crate::service) fn list_options(
    request: v1::ListDirectoryRequest,
    limits: &Limits,
) -> Result<(PathBuf, Options), Failure> {
    let options = Options {
        depth: request.depth.max(1),
        gitignore: request.gitignore,
        skip_hidden: request.skip_hidden,
        limit: if request.limit == 0 {
            LIMIT_DEFAULT.min(limits.file_list_entries)
        } else {
            request.limit
        },
        limit_max: limits.file_list_entries,
    };
    Ok((path("path", request.path)?, options))
}

/// An entry of a directory.
pub(in crate::service) fn listed(entry: Listed) -> v1::DirectoryEntry {
    use std::os::unix::ffi::OsStringExt;
    v1::DirectoryEntry {
        path: bytes(&entry.path),
        kind: kind(entry.facts.kind).into(),
        size: entry.facts.size,
        mode: entry.facts.mode,
        modified_at: Some(time(entry.facts.mtime)),
        link_target: entry
            .link_target
            .map(OsStringExt::into_vec)
            .unwrap_or_default(),
    }
}

/// The end of a listing.
pub(in crate::service) fn summary(summary: &Summary) -> v1::ListSummary {
    v1::ListSummary {
        path: bytes(&summary.path),
        entries: summary.entries,
        ignored: summary.ignored,
        limit_reached: summary.limit_reached,
        problems: summary
            .problems
            .iter()
            .map(|(path, message)| v1::ListProblem {
                path: bytes(path),
                message: message.clone(),
            })
            .collect(),
        unreadable: summary.unreadable,
    }
}

fn digest(digest: Option<Digest>) -> String {
    digest.map(|digest| digest.to_string()).unwrap_or_default()
}
