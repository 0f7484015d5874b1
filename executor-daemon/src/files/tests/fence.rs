//! Entries: which name in which directory, and what is refused.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::super::entry::{Entry, Last, Place};
use super::super::error::FileError;
use super::super::fence::Fence;
use super::super::object::{FileKind, Object};
use super::super::resolve::ResolveError;
use super::{BOTH, Tree};
use crate::session::record::Access;

pub(super) fn entry(fence: &Fence, given: impl AsRef<OsStr>) -> Result<Entry, FileError> {
    fence.entry(given.as_ref(), Last::Follow)
}

#[track_caller]
pub(super) fn is_outside<T: std::fmt::Debug>(result: Result<T, FileError>) {
    match result {
        Err(FileError::Resolve(ResolveError::OutsideRoots { .. })) => {}
        other => panic!("not refused as outside: {other:?}"),
    }
}

#[track_caller]
#[test]
fn a_name_becomes_its_entry_whether_or_not_something_has_it() {
    let tree = Tree::new();
    tree.file("w/app/sub/f", "x");
    symlink("../sub", tree.at("w/app/d1/up")).unwrap();
    symlink("sub/f", tree.at("w/app/link")).unwrap();
    symlink("link", tree.at("w/app/second")).unwrap();
    symlink("sub/new", tree.at("w/app/dangling")).unwrap();
    symlink(tree.at("w/app/sub/f"), tree.at("w/app/absolute")).unwrap();
    for means in BOTH {
        let fence = tree.fence(means);
        let absolute = tree.at("w/app/sub/f");
        for (given, follow, keep) in [
            ("sub/f", "sub/f", "sub/f"),
            ("sub//./f", "sub/f", "sub/f"),
            ("d1/up/f", "sub/f", "sub/f"),
            ("d1/../sub/f", "sub/f", "sub/f"),
            ("../app/sub/f", "sub/f", "sub/f"),
            (absolute.to_str().unwrap(), "sub/f", "sub/f"),
            ("link", "sub/f", "link"),
            ("second", "sub/f", "second"),
            ("absolute", "sub/f", "absolute"),
            ("dangling", "sub/new", "dangling"),
            ("nothing", "nothing", "nothing"),
            ("sub", "sub", "sub"),
            ("~", "~", "~"),
        ] {
            for (last, expected) in [(Last::Follow, follow), (Last::Keep, keep)] {
                let entry = fence.entry(given.as_ref(), last).unwrap();
                let expected = tree.at("w/app").join(expected);
                assert_eq!(entry.path(), expected, "{means:?} {given} {last:?}");
                assert_eq!(entry.given(), Path::new(given));
                assert_eq!(entry.path().file_name(), Some(entry.name()));
                assert_eq!(entry.through_link(), follow != keep && last == Last::Follow);
                let is_there = Object::look(&entry).is_ok();
                assert_eq!(is_there, expected.symlink_metadata().is_ok(), "{given}");
            }
        }
    }
}

#[test]
fn a_root_and_a_directory_named_from_within_have_no_entry() {
    let tree = Tree::new();
    symlink("..", tree.at("w/app/sub/up")).unwrap();
    let roots = [
        ("w/app", Access::ReadWrite),
        ("w/app/d1", Access::ReadWrite),
    ];
    for means in BOTH {
        let fence = tree.fence_of(&roots, means);
        let root = tree.at("w/app");
        let slash = tree.at("w/app/");
        for (given, leads_to) in [
            (".", "w/app"),
            ("sub/..", "w/app"),
            ("sub/.", "w/app/sub"),
            ("sub/./", "w/app/sub"),
            ("sub/up", "w/app"),
            ("../app", "w/app"),
            (root.to_str().unwrap(), "w/app"),
            (slash.to_str().unwrap(), "w/app"),
            ("d1", "w/app/d1"),
            ("sub/../d1/", "w/app/d1"),
        ] {
            let error = entry(&fence, given).unwrap_err();
            assert!(
                matches!(error, FileError::IsARoot { .. }),
                "{given}: {error}"
            );
            match fence.place(given.as_ref(), Last::Follow).unwrap() {
                Place::Directory(found) => assert_eq!(found.name, tree.at(leads_to)),
                Place::Entry(entry) => panic!("{means:?} {given}: {entry:?}"),
            }
            let object = fence.object(given.as_ref(), Last::Follow).unwrap();
            assert_eq!(object.facts().kind, FileKind::Directory);
        }
        let kept = fence.entry("sub/up".as_ref(), Last::Keep).unwrap();
        assert_eq!(kept.path(), tree.at("w/app/sub/up"), "the link itself");
    }
}

