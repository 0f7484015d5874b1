//! What in a text is most like a text that is not in it, and how it differs.
//!
//! Tried one after another, the first that finds something tells: the same but
//! for whitespace; the same but for case and typographic characters; lines of
//! it at the same distances; the line most like its longest line. All of it
//! only tells; nothing is ever edited by it.

use std::collections::HashMap;
use std::fmt;

use memchr::memmem;

/// Texts larger than this are only searched for the same but for whitespace,
/// case and typographic characters.
const COMPARED_BYTES: usize = 4 << 20;
/// Characters of a line that are shown, and compared.
const SHOWN: usize = 160;
/// Share of its pairs of characters that a line must have in common, in
/// percent, to be worth naming.
const LIKENESS: usize = 35;

/// How it differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// In blanks, tabs or line ends only.
    Whitespace,
    /// In case, or in characters that look alike, only.
    Spelling,
    /// In words.
    Content,
}

/// The place most like what was looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nearest {
    /// First line of it, from 1.
    pub line: u64,
    /// How it differs.
    pub difference: Difference,
    /// The first line that differs, from 1.
    pub differs_on: u64,
    /// That line of the text, whitespace shown, at most 160 characters.
    pub there: String,
    /// What was looked for there, likewise.
    pub wanted: String,
}

impl fmt::Display for Nearest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.difference {
            Difference::Whitespace => "differs only in whitespace",
            Difference::Spelling => "differs only in case or in characters that look alike",
            Difference::Content => "differs",
        };
        write!(f, "the nearest text begins on line {} and {how}", self.line)?;
        write!(
            f,
            ": line {} is {:?} where edits want {:?} (→ is a tab, · a blank, ␍ a carriage return)",
            self.differs_on, self.there, self.wanted
        )
    }
}

/// The place in `text` that is most like `old`. `None` when nothing is.
#[must_use]
pub fn find(text: &str, old: &str) -> Option<Nearest> {
    if let Some(start) = folded(text, old, |c| (!c.is_whitespace()).then_some(c)) {
        return Some(compared(text, start, old, Difference::Whitespace));
    }
    if let Some(start) = folded(text, old, plain) {
        return Some(compared(text, start, old, Difference::Spelling));
    }
    if text.len() > COMPARED_BYTES {
        return None;
    }
    let start = by_lines(text, old).or_else(|| by_likeness(text, old))?;
    Some(compared(text, start, old, Difference::Content))
}

/// Where `old` begins in `text` when both are seen through `fold`.
fn folded(text: &str, old: &str, fold: impl Fn(char) -> Option<char>) -> Option<usize> {
    let pattern: String = old.chars().filter_map(&fold).collect();
    if pattern.is_empty() {
        return None;
    }
    let seen: String = text.chars().filter_map(&fold).collect();
    let mut left = memmem::find(seen.as_bytes(), pattern.as_bytes())?;
    for (at, character) in text.char_indices() {
        let Some(folded) = fold(character) else {
            continue;
        };
        if left == 0 {
            return Some(at);
        }
        left = left.saturating_sub(folded.len_utf8());
    }
    None
}

/// Lower case, plain quotes, dashes and blanks; nothing for whitespace.
fn plain(character: char) -> Option<char> {
    let plain = match character {
        '\u{2018}' | '\u{2019}' | '\u{201a}' | '\u{2032}' | '`' => '\'',
        '\u{201c}' | '\u{201d}' | '\u{201e}' | '\u{2033}' | '\u{ab}' | '\u{bb}' => '"',
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{200b}'..='\u{200d}' | '\u{feff}' | '\u{ad}' => return None,
        other if other.is_whitespace() => return None,
        other => other.to_lowercase().next().unwrap_or(other),
    };
    Some(plain)
}

/// The place where most lines of `old` stand in their order.
fn by_lines(text: &str, old: &str) -> Option<usize> {
    let wanted: HashMap<&str, usize> = old
        .lines()
        .enumerate()
        .map(|(at, line)| (at, line.trim()))
        .filter(|(_, line)| line.chars().filter(|c| c.is_alphanumeric()).count() >= 3)
        .map(|(at, line)| (line, at))
        .collect();
    let mut votes: HashMap<usize, usize> = HashMap::new();
    for (number, line) in text.lines().enumerate() {
        if let Some(at) = wanted.get(line.trim()) {
            *votes.entry(number.saturating_sub(*at)).or_default() += 1;
        }
    }
    let (line, _) = votes
        .into_iter()
        .max_by_key(|(line, votes)| (*votes, std::cmp::Reverse(*line)))?;
    Some(offset_of_line(text, line))
}

