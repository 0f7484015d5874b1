//! Lines that stand for text somebody left out, such as
//! `// ... rest unchanged`: written into a file they destroy what they stand for.
//!
//! A line is one when all of it is a comment, or begins with an ellipsis, and it
//! has an ellipsis at an end of its words, and the words speak of text that is
//! left as it is. A line that the old content has already is none.

use std::collections::HashSet;

/// A line that stands for others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elision {
    /// Its number in the new content, from 1.
    pub line: u64,
    /// Its text, at most 120 characters.
    pub text: String,
}

/// What comments begin with, longest first where one begins another.
const OPENERS: [&str; 12] = [
    "<!--", "{/*", "/**", "/*", "//", "--", "#", ";", "%", "*", "\"\"\"", "'",
];
const CLOSERS: [&str; 5] = ["-->", "*/}", "*/", "\"\"\"", "]"];
const ELLIPSES: [&str; 2] = ["...", "\u{2026}"];

/// Each alone says that text is left out or kept.
const KEPT: [&str; 13] = [
    "unchanged",
    "omitted",
    "unmodified",
    "truncated",
    "elided",
    "snipped",
    "as before",
    "as above",
    "remains the same",
    "remain the same",
    "stays the same",
    "same as original",
    "keep existing",
];
/// One of these, and one of [`THINGS`], do so together.
const REST: [&str; 9] = [
    "rest of",
    "rest",
    "remaining",
    "existing",
    "previous",
    "other",
    "original",
    "more",
    "same",
];
const THINGS: [&str; 19] = [
    "code",
    "file",
    "content",
    "contents",
    "lines",
    "function",
    "functions",
    "method",
    "methods",
    "class",
    "implementation",
    "imports",
    "logic",
    "fields",
    "tests",
    "text",
    "entries",
    "items",
    "the same",
];

/// The first line of `new` that stands for text left out and is no line of
/// `old`.
#[must_use]
pub fn find(old: &str, new: &str) -> Option<Elision> {
    let mut known: Option<HashSet<&str>> = None;
    for (at, line) in new.lines().enumerate() {
        let line = line.trim();
        if !stands_for_others(line) {
            continue;
        }
        let known = known.get_or_insert_with(|| old.lines().map(str::trim).collect());
        if !known.contains(line) {
            return Some(Elision {
                line: at as u64 + 1,
                text: line.chars().take(120).collect(),
            });
        }
    }
    None
}

fn stands_for_others(line: &str) -> bool {
    // Nobody writes more than a remark.
    if line.len() > 200 || !ELLIPSES.iter().any(|dots| line.contains(dots)) {
        return false;
    }
    let opener = OPENERS.iter().find_map(|opener| line.strip_prefix(opener));
    let (commented, words) = (opener.is_some(), opener.unwrap_or(line));
    let words = words.trim_start_matches(['[', '(', '<', '{', ' ', '*', '/', '#', '-']);
    let words = CLOSERS
        .iter()
        .fold(words.trim(), |words, closer| {
            words.trim_end_matches(closer).trim_end()
        })
        .trim_end_matches([')', '>', '}', ' ']);
    let begins = ELLIPSES.iter().any(|dots| words.starts_with(dots));
    let ends = ELLIPSES.iter().any(|dots| words.ends_with(dots));
    if !(begins || (commented && ends)) {
        return false;
    }
    let words = words.to_lowercase();
    let words = words.trim_matches(['.', '\u{2026}', ' ', ',', ':', ')', '(', ']', '[']);
    // Code that happens to begin with an ellipsis (spread, varargs, ranges).
    if words.is_empty()
        || (!commented && (!words.contains(' ') || words.contains(['=', ';', '{', '"'])))
    {
        return false;
    }
    let has = |phrase: &&str| {
        words.match_indices(*phrase).any(|(at, found)| {
            let before = words.get(..at).and_then(|text| text.chars().next_back());
            let after = words
                .get(at + found.len()..)
                .and_then(|text| text.chars().next());
            !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
        })
    };
    let bare_rest = commented && (words == "rest" || words == "the rest" || words == "etc");
    KEPT.iter().any(&has) || bare_rest || (REST.iter().any(&has) && THINGS.iter().any(has))
}
