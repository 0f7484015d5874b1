//! Listings.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::cancel::Cancel;
use super::super::error::FileError;
use super::super::list::{Listing, Options, Summary};
use super::super::object::FileKind;
use super::{BOTH, Tree};

fn list(tree: &Tree, given: &str, options: &Options) -> (Vec<PathBuf>, Summary) {
    let results = BOTH.map(|means| {
        let fence = Arc::new(tree.fence(means));
        let cancel = Cancel::new();
        let mut listing = Listing::open(fence, given.as_ref(), options.clone(), &cancel).unwrap();
        let mut paths = Vec::new();
        while let Some(entry) = listing.next_entry(&cancel).unwrap() {
            paths.push(entry.path);
        }
        (paths, listing.summary().clone())
    });
    let [kernel, walk] = results;
    assert_eq!(kernel, walk);
    assert_eq!(kernel.0.len() as u64, kernel.1.entries);
    kernel
}

fn deep(depth: u32) -> Options {
    Options {
        depth,
        ..Options::default()
    }
}

fn ignoring() -> Options {
    Options {
        gitignore: true,
        ..deep(8)
    }
}

fn paths(names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(PathBuf::from).collect()
}

#[test]
fn entries_come_by_name_a_directory_before_what_is_in_it() {
    let tree = Tree::new();
    for name in ["sub/deep/z", "sub/a", "sub-b", "B"] {
        tree.file(&format!("w/app/{name}"), "x");
    }
    symlink("sub", tree.at("w/app/link")).unwrap();
    let (found, summary) = list(&tree, "", &deep(1));
    assert_eq!(found, paths(&["B", "d1", "link", "sub", "sub-b"]));
    assert_eq!(summary.path, tree.at("w/app"));
    let (found, _) = list(&tree, ".", &deep(2));
    let two = [
        "B", "d1", "d1/sub", "link", "sub", "sub/a", "sub/deep", "sub-b",
    ];
    assert_eq!(found, paths(&two), "a link is not followed");
    let (found, _) = list(&tree, "sub", &deep(8));
    assert_eq!(found, paths(&["a", "deep", "deep/z"]));
    let (found, _) = list(&tree, "link", &deep(1));
    assert_eq!(found, paths(&["a", "deep"]), "the one that was named is");
}

#[test]
fn what_is_beyond_the_limit_is_told() {
    let tree = Tree::new();
    for n in 0..50 {
        tree.file(&format!("w/app/sub/{n:02}"), "x");
    }
    for (limit, reached) in [(1, true), (50, true), (51, false), (52, false)] {
        let options = Options { limit, ..deep(1) };
        let (found, summary) = list(&tree, "sub", &options);
        assert_eq!(found.len(), (limit as usize).min(51));
        assert_eq!(summary.limit_reached, reached, "{limit}");
        let first: Vec<PathBuf> = (0..limit.min(50))
            .map(|n| format!("{n:02}").into())
            .collect();
        assert_eq!(found[..first.len()], first, "the first ones in order");
    }
    for (depth, limit) in [(0, 1), (9, 1), (1, 0), (1, 100_001)] {
        let fence = Arc::new(tree.fence(BOTH[0]));
        let options = Options {
            limit,
            ..deep(depth)
        };
        let refused = Listing::open(fence, "".as_ref(), options, &Cancel::new());
        assert!(matches!(refused, Err(FileError::InvalidArgument { .. })));
    }
}

#[test]
fn ignore_files_hide_as_git_does_and_what_they_hide_is_counted() {
    let tree = Tree::new();
    for name in [
        "a/a.c",
        "keep/yes.txt",
        "keep/no.txt",
        "other/x",
        "b ",
        "name.txt",
    ] {
        let path = tree.at("w/app/sub").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        super::write(&path, "x");
    }
    for (rules, hidden) in [
        (
            "*\n!*.c\n",
            vec!["a", "b ", "deep", "keep", "name.txt", "other", ".gitignore"],
        ),
        (
            "/*\n!/keep/\n/keep/*\n!/keep/yes.txt\n",
            vec![
                "a",
                "b ",
                "deep",
                "keep/no.txt",
                "name.txt",
                "other",
                ".gitignore",
            ],
        ),
        ("name.txt\r\nother/\r\n", vec!["name.txt", "other"]),
        ("\u{feff}name.txt\n", vec!["name.txt"]),
        ("name.txt \nb\\ \n", vec!["b ", "name.txt"]),
        ("a[\nname.txt\n", vec!["name.txt"]),
    ] {
        tree.file("w/app/sub/.gitignore", rules);
        let (all, _) = list(&tree, "sub", &deep(8));
        let (found, summary) = list(&tree, "sub", &ignoring());
        let hidden: Vec<PathBuf> = hidden.iter().map(PathBuf::from).collect();
        let below = |path: &Path| hidden.iter().any(|one| path.starts_with(one));
        let expected: Vec<_> = all.into_iter().filter(|path| !below(path)).collect();
        assert_eq!(found, expected, "{rules:?}");
        assert_eq!(summary.ignored, hidden.len() as u64, "{rules:?}");
    }
}

