//! What is told of one file.

use super::*;
use crate::files::search::pattern::{Case, Engine};

#[test]
fn lines_beside_a_match_are_told_once() {
    let text: String = (1..=12)
        .map(|n| format!("{n}{}\n", if n % 5 == 0 { " hit" } else { "" }))
        .collect();
    let tree = tree_of(&[("f", &text)]);
    let asked = Grep {
        before: 2,
        after: 3,
        ..for_text("hit")
    };
    let expected = [
        "f-3-3",
        "f-4-4",
        "f:5:5 hit",
        "f-6-6",
        "f-7-7",
        "f-8-8",
        "f-9-9",
        "f:10:10 hit",
        "f-11-11",
        "f-12-12",
    ];
    assert_eq!(grep(&tree, &asked).0, expected);
    let one = Grep {
        limit: Some(1),
        ..asked.clone()
    };
    let (found, summary) = grep(&tree, &one);
    assert_eq!(
        found,
        expected[..7],
        "what stands beside the last one is told"
    );
    assert!(summary.limit_reached);
    let one = Grep {
        file_limit: Some(1),
        ..asked
    };
    let (files, summary) = grep_by(&fence_of(&tree), &one, &crew(1));
    assert!(files[0].cut && files[0].matches == 1);
    assert!(!summary.limit_reached);
}

#[test]
fn only_files_or_counts_are_told_where_that_is_asked_for() {
    let tree = tree_of(&[("a", "x\nx\ny\n"), ("b", "y\n"), ("c", "x")]);
    for (tell, invert, expected) in [
        (Tell::Files, false, &["a", "c"][..]),
        (Tell::Counts, false, &["a:2", "c:1"]),
        (Tell::Files, true, &["a", "b"]),
        (Tell::Counts, true, &["a:1", "b:1"]),
        (Tell::Lines, true, &["a:3:y", "b:1:y"]),
    ] {
        let asked = Grep {
            tell,
            invert,
            ..for_text("x")
        };
        assert_eq!(grep(&tree, &asked).0, expected, "{tell:?} {invert}");
    }
    let one = Grep {
        tell: Tell::Files,
        limit: Some(1),
        ..for_text("x")
    };
    let (found, summary) = grep(&tree, &one);
    assert_eq!(
        (found.as_slice(), summary.limit_reached),
        (&["a".to_owned()][..], true)
    );
}

