//! Mutations are taken back, if the file is still as it was left.

use std::os::unix::fs::{MetadataExt as _, symlink};

use super::*;
use crate::files::make_directory::MakeDirectorySpec;

#[test]
fn each_kind_of_mutation_is_taken_back() {
    let world = World::new();
    let path = world.put("f", "old");
    chmod(&path, 0o750);
    let spec = WriteSpec {
        mode: Some(0o600),
        ..WriteSpec::new("f")
    };
    let written = world.write_as(&spec, "new").unwrap();
    let undone = world.undo(written.undo_token.as_ref()).unwrap();
    assert_eq!(undone.path, path);
    assert_eq!((text(&path), mode(&path)), ("old".to_owned(), 0o750));

    let edited = world.edit("f", "old", "edited").unwrap();
    world.undo(edited.undo_token.as_ref()).unwrap();
    assert_eq!(text(&path), "old");

    let made = world.write("made", "x").unwrap();
    let undone = world.undo(made.undo_token.as_ref()).unwrap();
    assert_eq!(undone.file, None);
    assert_eq!(world.names(), ["f"]);

    let inode = fs::metadata(&path).unwrap().ino();
    let removed = world.remove("f").unwrap();
    assert_eq!(world.names(), [""; 0]);
    world.undo(removed.undo_token.as_ref()).unwrap();
    assert_eq!((text(&path), mode(&path)), ("old".to_owned(), 0o750));
    assert_eq!(fs::metadata(&path).unwrap().ino(), inode);

    let renamed = world.rename("f", "g").unwrap();
    world.undo(renamed.undo_token.as_ref()).unwrap();
    assert_eq!(world.names(), ["f"]);

    symlink("f", world.at("link")).unwrap();
    let removed = world.remove("link").unwrap();
    world.undo(removed.undo_token.as_ref()).unwrap();
    assert_eq!(fs::read_link(world.at("link")).unwrap(), Path::new("f"));

    fs::create_dir(world.at("dir")).unwrap();
    chmod(world.at("dir"), 0o711);
    let removed = world.remove("dir").unwrap();
    world.undo(removed.undo_token.as_ref()).unwrap();
    assert_eq!(mode(world.at("dir")), 0o711);
}

#[test]
fn what_was_changed_since_is_not_touched() {
    let world = World::new();
    let conflict = |token: &Option<String>| {
        let error = world.undo(token.as_ref()).unwrap_err();
        assert!(matches!(error, FileError::UndoConflict { .. }), "{error}");
    };
    let path = world.put("f", "old");
    let written = world.write("f", "new").unwrap();
    fs::write(&path, "NEW").unwrap();
    conflict(&written.undo_token);
    assert_eq!(text(&path), "NEW");
    let made = world.write("made", "x").unwrap();
    fs::remove_file(world.at("made")).unwrap();
    conflict(&made.undo_token);
    world.put("made", "x");
    conflict(&made.undo_token);
    let removed = world.remove("made").unwrap();
    world.put("made", "another");
    conflict(&removed.undo_token);
    assert_eq!(text(world.at("made")), "another");
    let renamed = world.rename("f", "g").unwrap();
    world.put("f", "another");
    conflict(&renamed.undo_token);
    fs::remove_file(world.at("f")).unwrap();
    // What hindered it is gone.
    world.undo(renamed.undo_token.as_ref()).unwrap();
    assert_eq!(text(&path), "NEW");
}

#[test]
fn a_token_is_good_once_and_only_for_its_session() {
    let world = World::new();
    world.put("f", "old");
    let token = world.write("f", "new").unwrap().undo_token;
    let forgotten = |result: Result<Undone, FileError>| {
        let error = result.unwrap_err();
        assert!(matches!(error, FileError::UndoForgotten { .. }), "{error}");
    };
    let other = Caller {
        session: SessionId::random(),
        ..world.caller()
    };
    forgotten(
        world
            .files
            .undo(other, token.as_ref().unwrap())
            .map(|reply| reply.value),
    );
    world.undo(token.as_ref()).unwrap();
    forgotten(world.undo(token.as_ref()));
    forgotten(world.undo(Some(&"no such token".to_owned())));
    assert_eq!(text(world.at("f")), "old");
}

