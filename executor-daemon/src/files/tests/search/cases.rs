//! The cases of searches (docs/cases.md).

use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::super::mutations::as_nobody;
use super::*;
use crate::files::search::request::Ignore;
use rustix::fs::{CWD, FileType, Mode, mknodat};

/// None counts.
const NO_IGNORE: Ignore = Ignore {
    dot: false,
    git: false,
    exclude: false,
    global: false,
    above: false,
    in_repositories: true,
};

#[test]
fn b055_negation_below_a_directory_that_is_left_out_is_as_in_git() {
    let files = ["a/a.c", "b.c", "keep/yes.txt", "keep/no.txt", "other/x"];
    let files = files.map(|name| (name, ""));
    for (rules, expected) in [
        ("*\n!*.c\n", &["b.c"][..]),
        ("/*\n!/keep/\n/keep/*\n!/keep/yes.txt\n", &["keep/yes.txt"]),
        (
            "/*\r\n!/keep/\r\n/keep/*\r\n!/keep/yes.txt\r\n",
            &["keep/yes.txt"],
        ),
        ("\u{feff}/*\n!/b.c\n", &["b.c"]),
    ] {
        let tree = tree_of(&files);
        std::fs::create_dir(tree.at("w/app/.git")).unwrap();
        tree.file("w/app/.gitignore", rules);
        let (found, summary) = glob(&tree, Scope::default());
        assert_eq!(found, expected, "{rules:?}");
        assert!(summary.counts.ignored > 0);
    }
    let tree = tree_of(&[
        ("name.txt", ""),
        ("name.txt ", ""),
        ("b ", ""),
        ("b", ""),
        (".git/", ""),
    ]);
    tree.file("w/app/.gitignore", "name.txt \nb\\ \n");
    assert_eq!(glob(&tree, Scope::default()).0, ["b", "name.txt "]);
}

#[test]
fn b056_what_is_ignored_is_counted_and_found_on_request() {
    // Whether git tracks a file is not asked.
    let tree = tree_of(&[
        (".gitignore", "scripts/*\n*.log\n"),
        (".git/", ""),
        ("x.log", "NEEDLE\n"),
        ("scripts/w.py", "NEEDLE\n"),
    ]);
    let (found, summary) = grep(&tree, &for_text("NEEDLE"));
    assert!(found.is_empty());
    assert_eq!(summary.counts.ignored, 3, "two and .git: {summary:?}");
    assert!(summary.is_complete());
    let asked = Grep {
        scope: Scope {
            ignore: NO_IGNORE,
            ..Scope::default()
        },
        ..for_text("NEEDLE")
    };
    let (found, summary) = grep(&tree, &asked);
    assert_eq!(found, ["scripts/w.py:1:NEEDLE", "x.log:1:NEEDLE"]);
    assert_eq!((summary.counts.ignored, summary.counts.hidden), (0, 2));
    // What is spelled out is searched.
    let asked = Grep {
        scope: paths(&["x.log", "scripts"]),
        ..for_text("NEEDLE")
    };
    assert_eq!(
        grep(&tree, &asked).0,
        ["x.log:1:NEEDLE"],
        "scripts/* is left out below scripts"
    );
}

#[test]
fn b058_a_glob_brings_back_nothing_that_is_ignored() {
    let tree = tree_of(&[
        (".git/", ""),
        (".gitignore", "dist/\n"),
        ("dist/a.js", "x\n"),
        ("src/a.js", "x\n"),
    ]);
    for text in ["*.*", "**/*", "*.js", "**/a.js", "{dist,src}/*"] {
        let asked = Grep {
            scope: globs(&[text]),
            ..for_text("x")
        };
        assert_eq!(grep(&tree, &asked).0, ["src/a.js:1:x"], "{text}");
        assert_eq!(glob(&tree, globs(&[text])).0, ["src/a.js"], "{text}");
    }
}