#[test]
fn a_match_may_have_several_lines() {
    let tree = tree_of(&[("f", "one\ntwo\nthree\r\nfour\n")]);
    let mut asked = for_text(r"two\nthr");
    assert!(matches!(refused(&tree, &asked), FileError::Pattern { .. }));
    for engine in [Engine::Rust, Engine::Pcre2] {
        asked.pattern.engine = engine;
        asked.pattern.multi_line = true;
        let (files, _) = grep_by(&fence_of(&tree), &asked, &crew(1));
        let lines = &files[0].lines;
        let told: Vec<_> = lines
            .iter()
            .map(|line| {
                (
                    line.number,
                    line.offset,
                    line.column,
                    &*line.text,
                    line.spans.clone(),
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                (2, 4, 1, &b"two"[..], vec![(0, 3)]),
                (3, 8, 1, &b"three"[..], vec![(0, 3)]),
            ],
            "{engine:?}"
        );
        assert_eq!(files[0].matches, 2);
    }
    asked.pattern.text = "one.*four".to_owned();
    assert!(grep(&tree, &asked).0.is_empty());
    asked.pattern.dot_all = true;
    assert_eq!(grep(&tree, &asked).0.len(), 4);
}

#[test]
fn the_end_of_a_line_is_found_before_both_endings() {
    let tree = tree_of(&[("crlf", "a b\r\n\r\nc\r\n"), ("lf", "a b\n\nc")]);
    for (text, expected) in [
        ("b$", &["crlf:1:a b", "lf:1:a b"][..]),
        ("^$", &["crlf:2:", "lf:2:"]),
        ("^c$", &["crlf:3:c", "lf:3:c"]),
        (r"a\sb", &["crlf:1:a b", "lf:1:a b"]),
    ] {
        for engine in [Engine::Rust, Engine::Pcre2] {
            let mut asked = for_text(text);
            asked.pattern.engine = engine;
            assert_eq!(grep(&tree, &asked).0, expected, "{text} {engine:?}");
        }
    }
}

#[test]
fn b052_the_mark_of_an_encoding_is_no_part_of_the_first_line() {
    let tree = tree_of(&[("utf8", "\u{feff}needle\nnext needle\n")]);
    for (name, little) in [("le", true), ("be", false)] {
        let units = "\u{feff}needle \u{e9}\nnext needle\n".encode_utf16();
        let bytes = units.flat_map(|unit| {
            if little {
                unit.to_le_bytes()
            } else {
                unit.to_be_bytes()
            }
        });
        write(&tree.at("w/app").join(name), bytes.collect::<Vec<u8>>());
    }
    let (files, summary) = grep_by(&fence_of(&tree), &for_text("^needle"), &crew(1));
    let names: Vec<_> = files.iter().map(|file| text(&file.path)).collect();
    assert_eq!(names, ["be", "le", "utf8"]);
    assert_eq!(summary.counts.binary, 0, "UTF-16 is text");
    assert_eq!((files[2].lines[0].offset, files[2].lines[0].column), (3, 1));
    assert_eq!(text(&files[0].lines[0].text), "needle \u{e9}");
}

#[test]
fn a_binary_file_is_counted_and_told_where_it_matters() {
    let early = "needle\n\0needle\n";
    let late = format!("needle\n{}\0\nneedle\n", "x\n".repeat(100_000));
    let tree = tree_of(&[("early", early), ("late", &late), ("text", "needle\n")]);
    let (found, summary) = grep(&tree, &for_text("needle"));
    assert_eq!(found, ["late:1:needle", "text:1:needle"]);
    assert_eq!((summary.counts.binary, summary.counts.files), (2, 3));
    let told: Vec<_> = summary
        .counts
        .problems
        .iter()
        .map(|problem| text(&problem.path))
        .collect();
    assert_eq!(told, ["late"], "something was found in it");
    let asked = Grep {
        scope: paths(&["early"]),
        ..for_text("needle")
    };
    let (found, summary) = grep(&tree, &asked);
    assert!(found.is_empty());
    assert!(summary.counts.problems[0].message.contains("NUL at byte 7"));
    let asked = Grep {
        binary: true,
        ..for_text("needle")
    };
    assert_eq!(grep(&tree, &asked).0.len(), 5);
}

#[test]
fn files_that_are_too_large_are_counted() {
    let tree = tree_of(&[("large", "needle\nneedle\n"), ("small", "needle\n")]);
    let asked = Grep {
        file_bytes: Some(7),
        ..for_text("needle")
    };
    let (found, summary) = grep(&tree, &asked);
    assert_eq!(found, ["small:1:needle"]);
    assert_eq!(summary.counts.too_large, 1);
    assert!(!summary.is_complete());
}

#[test]
fn what_pcre2_gives_up_is_told_and_the_rest_is_searched() {
    let tree = tree_of(&[
        ("bad", &format!("{}!\n", "a".repeat(64))),
        ("good", "aaaa\n"),
    ]);
    let mut asked = for_text("(a+)+$");
    asked.pattern.engine = Engine::Pcre2;
    let (found, summary) = grep(&tree, &asked);
    assert_eq!(found, ["good:1:aaaa"]);
    assert!(
        summary.counts.problems[0].message.contains("limit"),
        "{summary:?}"
    );
    assert!(!summary.is_complete());
}

#[test]
fn a_file_that_says_it_is_empty_is_read_all_the_same() {
    let tree = empty();
    let root = [("w/app", super::super::Access::ReadWrite)];
    let mut resolver = tree.fence_of(&root, Means::Kernel).resolver().clone();
    let roots = super::super::Roots::new(vec![
        super::super::Root::open("/proc/self".as_ref(), super::super::Access::ReadOnly).unwrap(),
    ]);
    let cwd = resolver.cwd().clone();
    resolver = super::super::Resolver::new(roots, cwd, Means::Kernel);
    let fence = Arc::new(super::super::fence(resolver));
    let asked = Grep {
        scope: paths(&["/proc/self/status"]),
        ..for_text("^Pid:")
    };
    let (files, _) = grep_by(&fence, &asked, &crew(1));
    assert_eq!(files[0].lines.len(), 1);
}

#[test]
fn types_and_case_choose_as_they_say() {
    let tree = tree_of(&[
        ("a.rs", "Needle\n"),
        ("a.py", "Needle\n"),
        ("a.txt", "needle\n"),
    ]);
    let mut asked = for_text("needle");
    asked.pattern.case = Case::Ignore;
    asked.scope.types = vec!["rust".into(), "py".into()];
    assert_eq!(grep(&tree, &asked).0, ["a.py:1:Needle", "a.rs:1:Needle"]);
    asked.scope.types_not = vec!["py".into()];
    assert_eq!(grep(&tree, &asked).0, ["a.rs:1:Needle"]);
    asked.scope.types.clear();
    let (found, summary) = grep(&tree, &asked);
    assert_eq!(found, ["a.rs:1:Needle", "a.txt:1:needle"]);
    assert_eq!(summary.counts.filtered, 1);
    asked.scope.types = vec!["nonsense".into()];
    let error = refused(&tree, &asked);
    assert!(error.to_string().contains("nonsense"), "{error}");
}