#[test]
fn ignore_files_above_count_up_to_the_repository() {
    let tree = Tree::new();
    let make = |name: &str| std::fs::create_dir_all(tree.at("w/app").join(name)).unwrap();
    make("repo/.git/info");
    make("repo/src");
    make("repo/inner/.git");
    for (name, text) in [
        (".gitignore", "*.outer\n"),
        (".ignore", "*.dot\n"),
        ("repo/.gitignore", "*.log\n/src/only\n"),
        ("repo/.git/info/exclude", "*.excluded\n"),
        ("repo/src/.gitignore", "!kept.log\n"),
        ("repo/src/.ignore", "!kept.excluded\n"),
    ] {
        tree.file(&format!("w/app/{name}"), text);
    }
    let names = [
        "a.outer",
        "a.dot",
        "a.log",
        "kept.log",
        "only",
        "a.excluded",
        "kept.excluded",
    ];
    for name in names {
        tree.file(&format!("w/app/repo/src/{name}"), "x");
        tree.file(&format!("w/app/repo/inner/{name}"), "x");
    }
    let options = Options {
        skip_hidden: true,
        ..ignoring()
    };
    let (found, _) = list(&tree, "repo/src", &options);
    assert_eq!(found, paths(&["a.outer", "kept.excluded", "kept.log"]));
    let (found, _) = list(&tree, "repo", &options);
    let from_above = paths(&["src/a.outer", "src/kept.excluded", "src/kept.log"]);
    let below: Vec<_> = found
        .iter()
        .filter(|path| path.starts_with("src/"))
        .cloned()
        .collect();
    assert_eq!(below, [vec!["src".into()], from_above].concat());
    // Another repository has rules of its own.
    let inner = found
        .iter()
        .filter(|path| path.starts_with("inner"))
        .count();
    assert_eq!(
        inner,
        names.len(),
        "the directory and all but a.dot: {found:?}"
    );
    assert!(!found.contains(&".git".into()));
}

#[test]
fn hidden_names_are_left_out_on_request() {
    let tree = Tree::new();
    tree.file("w/app/sub/.hidden", "x");
    let (found, summary) = list(
        &tree,
        "sub",
        &Options {
            skip_hidden: true,
            ..deep(1)
        },
    );
    assert_eq!((found, summary.ignored), (paths(&["deep"]), 1));
}

#[test]
fn a_secret_file_is_listed_and_a_secret_directory_is_not_looked_into() {
    let tree = Tree::new();
    tree.file("w/app/sub/.env", "x");
    std::fs::create_dir(tree.at("w/app/sub/.ssh")).unwrap();
    tree.file("w/app/sub/.ssh/config", "x");
    let (found, summary) = list(&tree, "sub", &deep(8));
    assert_eq!(found, paths(&[".env", ".ssh", "deep"]));
    assert_eq!(summary.unreadable, 1);
    assert_eq!(summary.problems[0].0, Path::new(".ssh"));
}

#[test]
fn b134_every_name_is_listed_as_it_is_and_every_kind_is_told() {
    let tree = Tree::new();
    let name = OsStr::from_bytes(b"\xff\n");
    super::write(&tree.at("w/app/sub").join(name), "x");
    symlink("not there", tree.at("w/app/sub/link")).unwrap();
    let fence = Arc::new(tree.fence(BOTH[0]));
    let cancel = Cancel::new();
    let mut listing = Listing::open(fence, "sub".as_ref(), deep(1), &cancel).unwrap();
    let mut found = Vec::new();
    while let Some(entry) = listing.next_entry(&cancel).unwrap() {
        found.push((
            entry.path.into_os_string(),
            entry.facts.kind,
            entry.link_target,
        ));
    }
    let expected = [
        ("deep".into(), FileKind::Directory, None),
        ("link".into(), FileKind::Link, Some("not there".into())),
        (name.to_owned(), FileKind::Regular, None),
    ];
    assert_eq!(found, expected);
    cancel.cancel();
    assert!(listing.next_entry(&cancel).is_err());
}

