//! Input, signals and stops.

use std::time::Duration;

use executor_proto::id::ProcessId;
use executor_proto::reason::Failure;
use executor_proto::v1;

use super::check::{GRACE_DEFAULT, GRACE_MAX, duration, id, invalid, number, text};
use super::output::wait;
use crate::limits::Limits;
use crate::process::control::{SignalTarget, StdinWrite, StopMode};

/// A `WriteStdinRequest` that can be carried out.
pub(in crate::service) struct CheckedWrite {
    pub(in crate::service) process: ProcessId,
    pub(in crate::service) write: StdinWrite,
    pub(in crate::service) wait: Duration,
    pub(in crate::service) all_sessions: bool,
}

impl CheckedWrite {
    /// Checks a request.
    pub(in crate::service) fn new(
        request: v1::WriteStdinRequest,
        limits: &Limits,
    ) -> Result<Self, Failure> {
        let (length, limit) = (request.data.len(), limits.stdin_write_bytes);
        if length > limit {
            return Err(invalid(
                "data",
                format_args!(
                    "{length} bytes; one write has at most {limit} (stdin_write_bytes). \
                     Send it in several"
                ),
            )
            .with("limit", "stdin_write_bytes"));
        }
        if request.offset.checked_add(length as u64).is_none() {
            return Err(invalid(
                "offset",
                format_args!("{} is no offset that can be reached", request.offset),
            ));
        }
        Ok(Self {
            process: id("process_id", &request.process_id)?,
            write: StdinWrite {
                writer: text("writer_id", request.writer_id, 1, 64)?,
                offset: request.offset,
                data: request.data,
                close: request.close,
            },
            wait: wait(request.wait, limits)?,
            all_sessions: request.all_sessions,
        })
    }
}

/// A signal's number.
pub(in crate::service) fn signal(number: i32) -> Result<i32, Failure> {
    if (1..=64).contains(&number) {
        return Ok(number);
    }
    Err(invalid(
        "signal",
        format_args!("{number} is out of range; signals are 1 to 64"),
    ))
}

/// Who gets a signal.
pub(in crate::service) fn signal_target(value: i32) -> Result<SignalTarget, Failure> {
    Ok(match number("target", value)? {
        v1::SignalTarget::Unspecified | v1::SignalTarget::Leader => SignalTarget::Leader,
        v1::SignalTarget::Group => SignalTarget::Group,
    })
}

/// How to stop. A grace is checked in every mode, and used in one.
pub(in crate::service) fn stop_mode(
    mode: i32,
    grace: Option<prost_types::Duration>,
) -> Result<StopMode, Failure> {
    let grace = self::grace(grace)?;
    Ok(match number("mode", mode)? {
        v1::StopMode::Interrupt => StopMode::Interrupt,
        v1::StopMode::Unspecified | v1::StopMode::Terminate => StopMode::Terminate { grace },
        v1::StopMode::Kill => StopMode::Kill,
    })
}

/// The time between SIGTERM and SIGKILL.
pub(in crate::service) fn grace(value: Option<prost_types::Duration>) -> Result<Duration, Failure> {
    duration("grace", value, GRACE_DEFAULT, GRACE_MAX)
}