#[test]
fn a_slash_at_the_end_asks_for_a_directory() {
    let tree = Tree::new();
    tree.file("w/app/f", "x");
    symlink("sub", tree.at("w/app/link")).unwrap();
    for means in BOTH {
        let fence = tree.fence(means);
        let found = fence.entry("sub/".as_ref(), Last::Keep).unwrap();
        assert!(found.must_be_directory() && Object::look(&found).is_ok());
        let made = fence.entry("new/".as_ref(), Last::Keep).unwrap();
        assert_eq!(made.name(), "new", "a name for a directory to be made");
        let followed = entry(&fence, "link/").unwrap();
        assert_eq!(followed.path(), tree.at("w/app/sub"));
        let not_a_directory = [
            fence.object("f/".as_ref(), Last::Follow).map(drop),
            fence.entry("link/".as_ref(), Last::Keep).map(drop),
            entry(&fence, "f/x").map(drop),
        ];
        for result in not_a_directory {
            let refused = matches!(
                result,
                Err(FileError::Resolve(ResolveError::NotADirectory { .. }))
            );
            assert!(refused, "{means:?} {result:?}");
        }
    }
}

#[test]
fn b070_a_sibling_with_the_roots_name_as_prefix_is_outside_for_files_too() {
    let tree = Tree::new();
    tree.file("w/app-evil/x/f", "x");
    for means in BOTH {
        let fence = tree.fence(means);
        let root = tree.at("w/app");
        for given in [
            tree.at("w/app-evil/x/f"),
            tree.at("w/appx"),
            tree.at("w"),
            "../app-evil/x/f".into(),
            "../appx".into(),
            "..".into(),
            "/".into(),
            "/etc".into(),
            root.join("../app-evil/x/f"),
        ] {
            is_outside(fence.place(given.as_os_str(), Last::Follow));
            is_outside(fence.place(given.as_os_str(), Last::Keep));
            is_outside(fence.directory(given.as_os_str()));
        }
    }
}

#[test]
fn b071_no_link_leads_outside_wherever_it_stands_in_the_name() {
    let tree = Tree::new();
    tree.file("w/other/f", "x");
    symlink("/etc", tree.at("w/app/e")).unwrap();
    symlink("b", tree.at("w/app/a")).unwrap();
    symlink("/etc", tree.at("w/app/b")).unwrap();
    symlink("../other/f", tree.at("w/app/file")).unwrap();
    symlink("../other/not-there", tree.at("w/app/dangling")).unwrap();
    symlink("../../other/f", tree.at("w/app/sub/file")).unwrap();
    symlink("sub/file", tree.at("w/app/chain")).unwrap();
    symlink("../..", tree.at("w/app/sub/above")).unwrap();
    for means in BOTH {
        let fence = tree.fence(means);
        for given in [
            "e/passwd",
            "e/new",
            "e/a/b",
            "e",
            "a",
            "a/passwd",
            "b/",
            "file",
            "dangling",
            "sub/file",
            "chain",
            "sub/above",
            "sub/above/other/f",
            "e/../etc/passwd",
        ] {
            is_outside(fence.place(given.as_ref(), Last::Follow));
        }
        // The link itself is inside.
        for given in ["e", "file", "dangling", "sub/file", "chain"] {
            let entry = fence.entry(given.as_ref(), Last::Keep).unwrap();
            assert_eq!(Object::look(&entry).unwrap().facts().kind, FileKind::Link);
        }
    }
}

