//! Removals: the named entry, and no other.

use std::os::unix::fs::symlink;

use super::*;
use crate::files::mutation::Precondition;
use crate::files::version::Digest;

fn recursive(name: &str) -> RemoveSpec {
    RemoveSpec {
        recursive: true,
        ..RemoveSpec::new(name)
    }
}

#[test]
fn b025_what_a_file_holds_does_not_matter() {
    let world = World::new();
    world.put("binary", b"\xff\xfe\x00");
    world.put("empty", b"");
    let unreadable = world.put("mode 000", b"x");
    chmod(unreadable, 0o000);
    let sparse = fs::File::create(world.at("3 GiB")).unwrap();
    sparse.set_len(3 << 30).unwrap();
    world.put("trailing space ", b"x");
    for name in world.names() {
        let removed = world.remove(&name).unwrap();
        assert_eq!(removed.removed, 1, "{name}");
        assert_eq!(removed.path, world.at(&name));
    }
    assert_eq!(world.names(), [""; 0]);
}

#[test]
fn b026_the_named_entry_goes_and_no_other() {
    let world = World::new();
    for name in ["dir", "dir/sub", "emptydir", "target"] {
        fs::create_dir(world.at(name)).unwrap();
    }
    world.put("dir/f", "x");
    world.put("file", "x");
    world.put("target/f", "x");
    symlink("target", world.at("link to dir")).unwrap();
    symlink("file", world.at("link to file")).unwrap();
    symlink("nothing", world.at("dangling")).unwrap();
    for name in ["dir", "dir/"] {
        let error = world.remove(name).unwrap_err();
        assert!(
            matches!(error, FileError::DirectoryNotEmpty { .. }),
            "{error}"
        );
    }
    assert_eq!(names(&world.at("dir")), ["f", "sub"]);
    world.remove("emptydir").unwrap();
    world.remove("link to dir").unwrap();
    world.remove("link to file").unwrap();
    world.remove("dangling").unwrap();
    assert_eq!(world.names(), ["dir", "file", "target"]);
    assert_eq!(names(&world.at("target")), ["f"]);
    // A link named as a directory is neither.
    symlink("target", world.at("link")).unwrap();
    assert!(world.remove("link/").is_err());
    assert!(world.remove_as(&recursive("link/")).is_err());
    assert_eq!(names(&world.at("target")), ["f"]);
    assert_eq!(world.remove_as(&recursive("link")).unwrap().removed, 1);
    assert_eq!(names(&world.at("target")), ["f"]);
}

#[test]
fn special_files_can_be_removed() {
    let world = World::new();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        world.at("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    drop(std::os::unix::net::UnixListener::bind(world.at("socket")).unwrap());
    world.remove("fifo").unwrap();
    world.remove("socket").unwrap();
    assert_eq!(world.names(), [""; 0]);
}

#[test]
fn a_tree_goes_with_all_that_is_in_it_and_no_link_is_followed() {
    let world = World::new();
    let outside = world.app.parent().unwrap().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("f"), "x").unwrap();
    fs::create_dir_all(world.at("tree/a/b/c")).unwrap();
    fs::create_dir_all(world.at("tree/d")).unwrap();
    for n in 0..3_000 {
        world.put(format!("tree/a/f{n}"), "");
    }
    symlink(&outside, world.at("tree/d/out")).unwrap();
    symlink("..", world.at("tree/a/b/up")).unwrap();
    world.put("beside", "x");
    let removed = world.remove_as(&recursive("tree")).unwrap();
    assert_eq!(removed.removed, 3_000 + 5 + 2);
    assert_eq!(removed.undo_token, None);
    assert_eq!(world.names(), ["beside"]);
    assert_eq!(names(&outside), ["f"]);
}

#[test]
fn a_tree_deeper_than_any_path_goes_too() {
    let world = World::new();
    fs::create_dir(world.at("deep")).unwrap();
    let mut here: std::os::fd::OwnedFd = fs::File::open(world.at("deep")).unwrap().into();
    let name = "d".repeat(100);
    for _ in 0..300 {
        rustix::fs::mkdirat(&here, &name, rustix::fs::Mode::RWXU).unwrap();
        let flags = rustix::fs::OFlags::RDONLY;
        here = rustix::fs::openat(&here, &name, flags, rustix::fs::Mode::empty()).unwrap();
    }
    let removed = world.remove_as(&recursive("deep")).unwrap();
    assert_eq!(removed.removed, 301);
    assert_eq!(world.names(), [""; 0]);
}

