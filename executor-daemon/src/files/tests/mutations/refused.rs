//! Where replacing a file would lose something, or does not work; and a disk
//! that is full.

use super::*;
use crate::files::cancel::Cancel;

fn in_place(name: &str) -> WriteSpec {
    WriteSpec {
        in_place: true,
        ..WriteSpec::new(name)
    }
}

#[test]
fn another_owner_is_not_changed_in_silence() {
    // Made with rights, used without.
    let top = tempfile::tempdir().unwrap();
    let app = top.path().join("app");
    fs::create_dir(&app).unwrap();
    chmod(top.path(), 0o777);
    chmod(&app, 0o777);
    fs::write(app.join("f"), "theirs").unwrap();
    chmod(app.join("f"), 0o666);
    as_nobody(|| {
        let world = World::around(top, app);
        let error = world.write("f", "ours").unwrap_err();
        assert!(
            matches!(error, FileError::WouldChangeOwner { uid: 0, .. }),
            "{error}"
        );
        assert_eq!(text(world.at("f")), "theirs");
        assert_eq!(world.names(), ["f"]);
        let written = world.write_as(&in_place("f"), "ours").unwrap();
        assert!(!written.durability.atomic);
        assert_eq!(text(world.at("f")), "ours");
    });
}

#[test]
fn a_directory_that_may_not_be_written_leaves_in_place() {
    let top = tempfile::tempdir().unwrap();
    let app = top.path().join("app");
    fs::create_dir(&app).unwrap();
    chmod(top.path(), 0o777);
    fs::write(app.join("f"), "old").unwrap();
    std::os::unix::fs::chown(app.join("f"), Some(65_534), None).unwrap_or_default();
    as_nobody(|| {
        let world = World::around(top, app);
        let error = world.write("f", "new").unwrap_err();
        assert!(matches!(error, FileError::CannotReplace { .. }), "{error}");
        assert!(error.to_string().contains("in_place"), "{error}");
        assert!(world.write("fresh", "x").is_err());
        let written = world.write_as(&in_place("f"), "new and longer").unwrap();
        assert!(!written.durability.atomic);
        assert_eq!(text(world.at("f")), "new and longer");
        let edited = world.edit_as(&EditSpec {
            in_place: true,
            ..EditSpec::new("f", vec![edit("new", "newer")])
        });
        world.undo(edited.unwrap().undo_token.as_ref()).unwrap();
        assert_eq!(text(world.at("f")), "new and longer");
    });
}