/// The line that is most like the longest line of `old`.
fn by_likeness(text: &str, old: &str) -> Option<usize> {
    let (above, longest) = old
        .lines()
        .enumerate()
        .max_by_key(|(at, line)| (line.trim().len(), std::cmp::Reverse(*at)))?;
    let wanted = pairs(longest);
    if wanted.is_empty() {
        return None;
    }
    let wanted_total: usize = wanted.values().sum();
    let mut best: Option<(usize, usize)> = None;
    for (number, line) in text.lines().enumerate() {
        let line = pairs(line);
        let total = wanted_total + line.values().sum::<usize>();
        let common: usize = line
            .iter()
            .map(|(pair, count)| wanted.get(pair).map_or(0, |other| *count.min(other)))
            .sum();
        let likeness = 200 * common / total;
        if likeness >= LIKENESS && best.is_none_or(|(most, _)| likeness > most) {
            best = Some((likeness, number));
        }
    }
    let (_, line) = best?;
    Some(offset_of_line(text, line.saturating_sub(above)))
}

/// Neighbouring characters, whitespace left out, and how often.
fn pairs(line: &str) -> HashMap<(char, char), usize> {
    let characters: Vec<char> = line.chars().filter_map(plain).take(SHOWN).collect();
    let mut pairs = HashMap::new();
    for (first, second) in characters.iter().zip(characters.iter().skip(1)) {
        *pairs.entry((*first, *second)).or_default() += 1;
    }
    pairs
}

fn offset_of_line(text: &str, line: usize) -> usize {
    if line == 0 {
        return 0;
    }
    memchr::memchr_iter(b'\n', text.as_bytes())
        .nth(line - 1)
        .map_or(0, |newline| newline + 1)
}

/// Says how `old` differs from what begins at `start`, line by line.
fn compared(text: &str, start: usize, old: &str, difference: Difference) -> Nearest {
    let (before, from) = text.split_at_checked(start).unwrap_or((text, ""));
    let line = 1 + memchr::memchr_iter(b'\n', before.as_bytes()).count() as u64;
    // The whitespace before the place belongs to what is compared: `old` may
    // begin with some.
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let indent = before.get(line_start..).unwrap_or_default();
    let from = if indent.chars().all(char::is_whitespace) && difference != Difference::Content {
        text.get(line_start..).unwrap_or(from)
    } else {
        from
    };
    let skipped = match difference {
        Difference::Content => 0,
        // Blank lines at the beginning of `old` have no part in the place.
        _ => old
            .split_inclusive('\n')
            .take_while(|line| line.trim().is_empty())
            .count(),
    };
    let last = old.lines().count().saturating_sub(1);
    let mut there = from.split_inclusive('\n');
    let mut result = None;
    for (at, wanted) in old.split_inclusive('\n').enumerate().skip(skipped) {
        let found = there.next().unwrap_or_default();
        let same = if at == last && !wanted.ends_with('\n') {
            found.starts_with(wanted)
        } else {
            found == wanted
        };
        let number = line + (at - skipped) as u64;
        let candidate = (number, found, wanted);
        if !same {
            result = Some(candidate);
            break;
        }
        result.get_or_insert(candidate);
    }
    let (differs_on, found, wanted) = result.unwrap_or((line, from, old));
    let (there, wanted) = shown(found, wanted);
    Nearest {
        line,
        difference,
        differs_on,
        there,
        wanted,
    }
}

/// Both lines with their whitespace visible, from a little before the first
/// character that differs.
fn shown(there: &str, wanted: &str) -> (String, String) {
    let same = there
        .chars()
        .zip(wanted.chars())
        .take_while(|(a, b)| a == b)
        .count();
    let skipped = if same > SHOWN / 2 {
        same - SHOWN / 4
    } else {
        0
    };
    (visible(there, skipped), visible(wanted, skipped))
}

fn visible(line: &str, skipped: usize) -> String {
    let mut text = String::new();
    if skipped > 0 {
        text.push('…');
    }
    let ending = if line.ends_with("\r\n") {
        2
    } else {
        usize::from(line.ends_with('\n'))
    };
    let body = line.get(..line.len() - ending).unwrap_or(line);
    let mut left = SHOWN;
    for character in body.chars().skip(skipped) {
        if left == 0 {
            text.push('…');
            return text;
        }
        left -= 1;
        text.push(match character {
            '\t' => '→',
            ' ' => '·',
            '\r' => '␍',
            '\u{a0}' | '\u{202f}' | '\u{2007}' => '⍽',
            other => other,
        });
    }
    if ending == 2 {
        text.push('␍');
    }
    text
}
