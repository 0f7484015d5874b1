//! A pattern and the engine that finds it.
//!
//! `rust` takes time in proportion to the text, whatever the pattern; `pcre2`
//! has look-around and back-references, and gives up where it would take too
//! long. Both know `\r\n` as the end of a line.

use std::fmt;

use grep_matcher::{LineMatchKind, LineTerminator, Match, NoCaptures};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use regex_syntax::ast;

use super::super::error::FileError;

/// Bytes of a pattern.
pub const PATTERN_BYTES: usize = 64 << 10;
/// Bytes that a compiled pattern may take.
const COMPILED_BYTES: usize = 10 << 20;
/// Bytes that the rust engine may keep while it searches, for each thread.
const CACHE_BYTES: usize = 32 << 20;
/// Steps that pcre2 may take at one place (pcre2pattern(3), `LIMIT_MATCH`).
const STEPS: u32 = 1_000_000;
/// KiB of memory that pcre2 may take for one match.
const HEAP_KIB: u32 = 64 << 10;
/// Bytes of stack for pcre2's compiled patterns.
const JIT_STACK: usize = 1 << 20;

/// Which engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Engine {
    /// The regex crate's language.
    #[default]
    Rust,
    /// Perl's.
    Pcre2,
}

impl Engine {
    fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Pcre2 => "pcre2",
        }
    }
}

/// Whether upper and lower case differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Case {
    /// They do.
    #[default]
    Sensitive,
    /// They do not.
    Ignore,
    /// They do if the pattern has an upper case letter.
    Smart,
}

/// What is looked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pattern {
    /// As it was given.
    pub text: String,
    /// See there.
    pub engine: Engine,
    /// Not a regular expression but what it says.
    pub fixed: bool,
    /// See there.
    pub case: Case,
    /// Only where no letter, digit or `_` is beside it.
    pub word: bool,
    /// Only whole lines.
    pub whole_line: bool,
    /// A match may have several lines.
    pub multi_line: bool,
    /// With `multi_line`: `.` matches a line ending.
    pub dot_all: bool,
}

/// A compiled pattern. Cheap to clone.
#[derive(Clone)]
pub(super) struct Matcher(Compiled);

#[derive(Clone)]
enum Compiled {
    Rust(RegexMatcher),
    Pcre2(pcre2::bytes::Regex),
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matcher").finish_non_exhaustive()
    }
}

impl Matcher {
    /// # Errors
    /// [`FileError::Pattern`] for what the engine does not take;
    /// [`FileError::InvalidArgument`] for a pattern that is too long.
    pub(super) fn new(pattern: &Pattern) -> Result<Self, FileError> {
        let size = pattern.text.len();
        if size > PATTERN_BYTES {
            return Err(FileError::InvalidArgument {
                field: "pattern",
                why: format!("it has {size} bytes, above the limit of {PATTERN_BYTES}"),
            });
        }
        let compiled = match pattern.engine {
            Engine::Rust => rust(pattern).map(Compiled::Rust),
            Engine::Pcre2 => perl(pattern).map(Compiled::Pcre2),
        };
        let (offset, why) = match compiled {
            Ok(compiled) => return Ok(Self(compiled)),
            Err(wrong) => wrong,
        };
        Err(FileError::Pattern {
            field: "pattern",
            engine: pattern.engine.name(),
            offset,
            why: match offset {
                Some(offset) => format!("{why}, at byte {offset}"),
                None => why,
            },
        })
    }
}

/// Where in the pattern, and what.
type Wrong = (Option<usize>, String);

fn rust(pattern: &Pattern) -> Result<RegexMatcher, Wrong> {
    if !pattern.fixed {
        check(&pattern.text)?;
    }
    let mut builder = RegexMatcherBuilder::new();
    builder
        .fixed_strings(pattern.fixed)
        .case_insensitive(pattern.case == Case::Ignore)
        .case_smart(pattern.case == Case::Smart)
        .word(pattern.word && !pattern.whole_line)
        .whole_line(pattern.whole_line)
        .multi_line(true)
        .dot_matches_new_line(pattern.multi_line && pattern.dot_all)
        .crlf(true)
        .size_limit(COMPILED_BYTES)
        .dfa_size_limit(CACHE_BYTES);
    if pattern.multi_line {
        builder.line_terminator(None);
    }
    builder.build(&pattern.text).map_err(|error| {
        let why = match error.kind() {
            grep_regex::ErrorKind::NotAllowed(literal) => format!(
                "it matches {literal:?}, the end of a line; set `multi_line` to find what has \
                 several lines"
            ),
            _ => error.to_string(),
        };
        (None, why)
    })
}

