//! Directories that a call makes above what it is about go with its failure.

use super::*;
use crate::files::make_directory::MakeDirectorySpec;

/// The names below the root, with a `/` behind directories.
fn tree(directory: &Path, prefix: &str) -> Vec<String> {
    let mut found = Vec::new();
    for name in names(directory) {
        let path = directory.join(&name);
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            found.push(format!("{prefix}{name}/"));
            found.extend(tree(&path, &format!("{prefix}{name}/")));
        } else {
            found.push(format!("{prefix}{name}"));
        }
    }
    found
}

fn write(world: &World, path: &str) -> Result<(), FileError> {
    let spec = WriteSpec {
        parents: true,
        ..WriteSpec::new(path)
    };
    world.write_as(&spec, "x").map(drop)
}

fn rename(world: &World, from: &str, to: &str) -> Result<(), FileError> {
    let spec = RenameSpec {
        parents: true,
        ..RenameSpec::new(from, to)
    };
    world.rename_as(&spec).map(drop)
}

fn make(world: &World, path: &str) -> Result<(), FileError> {
    let spec = MakeDirectorySpec {
        path: path.into(),
        parents: true,
        mode: None,
    };
    world.files.make_directory(world.caller(), &spec).map(drop)
}

#[test]
fn a_call_that_fails_leaves_no_directories() {
    let long = "n".repeat(256);
    type Call = Box<dyn Fn(&World) -> Result<(), FileError>>;
    let deep = |name: &str| format!("new/a/b/{name}");
    let (l1, l2, l3) = (deep(&long), deep(&long), deep(&long));
    let calls: Vec<(&str, Call)> = vec![
        (
            "write, a directory's name",
            Box::new(move |w| write(w, "new/a/b/")),
        ),
        ("write, too long a name", Box::new(move |w| write(w, &l1))),
        (
            "write, too long a name above",
            Box::new(move |w| write(w, &format!("new/a/{}/f", "n".repeat(256)))),
        ),
        ("write, a secret file", Box::new(|w| write(w, "new/a/.env"))),
        (
            "write, a secret directory",
            Box::new(|w| write(w, "new/.ssh/f")),
        ),
        ("write, below a file", Box::new(|w| write(w, "f/new/g"))),
        (
            "rename, too long a name",
            Box::new(move |w| rename(w, "f", &l2)),
        ),
        (
            "rename, a file to a directory's name",
            Box::new(|w| rename(w, "f", "new/a/")),
        ),
        (
            "rename, a directory into itself",
            Box::new(|w| rename(w, "dir", "dir/new/a/b")),
        ),
        (
            "rename, nothing",
            Box::new(|w| rename(w, "nothing", "new/a")),
        ),
        (
            "rename, to a secret file",
            Box::new(|w| rename(w, "f", "new/a/.env")),
        ),
        ("make, too long a name", Box::new(move |w| make(w, &l3))),
        ("make, a secret file", Box::new(|w| make(w, "new/a/.ssh"))),
    ];
    for (what, call) in calls {
        let world = World::new();
        world.put("f", "x");
        fs::create_dir_all(world.at("dir/sub")).unwrap();
        let before = tree(&world.app, "");
        assert!(call(&world).is_err(), "{what}");
        assert_eq!(tree(&world.app, ""), before, "{what}");
    }
}

#[test]
fn what_was_there_or_holds_something_stays() {
    let world = World::new();
    let long = "n".repeat(256);
    fs::create_dir(world.at("there")).unwrap();
    write(&world, &format!("there/new/{long}")).unwrap_err();
    assert_eq!(tree(&world.app, ""), ["there/"]);
    // Somebody else uses one of them meanwhile.
    let other = world.at("a/b/theirs");
    world.files.hooks.before_commit(move |path| {
        fs::write(&other, "theirs").unwrap();
        // So the call fails: its name is a directory now.
        fs::create_dir(path).unwrap();
    });
    let error = write(&world, "a/b/c/f").unwrap_err();
    assert!(matches!(error, FileError::IsADirectory { .. }), "{error}");
    assert!(world.at("a/b/theirs").metadata().is_ok());
    assert!(world.at("a/b/c/f").metadata().is_ok());
}

#[test]
fn a_call_that_succeeds_keeps_them() {
    let world = World::new();
    world.put("f", "x");
    write(&world, "a/b/f").unwrap();
    rename(&world, "f", "c/d/g").unwrap();
    make(&world, "e/f/g").unwrap();
    let expected = [
        "a/", "a/b/", "a/b/f", "c/", "c/d/", "c/d/g", "e/", "e/f/", "e/f/g/",
    ];
    assert_eq!(tree(&world.app, ""), expected);
}

#[test]
fn many_that_fail_and_succeed_at_the_same_time_do_not_disturb_each_other() {
    let world = &World::new();
    let long = "n".repeat(256);
    std::thread::scope(|scope| {
        for n in 0..4 {
            let long = &long;
            scope.spawn(move || {
                for round in 0..30 {
                    write(world, &format!("a/b/{n}/{long}")).unwrap_err();
                    write(world, &format!("a/b/c/{n}-{round}")).unwrap();
                    world.remove(format!("a/b/c/{n}-{round}")).unwrap();
                }
            });
        }
    });
    assert_eq!(tree(&world.app, ""), ["a/", "a/b/", "a/b/c/"]);
}

#[test]
fn a_directory_that_is_missing_above_is_named_with_what_makes_it() {
    let world = World::new();
    world.put("f", "x");
    fs::create_dir(world.at("there")).unwrap();
    std::os::unix::fs::symlink("nowhere/f", world.at("link")).unwrap();
    type Call = fn(&World, &str) -> Result<(), FileError>;
    let calls: [(&str, Call); 3] = [
        ("write", |w, to| w.write(to, "x").map(drop)),
        ("rename", |w, to| w.rename("f", to).map(drop)),
        ("make", |w, to| {
            let spec = MakeDirectorySpec {
                path: to.into(),
                parents: false,
                mode: None,
            };
            w.files.make_directory(w.caller(), &spec).map(drop)
        }),
    ];
    for (what, call) in calls {
        for (to, missing) in [
            ("new/f", "new"),
            ("there/new/f", "there/new"),
            ("./there//new/deep/f", "./there//new"),
        ] {
            let error = call(&world, to).unwrap_err();
            let told = error.to_string();
            let expected = format!("the directory \"{missing}\" above it does not exist");
            assert!(told.contains(&expected), "{what}: {told}");
            assert!(told.contains("`parents`"), "{what}: {told}");
        }
    }
    // What is to be renamed, read or edited is missing itself.
    for error in [
        world.rename("none/f", "g").map(drop).unwrap_err(),
        world.edit("none/f", "a", "b").map(drop).unwrap_err(),
        world.remove("none/f").map(drop).unwrap_err(),
        world.write("link", "x").map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, FileError::NotFound { .. }), "{error}");
    }
}