#[test]
fn b074_an_absolute_link_into_a_root_names_the_right_file() {
    let tree = Tree::new();
    symlink(tree.at("w/app/sub"), tree.at("w/app/d1/l")).unwrap();
    tree.file("w/app/sub/f", "right");
    tree.file("w/app/d1/sub/f", "wrong");
    symlink(tree.at("w/other/o"), tree.at("w/app/to-other")).unwrap();
    tree.file("w/other/o", "x");
    for means in BOTH {
        let found = entry(&tree.fence(means), "d1/l/f").unwrap();
        assert_eq!(found.path(), tree.at("w/app/sub/f"), "{means:?}");
        let both = [("w/app", Access::ReadWrite), ("w/other", Access::ReadOnly)];
        let found = entry(&tree.fence_of(&both, means), "to-other").unwrap();
        assert_eq!(found.path(), tree.at("w/other/o"), "{means:?}");
        assert_eq!(found.access(), Access::ReadOnly, "of the root it leads to");
    }
}

#[test]
fn b077_paths_that_no_file_has_are_refused_before_anything_is_looked_at() {
    let tree = Tree::new();
    for means in BOTH {
        let fence = tree.fence(means);
        for given in ["../e", "/etc/e", "sub/../../e", "/../etc/e"] {
            is_outside(entry(&fence, given));
        }
        assert_eq!(entry(&fence, "~").unwrap().path(), tree.at("w/app/~"));
        let long = "n".repeat(5000);
        for given in ["", "a\0b", "\0", &long] {
            let error = entry(&fence, given).unwrap_err();
            assert!(matches!(error, FileError::InvalidPath { .. }), "{error}");
            assert!(error.to_string().len() < 1000);
        }
        let name = "n".repeat(256);
        let error = fence.object(name.as_ref(), Last::Follow).unwrap_err();
        let long = matches!(error, FileError::Resolve(ResolveError::TooLong { .. }));
        assert!(long, "{error}");
    }
}

#[test]
fn b079_relative_names_start_at_the_session_and_a_replaced_root_is_told() {
    let tree = Tree::new();
    tree.file("w/app/sub/a", "x");
    for means in BOTH {
        let fence = tree.fence(means);
        assert_eq!(
            entry(&fence, "sub/a").unwrap().path(),
            tree.at("w/app/sub/a")
        );
        std::fs::rename(tree.at("w/app"), tree.at("w/aside")).unwrap();
        std::fs::create_dir_all(tree.at("w/app/sub")).unwrap();
        for given in ["sub/a", "a", "."] {
            let error = fence.place(given.as_ref(), Last::Follow).unwrap_err();
            let told = matches!(error, FileError::Resolve(ResolveError::RootReplaced { .. }));
            assert!(told, "{means:?} {given}: {error}");
        }
        std::fs::remove_dir_all(tree.at("w/app")).unwrap();
        std::fs::rename(tree.at("w/aside"), tree.at("w/app")).unwrap();
        entry(&fence, "sub/a").unwrap();
    }
}

#[test]
fn the_innermost_root_says_whether_a_name_may_be_written() {
    let tree = Tree::new();
    tree.file("w/app/sub/f", "x");
    symlink("../sub/f", tree.at("w/app/d1/f")).unwrap();
    let roots = [
        ("w/app", Access::ReadWrite),
        ("w/app/sub", Access::ReadOnly),
    ];
    for means in BOTH {
        let fence = tree.fence_of(&roots, means);
        fence.writable(&entry(&fence, "d1/new").unwrap()).unwrap();
        for given in ["sub/f", "sub/new", "d1/f", "d1/../sub/f"] {
            let error = fence.writable(&entry(&fence, given).unwrap()).unwrap_err();
            let root = tree.at("w/app/sub");
            let told =
                matches!(&error, FileError::RootReadOnly { root: named, .. } if *named == root);
            assert!(told, "{means:?} {given}: {error}");
        }
        let link = fence.entry("d1/f".as_ref(), Last::Keep).unwrap();
        fence.writable(&link).unwrap();
    }
}