/// The place of what is wrong, which the engine's own errors tell only in a
/// drawing.
fn check(pattern: &str) -> Result<(), Wrong> {
    let mut parser = regex_syntax::ParserBuilder::new().utf8(false).build();
    let (offset, why) = match parser.parse(pattern) {
        Ok(_) => return Ok(()),
        Err(regex_syntax::Error::Parse(error)) => {
            let mut why = error.kind().to_string();
            if matches!(
                error.kind(),
                ast::ErrorKind::UnsupportedLookAround | ast::ErrorKind::UnsupportedBackreference
            ) {
                why.push_str("; the engine pcre2 has them");
            }
            (Some(error.span().start.offset), why)
        }
        Err(regex_syntax::Error::Translate(error)) => {
            (Some(error.span().start.offset), error.kind().to_string())
        }
        Err(error) => (None, error.to_string()),
    };
    Err((offset, why))
}

fn perl(pattern: &Pattern) -> Result<pcre2::bytes::Regex, Wrong> {
    // The limits hold only at the very beginning; the lower one of two counts.
    let limits = format!("(*LIMIT_MATCH={STEPS})(*LIMIT_DEPTH={STEPS})(*LIMIT_HEAP={HEAP_KIB})");
    let (before, after) = match pattern {
        Pattern {
            whole_line: true, ..
        } => ("(?m:^)(?:", ")(?m:$)"),
        Pattern { word: true, .. } => (r"(?<!\w)(?:", r")(?!\w)"),
        _ => ("", ""),
    };
    let text = if pattern.fixed {
        pcre2::escape(&pattern.text)
    } else {
        pattern.text.clone()
    };
    let ignore_case = match pattern.case {
        Case::Sensitive => false,
        Case::Ignore => true,
        Case::Smart => !has_upper_case(&pattern.text, pattern.fixed),
    };
    let begin = limits.len() + before.len();
    pcre2::bytes::RegexBuilder::new()
        .caseless(ignore_case)
        .multi_line(true)
        .dotall(pattern.multi_line && pattern.dot_all)
        .crlf(true)
        .utf(true)
        .ucp(true)
        .jit_if_available(true)
        .max_jit_stack_size(Some(JIT_STACK))
        .build(&format!("{limits}{before}{text}{after}"))
        .map_err(|error| {
            let offset = error.offset().map(|at| at.saturating_sub(begin));
            let offset = offset.map(|at| at.min(pattern.text.len()));
            // In front of the text stand place and prefix, which say no more.
            let text = error.to_string();
            let why = text.split_once(": ").map(|(_, why)| why.to_owned());
            (offset, why.unwrap_or(text))
        })
}

/// An upper case letter that is no part of an escape.
fn has_upper_case(pattern: &str, fixed: bool) -> bool {
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        if character == '\\' && !fixed {
            characters.next();
        } else if character.is_uppercase() {
            return true;
        }
    }
    false
}

impl grep_matcher::Matcher for Matcher {
    type Captures = NoCaptures;
    type Error = String;

    fn find_at(&self, haystack: &[u8], at: usize) -> Result<Option<Match>, String> {
        match &self.0 {
            Compiled::Rust(regex) => regex.find_at(haystack, at).map_err(|no| no.to_string()),
            Compiled::Pcre2(regex) => regex
                .find_at(haystack, at)
                .map(|found| found.map(|found| Match::new(found.start(), found.end())))
                .map_err(|error| error.to_string()),
        }
    }

    fn new_captures(&self) -> Result<NoCaptures, String> {
        Ok(NoCaptures::new())
    }

    fn shortest_match_at(&self, haystack: &[u8], at: usize) -> Result<Option<usize>, String> {
        match &self.0 {
            Compiled::Rust(regex) => regex
                .shortest_match_at(haystack, at)
                .map_err(|no| no.to_string()),
            Compiled::Pcre2(_) => Ok(self.find_at(haystack, at)?.map(|found| found.end())),
        }
    }

    fn non_matching_bytes(&self) -> Option<&grep_matcher::ByteSet> {
        match &self.0 {
            Compiled::Rust(regex) => regex.non_matching_bytes(),
            Compiled::Pcre2(_) => None,
        }
    }

    fn line_terminator(&self) -> Option<LineTerminator> {
        let inner = match &self.0 {
            Compiled::Rust(regex) => regex.line_terminator(),
            Compiled::Pcre2(_) => None,
        };
        // What matches neither `\r` nor `\n` does not match `\n`: lines end
        // there, whether a `\r` is before it or not.
        inner.map(|_| LineTerminator::byte(b'\n'))
    }

