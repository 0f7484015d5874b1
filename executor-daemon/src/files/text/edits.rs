//! Exact text replaced by other text, edit after edit, all or none.
//!
//! An edit matches bytes, never "nearly": whitespace, case, quotes and `$` mean
//! themselves, in `old` as in `new`. Only line endings are met half-way: an
//! `old` that is nowhere as given, and is somewhere with all its line ends
//! written the other way, matches there, and `new` is then written that way too.
//! The matched region so has one style; one that mixes both matches only as it
//! stands.
//!
//! Everything here is linear in the text, whatever it and the edit are.

use std::borrow::Cow;

use memchr::memmem::Finder;

use super::line_ending::{LineEnding, to_crlf, to_lf};
use super::nearest::{self, Nearest};

/// How many lines an error lists.
const LISTED_LINES: usize = 20;

/// One replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// What is there.
    pub old: String,
    /// What is to be there.
    pub new: String,
    /// Every occurrence (from the left, none overlapping another) instead of
    /// the only one.
    pub replace_all: bool,
}

/// What the edits made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The new text.
    pub text: String,
    /// Occurrences replaced, by edit.
    pub replacements: Vec<u32>,
    /// Line endings of an edit were taken as the file's.
    pub line_endings_adapted: bool,
}

/// Why nothing was changed. `edit` counts from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// Empty text is everywhere.
    #[error(
        "{} old text is empty; give the text to replace, or write the whole file to create or fill it",
        whose(*edit)
    )]
    Empty {
        /// Which.
        edit: usize,
    },
    /// Nothing would change.
    #[error("{} old text and its new text are the same; nothing would change", whose(*edit))]
    Unchanged {
        /// Which.
        edit: usize,
    },
    /// The text is nowhere.
    #[error("{} old text was not found{}{}", whose(*edit), after(*edit), described(nearest.as_deref()))]
    NotFound {
        /// Which.
        edit: usize,
        /// What is most like it.
        nearest: Option<Box<Nearest>>,
    },
    /// The text is in several places.
    #[error(
        "{} old text was found {count} times{} on {}; add text around it until it is unique, or set `replace_all`",
        whose(*edit), after(*edit), listed(lines, *more_lines)
    )]
    NotUnique {
        /// Which.
        edit: usize,
        /// How often, overlapping ones included.
        count: u64,
        /// Lines on which it begins, from 1, each once; the first 20.
        lines: Vec<u64>,
        /// There are more of them.
        more_lines: bool,
    },
    /// The result would be too large.
    #[error(
        "{} new text would make the file {size} bytes long; the limit is {limit} bytes",
        whose(*edit)
    )]
    TooLarge {
        /// Which.
        edit: usize,
        /// Bytes of the text it would make, as UTF-8.
        size: u64,
        /// Bytes allowed.
        limit: u64,
    },
}

/// Words, not a name of the protocol: who reads it may have called by another one.
fn whose(edit: usize) -> String {
    match edit {
        0 => "the first edit's".to_owned(),
        1 => "the second edit's".to_owned(),
        2 => "the third edit's".to_owned(),
        more => format!("the {}th edit's", more.saturating_add(1)),
    }
}

fn after(edit: usize) -> &'static str {
    if edit == 0 {
        ""
    } else {
        " in what the edits before it left"
    }
}

fn described(nearest: Option<&Nearest>) -> String {
    nearest.map_or_else(
        || "; nothing in the file is like it".to_owned(),
        |nearest| format!("; {nearest}"),
    )
}

fn listed(lines: &[u64], more: bool) -> String {
    let mut text: Vec<_> = lines.iter().map(u64::to_string).collect();
    if more {
        text.push("…".to_owned());
    }
    let kind = if text.len() == 1 { "line" } else { "lines" };
    format!("{kind} {}", text.join(", "))
}

/// Applies `edits` to `text`, each on what the one before left. No text on the
/// way may be larger than `limit` bytes. Before each one it is asked whether the
/// result is still wanted: `None` when it is not.
///
/// # Errors
/// See [`EditError`]: the first edit that does not fit.
pub fn apply(
    text: &str,
    edits: &[Edit],
    limit: u64,
    is_wanted: &dyn Fn() -> bool,
) -> Result<Option<Applied>, EditError> {
    let mut now = Cow::Borrowed(text);
    let mut replacements = Vec::with_capacity(edits.len());
    let mut line_endings_adapted = false;
    for (edit, wanted) in edits.iter().enumerate() {
        if !is_wanted() {
            return Ok(None);
        }
        if wanted.old.is_empty() {
            return Err(EditError::Empty { edit });
        }
        if wanted.old == wanted.new {
            return Err(EditError::Unchanged { edit });
        }
        let Some(fit) = Fit::of(&now, wanted) else {
            let nearest = nearest::find(&now, &wanted.old).map(Box::new);
            return Err(EditError::NotFound { edit, nearest });
        };
        if fit.old == fit.new {
            return Err(EditError::Unchanged { edit });
        }
        let (changed, count) = fit.replace(&now, edit, wanted.replace_all, limit)?;
        replacements.push(count);
        line_endings_adapted |= fit.adapted;
        now = Cow::Owned(changed);
    }
    Ok(Some(Applied {
        text: now.into_owned(),
        replacements,
        line_endings_adapted,
    }))
}