#[test]
fn b059_a_glob_with_a_slash_is_about_the_whole_path_and_may_spell_out_a_dot() {
    let tree = tree_of(&[
        ("r1/.github/workflows/ci.yml", ""),
        ("r1/.github/workflows/x.txt", ""),
        ("r1/.hidden/ci.yml", ""),
        ("r1/[x]", ""),
        ("a/f", ""),
        ("b/f", ""),
    ]);
    for (text, from_top, from_r1) in [
        (
            ".github/workflows/*.{yml,yaml}",
            &[][..],
            &["r1/.github/workflows/ci.yml"][..],
        ),
        (
            "**/.github/workflows/*.yml",
            &["r1/.github/workflows/ci.yml"],
            &["r1/.github/workflows/ci.yml"],
        ),
        ("*.YML", &[], &[]),
        ("{a,b}/**", &["a/f", "b/f"], &[]),
        ("[!a]*", &["a/f", "b/f", "r1/[x]"], &["r1/[x]"]),
        ("\\[x\\]", &["r1/[x]"], &["r1/[x]"]),
        (
            ".*/**/*.yml",
            &[],
            &["r1/.github/workflows/ci.yml", "r1/.hidden/ci.yml"],
        ),
    ] {
        assert_eq!(glob(&tree, globs(&[text])).0, from_top, "{text}");
        let below = Scope {
            paths: vec!["r1".into()],
            ..globs(&[text])
        };
        assert_eq!(glob(&tree, below).0, from_r1, "{text}");
    }
    let wrong = Glob {
        scope: globs(&["a["]),
        ..Glob::default()
    };
    let refused = Search::glob(fence_of(&tree), &wrong, &Settings::default(), &crew(1));
    assert!(matches!(refused, Err(FileError::Glob { offset: 1, .. })));
}

#[test]
fn b061_a_pattern_that_is_none_is_an_error_and_never_no_match() {
    let tree = tree_of(&[("f", "foobar aa a(b\n")]);
    for text in [
        "foo(?!bar)",
        "(?<=a)b",
        r"(a)\1",
        "(",
        "a{1000}{1000}",
        "[z-a]",
    ] {
        let error = refused(&tree, &for_text(text));
        let FileError::Pattern { engine, .. } = &error else {
            panic!("{text}: {error}");
        };
        assert_eq!(*engine, "rust", "{text}");
        assert!(error.to_string().contains("rust"));
    }
    let with = |text: &str, change: fn(&mut Pattern)| {
        let mut asked = for_text(text);
        change(&mut asked.pattern);
        grep(&tree, &asked).0.len()
    };
    assert_eq!(with("a(b", |pattern| pattern.fixed = true), 1);
    let perl =
        |pattern: &mut Pattern| pattern.engine = crate::files::search::pattern::Engine::Pcre2;
    assert_eq!(with("foo(?!bar)", perl), 0);
    assert_eq!(with("foo(?=bar)", perl), 1);
    assert_eq!(with(r"(a)\1", perl), 1);
}

#[test]
fn b062_what_begins_with_a_dash_is_text_and_a_name_like_any() {
    let program = "#!/bin/sh\ntouch ran\n";
    let lines = "--pre=./x.sh\n-e\n->\n--\n";
    let tree = tree_of(&[("x.sh", program), ("-rf", lines), ("-g", "")]);
    std::fs::set_permissions(
        tree.at("w/app/x.sh"),
        std::fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    for (text, expected) in [
        ("--pre=./x.sh", "-rf:1:--pre=./x.sh"),
        ("-e", "-rf:2:-e"),
        ("->", "-rf:3:->"),
        ("^--$", "-rf:4:--"),
    ] {
        for scope in [Scope::default(), paths(&["-rf"]), globs(&["-r*"])] {
            let asked = Grep {
                scope,
                ..for_text(text)
            };
            let found = grep(&tree, &asked).0;
            assert!(found.contains(&expected.to_owned()), "{text}: {found:?}");
        }
    }
    assert_eq!(glob(&tree, globs(&["-g"])).0, ["-g"]);
    assert!(tree.at("w/app/ran").symlink_metadata().is_err());
}

#[test]
fn b064_what_cannot_be_read_is_told_beside_what_was_found() {
    let tree = tree_of(&[
        ("locked/x", "NEEDLE\n"),
        ("nofile", "NEEDLE\n"),
        ("ok/a", "NEEDLE\n"),
    ]);
    for name in ["locked", "nofile"] {
        let path = tree.at("w/app").join(name);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o000)).unwrap();
    }
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(tree.at(""), open).unwrap();
    as_nobody(|| {
        let (found, summary) = grep(&tree, &for_text("NEEDLE"));
        assert_eq!(found, ["ok/a:1:NEEDLE"]);
        let problems = summary.counts.problems.iter();
        let told: Vec<_> = problems.map(|problem| text(&problem.path)).collect();
        assert_eq!(told, ["locked", "nofile"]);
        assert!(summary.counts.problems[0].message.contains("denies"));
        assert_eq!(summary.counts.unreadable, 2);
        assert!(!summary.is_complete());
    });
}

