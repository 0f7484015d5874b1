//! Pages and the requests for them.

use std::time::Duration;

use executor_proto::id::ProcessId;
use executor_proto::reason::Failure;
use executor_proto::v1;

use super::check::{count, duration, id, invalid, size, text};
use super::start::PAGE_DEFAULT;
use crate::limits::Limits;
use crate::process::log::{Page, Stream};

/// A page.
pub(in crate::service) fn page(page: Page) -> v1::OutputPage {
    v1::OutputPage {
        gap: page.gap.map(|gap| v1::OutputGap {
            from: gap.from,
            to: gap.to,
            newlines: gap.newlines,
        }),
        start: page.start,
        next_cursor: page.next_cursor(),
        runs: page
            .runs
            .iter()
            .map(|run| v1::StreamRun {
                stream: match run.stream {
                    Stream::Stdout => v1::OutputStream::Stdout,
                    Stream::Stderr => v1::OutputStream::Stderr,
                }
                .into(),
                length: count(run.length),
            })
            .collect(),
        end: page.end,
        data: page.data,
    }
}

/// A `ReadOutputRequest` that can be answered.
#[derive(Debug)]
pub(in crate::service) struct CheckedRead {
    pub(in crate::service) process: ProcessId,
    pub(in crate::service) cursor: u64,
    pub(in crate::service) max_bytes: usize,
    pub(in crate::service) wait: Duration,
    pub(in crate::service) all_sessions: bool,
}

impl CheckedRead {
    /// Checks a request.
    pub(in crate::service) fn new(
        request: &v1::ReadOutputRequest,
        limits: &Limits,
    ) -> Result<Self, Failure> {
        Ok(Self {
            process: id("process_id", &request.process_id)?,
            cursor: request.cursor,
            max_bytes: size(
                "max_bytes",
                request.max_bytes,
                PAGE_DEFAULT,
                limits.read_page_bytes,
            )?,
            wait: wait(request.wait, limits)?,
            all_sessions: request.all_sessions,
        })
    }
}

/// A `wait` of any call.
pub(in crate::service) fn wait(
    value: Option<prost_types::Duration>,
    limits: &Limits,
) -> Result<Duration, Failure> {
    let max = Duration::from_secs(limits.wait_seconds as u64);
    duration("wait", value, Duration::ZERO, max)
}

/// The first message of a `StreamOutput`.
#[derive(Debug)]
pub(in crate::service) struct CheckedOpen {
    pub(in crate::service) process: ProcessId,
    pub(in crate::service) cursor: u64,
    pub(in crate::service) reader: Option<String>,
    pub(in crate::service) all_sessions: bool,
}

impl CheckedOpen {
    /// Checks the first message; `None`: the client sent none.
    pub(in crate::service) fn new(first: Option<v1::StreamOutputRequest>) -> Result<Self, Failure> {
        use v1::stream_output_request::Message;
        let Some(Message::Open(open)) = first.and_then(|request| request.message) else {
            return Err(invalid(
                "open",
                "the first message of the stream must be `open`",
            ));
        };
        Ok(Self {
            process: id("open.process_id", &open.process_id)?,
            cursor: open.cursor,
            reader: if open.reader_id.is_empty() {
                None
            } else {
                Some(text("open.reader_id", open.reader_id, 1, 64)?)
            },
            all_sessions: open.all_sessions,
        })
    }
}
