//! What is large, deep or slow: order and memory.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use super::*;
use crate::files::tests::scaled;

/// Twice as many names as are kept of a directory at a time, and some.
#[test]
fn a_huge_directory_is_told_whole_and_in_order() {
    let tree = empty();
    let count = (1 << 16) * 2 + 100;
    let directory = rustix::fs::open(tree.at("w/app"), OFlags::PATH, Mode::empty()).unwrap();
    // Not in order.
    for n in 0..count {
        let name = format!("{:06}", n * 7_919 % count);
        let flags = OFlags::CREATE | OFlags::WRONLY;
        drop(rustix::fs::openat(&directory, name, flags, Mode::from_raw_mode(0o644)).unwrap());
    }
    let asked = Glob {
        limit: Some(1_000_000),
        ..Glob::default()
    };
    let (entries, summary) = glob_by(&fence_of(&tree), &asked, &crew(2));
    assert!(
        entries
            .iter()
            .map(|entry| text(&entry.path))
            .eq((0..count).map(|n| format!("{n:06}")))
    );
    assert_eq!(summary.counts.matches, count);
    assert!(summary.is_complete());
}

/// Deeper than handles are kept, and than a path can name.
#[test]
fn a_deep_tree_is_searched_as_far_as_paths_can_name_it() {
    let tree = empty();
    let mut here = rustix::fs::open(tree.at("w/app"), OFlags::PATH, Mode::empty()).unwrap();
    let mut all = Vec::new();
    for level in 0..2_100 {
        if level % 100 == 0 {
            let flags = OFlags::CREATE | OFlags::WRONLY;
            let file = rustix::fs::openat(&here, "f", flags, Mode::from_raw_mode(0o644)).unwrap();
            rustix::io::write(file, b"NEEDLE\n").unwrap();
        }
        rustix::fs::mkdirat(&here, "d", Mode::from_raw_mode(0o755)).unwrap();
        let below = rustix::fs::openat(&here, "d", OFlags::PATH, Mode::empty()).unwrap();
        all.push(std::mem::replace(&mut here, below));
    }
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let (found, summary) = {
        let before = descriptors();
        let fence = fence_of(&tree);
        let settings = Settings::default();
        let mut search = Search::grep(fence, &for_text("NEEDLE"), &settings, &crew(2)).unwrap();
        let mut files = 0;
        while let Some(piece) = search.next_piece(&Cancel::new()).unwrap() {
            files += piece.files.len();
            // Other tests have theirs too.
            assert!(descriptors() < before + 400);
        }
        (files, search.summary().clone())
    };
    let named = (4_095 - tree.at("w/app").as_os_str().len()) / 2;
    assert_eq!(found, named.div_ceil(100));
    assert_eq!(summary.counts.unreadable, 1);
    assert!(summary.counts.problems[0].message.contains("longer"));
    remove_deep(all);
}

/// `remove_dir_all` of the standard library would recurse.
fn remove_deep(mut all: Vec<OwnedFd>) {
    use rustix::fs::AtFlags;
    while let Some(above) = all.pop() {
        let _ = rustix::fs::unlinkat(&above, "f", AtFlags::empty());
        rustix::fs::unlinkat(&above, "d", AtFlags::REMOVEDIR).unwrap();
    }
}

/// Results of a file that is told in many parts are those of one that is not.
#[test]
fn a_file_with_very_many_matches_is_told_whole_and_in_order() {
    let tree = empty();
    let line = |n: usize| match n % 7 {
        0 => format!("{n} NEEDLE {}", "x".repeat(100)),
        _ => format!("{n} hay"),
    };
    let count = 200_000;
    let content: String = (1..=count).map(|n| line(n) + "\n").collect();
    tree.file("w/app/large", &content);
    tree.file("w/app/after", "NEEDLE\n");
    for (before, after) in [(0, 0), (1, 2), (5, 5)] {
        let asked = Grep {
            before,
            after,
            limit: Some(1_000_000),
            byte_limit: Some(200 << 20),
            ..for_text("NEEDLE")
        };
        let (files, summary) = grep_by(&fence_of(&tree), &asked, &crew(2));
        assert!(files.len() > 2, "told in parts");
        let lines: Vec<_> = files[1..].iter().flat_map(|file| &file.lines).collect();
        let expected: Vec<_> = (1..=count)
            .filter(|n| {
                (*n..=(n + before as usize).min(count)).any(|m| m % 7 == 0)
                    || (n.saturating_sub(after as usize).max(1)..=*n).any(|m| m % 7 == 0)
            })
            .collect();
        assert!(
            lines
                .iter()
                .map(|line| usize::try_from(line.number).unwrap())
                .eq(expected.iter().copied())
        );
        for told in &lines {
            let number = usize::try_from(told.number).unwrap();
            assert_eq!(text(&told.text), line(number));
            assert_eq!(told.context, number % 7 != 0);
            let at = usize::try_from(told.offset).unwrap();
            assert!(content[at..].starts_with(&line(number)), "{told:?}");
        }
        let matches = count as u64 / 7 + 1;
        assert_eq!(
            (summary.counts.matches, summary.counts.files_matched),
            (matches, 2)
        );
        assert!(files[2].continued && !files[1].continued);
    }
}