    fn find_candidate_line(&self, haystack: &[u8]) -> Result<Option<LineMatchKind>, String> {
        match &self.0 {
            Compiled::Rust(regex) => regex
                .find_candidate_line(haystack)
                .map_err(|no| no.to_string()),
            Compiled::Pcre2(_) => {
                let end = self.shortest_match_at(haystack, 0)?;
                Ok(end.map(LineMatchKind::Confirmed))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use grep_matcher::Matcher as _;

    use super::*;

    fn pattern(text: &str, engine: Engine) -> Pattern {
        Pattern {
            text: text.to_owned(),
            engine,
            ..Pattern::default()
        }
    }

    fn wrong(pattern: &Pattern) -> (&'static str, Option<usize>, String) {
        match Matcher::new(pattern).unwrap_err() {
            FileError::Pattern {
                engine,
                offset,
                why,
                ..
            } => (engine, offset, why),
            other => panic!("{pattern:?}: {other}"),
        }
    }

    #[test]
    fn b061_what_the_rust_engine_does_not_take_is_told_with_its_place() {
        for (text, place, says) in [
            ("foo(?!bar)", Some(3), "pcre2"),
            ("(?<=a)b", Some(0), "pcre2"),
            (r"(a)\1", Some(3), "pcre2"),
            ("(", Some(0), "unclosed group"),
            ("x[z-a]", Some(2), "range"),
            ("a{1000}{1000}", None, "size limit"),
            ("a\nb", None, "multi_line"),
            (r"\p{Nothing}", Some(0), "property"),
        ] {
            let (engine, offset, why) = wrong(&pattern(text, Engine::Rust));
            assert_eq!((engine, offset), ("rust", place), "{text}: {why}");
            assert!(why.contains(says), "{text}: {why}");
        }
        let long = pattern(&"a".repeat(PATTERN_BYTES + 1), Engine::Rust);
        assert!(Matcher::new(&long).is_err());
    }

    #[test]
    fn b061_pcre2_has_look_around_and_back_references() {
        for (text, yes, no) in [
            ("foo(?!bar)", "foobaz", "foobar"),
            ("(?<=a)b", "ab", "cb"),
            (r"(a|b)\1", "aa", "ab"),
            (r"^\w+$", "\u{e9}t\u{e9}", "a b"),
        ] {
            let matcher = Matcher::new(&pattern(text, Engine::Pcre2)).unwrap();
            assert!(matcher.is_match(yes.as_bytes()).unwrap(), "{text}");
            assert!(!matcher.is_match(no.as_bytes()).unwrap(), "{text}");
        }
        for (text, place) in [("ab(", 3), ("[z-a]", 3), ("a)", 1)] {
            let (engine, offset, why) = wrong(&pattern(text, Engine::Pcre2));
            assert_eq!(engine, "pcre2");
            assert_eq!(offset, Some(place), "{text}: {why}");
        }
    }

    #[test]
    fn pcre2_gives_up_where_it_would_take_too_long() {
        for text in [
            r"(?:a?){40}a{40}\Z(?<=b)",
            "(*LIMIT_MATCH=4000000000)(a+)+$",
        ] {
            let matcher = Matcher::new(&pattern(text, Engine::Pcre2)).unwrap();
            let text = format!("{}!", "a".repeat(60));
            let error = matcher.find(text.as_bytes()).unwrap_err();
            assert!(error.contains("limit"), "{error}");
        }
    }

    #[test]
    fn b061_a_fixed_string_is_no_pattern() {
        for engine in [Engine::Rust, Engine::Pcre2] {
            for text in [
                "a(b",
                "a{1000}{1000}",
                "[z-a]",
                r"\1",
                "-e",
                "--pre=/tmp/x.sh",
                "",
            ] {
                let fixed = Pattern {
                    fixed: true,
                    ..pattern(text, engine)
                };
                let matcher = Matcher::new(&fixed).unwrap();
                let line = format!("x{text}y");
                let found = matcher.find(line.as_bytes()).unwrap().unwrap();
                assert_eq!(found.end() - found.start(), text.len(), "{text}");
            }
        }
    }

    #[test]
    fn the_switches_mean_the_same_for_both_engines() {
        let with = |change: fn(&mut Pattern)| {
            let mut pattern = pattern("ab", Engine::Rust);
            change(&mut pattern);
            pattern
        };
        for (asked, yes, no) in [
            (with(|_| ()), &["xaby"][..], &["AB", "a"][..]),
            (with(|p| p.case = Case::Ignore), &["xABy"], &["b"]),
            (with(|p| p.case = Case::Smart), &["AB", "ab"], &["b"]),
            (
                with(|p| (p.text, p.case) = ("aB".into(), Case::Smart)),
                &["aB"],
                &["ab", "AB"],
            ),
            (
                with(|p| (p.text, p.case) = (r"\Bb".into(), Case::Smart)),
                &["aB"],
                &["b"],
            ),
            (
                with(|p| p.word = true),
                &["ab c", "-ab-"],
                &["xab", "ab_", "abc"],
            ),
            (
                with(|p| p.whole_line = true),
                &["ab", "ab\r"],
                &["ab ", "xab"],
            ),
            (with(|p| p.text = "ab$".into()), &["xab", "ab\r"], &["ab "]),
        ] {
            for engine in [Engine::Rust, Engine::Pcre2] {
                let asked = Pattern {
                    engine,
                    ..asked.clone()
                };
                let matcher = Matcher::new(&asked).unwrap();
                // As the end of a line the `\r` has a `\n` after it.
                let found = |text: &str| {
                    let line = text.replace('\r', "\r\n");
                    matcher.is_match(line.as_bytes()).unwrap()
                };
                for text in yes {
                    assert!(found(text), "{asked:?} {text:?}");
                }
                for text in no {
                    assert!(!found(text), "{asked:?} {text:?}");
                }
            }
        }
    }
}
