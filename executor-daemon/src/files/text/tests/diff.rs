use std::time::Duration;

use proptest::prelude::*;

use super::super::diff::{DIFF_BYTES, bounded, unified};

#[test]
fn a_diff_is_as_diff_u_writes_it() {
    let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n15\n16\n17\n18\n19\n20";
    let new = old.replace("\n9\n", "\nnine\n").replace("\n20", "\n20\n21");
    let diff = unified("x", old, &new);
    let expected = "--- a/x\n+++ b/x\n@@ -6,7 +6,7 @@\n 6\n 7\n 8\n-9\n+nine\n 10\n 11\n 12\n\
                    @@ -17,4 +17,5 @@\n 17\n 18\n 19\n-20\n\\ No newline at end of file\n+20\n+21\n\\ No newline at end of file\n";
    assert_eq!(diff.text, expected);
    assert_eq!((diff.added, diff.removed, diff.truncated), (3, 2, false));
}

#[test]
fn a_file_that_was_or_becomes_empty() {
    let diff = unified("x", "", "a\nb\n");
    assert_eq!(diff.text, "--- a/x\n+++ b/x\n@@ -0,0 +1,2 @@\n+a\n+b\n");
    let diff = unified("x", "a\n", "");
    assert_eq!(diff.text, "--- a/x\n+++ b/x\n@@ -1 +0,0 @@\n-a\n");
    assert_eq!(unified("x", "a\n", "a\n").text, "");
}

#[test]
fn a_name_stays_on_its_line() {
    let diff = unified("x\n+++ b/y", "a\n", "b\n");
    assert_eq!(diff.text.lines().count(), 5, "{}", diff.text);
}

#[test]
fn too_large_a_diff_is_cut_on_a_character_and_its_counts_are_whole() {
    let old = "\u{8a9e}\u{8a9e}\n".repeat(200_000);
    let new = "\u{8a9f}\u{8a9f}\n".repeat(100_000);
    let diff = unified("x", &old, &new);
    assert!(diff.truncated && diff.text.len() <= DIFF_BYTES && diff.text.len() > DIFF_BYTES - 8);
    assert_eq!((diff.removed, diff.added), (200_000, 100_000));
    // So many lines that they are not compared at all.
    let old = "a\n".repeat(700_000);
    let new = "b\n".repeat(700_001);
    let diff = unified("x", &old, &new);
    assert!(diff.truncated);
    assert_eq!((diff.removed, diff.added), (700_000, 700_001));
    assert!(
        diff.text.contains("@@ -1,700000 +1,700001 @@"),
        "{}",
        &diff.text[..80]
    );
}

/// A plain reading of unified diffs.
fn patched(old: &str, diff: &str) -> String {
    let lines: Vec<&str> = old.split_inclusive('\n').collect();
    let (mut result, mut at) = (String::new(), 0);
    let mut rows = diff.split_inclusive('\n').skip(2).peekable();
    while let Some(row) = rows.next() {
        if let Some(header) = row.strip_prefix("@@ -") {
            let range = header.split(' ').next().unwrap();
            let (start, length) = range.split_once(',').unwrap_or((range, "1"));
            let start: usize = start.parse().unwrap();
            let start = if length == "0" { start } else { start - 1 };
            result.extend(lines[at..start].iter().copied());
            at = start;
            continue;
        }
        let text = &row[1..];
        let bare = rows.peek().is_some_and(|next| next.starts_with('\\'));
        let text = if bare {
            text.strip_suffix('\n').unwrap()
        } else {
            text
        };
        match row.as_bytes()[0] {
            b' ' => {
                assert_eq!(lines[at], text);
                result.push_str(text);
                at += 1;
            }
            b'-' => {
                assert_eq!(lines[at], text);
                at += 1;
            }
            b'+' => result.push_str(text),
            b'\\' => {}
            other => panic!("{other} begins no line of a diff"),
        }
    }
    result.extend(lines[at..].iter().copied());
    result
}

proptest! {
    #[test]
    fn the_diff_turns_the_old_text_into_the_new(
        lines in prop::collection::vec("[ab\\r]{0,2}\\n", 0..30),
        from in 0..30_usize, length in 0..6_usize,
        insert in prop::collection::vec("[abc]{0,2}\\n", 0..4),
        end in "[ab]?", new_end in "[ab]?", hurry: bool,
    ) {
        let old = lines.concat() + &end;
        let from = from.min(lines.len());
        let to = (from + length).min(lines.len());
        let new = [lines[..from].concat(), insert.concat(), lines[to..].concat(), new_end].concat();
        let search = if hurry { Duration::ZERO } else { Duration::from_secs(5) };
        let diff = bounded("x", &old, &new, DIFF_BYTES, search);
        prop_assert_eq!(patched(&old, &diff.text), new);
        let signs = |sign| u32::try_from(diff.text.lines().skip(2).filter(|line| line.starts_with(sign)).count()).unwrap();
        prop_assert_eq!(signs('+'), diff.added);
        prop_assert_eq!(signs('-'), diff.removed);
    }
}

#[test]
fn one_changed_byte_is_found_wherever_it_is() {
    let old = "abcdefg\n".repeat(100);
    for at in 0..old.len() {
        let mut new = old.clone();
        new.replace_range(at..=at, "X");
        let diff = unified("x", &old, &new);
        assert_eq!(patched(&old, &diff.text), new, "at {at}");
        assert!(diff.removed <= 2 && diff.added <= 2, "at {at}: {diff:?}");
        new.replace_range(at..=at, "");
        let diff = unified("x", &old, &new);
        assert_eq!(patched(&old, &diff.text), new, "without {at}");
    }
}