#[test]
fn b064_what_goes_during_the_walk_is_no_error() {
    let tree = tree_of(&[("a/x", "NEEDLE\n"), ("b/y", "NEEDLE\n")]);
    // On this thread: nothing is done before the first piece is asked for.
    let alone = crew(0);
    let settings = Settings::default();
    let mut search = Search::grep(fence_of(&tree), &for_text("NEEDLE"), &settings, &alone).unwrap();
    std::fs::remove_dir_all(tree.at("w/app/a")).unwrap();
    let piece = search.next_piece(&Cancel::new()).unwrap().unwrap();
    assert_eq!(text(&piece.files[0].path), "b/y");
    assert!(search.next_piece(&Cancel::new()).unwrap().is_none());
    assert!(search.summary().is_complete());
}

#[test]
fn b065_a_hit_in_a_long_line_is_a_window_and_the_results_have_a_bound() {
    let half = "x".repeat(300_000);
    let tree = tree_of(&[("min.js", &format!("{half}NEEDLE{half}\n"))]);
    let (files, summary) = grep_by(&fence_of(&tree), &for_text("NEEDLE"), &crew(2));
    let line = &files[0].lines[0];
    assert_eq!((line.column, line.length), (300_001, 600_006));
    assert!(line.text.len() <= 512 && line.is_clipped());
    let (from, to) = line.spans[0];
    assert_eq!(&line.text[from..to], b"NEEDLE");
    assert_eq!(line.text_start + from as u64 + 1, line.column);
    assert_eq!(summary.counts.lines_clipped, 1);
    assert!(!summary.limit_reached, "a clipped line is no cut result");

    let many: Vec<_> = (0..300).map(|n| format!("f{n:03}")).collect();
    let ten = "NEEDLE\n".repeat(10);
    let files: Vec<_> = many
        .iter()
        .map(|name| (name.as_str(), ten.as_str()))
        .collect();
    let tree = tree_of(&files);
    let asked = Grep {
        limit: Some(50),
        ..for_text("NEEDLE")
    };
    let (found, summary) = grep(&tree, &asked);
    let expected = many.iter().take(5);
    let expected: Vec<_> = expected
        .flat_map(|name| (1..=10).map(move |line| format!("{name}:{line}:NEEDLE")))
        .collect();
    assert_eq!(found, expected);
    assert!(summary.limit_reached && !summary.is_complete());
    assert_eq!(
        (summary.counts.matches, summary.counts.lines_clipped),
        (50, 0)
    );
    assert!(summary.counts.files < 300, "it stops early");
    let asked = Grep {
        byte_limit: Some(100),
        ..for_text("NEEDLE")
    };
    let (found, summary) = grep(&tree, &asked);
    assert_eq!(found.len(), 17, "whole lines");
    assert!(summary.limit_reached);
}

#[test]
fn b067_no_link_is_followed_and_every_file_is_found_once() {
    let tree = tree_of(&[("d/f", "NEEDLE\n")]);
    for (target, name) in [
        ("..", "d/loop"),
        (".", "d/self"),
        ("y", "x"),
        ("x", "y"),
        ("/", "top"),
        ("d/f", "g"),
    ] {
        symlink(target, tree.at("w/app").join(name)).unwrap();
    }
    let (found, summary) = grep(&tree, &for_text("NEEDLE"));
    assert_eq!(found, ["d/f:1:NEEDLE"]);
    assert_eq!(summary.counts.links, 6);
    let (entries, _) = glob_by(&fence_of(&tree), &Glob::default(), &crew(2));
    let links = entries.iter().filter(|entry| entry.kind == FileKind::Link);
    assert_eq!((links.count(), entries.len()), (6, 7));
    // One that is named is followed, as every path is.
    let asked = Grep {
        scope: paths(&["g", "d/self"]),
        ..for_text("NEEDLE")
    };
    assert_eq!(grep(&tree, &asked).0, ["g:1:NEEDLE", "d/self/f:1:NEEDLE"]);
}