#[test]
fn what_is_mounted_in_a_tree_stays_and_the_tree_with_it() {
    use nix::mount::{MsFlags, mount, umount};
    with_tmpfs("1m", |_| {
        let world = World::new();
        // Of the same file system: its device does not tell.
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("precious"), "x").unwrap();
        fs::create_dir_all(world.at("tree/a")).unwrap();
        world.put("tree/first", "x");
        world.put("tree/b", "x");
        let none: Option<&str> = None;
        for (what, at) in [("", "tree/a"), ("precious", "tree/b")] {
            let (what, at) = (outside.path().join(what), world.at(at));
            mount(Some(&what), &at, none, MsFlags::MS_BIND, none).unwrap();
            let mut whole = vec!["tree"];
            whole.extend(what.is_dir().then_some("tree/a"));
            for name in whole {
                let error = world.remove_as(&recursive(name)).unwrap_err();
                assert!(matches!(error, FileError::Mounted { .. }), "{error}");
            }
            assert_eq!(names(outside.path()), ["precious"]);
            assert_eq!(names(&world.at("tree")), ["a", "b", "first"]);
            umount(&at).unwrap();
        }
        world.remove_as(&recursive("tree")).unwrap();
        assert_eq!(names(outside.path()), ["precious"]);
    });
}

#[test]
fn a_tree_with_a_secret_file_or_a_root_in_it_stays_whole() {
    let world = World::new();
    fs::create_dir_all(world.at("tree/a/b")).unwrap();
    world.put("tree/first", "x");
    world.put("tree/a/b/.env", "secret");
    let error = world.remove_as(&recursive("tree")).unwrap_err();
    assert!(matches!(error, FileError::SecretWithin { .. }), "{error}");
    let told = error.to_string();
    assert!(
        told.contains("\"tree/a/b/.env\" is a secret file"),
        "{told}"
    );
    let by_its_whole_name = world.remove_as(&recursive(world.at("tree").to_str().unwrap()));
    let told = by_its_whole_name.unwrap_err().to_string();
    let whole = world.at("tree/a/b/.env");
    assert!(told.contains(whole.to_str().unwrap()), "{told}");
    assert_eq!(names(&world.at("tree")), ["a", "first"]);
    fs::remove_file(world.at("tree/a/b/.env")).unwrap();
    let fence = around(&[&world.app, &world.at("tree/a/b")]);
    let caller = Caller {
        fence: &fence,
        ..world.caller()
    };
    let error = world.files.remove(caller, &recursive("tree")).unwrap_err();
    assert!(matches!(error, FileError::IsARoot { .. }), "{error}");
    assert_eq!(names(&world.at("tree")), ["a", "first"]);
    for name in [".", "tree/.", "tree/a/..", world.app.to_str().unwrap()] {
        let error = world.remove_as(&recursive(name)).unwrap_err();
        assert!(
            matches!(error, FileError::IsARoot { .. }),
            "{name}: {error}"
        );
    }
    world.remove_as(&recursive("tree")).unwrap();
}

#[test]
fn what_is_missing_is_told_unless_that_is_fine() {
    let world = World::new();
    for name in ["missing", "no/such/directory"] {
        let error = world.remove(name).unwrap_err();
        assert!(matches!(error, FileError::NotFound { .. }), "{error}");
        let spec = RemoveSpec {
            missing_ok: true,
            ..RemoveSpec::new(name)
        };
        let removed = world.remove_as(&spec).unwrap();
        assert_eq!((removed.removed, removed.undo_token), (0, None));
    }
}

#[test]
fn a_precondition_holds_for_a_removal_too() {
    let world = World::new();
    world.put("f", "x");
    let spec = |precondition| RemoveSpec {
        precondition: Some(precondition),
        ..RemoveSpec::new("f")
    };
    let error = world.remove_as(&spec(Precondition::Digest(Digest::of(b"y"))));
    assert!(matches!(error, Err(FileError::PreconditionFailed { .. })));
    let error = world.remove_as(&spec(Precondition::MustNotExist));
    assert!(matches!(error, Err(FileError::InvalidArgument { .. })));
    world
        .remove_as(&spec(Precondition::Digest(Digest::of(b"x"))))
        .unwrap();
}

#[test]
fn a_file_that_took_the_name_meanwhile_is_not_removed_in_its_place_unseen() {
    let world = World::new();
    let path = world.put("f", "x");
    let swapped = std::sync::atomic::AtomicBool::new(false);
    world.files.hooks.before_commit(move |_| {
        if !swapped.swap(true, std::sync::atomic::Ordering::SeqCst) {
            fs::write(path.with_extension("new"), "theirs").unwrap();
            fs::rename(path.with_extension("new"), &path).unwrap();
        }
    });
    let spec = RemoveSpec {
        precondition: Some(Precondition::Digest(Digest::of(b"x"))),
        ..RemoveSpec::new("f")
    };
    let error = world.remove_as(&spec).unwrap_err();
    assert!(matches!(error, FileError::PreconditionFailed { .. }));
    assert_eq!(text(world.at("f")), "theirs");
}
