//! The part of a long line round a match.

use std::ops::Range;

/// Bytes of a line that are told.
pub const CLIP: usize = 512;
/// Of them in front of the match, where the line goes on behind it.
const BEFORE: usize = 128;

/// The part of `line` that is told: all of it, or at most [`CLIP`] bytes round
/// the place `at`, no character cut.
pub(super) fn window(line: &[u8], at: usize) -> Range<usize> {
    if line.len() <= CLIP {
        return 0..line.len();
    }
    let start = at.saturating_sub(BEFORE).min(line.len() - CLIP);
    let end = start + CLIP;
    forward(line, start)..backward(line, end)
}

/// The next place where a character begins.
fn forward(line: &[u8], mut at: usize) -> usize {
    for _ in 0..3 {
        if !line.get(at).is_some_and(is_inside) {
            break;
        }
        at += 1;
    }
    at
}

/// The place, or one before it, where a character ends.
fn backward(line: &[u8], end: usize) -> usize {
    let mut at = end;
    for _ in 0..3 {
        if !line.get(at).is_some_and(is_inside) {
            return at;
        }
        at -= 1;
    }
    // Four in a row: this is no text.
    if line.get(at).is_some_and(is_inside) {
        end
    } else {
        at
    }
}

/// A byte of UTF-8 that no character begins with.
fn is_inside(byte: &u8) -> bool {
    byte & 0xC0 == 0x80
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_short_line_is_told_whole() {
        for length in [0, 1, CLIP] {
            assert_eq!(window(&vec![b'x'; length], 0), 0..length);
        }
        assert_eq!(window(&[b'x'; 600], 0), 0..512);
        assert_eq!(window(&[b'x'; 600], 599), 88..600);
        assert_eq!(window(&[b'x'; 9_000], 4_000), 3_872..4_384);
        // No text at all.
        assert_eq!(window(&[0x80; 9_000], 4_000).len(), 509);
    }

    proptest! {
        #[test]
        fn no_character_is_cut_and_the_match_is_in_it(
            text in "[a\u{e9}\u{8a9e}\u{1f600}]{100,700}",
            at in any::<prop::sample::Index>(),
        ) {
            let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            let at = places[at.index(places.len())];
            let window = window(text.as_bytes(), at);
            prop_assert!(window.len() <= CLIP);
            let told = std::str::from_utf8(&text.as_bytes()[window.clone()]);
            prop_assert!(told.is_ok());
            let begins = text[at..].chars().next().unwrap().len_utf8();
            prop_assert!(window.start <= at && at + begins <= window.end);
        }
    }
}