#[test]
fn an_attribute_that_we_may_not_set_is_not_lost_in_silence() {
    use rustix::fs::{XattrFlags, setxattr};
    let top = tempfile::tempdir().unwrap();
    let app = top.path().join("app");
    fs::create_dir(&app).unwrap();
    chmod(top.path(), 0o777);
    chmod(&app, 0o777);
    let path = app.join("f");
    fs::write(&path, "old").unwrap();
    std::os::unix::fs::chown(&path, Some(65_534), None).unwrap_or_default();
    // capabilities(7): version 2, cap_chown permitted.
    let mut capability = vec![0, 0, 0, 2, 1, 0, 0, 0];
    capability.resize(20, 0);
    let name = "security.capability";
    if setxattr(&path, name, &capability, XattrFlags::empty()).is_err() {
        eprintln!("no capabilities of files here: skipped");
        return;
    }
    as_nobody(|| {
        let world = World::around(top, app);
        let error = world.write("f", "new").unwrap_err();
        let FileError::WouldLoseAttributes { attribute, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(attribute, name);
        assert_eq!(text(world.at("f")), "old");
        assert_eq!(world.names(), ["f"]);
        world.write_as(&in_place("f"), "new").unwrap();
        assert_eq!(text(world.at("f")), "new");
    });
}

#[test]
fn a_file_that_something_is_mounted_on_leaves_in_place() {
    use nix::mount::{MsFlags, mount};
    with_tmpfs("1m", |top| {
        let app = top.join("app");
        fs::create_dir(&app).unwrap();
        fs::write(app.join("f"), "below").unwrap();
        fs::write(top.join("mounted"), "old").unwrap();
        let none: Option<&str> = None;
        let (from, to) = (top.join("mounted"), app.join("f"));
        mount(Some(&from), &to, none, MsFlags::MS_BIND, none).unwrap();
        let world = World::around(tempfile::tempdir().unwrap(), app.clone());
        let error = world.write("f", "new").unwrap_err();
        assert!(matches!(error, FileError::CannotReplace { .. }), "{error}");
        assert_eq!(text(app.join("f")), "old");
        assert_eq!(world.names(), ["f"]);
        let written = world.write_as(&in_place("f"), "new").unwrap();
        assert!(!written.durability.atomic);
        assert_eq!(text(top.join("mounted")), "new");
    });
}

#[test]
fn b044_a_full_disk_leaves_the_file_as_it_was_and_no_temporary() {
    with_tmpfs("64k", |app| {
        let world = World::around(tempfile::tempdir().unwrap(), app.to_owned());
        let before = "x".repeat(20 << 10);
        world.put("f", &before);
        world.put("other", "y".repeat(24 << 10));
        let grown = "z".repeat(30 << 10);
        let full =
            |error: FileError| assert!(matches!(error, FileError::NoSpace { .. }), "{error}");
        full(world.write("f", &grown).unwrap_err());
        let long = Edit {
            replace_all: true,
            ..edit("x", "xx")
        };
        full(world.edit_as(&EditSpec::new("f", vec![long])).unwrap_err());
        full(world.write("new", &grown).unwrap_err());
        assert_eq!(text(world.at("f")), before);
        assert_eq!(world.names(), ["f", "other"]);
        // In place there is room for 20 KiB, but not for more.
        fs::hard_link(world.at("f"), world.at("g")).unwrap();
        full(
            world
                .write_as(&in_place("f"), &"z".repeat(60 << 10))
                .unwrap_err(),
        );
        assert_eq!(text(world.at("f")), before);
        world
            .write_as(&in_place("f"), &"z".repeat(20 << 10))
            .unwrap();
        assert_eq!(text(world.at("g")), "z".repeat(20 << 10));
    });
}

#[test]
fn a_state_directory_that_is_full_or_missing_changes_nothing() {
    with_tmpfs("16k", |state| {
        let top = tempfile::tempdir().unwrap();
        let app = top.path().join("app");
        fs::create_dir(&app).unwrap();
        fs::write(app.join("f"), "old").unwrap();
        chmod(state, 0o700);
        fs::write(state.join("filler"), vec![0; 12 << 10]).unwrap();
        let files = Files::open(state);
        let fence = around(&[&app]);
        let caller = Caller {
            session: SessionId::random(),
            fence: &fence,
            operation: OperationId::random(),
            cancel: Cancel::never(),
        };
        let content = Content::of(b"new".to_vec());
        let error = files
            .write(caller, &WriteSpec::new("f"), &content)
            .unwrap_err();
        let fine = matches!(
            error,
            FileError::NoSpace { .. } | FileError::StateUnusable(_)
        );
        assert!(fine, "{error}");
        assert_eq!(text(app.join("f")), "old");
        assert_eq!(names(&app), ["f"]);
    });
    let world = World::new();
    fs::write(world.state.join("file"), "").unwrap();
    let files = Files::open(&world.state.join("file"));
    assert!(files.problem().is_some());
    let content = Content::of(b"new".to_vec());
    let error = files
        .write(world.caller(), &WriteSpec::new("f"), &content)
        .unwrap_err();
    assert!(matches!(error, FileError::StateUnusable(_)), "{error}");
    assert_eq!(world.names(), [""; 0]);
}

#[test]
fn roots_that_may_only_be_read_and_secret_files_are_refused() {
    let world = World::new();
    let app = Root::open(&world.app, Access::ReadOnly).unwrap();
    let roots = Roots::new(vec![app]);
    let cwd = directory(&roots, Path::new("/"), world.app.as_os_str(), Means::Kernel);
    let read_only = fence(Resolver::new(roots, cwd.unwrap(), Means::Kernel));
    world.put("f", "old");
    world.put(".env", "secret");
    fs::hard_link(world.at("f"), world.at("f2")).unwrap();
    fs::remove_file(world.at("f2")).unwrap();
    let caller = Caller {
        session: world.session,
        fence: &read_only,
        operation: OperationId::random(),
        cancel: Cancel::never(),
    };
    let content = Content::of(b"new".to_vec());
    let refused = [
        world
            .files
            .write(caller, &WriteSpec::new("f"), &content)
            .map(|_| ()),
        world
            .files
            .write(caller, &WriteSpec::new("new"), &content)
            .map(|_| ()),
        world
            .files
            .edit(caller, &EditSpec::new("f", vec![edit("old", "new")]))
            .map(|_| ()),
        world
            .files
            .remove(caller, &RemoveSpec::new("f"))
            .map(|_| ()),
        world
            .files
            .rename(caller, &RenameSpec::new("f", "g"))
            .map(|_| ()),
    ];
    for refused in refused {
        let error = refused.unwrap_err();
        assert!(matches!(error, FileError::RootReadOnly { .. }), "{error}");
    }
    let secret = [
        world.write(".env", "x").map(|_| ()),
        world.edit(".env", "secret", "x").map(|_| ()),
        world.remove(".env").map(|_| ()),
        world.rename(".env", "env").map(|_| ()),
        world.rename("f", ".env.local").map(|_| ()),
    ];
    for refused in secret {
        let error = refused.unwrap_err();
        assert!(matches!(error, FileError::Secret { .. }), "{error}");
    }
    assert_eq!(text(world.at("f")), "old");
    assert_eq!(world.names(), [".env", "f"]);
}
