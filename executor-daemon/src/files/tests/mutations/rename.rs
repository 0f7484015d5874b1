//! Renames.

use std::os::unix::fs::{MetadataExt as _, symlink};

use super::*;
use crate::files::object::FileKind;

#[test]
fn a_file_a_directory_and_a_link_get_another_name() {
    let world = World::new();
    world.put("f", "x");
    fs::create_dir_all(world.at("dir/sub")).unwrap();
    symlink("nothing", world.at("link")).unwrap();
    let renamed = world.rename("f", "dir/g").unwrap();
    assert_eq!(renamed.file.path, world.at("dir/g"));
    assert!(!renamed.unchanged);
    world.rename("dir", "other").unwrap();
    world.rename("other/sub", "sub/").unwrap();
    let renamed = world.rename("link", "second").unwrap();
    assert_eq!(renamed.file.link_target.as_deref(), Some(&b"nothing"[..]));
    assert_eq!(world.names(), ["other", "second", "sub"]);
    assert_eq!(text(world.at("other/g")), "x");
}

#[test]
fn b016_onto_itself_nothing_happens_however_it_is_spelled() {
    let world = World::new();
    fs::create_dir(world.at("sub")).unwrap();
    symlink(&world.app, world.at("alias")).unwrap();
    let path = world.put("notes.md", "x");
    let before = fs::metadata(&path).unwrap();
    let absolute = path.to_str().unwrap().to_owned();
    for to in [
        "notes.md",
        "./notes.md",
        "sub/../notes.md",
        absolute.as_str(),
        "alias/notes.md",
    ] {
        for replace in [false, true] {
            let spec = RenameSpec {
                replace,
                ..RenameSpec::new("notes.md", to)
            };
            let renamed = world.rename_as(&spec).unwrap();
            assert!(renamed.unchanged, "{to}");
            assert_eq!(renamed.undo_token, None);
        }
    }
    let after = fs::metadata(&path).unwrap();
    assert_eq!(before.ctime_nsec(), after.ctime_nsec());
    // Another name of the same file is another entry.
    fs::hard_link(&path, world.at("hard")).unwrap();
    for replace in [false, true] {
        let spec = RenameSpec {
            replace,
            ..RenameSpec::new("notes.md", "hard")
        };
        let error = world.rename_as(&spec).unwrap_err();
        assert!(matches!(error, FileError::Exists { .. }), "{error}");
    }
    assert_eq!(world.names(), ["alias", "hard", "notes.md", "sub"]);
}

#[test]
fn b017_what_has_the_name_is_not_destroyed_unless_asked_for() {
    let world = World::new();
    world.put("a.txt", "alpha\n");
    world.put("b.txt", "keep\n");
    fs::create_dir(world.at("dir")).unwrap();
    symlink("nothing", world.at("dangling")).unwrap();
    for (to, kind) in [
        ("b.txt", FileKind::Regular),
        ("dir", FileKind::Directory),
        ("dangling", FileKind::Link),
    ] {
        match world.rename("a.txt", to).unwrap_err() {
            FileError::Exists { kind: found, .. } => assert_eq!(found, kind),
            other => panic!("{other}"),
        }
    }
    let replacing = |from: &str, to: &str| RenameSpec {
        replace: true,
        ..RenameSpec::new(from, to)
    };
    for (from, to) in [("a.txt", "dir"), ("dir", "a.txt")] {
        let error = world.rename_as(&replacing(from, to)).unwrap_err();
        assert!(matches!(error, FileError::Exists { .. }), "{error}");
    }
    let error = world.rename("a.txt", "b.txt/below").unwrap_err();
    assert!(matches!(error, FileError::Resolve(_)), "{error}");
    let spec = RenameSpec {
        parents: true,
        ..RenameSpec::new("a.txt", "b.txt/below")
    };
    assert!(world.rename_as(&spec).is_err());
    assert!(matches!(
        world.rename("a.txt", "new/parents/a"),
        Err(FileError::NoParent { .. })
    ));
    assert_eq!(text(world.at("a.txt")), "alpha\n");
    assert_eq!(text(world.at("b.txt")), "keep\n");
    let spec = RenameSpec {
        parents: true,
        ..RenameSpec::new("a.txt", "new/parents/a")
    };
    world.rename_as(&spec).unwrap();
    let renamed = world
        .rename_as(&replacing("new/parents/a", "b.txt"))
        .unwrap();
    assert_eq!(text(world.at("b.txt")), "alpha\n");
    world.undo(renamed.undo_token.as_ref()).unwrap();
    assert_eq!(text(world.at("b.txt")), "keep\n");
    assert_eq!(text(world.at("new/parents/a")), "alpha\n");
}

#[test]
fn roots_and_what_holds_one_keep_their_names() {
    let world = World::new();
    fs::create_dir_all(world.at("a/root")).unwrap();
    let fence = around(&[&world.app, &world.at("a/root")]);
    for (from, to) in [
        ("a", "b"),
        ("a/root", "b"),
        (".", "b"),
        (world.app.to_str().unwrap(), "b"),
    ] {
        let caller = Caller {
            fence: &fence,
            ..world.caller()
        };
        let error = world
            .files
            .rename(caller, &RenameSpec::new(from, to))
            .unwrap_err();
        assert!(
            matches!(error, FileError::IsARoot { .. }),
            "{from}: {error}"
        );
    }
    for to in ["a/b", "a/root/x", "a/a"] {
        let error = world.rename("a", to).unwrap_err();
        let fine = matches!(error, FileError::InvalidArgument { .. });
        assert!(fine, "{to}: {error}");
    }
}

#[test]
fn nothing_becomes_a_way_to_a_secret_file_or_stops_being_one() {
    let world = World::new();
    fs::create_dir(world.at("x")).unwrap();
    world.put("x/credentials", "planted");
    std::os::unix::fs::symlink("x", world.at("link")).unwrap();
    for from in ["x", "link"] {
        let error = world.rename(from, ".aws").unwrap_err();
        assert!(matches!(error, FileError::Secret { .. }), "{from}: {error}");
    }
    std::os::unix::fs::symlink("x", world.at(".aws")).unwrap();
    let error = world.rename(".aws", "plain").unwrap_err();
    assert!(matches!(error, FileError::Secret { .. }), "{error}");
    assert_eq!(world.names(), [".aws", "link", "x"]);
}

#[test]
fn a_directory_on_the_way_to_a_secret_file_keeps_its_name() {
    let world = World::new();
    fs::create_dir(world.at(".aws")).unwrap();
    world.put(".aws/credentials", "secret");
    let error = world.rename(".aws", "aws").unwrap_err();
    assert!(matches!(error, FileError::Secret { .. }), "{error}");
    assert_eq!(world.names(), [".aws"]);
}

#[test]
fn between_file_systems_it_is_refused_by_name() {
    with_tmpfs("1m", |there| {
        let world = World::new();
        let fence = around(&[&world.app, there]);
        world.put("f", "x");
        let to = there.join("f");
        let caller = Caller {
            fence: &fence,
            ..world.caller()
        };
        let error = world
            .files
            .rename(caller, &RenameSpec::new("f", to))
            .unwrap_err();
        assert!(
            matches!(error, FileError::CrossesFileSystems { .. }),
            "{error}"
        );
        assert_eq!(world.names(), ["f"]);
        assert_eq!(names(there), [""; 0]);
    });
}

#[test]
fn b062_names_with_dashes_are_names() {
    let world = World::new();
    world.put("-rf", "x");
    world.rename("-rf", "--no-clobber").unwrap();
    assert_eq!(world.names(), ["--no-clobber"]);
}
