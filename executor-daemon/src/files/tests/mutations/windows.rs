//! Somebody else gives a name to another file between our last look and the
//! system call: theirs is never lost, and nothing but what was looked at goes.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::files::mutation::Precondition;
use crate::files::version::Digest;

type Act = fn(&Path);

/// What somebody else does to a file, and what it holds then.
const FOREIGN: [(&str, Act, &str); 4] = [
    (
        "replaced",
        |f| {
            fs::write(f.with_extension("x"), "theirs").unwrap();
            fs::rename(f.with_extension("x"), f).unwrap();
        },
        "theirs",
    ),
    (
        "replaced by one of equal content",
        |f| {
            fs::write(f.with_extension("x"), "ours").unwrap();
            fs::rename(f.with_extension("x"), f).unwrap();
        },
        "ours",
    ),
    (
        "removed and made again",
        |f| {
            fs::remove_file(f).unwrap();
            fs::write(f, "theirs").unwrap();
        },
        "theirs",
    ),
    (
        "written in place",
        |f| fs::write(f, "theirs, longer").unwrap(),
        "theirs, longer",
    ),
];

/// Does `act` to `path` just before the first commit.
fn once(world: &World, path: PathBuf, act: Act) {
    let done = AtomicBool::new(false);
    world.files.hooks.before_commit(move |_| {
        if !done.swap(true, Ordering::SeqCst) {
            act(&path);
        }
    });
}

/// Both kinds of file systems.
fn worlds() -> [World; 2] {
    let without = World::new();
    without.files.hooks.without_exchange();
    [World::new(), without]
}

#[test]
fn the_undo_of_a_creation_removes_no_other_file() {
    for (what, act, theirs) in FOREIGN {
        for world in worlds() {
            let made = world.write("f", "ours").unwrap();
            once(&world, world.at("f"), act);
            let error = world.undo(made.undo_token.as_ref()).unwrap_err();
            let conflict = matches!(error, FileError::UndoConflict { .. });
            assert!(conflict, "{what}: {error}");
            assert_eq!(text(world.at("f")), theirs, "{what}");
            assert_eq!(world.names(), ["f"], "{what}");
        }
    }
}

#[test]
fn an_undo_of_a_creation_whose_file_goes_meanwhile_is_a_conflict() {
    let world = World::new();
    let made = world.write("f", "ours").unwrap();
    once(&world, world.at("f"), |f| fs::remove_file(f).unwrap());
    let error = world.undo(made.undo_token.as_ref()).unwrap_err();
    assert!(matches!(error, FileError::UndoConflict { .. }), "{error}");
    assert_eq!(world.names(), [""; 0]);
}

#[test]
fn a_removal_with_a_condition_removes_no_other_content() {
    for (what, act, theirs) in FOREIGN {
        for (world, links) in worlds().into_iter().zip([1, 2]) {
            let path = world.put("f", "ours");
            if links > 1 {
                fs::hard_link(&path, world.at("second")).unwrap();
            }
            once(&world, path.clone(), act);
            let spec = RemoveSpec {
                precondition: Some(Precondition::Digest(Digest::of(b"ours"))),
                ..RemoveSpec::new("f")
            };
            let removed = world.remove_as(&spec);
            if theirs == "ours" {
                // It was looked at again, and is what was to be removed.
                removed.unwrap();
                continue;
            }
            let error = removed.unwrap_err();
            let failed = matches!(error, FileError::PreconditionFailed { .. });
            assert!(failed, "{what}: {error}");
            assert_eq!(text(&path), theirs, "{what}");
        }
    }
}

#[test]
fn a_file_that_is_written_to_all_the_time_can_be_removed() {
    let world = World::new();
    let path = world.put("log", "a line\n");
    world.files.hooks.before_commit(|path| {
        let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
        std::io::Write::write_all(&mut file, b"another\n").unwrap();
    });
    let removed = world.remove("log").unwrap();
    assert!(fs::symlink_metadata(&path).is_err());
    world.undo(removed.undo_token.as_ref()).unwrap();
    assert_eq!(text(&path), "a line\nanother\n");
}

#[test]
fn a_rename_displaces_only_what_was_looked_at() {
    for (what, act, theirs) in FOREIGN {
        let world = World::new();
        world.put("f", "new");
        world.put("g", "ours");
        once(&world, world.at("g"), act);
        let spec = RenameSpec {
            replace: true,
            ..RenameSpec::new("f", "g")
        };
        // The first attempt went back; the second displaces what is there now,
        // which can be taken back.
        let renamed = world.rename_as(&spec).unwrap();
        assert!(renamed.durability.checked, "{what}");
        assert_eq!(text(world.at("g")), "new", "{what}");
        assert_eq!(world.names(), ["g"], "{what}");
        world.undo(renamed.undo_token.as_ref()).unwrap();
        assert_eq!(text(world.at("g")), theirs, "{what}");
        assert_eq!(text(world.at("f")), "new", "{what}");
    }
}

