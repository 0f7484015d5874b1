//! How lines end. Only `\n` ends one, with an optional `\r` before it; a `\r`
//! alone is text.

use std::borrow::Cow;

/// How the lines of a text end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LineEnding {
    /// No line has an end.
    #[default]
    None,
    /// All with `\n`.
    Lf,
    /// All with `\r\n`.
    CrLf,
    /// Some so, some so.
    Mixed,
}

impl LineEnding {
    /// What the lines of `text` end with.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut found = Self::None;
        for at in memchr::memchr_iter(b'\n', bytes) {
            let carriage = at.checked_sub(1).and_then(|before| bytes.get(before)) == Some(&b'\r');
            found = found.and(if carriage { Self::CrLf } else { Self::Lf });
            if found == Self::Mixed {
                break;
            }
        }
        found
    }

    /// That of two texts, one after the other. A `\r\n` must not be cut between
    /// them.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, one) | (one, Self::None) => one,
            (one, two) if one == two => one,
            _ => Self::Mixed,
        }
    }
}

/// `text` with every line ending `\n`.
#[must_use]
pub fn to_lf(text: &str) -> Cow<'_, str> {
    if memchr::memmem::find(text.as_bytes(), b"\r\n").is_none() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace("\r\n", "\n"))
}

/// `text` with every line ending `\r\n`.
#[must_use]
pub fn to_crlf(text: &str) -> Cow<'_, str> {
    match LineEnding::of(text) {
        LineEnding::None | LineEnding::CrLf => Cow::Borrowed(text),
        LineEnding::Lf => Cow::Owned(text.replace('\n', "\r\n")),
        LineEnding::Mixed => Cow::Owned(to_lf(text).replace('\n', "\r\n")),
    }
}