/// An edit with the line endings that match the text.
#[derive(Debug)]
struct Fit<'a> {
    old: Cow<'a, str>,
    new: Cow<'a, str>,
    adapted: bool,
}

impl<'a> Fit<'a> {
    fn of(text: &str, edit: &'a Edit) -> Option<Self> {
        if found_whole(text, &edit.old) {
            return Some(Self::as_given(text, edit));
        }
        if !edit.old.contains('\n') {
            return None;
        }
        let ways: [fn(&str) -> Cow<'_, str>; 2] = [to_crlf, to_lf];
        ways.into_iter().find_map(|way| {
            let old = way(&edit.old);
            (old != edit.old && found_whole(text, &old)).then(|| Self {
                old,
                new: way(&edit.new),
                adapted: true,
            })
        })
    }

    /// `old` is there as it was given. Where it has no line end that could tell
    /// the style, a new line takes that of the file, if the file has just one.
    fn as_given(text: &str, edit: &'a Edit) -> Self {
        let (old, new) = (Cow::Borrowed(&*edit.old), Cow::Borrowed(&*edit.new));
        let adapted = !old.contains('\n')
            && LineEnding::of(&new) == LineEnding::Lf
            && LineEnding::of(text) == LineEnding::CrLf;
        Self {
            old,
            new: if adapted { to_crlf(&edit.new) } else { new },
            adapted,
        }
    }

    fn replace(
        &self,
        text: &str,
        edit: usize,
        all: bool,
        limit: u64,
    ) -> Result<(String, u32), EditError> {
        let finder = Finder::new(self.old.as_bytes());
        let bytes = text.as_bytes();
        let count = if all {
            finder.find_iter(bytes).count() as u64
        } else {
            let first = finder.find(bytes).unwrap_or_default();
            let rest = bytes.get(first + 1..).unwrap_or_default();
            if finder.find(rest).is_some() {
                return Err(self.not_unique(text, edit));
            }
            1
        };
        let removed = count.saturating_mul(self.old.len() as u64);
        let added = count.saturating_mul(self.new.len() as u64);
        let size = (text.len() as u64)
            .saturating_sub(removed)
            .saturating_add(added);
        if size > limit {
            return Err(EditError::TooLarge { edit, size, limit });
        }
        let changed = if all {
            text.replace(&*self.old, &self.new)
        } else {
            text.replacen(&*self.old, &self.new, 1)
        };
        Ok((changed, u32::try_from(count).unwrap_or(u32::MAX)))
    }

    fn not_unique(&self, text: &str, edit: usize) -> EditError {
        let (bytes, mut lines, mut count) = (text.as_bytes(), Vec::new(), 0);
        let (mut line, mut counted) = (1, 0);
        overlapping(bytes, self.old.as_bytes(), |start| {
            count += 1;
            if lines.len() <= LISTED_LINES {
                let between = bytes.get(counted..start).unwrap_or_default();
                line += memchr::memchr_iter(b'\n', between).count() as u64;
                counted = start;
                if lines.last() != Some(&line) {
                    lines.push(line);
                }
            }
        });
        let more_lines = lines.len() > LISTED_LINES;
        lines.truncate(LISTED_LINES);
        EditError::NotUnique {
            edit,
            count,
            lines,
            more_lines,
        }
    }
}

/// Is `old` somewhere without beginning in the middle of a `\r\n`? (Its end
/// cannot cut one unnoticed: who writes a `\r` means it.)
fn found_whole(text: &str, old: &str) -> bool {
    let finder = Finder::new(old.as_bytes());
    if !old.starts_with('\n') {
        return finder.find(text.as_bytes()).is_some();
    }
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(found) = bytes.get(at..).and_then(|rest| finder.find(rest)) {
        let start = at + found;
        if start.checked_sub(1).and_then(|before| bytes.get(before)) != Some(&b'\r') {
            return true;
        }
        at = start + 1;
    }
    false
}

/// Calls `found` with every occurrence, overlapping ones too (Knuth, Morris,
/// Pratt: linear, where a search from every occurrence is not).
fn overlapping(text: &[u8], pattern: &[u8], mut found: impl FnMut(usize)) {
    let same = |byte: u8, at: usize| pattern.get(at) == Some(&byte);
    // Of each prefix, the longest proper prefix that also ends it.
    let mut borders: Vec<u32> = Vec::with_capacity(pattern.len());
    let border = |borders: &[u32], length: usize| {
        let last = length.checked_sub(1).and_then(|at| borders.get(at));
        last.map_or(0, |border| *border as usize)
    };
    for (at, byte) in pattern.iter().enumerate() {
        let mut length = border(&borders, at);
        while length > 0 && !same(*byte, length) {
            length = border(&borders, length);
        }
        let grows = at > 0 && same(*byte, length);
        borders.push(u32::try_from(length + usize::from(grows)).unwrap_or(u32::MAX));
    }
    let mut matched = 0;
    for (at, byte) in text.iter().enumerate() {
        while matched > 0 && !same(*byte, matched) {
            matched = border(&borders, matched);
        }
        matched += usize::from(same(*byte, matched));
        if matched == pattern.len() {
            found(at + 1 - matched);
            matched = border(&borders, matched);
        }
    }
}
