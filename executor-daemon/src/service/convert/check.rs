//! Checks of single fields.

use std::fmt::Display;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use executor_proto::reason::{Failure, Reason};

/// Longest time between SIGTERM and SIGKILL.
pub(in crate::service) const GRACE_MAX: Duration = Duration::from_secs(60);
/// The time between them where a request names none.
pub(in crate::service) const GRACE_DEFAULT: Duration = Duration::from_secs(2);

/// A field is missing or out of its range.
pub(in crate::service) fn invalid(field: &str, message: impl Display) -> Failure {
    Failure::new(Reason::InvalidArgument, format!("{field}: {message}")).with("field", field)
}

/// An identifier of ours.
pub(in crate::service) fn id<T>(field: &str, text: &str) -> Result<T, Failure>
where
    T: FromStr,
    T::Err: Display,
{
    text.parse().map_err(|error| invalid(field, error))
}

/// An enum's number; what it means when unspecified is the caller's.
pub(in crate::service) fn number<T>(field: &str, value: i32) -> Result<T, Failure>
where
    T: TryFrom<i32>,
{
    T::try_from(value).map_err(|_| {
        invalid(
            field,
            format_args!("{value} is not a value of this protocol version"),
        )
    })
}

/// A duration that is not negative and at most `max`; `default` when unset.
pub(in crate::service) fn duration(
    field: &str,
    value: Option<prost_types::Duration>,
    default: Duration,
    max: Duration,
) -> Result<Duration, Failure> {
    let Some(value) = value else {
        return Ok(default);
    };
    let value = not_negative(field, value)?;
    if value > max {
        let (asked, max) = (value.as_secs_f64(), max.as_secs());
        return Err(invalid(
            field,
            format_args!("{asked} s is above the limit of {max} s"),
        ));
    }
    Ok(value)
}

/// A time that ends something: above zero, or unset.
pub(in crate::service) fn timeout(
    field: &str,
    value: Option<prost_types::Duration>,
) -> Result<Option<Duration>, Failure> {
    let Some(value) = value else {
        return Ok(None);
    };
    let value = not_negative(field, value)?;
    if value.is_zero() {
        return Err(invalid(
            field,
            "0 s would end it at once; leave it unset for no limit",
        ));
    }
    Ok(Some(value))
}

fn not_negative(field: &str, value: prost_types::Duration) -> Result<Duration, Failure> {
    let (seconds, nanos) = (value.seconds, value.nanos);
    // google.protobuf.Duration: the parts have one sign, nanos stay below a
    // second, and ten thousand years are the most.
    let seconds = u64::try_from(seconds)
        .ok()
        .filter(|s| *s <= 315_576_000_000);
    let nanos = u32::try_from(nanos).ok().filter(|n| *n < 1_000_000_000);
    match (seconds, nanos) {
        (Some(seconds), Some(nanos)) => Ok(Duration::new(seconds, nanos)),
        _ => Err(invalid(
            field,
            format_args!(
                "{} s and {} ns are not a duration of 0 s or more",
                value.seconds, value.nanos
            ),
        )),
    }
}

/// A moment that must be given.
pub(in crate::service) fn time(
    field: &str,
    value: Option<prost_types::Timestamp>,
) -> Result<SystemTime, Failure> {
    let value = value.ok_or_else(|| invalid(field, "it must be set to the client's time"))?;
    let valid =
        (0..1_000_000_000).contains(&value.nanos) && (0..=253_402_300_799).contains(&value.seconds);
    let time = valid.then(|| SystemTime::try_from(value).ok()).flatten();
    time.ok_or_else(|| {
        invalid(
            field,
            format_args!(
                "{} s and {} ns are not a time from 1970 to 9999",
                value.seconds, value.nanos
            ),
        )
    })
}

/// A text of `min` to `max` characters.
pub(in crate::service) fn text(
    field: &str,
    value: String,
    min: usize,
    max: usize,
) -> Result<String, Failure> {
    let length = value.chars().count();
    if (min..=max).contains(&length) {
        Ok(value)
    } else {
        Err(invalid(
            field,
            format_args!("{length} characters; it must have {min} to {max}"),
        ))
    }
}

/// A size that may be left to the default.
pub(in crate::service) fn size(
    field: &str,
    value: u32,
    default: usize,
    max: usize,
) -> Result<usize, Failure> {
    match usize::try_from(value) {
        Ok(0) => Ok(default.min(max)),
        Ok(value) if value <= max => Ok(value),
        _ => Err(invalid(
            field,
            format_args!("{value} is above the limit of {max} bytes"),
        )),
    }
}

/// A count on its way to a `uint32`.
pub(in crate::service) fn count(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// A length on its way to a `uint64`.
pub(in crate::service) fn length(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}
