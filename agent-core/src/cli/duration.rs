//! Times as people write them: `10s`, `5m`, `1h30m`, `500ms`; a bare number is
//! seconds.

use std::time::Duration;

const RULE: &str = "a time is written 500ms, 10s, 5m, 1h30m or 2d; a bare number is seconds";

/// Reads a time.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time: {RULE}");
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).map_err(|_| wrong());
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, after) = rest.split_at(digits);
        let letters = after
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, next) = after.split_at(letters);
        let milliseconds: u64 = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(wrong()),
        };
        let part = number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(milliseconds))
            .map(Duration::from_millis)
            .ok_or_else(wrong)?;
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = next;
    }
    if text.is_empty() {
        return Err(wrong());
    }
    Ok(total)
}

/// A time in its two largest units, for people: `3s`, `5m12s`, `2h3m`, `4d1h`.
pub(crate) fn short(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{}s", seconds % 60),
        (0, _, _) => format!("{hours}h{}m", minutes % 60),
        _ => format!("{days}d{}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, milliseconds) in [
            ("10s", 10_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("500ms", 500),
            ("1m500ms", 60_500),
            ("2d", 172_800_000),
            ("7", 7_000),
            ("0.25", 250),
            ("0", 0),
        ] {
            let expected = Duration::from_millis(milliseconds);
            assert_eq!(parse_duration(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused_with_the_rule() {
        for text in [
            "",
            "s",
            "10x",
            "-1",
            "1.5h",
            "10 s",
            "1h30",
            "nan",
            "inf",
            "99999999999999999999s",
            "1é",
            "é",
        ] {
            let error = parse_duration(text).unwrap_err();
            assert!(error.contains("1h30m"), "{error}");
        }
    }

    #[test]
    fn ages_are_short() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (61, "1m1s"),
            (7_384, "2h3m"),
            (349_200, "4d1h"),
        ] {
            assert_eq!(short(Duration::from_secs(seconds)), text);
        }
    }
}