#[test]
fn the_last_fifty_are_kept_and_their_files_are_not_left() {
    let world = World::new();
    let tokens: Vec<_> = (0..60)
        .map(|n| world.write("f", &n.to_string()).unwrap().undo_token)
        .collect();
    let instance = names(&world.state.join("instances"));
    let directory = world.state.join("instances").join(&instance[0]);
    let kept = || {
        let all = names(&directory);
        all.iter().filter(|name| name.starts_with("undo-")).count()
    };
    assert_eq!(kept(), 50);
    for (n, token) in tokens.iter().enumerate().rev() {
        let undone = world.undo(token.as_ref());
        assert_eq!(
            undone.is_ok(),
            n >= 10,
            "{n}: one after the other, as far as kept"
        );
        if n < 10 {
            let error = undone.unwrap_err();
            assert!(matches!(error, FileError::UndoForgotten { .. }), "{n}");
        }
    }
    assert_eq!(text(world.at("f")), "9");
    assert_eq!(kept(), 0);
    world.write("f", "again").unwrap();
    assert_eq!(kept(), 1);
    world.files.end_session(world.session);
    assert_eq!(kept(), 0);
}

#[test]
fn a_file_above_64_mib_gets_no_token() {
    let world = World::new();
    for (size, kept) in [(64 << 20, true), ((64 << 20) + 1, false)] {
        let large = fs::File::create(world.at("f")).unwrap();
        large.set_len(size).unwrap();
        let written = world.write("f", "small").unwrap();
        assert_eq!(written.undo_token.is_some(), kept, "{size}");
    }
}

#[test]
fn directories_are_made_and_found() {
    let world = World::new();
    let make = |name: &str, parents, mode| {
        let spec = MakeDirectorySpec {
            path: name.into(),
            parents,
            mode,
        };
        let made = world.files.make_directory(world.caller(), &spec);
        made.map(|reply| reply.value)
    };
    let made = make("a", false, Some(0o777)).unwrap();
    assert!(made.created);
    assert_eq!(made.file.path, world.at("a"));
    assert_eq!(mode(world.at("a")), 0o777, "the umask took something");
    fs::create_dir(world.at("like")).unwrap();
    make("b/", false, None).unwrap();
    assert_eq!(mode(world.at("b")), mode(world.at("like")));
    assert!(matches!(
        make("a", false, None),
        Err(FileError::Exists { .. })
    ));
    assert!(!make("a", true, None).unwrap().created);
    assert!(!make(".", true, None).unwrap().created);
    assert!(matches!(
        make("x/y/z", false, None),
        Err(FileError::NoParent { .. })
    ));
    assert!(make("x/y/z", true, Some(0o700)).unwrap().created);
    assert_eq!(mode(world.at("x/y/z")), 0o700);
    world.put("file", "");
    symlink("nothing", world.at("dangling")).unwrap();
    for (name, parents) in [("file", true), ("file", false), ("dangling", true)] {
        let error = make(name, parents, None).unwrap_err();
        assert!(matches!(error, FileError::Exists { .. }), "{name}: {error}");
    }
    assert!(fs::symlink_metadata(world.at("nothing")).is_err());
    assert!(make("file/below", true, None).is_err());
    assert!(make("../beside", true, None).is_err());
}

#[test]
fn what_is_kept_for_an_undo_is_what_the_operator_allows() {
    let limited = |set: &[(&str, u64)]| {
        let mut world = World::new();
        let mut limits = crate::limits::Limits::default();
        for (name, value) in set {
            limits.set(name, *value).unwrap();
        }
        world.files = Arc::new(Files::with_limits(&world.state, &limits));
        world
    };
    // How many of five changes of a file of four bytes can be taken back.
    for (set, kept) in [
        (&[][..], 5),
        (&[("undo_mutations", 0)], 0),
        (&[("undo_mutations", 3)], 3),
        (&[("undo_file_bytes", 3)], 0),
        (&[("undo_file_bytes", 4)], 5),
        (&[("undo_session_bytes", 8)], 2),
        (&[("undo_session_bytes", 3)], 0),
    ] {
        let world = limited(set);
        world.put("f", "0000");
        let tokens: Vec<_> = (1..=5)
            .filter_map(|n| {
                world
                    .write("f", &n.to_string().repeat(4))
                    .unwrap()
                    .undo_token
            })
            .collect();
        let good = tokens
            .iter()
            .rev()
            .take_while(|token| world.undo(Some(token)).is_ok());
        assert_eq!(good.count(), kept, "{set:?}");
        let expected = (5 - kept).to_string().repeat(4);
        assert_eq!(text(world.at("f")), expected, "{set:?}");
    }
}