#[test]
fn b068_special_files_are_counted_and_never_opened() {
    let tree = tree_of(&[("normal", "NEEDLE\n")]);
    let at = |name: &str| tree.at("w/app").join(name);
    mknodat(
        CWD,
        at("fifo"),
        FileType::Fifo,
        Mode::from_raw_mode(0o644),
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    symlink("/dev/zero", at("zero")).unwrap();
    let (found, summary) = grep(&tree, &for_text("NEEDLE"));
    assert_eq!(found, ["normal:1:NEEDLE"]);
    assert_eq!((summary.counts.special, summary.counts.links), (2, 1));
    let (found, summary) = glob(&tree, Scope::default());
    assert_eq!(found, ["normal", "zero"]);
    assert_eq!(summary.counts.special, 2);
    for name in ["fifo", "socket"] {
        let asked = Grep {
            scope: paths(&[name]),
            ..for_text("NEEDLE")
        };
        let error = refused(&tree, &asked);
        assert!(
            matches!(error, FileError::NotARegularFile { .. }),
            "{name}: {error}"
        );
    }
}

#[test]
fn secret_files_are_counted_and_not_searched_also_when_they_are_named() {
    let tree = tree_of(&[
        ("a/server.key", "NEEDLE\n"),
        ("b/id_rsa", "NEEDLE\n"),
        (".env", "NEEDLE\n"),
        (".ssh/config", "NEEDLE\n"),
        ("f", "NEEDLE\n"),
    ]);
    let asked = Grep {
        scope: Scope {
            hidden: true,
            ..Scope::default()
        },
        ..for_text("NEEDLE")
    };
    let (found, summary) = grep(&tree, &asked);
    assert_eq!(found, ["f:1:NEEDLE"]);
    assert_eq!(summary.counts.secret, 4);
    for name in [".env", ".ssh"] {
        let asked = Grep {
            scope: paths(&[name]),
            ..for_text("NEEDLE")
        };
        let error = refused(&tree, &asked);
        assert!(matches!(error, FileError::Secret { .. }), "{name}: {error}");
    }
    let outside = Grep {
        scope: paths(&["../other"]),
        ..for_text("NEEDLE")
    };
    assert!(matches!(refused(&tree, &outside), FileError::Resolve(_)));
}

#[test]
fn what_the_operator_lets_be_read_above_the_roots_counts() {
    let tree = tree_of(&[("x.log", ""), ("y.tmp", ""), ("z", ""), ("sub/z", "")]);
    tree.file("w/.gitignore", "*.log\n/app/sub/z\n");
    std::fs::create_dir(tree.at("w/.git")).unwrap();
    tree.file("excludes", "*.tmp\n");
    let found = |settings: &Settings, ignore: Ignore| {
        let asked = Glob {
            scope: Scope {
                ignore,
                ..Scope::default()
            },
            ..Glob::default()
        };
        let mut search = Search::glob(fence_of(&tree), &asked, settings, &crew(1)).unwrap();
        let piece = search.next_piece(&Cancel::new()).unwrap().unwrap();
        let names = piece.entries.iter().map(|entry| text(&entry.path));
        names.collect::<Vec<_>>().join(" ")
    };
    let settings = |above_roots, excludes: &str| Settings {
        above_roots,
        git_excludes: Some(tree.at(excludes)),
    };
    let all = "sub/z x.log y.tmp z";
    assert_eq!(found(&settings(false, "excludes"), Ignore::default()), all);
    assert_eq!(found(&settings(true, "excludes"), Ignore::default()), "z");
    assert_eq!(found(&settings(true, "none"), Ignore::default()), "y.tmp z");
    assert_eq!(found(&settings(true, "excludes"), NO_IGNORE), all);
}