/// With any number of threads, also with none, the answer is one.
#[test]
fn the_order_is_the_same_however_many_search() {
    let tree = empty();
    for n in 0..400 {
        let directory = format!("w/app/{}/{}", n % 7, n % 11);
        std::fs::create_dir_all(tree.at(&directory)).unwrap();
        tree.file(
            &format!("{directory}/{n}"),
            "NEEDLE\nx\nNEEDLE\n".repeat(n % 5),
        );
    }
    let expected = grep_by(&fence_of(&tree), &for_text("NEEDLE"), &crew(0));
    assert!(!expected.0.is_empty());
    let mut sorted = expected.0.clone();
    sorted.sort_by(|a, b| {
        a.path
            .split(|c| *c == b'/')
            .cmp(b.path.split(|c| *c == b'/'))
    });
    assert_eq!(sorted, expected.0);
    for round in 0..scaled(300, 12) {
        let found = grep_by(&fence_of(&tree), &for_text("NEEDLE"), &crew(1 + round % 8));
        assert!(found == expected, "round {round}");
    }
}

/// A client that takes nothing holds no thread, and a bounded part of the answer.
#[test]
fn while_nobody_takes_the_answer_no_thread_is_held() {
    let tree = empty();
    let line = format!("NEEDLE {}\n", "x".repeat(200));
    let large = line.repeat((8 << 20) / line.len());
    for name in ["a", "b", "c", "d"] {
        tree.file(&format!("w/app/{name}"), &large);
    }
    let crew = crew(3);
    let asked = Grep {
        limit: Some(1_000_000),
        byte_limit: Some(200 << 20),
        ..for_text("NEEDLE")
    };
    let settings = Settings::default();
    let mut search = Search::grep(fence_of(&tree), &asked, &settings, &crew).unwrap();
    let mut told = search.next_piece(&Cancel::new()).unwrap().unwrap().files;
    let end = Instant::now() + Duration::from_secs(60);
    while crew.free() < 3 {
        assert!(Instant::now() < end, "threads wait: {crew:?}");
        std::thread::yield_now();
    }
    assert!(
        search.waiting() < 8 << 20,
        "{} bytes wait",
        search.waiting()
    );
    while let Some(piece) = search.next_piece(&Cancel::new()).unwrap() {
        told.extend(piece.files);
    }
    let matches: u64 = told.iter().map(|file| file.matches).sum();
    assert_eq!(matches, 4 * large.len() as u64 / line.len() as u64);
}

/// A search that is given up ends in the middle of a file.
#[test]
fn a_search_that_is_given_up_ends() {
    let tree = empty();
    let path = tree.file("w/app/endless", "");
    // Nothing but NULs, for hours.
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_len(1 << 42).unwrap();
    let crew = crew(1);
    let asked = Grep {
        binary: true,
        ..for_text("NEEDLE")
    };
    let settings = Settings::default();
    let mut search = Search::grep(fence_of(&tree), &asked, &settings, &crew).unwrap();
    let cancel = Cancel::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while crew.free() > 0 {
                std::thread::yield_now();
            }
            cancel.cancel();
        });
        // It has a line without an end: too large, or given up before.
        let _ = search.next_piece(&cancel);
    });
    drop(search);
    let end = Instant::now() + Duration::from_secs(60);
    while crew.free() < 1 {
        assert!(Instant::now() < end, "it still works");
        std::thread::yield_now();
    }
}