#[test]
fn a_directory_that_cannot_be_read_is_told_and_the_rest_is_listed() {
    use std::os::unix::fs::PermissionsExt as _;
    let tree = Tree::new();
    let mode = |name: &str, mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(tree.at(name), mode).unwrap();
    };
    for name in ["", "w", "w/app"] {
        mode(name, 0o755);
    }
    mode("w/app/d1", 0o000);
    tree.file("w/app/sub/a", "x");
    let look = || {
        if rustix::process::geteuid().is_root() {
            let nobody = rustix::process::Uid::from_raw(65_534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        }
        list(&tree, "", &deep(8))
    };
    // The rights of this thread alone are taken away, where it has any.
    let (found, summary) = std::thread::scope(|scope| scope.spawn(look).join().unwrap());
    mode("w/app/d1", 0o755);
    assert_eq!(found, paths(&["d1", "sub", "sub/a", "sub/deep"]));
    assert_eq!((summary.unreadable, summary.problems.len()), (1, 1));
    assert_eq!(summary.problems[0].0, Path::new("d1"));
}

/// A number that is as good as random.
fn mixed(n: u64) -> u64 {
    let n = (n ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (n ^ (n >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 16
}

#[test]
fn large_directories_are_listed_whole_and_in_order_in_bounded_memory() {
    /// What all levels together may take; the directories hold far more.
    const MOST: usize = (256 + 3 * 16) << 10;
    let tree = Tree::new();
    let mut all = Vec::new();
    for directory in ["m", "m/m", "m/m/m"] {
        std::fs::create_dir_all(tree.at("w/app/big").join(directory)).unwrap();
        all.push(PathBuf::from(directory));
        for n in 0..3_000 {
            let length = usize::try_from(mixed(n) % 180).unwrap();
            let name = format!("{:04x}{}", mixed(n) & 0xffff, "x".repeat(length));
            let path = Path::new(directory).join(format!("{name}-{n}"));
            tree.file(Path::new("w/app/big").join(&path).to_str().unwrap(), "");
            all.push(path);
        }
    }
    all.sort_by_key(|path| {
        path.components()
            .map(|c| c.as_os_str().to_owned())
            .collect::<Vec<_>>()
    });
    let fence = Arc::new(tree.fence(BOTH[0]));
    let cancel = Cancel::new();
    for limit in [20_000, 5_000] {
        let options = Options { limit, ..deep(8) };
        let fence = Arc::clone(&fence);
        let mut listing = Listing::open(fence, "big".as_ref(), options, &cancel).unwrap();
        let mut found = Vec::new();
        while let Some(entry) = listing.next_entry(&cancel).unwrap() {
            assert!(listing.buffered() <= MOST, "{} bytes", listing.buffered());
            found.push(entry.path);
        }
        let expected = all.len().min(limit as usize);
        assert_eq!(found.len(), expected);
        assert!(found == all[..expected], "not in order");
        assert_eq!(listing.summary().limit_reached, expected < all.len());
    }
}

#[test]
fn what_is_left_out_of_a_large_directory_is_counted_once() {
    let tree = Tree::new();
    std::fs::create_dir(tree.at("w/app/big")).unwrap();
    for n in 0..4_000 {
        let dot = if n % 4 == 0 { "." } else { "" };
        tree.file(&format!("w/app/big/{dot}{n:05}{}", "x".repeat(150)), "");
    }
    let options = Options {
        skip_hidden: true,
        ..deep(1)
    };
    let (found, summary) = list(&tree, "big", &options);
    assert_eq!((found.len(), summary.ignored), (3_000, 1_000));
    assert!(!summary.limit_reached);
}

#[test]
fn the_operator_says_how_many_entries_one_listing_may_have() {
    let tree = Tree::new();
    let fence = Arc::new(tree.fence(BOTH[0]));
    for (limit, limit_max, fits) in [
        (1, 1, true),
        (2, 1, false),
        (100_001, 200_000, true),
        (0, 9, false),
    ] {
        let options = Options {
            limit,
            limit_max,
            ..Options::default()
        };
        let opened = Listing::open(Arc::clone(&fence), "".as_ref(), options, &Cancel::new());
        assert_eq!(opened.is_ok(), fits, "{limit} of {limit_max}");
        if let Err(error) = opened {
            let told = format!("1 to {limit_max} entries (limits.file_list_entries)");
            assert!(error.to_string().contains(&told), "{error}");
        }
    }
}