#[test]
fn b053_a_name_that_only_looks_like_one_that_is_there_is_told_and_not_opened() {
    let tree = Tree::new();
    let narrow = "Shot 1.01\u{202f}AM.png";
    for name in [
        narrow,
        "a\u{a0}b",
        "cafe\u{301}",
        "caf\u{e9}",
        "x\u{2003}y",
        "x\u{a0}y",
    ] {
        tree.file(&format!("w/app/{name}"), "x");
    }
    std::fs::create_dir(tree.at("w/app/d\u{a0}d")).unwrap();
    tree.file("w/app/d\u{a0}d/f f", "x");
    for means in BOTH {
        let fence = tree.fence(means);
        let look = |given: &str| fence.object(given.as_ref(), Last::Follow);
        for exact in [narrow, "cafe\u{301}", "caf\u{e9}"] {
            assert_eq!(look(exact).unwrap().path(), tree.at("w/app").join(exact));
        }
        let absolute = tree.at("w/app/a b");
        for (given, expected) in [
            ("Shot 1.01 AM.png", vec![narrow.to_owned()]),
            ("a b", vec!["a\u{a0}b".into()]),
            ("./a b", vec!["a\u{a0}b".into()]),
            ("x y", vec!["x\u{a0}y".into(), "x\u{2003}y".into()]),
            ("d d/f f", vec!["d\u{a0}d/f f".into()]),
            ("d\u{a0}d/f\u{a0}f", vec!["d\u{a0}d/f f".into()]),
            (
                absolute.to_str().unwrap(),
                vec![tree.at("w/app/a\u{a0}b").display().to_string()],
            ),
            ("nothing", vec![]),
            ("sub/a b", vec![]),
        ] {
            let Err(FileError::NotFound { candidates, .. }) = look(given) else {
                panic!("{means:?} {given} was opened");
            };
            let expected: Vec<std::path::PathBuf> = expected.iter().map(Into::into).collect();
            assert_eq!(candidates, expected, "{means:?} {given}");
        }
        let error = look("Shot 1.01 AM.png").unwrap_err().to_string();
        assert!(error.contains("Shot 1.01\\u{202f}AM.png"), "{error}");
        // A name to be made is not normalised.
        let entry = entry(&fence, "a b").unwrap();
        assert_eq!(entry.name(), "a b");
    }
}

#[test]
fn b134_names_are_bytes_and_stay_different() {
    let tree = Tree::new();
    let names: [&[u8]; 4] = [b"\xff.txt", b"\xe9", b"\xe8", b"\xed\xa0\x80"];
    for name in names {
        super::write(&tree.at("w/app").join(OsStr::from_bytes(name)), name);
    }
    for means in BOTH {
        for name in names {
            let name = OsStr::from_bytes(name);
            let object = tree.fence(means).object(name, Last::Follow).unwrap();
            assert_eq!(object.path(), tree.at("w/app").join(name));
            let mut content = Vec::new();
            std::io::Read::read_to_end(&mut object.content().unwrap(), &mut content).unwrap();
            assert_eq!(content, name.as_bytes());
        }
    }
}

#[test]
fn b133_long_names_in_messages_are_cut_on_a_character() {
    let tree = Tree::new();
    let fence = tree.fence(BOTH[0]);
    for lead in 0..5 {
        for (one, count) in [("\u{9670}", 1300), ("e\u{301}", 1300), ("/\u{9670}", 1000)] {
            let given = "a".repeat(507 + lead) + &one.repeat(count);
            let Err(error) = fence.object(given.as_ref(), Last::Follow) else {
                panic!("{given:?} is there");
            };
            let text = error.to_string();
            assert!(
                !text.contains('\u{fffd}') && !text.contains("\\x"),
                "{text}"
            );
        }
    }
}

#[test]
fn loops_end() {
    let tree = Tree::new();
    symlink("round", tree.at("w/app/round")).unwrap();
    symlink("pong", tree.at("w/app/ping")).unwrap();
    symlink("ping", tree.at("w/app/pong")).unwrap();
    symlink("grow/x", tree.at("w/app/grow")).unwrap();
    for means in BOTH {
        for given in ["round", "ping", "grow", "round/x"] {
            let error = entry(&tree.fence(means), given).unwrap_err();
            let links = matches!(error, FileError::Resolve(ResolveError::Links { .. }));
            assert!(links, "{means:?} {given}: {error}");
        }
    }
}
