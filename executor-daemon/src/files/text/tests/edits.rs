use proptest::prelude::*;

use super::super::edits::{self, Applied, Edit, EditError};
use super::super::nearest::Difference;

const LIMIT: u64 = 64 << 20;

fn edit(old: &str, new: &str) -> Edit {
    Edit {
        old: old.to_owned(),
        new: new.to_owned(),
        replace_all: false,
    }
}

fn all(old: &str, new: &str) -> Edit {
    Edit {
        replace_all: true,
        ..edit(old, new)
    }
}

fn apply(text: &str, edits: &[Edit], limit: u64) -> Result<Applied, EditError> {
    edits::apply(text, edits, limit, &|| true).map(Option::unwrap)
}

fn applied(text: &str, edits: &[Edit]) -> Applied {
    apply(text, edits, LIMIT).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

fn refused(text: &str, edits: &[Edit]) -> EditError {
    apply(text, edits, LIMIT).unwrap_err()
}

#[test]
fn b029_a_tab_is_a_tab_and_the_error_says_so() {
    let text = "fn f() {\n\tfoo();\n}\n";
    assert_eq!(
        applied(text, &[edit("\tfoo();", "\tbar();")]).text,
        "fn f() {\n\tbar();\n}\n"
    );
    let error = refused(text, &[edit("        foo();", "x")]);
    let EditError::NotFound {
        edit: 0,
        nearest: Some(nearest),
    } = &error
    else {
        panic!("{error:?}");
    };
    assert_eq!(
        (nearest.line, nearest.difference),
        (2, Difference::Whitespace)
    );
    assert_eq!(nearest.there, "→foo();");
    assert_eq!(nearest.wanted, "········foo();");
    let message = error.to_string();
    assert!(
        message.contains("the first edit's old text")
            && message.contains("line 2")
            && message.contains("whitespace"),
        "{message}"
    );
}

#[test]
fn b031_b032_the_new_text_lands_byte_for_byte() {
    for new in [
        "$& $1 $$ $' $` ${x} \\1 \\0 %s {}",
        "\\n\\t",
        "a\nreal\ttab",
        "",
        "\u{feff}\u{0}\u{202e}",
        "\r",
    ] {
        let one = applied("A TOKEN B\n", &[edit("TOKEN", new)]);
        assert_eq!(one.text, format!("A {new} B\n"));
        assert!(!one.line_endings_adapted);
        let many = applied("TOKEN TOKEN\n", &[all("TOKEN", new)]);
        assert_eq!(many.text, format!("{new} {new}\n"));
        assert_eq!(many.replacements, [2]);
    }
}

#[test]
fn b034_empty_and_unchanged_text_is_refused() {
    for text in ["abc", ""] {
        for replace_all in [false, true] {
            let empty = Edit {
                replace_all,
                ..edit("", "x")
            };
            assert_eq!(refused(text, &[empty]), EditError::Empty { edit: 0 });
            let same = Edit {
                replace_all,
                ..edit("abc", "abc")
            };
            assert_eq!(refused(text, &[same]), EditError::Unchanged { edit: 0 });
        }
    }
    // The index is that of the edit.
    let error = refused("abc", &[edit("a", "b"), edit("", "")]);
    assert_eq!(error, EditError::Empty { edit: 1 });
}

#[test]
fn b035_only_the_matched_bytes_go() {
    for (text, edits, expected) in [
        (
            "URL=ftp://h/legacy\nN=3\n",
            edit("/legacy", ""),
            "URL=ftp://h\nN=3\n",
        ),
        (
            "URL=ftp://h/legacy\r\nN=3\r\n",
            edit("/legacy", ""),
            "URL=ftp://h\r\nN=3\r\n",
        ),
        ("a;\nb;\n", all(";", ""), "a\nb\n"),
        ("a;\r\nb;", all(";", ""), "a\r\nb"),
    ] {
        assert_eq!(applied(text, &[edits]).text, expected);
    }
}

#[test]
fn b037_line_ends_are_met_half_way_where_the_match_has_one_style() {
    for (text, edit, expected, adapted) in [
        (
            "a\r\nb\r\nc\r\n",
            edit("a\nb", "a\nB\nB2"),
            "a\r\nB\r\nB2\r\nc\r\n",
            true,
        ),
        (
            "a\nb\nc\n",
            edit("a\r\nb", "a\r\nB\r\nB2"),
            "a\nB\nB2\nc\n",
            true,
        ),
        // As given it is there: nothing is adapted.
        ("a\nb\nc\n", edit("a\nb", "a\nB"), "a\nB\nc\n", false),
        ("a\r\nb\r\n", edit("a\r\nb", "x\r\ny"), "x\r\ny\r\n", false),
        ("a\nb\n", all("\n", "\r\n"), "a\r\nb\r\n", false),
        ("a\r\nb\r\n", all("\r\n", "\n"), "a\nb\n", false),
        // Elsewhere the file may be as it likes.
        (
            "x\ny\na\r\nb\r\n",
            edit("a\nb", "a\nB"),
            "x\ny\na\r\nB\r\n",
            true,
        ),
        // A line end that begins `old` is a whole one.
        (
            "x\r\nfoo\r\n",
            edit("\nfoo", "\nbar\nbaz"),
            "x\r\nbar\r\nbaz\r\n",
            true,
        ),
        (
            "x\r\nfoo\r\n",
            edit("foo\n", "foo\nbaz\n"),
            "x\r\nfoo\r\nbaz\r\n",
            true,
        ),
        // A new line in a file that has only the one style.
        ("a\r\nb\r\n", edit("b", "b\nc"), "a\r\nb\r\nc\r\n", true),
        ("a\nb\r\n", edit("b", "b\nc"), "a\nb\nc\r\n", false),
        ("a\r\nb\r\n", edit("b", "c"), "a\r\nc\r\n", false),
    ] {
        let result = applied(text, std::slice::from_ref(&edit));
        assert_eq!(result.text, expected, "{text:?} {edit:?}");
        assert_eq!(result.line_endings_adapted, adapted, "{text:?} {edit:?}");
    }
    // Both styles inside the match: exact bytes only.
    let mixed = "a\r\nb\nc\n";
    for old in ["a\nb\nc", "a\r\nb\r\nc"] {
        let error = refused(mixed, &[edit(old, "x")]);
        let EditError::NotFound {
            nearest: Some(nearest),
            ..
        } = &error
        else {
            panic!("{error:?}");
        };
        assert_eq!(nearest.difference, Difference::Whitespace);
    }
    assert_eq!(applied(mixed, &[edit("a\r\nb\nc", "x")]).text, "x\n");
}

#[test]
fn b038_nothing_is_matched_nearly() {
    let text = "x\n  hello\n    world\n  end\n";
    let error = refused(text, &[edit("hello\nworld", "bye\nmoon")]);
    let EditError::NotFound {
        nearest: Some(nearest),
        ..
    } = &error
    else {
        panic!("{error:?}");
    };
    assert_eq!(
        (nearest.line, nearest.difference),
        (2, Difference::Whitespace)
    );
    for (old, line, difference, differs_on) in [
        ("  Hello\n    world", 2, Difference::Spelling, 2),
        ("  hello\n    there\n  end", 2, Difference::Content, 3),
        ("  helo", 2, Difference::Content, 2),
    ] {
        let error = refused(text, &[edit(old, "x")]);
        let EditError::NotFound {
            nearest: Some(nearest),
            ..
        } = &error
        else {
            panic!("{old:?}: {error:?}");
        };
        assert_eq!(nearest.line, line, "{old:?}");
        assert_eq!(nearest.difference, difference, "{old:?}");
        assert_eq!(nearest.differs_on, differs_on, "{old:?} {nearest:?}");
    }
    let error = refused(text, &[edit("quite another matter", "x")]);
    assert_eq!(
        error,
        EditError::NotFound {
            edit: 0,
            nearest: None
        }
    );
}

#[test]
fn text_in_several_places_is_refused_with_the_places() {
    for (text, old, count, lines) in [
        ("a\nb\na\n", "a", 2, vec![1, 3]),
        ("aaa", "aa", 2, vec![1]),
        ("x\nabab\nab", "ab", 3, vec![2, 3]),
        ("a\nb\na\nb\na\n", "a\nb\na", 2, vec![1, 3]),
    ] {
        let expected = EditError::NotUnique {
            edit: 0,
            count,
            lines,
            more_lines: false,
        };
        assert_eq!(refused(text, &[edit(old, "z")]), expected, "{text:?}");
    }
    let many = "x\n".repeat(5_000);
    let EditError::NotUnique { count, lines, .. } = refused(&many, &[edit("x", "y")]) else {
        panic!("many");
    };
    assert_eq!(count, 5_000);
    assert_eq!(lines, (1..=20).collect::<Vec<_>>());
}

#[test]
fn each_edit_sees_what_the_one_before_left_and_all_fail_together() {
    let result = applied(
        "one two",
        &[
            edit("one", "two three"),
            edit("three two", "3"),
            all("3", "4"),
        ],
    );
    assert_eq!(result.text, "two 4");
    assert_eq!(result.replacements, [1, 1, 1]);
    let error = refused("one two", &[edit("one", "1"), edit("one", "x")]);
    assert!(
        error.to_string().contains("the second edit's old text"),
        "{error}"
    );
    assert!(error.to_string().contains("edits before it"), "{error}");
}

#[test]
fn a_result_above_the_limit_is_refused_before_it_is_made() {
    let text = "a".repeat(1 << 16);
    let huge = "b".repeat(3 << 20);
    let error = refused(&text, &[all("a", &huge)]);
    assert_eq!(
        error,
        EditError::TooLarge {
            edit: 0,
            size: (3 << 20) * (1 << 16),
            limit: LIMIT
        }
    );
}

#[test]
fn the_worst_texts_take_no_quadratic_time() {
    // Quadratic would be 10^12 steps here.
    let text = "a".repeat(2 << 20);
    let old = "a".repeat(1 << 20);
    let EditError::NotUnique { count, .. } = refused(&text, &[edit(&old, "b")]) else {
        panic!("it is there more than once");
    };
    assert_eq!(count, (1 << 20) + 1);
    assert!(apply(&text, &[edit(&(old.clone() + "b"), "b")], LIMIT).is_err());
    let lines = "ab\n".repeat(300_000);
    assert!(
        apply(
            &lines,
            &[edit(&("ab\n".repeat(100_000) + "zz"), "b")],
            LIMIT
        )
        .is_err()
    );
}

proptest! {
    #[test]
    fn an_edit_changes_nothing_else(before in "[ab\\r\\n\u{e9}]{0,12}", old in "[xy\\n]{1,4}", after in "[ab\\r\\n\u{e9}]{0,12}", new in "[cd\\n$]{0,6}") {
        let text = format!("{before}x{old}x{after}");
        let old = format!("x{old}x");
        if text.match_indices(&old).count() == 1 {
            let result = applied(&text, &[edit(&old, &new)]);
            let new = if result.line_endings_adapted { new.replace('\n', "\r\n") } else { new };
            prop_assert_eq!(&result.text, &format!("{before}{new}{after}"));
            prop_assert_eq!(result.replacements, [1]);
        }
    }

    #[test]
    fn occurrences_are_counted_as_a_slow_search_counts_them(text in "[ab\\n]{0,40}", old in "[ab\\n]{1,4}") {
        let slow: Vec<usize> = (0..text.len()).filter(|at| text[*at..].starts_with(&old)).collect();
        match apply(&text, &[edit(&old, "z")], LIMIT) {
            Ok(result) => {
                prop_assert_eq!(slow.len(), 1);
                prop_assert_eq!(result.text, text.replacen(&old, "z", 1));
            }
            Err(EditError::NotUnique { count, lines, .. }) => {
                prop_assert!(slow.len() > 1);
                prop_assert_eq!(count, slow.len() as u64);
                let mut expected: Vec<u64> = slow.iter()
                    .map(|at| 1 + text[..*at].matches('\n').count() as u64).collect();
                expected.dedup();
                expected.truncate(20);
                prop_assert_eq!(lines, expected);
            }
            Err(EditError::NotFound { .. }) => prop_assert!(slow.is_empty()),
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn whatever_is_asked_is_answered(text in "\\PC{0,60}", old in "\\PC{0,20}", new in "\\PC{0,20}", replace_all: bool) {
        let result = apply(&text, &[Edit { old, new, replace_all }], LIMIT);
        if let Err(error) = result {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}

#[test]
fn what_is_no_longer_wanted_ends_before_the_next_edit() {
    let edits = [edit("a", "b"), edit("b", "c"), edit("c", "d")];
    for wanted in 0..=3 {
        let asked = std::cell::Cell::new(0);
        let done = edits::apply("a", &edits, LIMIT, &|| {
            asked.set(asked.get() + 1);
            asked.get() <= wanted
        });
        let text = done.unwrap().map(|applied| applied.text);
        assert_eq!(text, (wanted == 3).then(|| "d".to_owned()));
        assert_eq!(asked.get(), (wanted + 1).min(3));
    }
}

#[test]
fn a_line_on_which_a_text_is_several_times_is_listed_once() {
    let lines_of = |text: &str, old: &str| match refused(text, &[edit(old, "x")]) {
        EditError::NotUnique { count, lines, .. } => (count, lines),
        other => panic!("{other}"),
    };
    assert_eq!(lines_of("a a a", "a"), (3, vec![1]));
    assert_eq!(lines_of("a a\nb\naa", "a"), (4, vec![1, 3]));
    assert_eq!(lines_of("aaaa\naaa", "aa"), (5, vec![1, 2]));
    assert_eq!(lines_of("x\n\n\n\n", "\n\n"), (3, vec![1, 2, 3]));
    // As many lines as are listed, however often it is on each.
    let text = "a a a a a\n".repeat(30);
    assert_eq!(lines_of(&text, "a"), (150, (1..=20).collect()));
    let many = refused(&text, &[edit("a", "x")]).to_string();
    assert!(many.contains("19, 20, …"), "{many}");
    let few = refused("a a a", &[edit("a", "x")]).to_string();
    assert!(few.contains("found 3 times on line 1;"), "{few}");
}
