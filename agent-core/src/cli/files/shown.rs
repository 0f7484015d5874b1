//! Names and facts of files as people see them.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use executor_client::v1::{self, FileKind};

/// A name on one line. One that is plain text stands as it is; else control
/// characters, bytes that are no text, and backslashes are escaped, so that two
/// names never look the same.
pub(super) fn name(bytes: &[u8]) -> String {
    let plain = std::str::from_utf8(bytes).is_ok_and(|text| !text.chars().any(is_odd));
    if plain {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    let mut shown = String::new();
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\n' => shown.push_str("\\n"),
                '\t' => shown.push_str("\\t"),
                '\r' => shown.push_str("\\r"),
                '\\' => shown.push_str("\\\\"),
                other if is_odd(other) => {
                    // Writing to a String does not fail.
                    let _ = write!(shown, "\\u{{{:x}}}", u32::from(other));
                }
                other => shown.push(other),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

/// Cannot be seen, or makes others be seen elsewhere.
fn is_odd(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// The word for a kind.
pub(super) fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Unspecified => "unknown",
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Link => "link",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharacterDevice => "character device",
        FileKind::BlockDevice => "block device",
    }
}

/// What follows a name to tell its kind, as `ls -F` does.
pub(super) fn mark(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Directory => "/",
        FileKind::Link => "@",
        FileKind::Fifo => "|",
        FileKind::Socket => "=",
        _ => "",
    }
}

/// Kind and permission bits as `ls -l` writes them.
pub(super) fn mode(kind: FileKind, mode: u32) -> String {
    let letter = match kind {
        FileKind::Directory => 'd',
        FileKind::Link => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::CharacterDevice => 'c',
        FileKind::BlockDevice => 'b',
        FileKind::Regular | FileKind::Unspecified => '-',
    };
    let mut text = String::from(letter);
    for (shift, special, set, unset) in [
        (6, 0o4000, 's', 'S'),
        (3, 0o2000, 's', 'S'),
        (0, 0o1000, 't', 'T'),
    ] {
        let bits = mode >> shift;
        text.push(if bits & 4 == 0 { '-' } else { 'r' });
        text.push(if bits & 2 == 0 { '-' } else { 'w' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, true) => set,
            (true, false) => unset,
        });
    }
    text
}

/// A time in UTC, to the second.
pub(super) fn time(seconds: Option<i64>) -> String {
    let Some(at) = seconds else {
        return "-".into();
    };
    let (days, rest) = (at.div_euclid(86_400), at.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// The date of a day counted from 1970-01-01, in the Gregorian calendar: years
/// begin in March, so that the leap day is their last.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// Seconds since 1970 of a time on the wire.
pub(super) fn seconds(entry: &v1::DirectoryEntry) -> Option<i64> {
    let at = SystemTime::try_from(entry.modified_at?).ok()?;
    match at.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_secs()).ok(),
        Err(before) => i64::try_from(before.duration().as_secs()).ok().map(|s| -s),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_names_never_look_the_same() {
        for (bytes, shown) in [
            (&b"plain name.txt"[..], "plain name.txt"),
            ("caf\u{e9} \u{8a9e}".as_bytes(), "caf\u{e9} \u{8a9e}"),
            (b"back\\slash", "back\\slash"),
            (b"\xff.txt", "\\xff.txt"),
            (b"\\xff.txt\n", "\\\\xff.txt\\n"),
            (b"a\nb\x1b[31m", "a\\nb\\u{1b}[31m"),
            ("a\u{202e}b".as_bytes(), "a\\u{202e}b"),
        ] {
            assert_eq!(name(bytes), shown);
        }
    }

    #[test]
    fn modes_are_written_as_ls_writes_them() {
        for (kind, bits, text) in [
            (FileKind::Regular, 0o644, "-rw-r--r--"),
            (FileKind::Directory, 0o1777, "drwxrwxrwt"),
            (FileKind::Regular, 0o4755, "-rwsr-xr-x"),
            (FileKind::Regular, 0o2600, "-rw---S---"),
            (FileKind::Link, 0o777, "lrwxrwxrwx"),
        ] {
            assert_eq!(mode(kind, bits), text);
        }
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_709_251_200, "2024-03-01 00:00:00"),
            (4_107_542_400, "2100-03-01 00:00:00"),
            (-1, "1969-12-31 23:59:59"),
        ] {
            assert_eq!(time(Some(seconds)), text);
        }
    }
}