#[test]
fn a_rename_that_is_always_overtaken_loses_nothing_and_says_so() {
    for (what, act, theirs) in FOREIGN {
        let world = World::new();
        world.put("f", "new");
        let path = world.put("g", "ours");
        world.files.hooks.before_commit(move |_| {
            // A time that differs from the one before, however coarse the clock.
            act(&path);
            let time = std::time::SystemTime::now();
            let file = fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(time).unwrap();
        });
        let spec = RenameSpec {
            replace: true,
            ..RenameSpec::new("f", "g")
        };
        let error = world.rename_as(&spec).unwrap_err();
        assert!(
            matches!(error, FileError::Changed { .. }),
            "{what}: {error}"
        );
        assert_eq!(text(world.at("g")), theirs, "{what}");
        assert_eq!(text(world.at("f")), "new", "{what}");
        assert_eq!(world.names(), ["f", "g"], "{what}");
    }
}

#[test]
fn a_rename_moves_only_what_was_looked_at() {
    // Not a file any more, which alone may replace one.
    let act: Act = |f| {
        fs::remove_file(f).unwrap();
        fs::create_dir(f).unwrap();
        fs::write(f.join("inside"), "theirs").unwrap();
    };
    for replace in [true, false] {
        for world in worlds() {
            world.put("f", "new");
            if replace {
                world.put("g", "ours");
            }
            once(&world, world.at("f"), act);
            let spec = RenameSpec {
                replace,
                ..RenameSpec::new("f", "g")
            };
            let renamed = world.rename_as(&spec);
            if replace {
                let error = renamed.unwrap_err();
                assert!(matches!(error, FileError::Exists { .. }), "{error}");
                assert_eq!(text(world.at("f/inside")), "theirs");
                assert_eq!(text(world.at("g")), "ours");
            } else {
                // It was looked at again, and may be renamed.
                let renamed = renamed.unwrap();
                assert_eq!(
                    renamed.file.facts.kind,
                    crate::files::object::FileKind::Directory
                );
                assert_eq!(text(world.at("g/inside")), "theirs");
            }
        }
    }
}

#[test]
fn a_file_that_becomes_another_before_it_is_renamed_is_looked_at_again() {
    for (what, act, theirs) in FOREIGN {
        for world in worlds() {
            world.put("f", "ours");
            once(&world, world.at("f"), act);
            let renamed = world.rename("f", "g").unwrap();
            assert_eq!(text(world.at("g")), theirs, "{what}");
            let inode = fs::metadata(world.at("g")).unwrap();
            let inode = std::os::unix::fs::MetadataExt::ino(&inode);
            assert_eq!(renamed.file.facts.ino, inode, "{what}");
            assert_eq!(world.names(), ["g"], "{what}");
        }
    }
}

#[test]
fn the_undo_of_a_rename_moves_no_other_file() {
    for (what, act, theirs) in FOREIGN {
        // A file that is made can get the inode of one that was removed.
        if matches!(what, "written in place" | "removed and made again") {
            continue;
        }
        for world in worlds() {
            world.put("f", "ours");
            let renamed = world.rename("f", "g").unwrap();
            once(&world, world.at("g"), act);
            let error = world.undo(renamed.undo_token.as_ref()).unwrap_err();
            let conflict = matches!(error, FileError::UndoConflict { .. });
            assert!(conflict, "{what}: {error}");
            assert_eq!(text(world.at("g")), theirs, "{what}");
            assert_eq!(world.names(), ["g"], "{what}");
        }
    }
}

#[test]
fn a_name_that_is_taken_before_a_rename_is_not_replaced() {
    for world in worlds() {
        world.put("f", "new");
        once(&world, world.at("g"), |g| fs::write(g, "theirs").unwrap());
        let renamed = world.rename("f", "g");
        // Between the look and the plain call of such a file system there is
        // none of our acts to step in.
        let error = renamed.unwrap_err();
        assert!(matches!(error, FileError::Exists { .. }), "{error}");
        assert_eq!(text(world.at("g")), "theirs");
        assert_eq!(text(world.at("f")), "new");
    }
}

#[test]
fn without_an_exchange_a_rename_replaces_and_says_that_it_was_not_checked() {
    let world = World::new();
    world.files.hooks.without_exchange();
    world.put("f", "new");
    world.put("g", "old");
    let spec = RenameSpec {
        replace: true,
        ..RenameSpec::new("f", "g")
    };
    let renamed = world.rename_as(&spec).unwrap();
    assert!(renamed.durability.atomic && !renamed.durability.checked);
    assert_eq!(text(world.at("g")), "new");
    world.undo(renamed.undo_token.as_ref()).unwrap();
    assert_eq!(text(world.at("g")), "old");
    assert_eq!(text(world.at("f")), "new");
}
