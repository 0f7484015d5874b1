//! Several writers: each success is on disk, and what others wrote is never
//! overwritten in silence.

use std::os::unix::fs::{MetadataExt as _, symlink};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::files::mutation::Precondition;
use crate::files::version::Digest;

#[test]
fn fifty_writers_through_five_spellings_and_every_success_is_on_disk() {
    let world = World::new();
    fs::create_dir(world.at("sub")).unwrap();
    symlink("../f", world.at("sub/link")).unwrap();
    symlink(&world.app, world.at("alias")).unwrap();
    let path = world.put("f", "END\n");
    let spellings = [
        "f".to_owned(),
        "./sub/../f".to_owned(),
        path.to_str().unwrap().to_owned(),
        "sub/link".to_owned(),
        "alias/f".to_owned(),
    ];
    std::thread::scope(|scope| {
        for n in 0..50 {
            let (world, spellings) = (&world, &spellings);
            scope.spawn(move || {
                let line = format!("line {n}\nEND");
                world.edit(&spellings[n % 5], "END", &line).unwrap();
            });
        }
    });
    let text = text(&path);
    for n in 0..50 {
        assert!(text.contains(&format!("line {n}\n")), "{n} is lost");
    }
    assert_eq!(text.lines().count(), 51);
    assert_eq!(world.names(), ["alias", "f", "sub"]);
}

#[test]
fn writers_of_a_file_with_several_names_take_turns_too() {
    let world = World::new();
    world.put("a", "END\n");
    fs::hard_link(world.at("a"), world.at("b")).unwrap();
    std::thread::scope(|scope| {
        for n in 0..20 {
            let world = &world;
            scope.spawn(move || {
                let spec = EditSpec {
                    in_place: true,
                    ..EditSpec::new(["a", "b"][n % 2], vec![edit("END", &format!("{n}\nEND"))])
                };
                world.edit_as(&spec).unwrap();
            });
        }
    });
    assert_eq!(text(world.at("a")).lines().count(), 21);
}

/// What another program does to a file while we are about to replace it; what
/// must be found in it afterwards.
type Foreign = (&'static str, fn(&Path), &'static str);

const FOREIGN: [Foreign; 5] = [
    (
        "written in place, same length",
        |f| fs::write(f, "old THEIRS END").unwrap(),
        "THEIRS",
    ),
    (
        "written in place, longer",
        |f| fs::write(f, "old theirs, longer END").unwrap(),
        "longer",
    ),
    (
        "replaced",
        |f| {
            fs::write(f.with_extension("x"), "old THEIRS END").unwrap();
            fs::rename(f.with_extension("x"), f).unwrap();
        },
        "THEIRS",
    ),
    (
        "removed and made again",
        |f| {
            fs::remove_file(f).unwrap();
            fs::write(f, "old THEIRS END").unwrap();
        },
        "THEIRS",
    ),
    ("its mode changed", |f| chmod(f, 0o751), "old"),
];

/// Does `act` at the first `times` exchanges.
fn interfere(world: &World, times: usize, act: impl Fn(&Path) + Send + Sync + 'static) {
    let done = AtomicUsize::new(0);
    world.files.hooks.before_commit(move |path| {
        if done.fetch_add(1, Ordering::SeqCst) < times {
            act(path);
        }
    });
}

#[test]
fn a_foreign_write_between_read_and_commit_is_in_the_result_of_an_edit() {
    for (what, act, found) in FOREIGN {
        let world = World::new();
        let path = world.put("f", "old theirs END");
        interfere(&world, 1, act);
        let edited = world.edit("f", "END", "ours END").unwrap();
        let now = text(&path);
        assert!(now.contains("ours END"), "{what}: {now}");
        assert!(now.contains(found), "{what}: {now}");
        assert_eq!(edited.digest, Digest::of(now.as_bytes()), "{what}");
        if found == "old" {
            assert_eq!(mode(&path), 0o751);
        }
        assert_eq!(world.names(), ["f"], "{what}");
    }
}

#[test]
fn a_foreign_write_breaks_a_precondition_that_held() {
    for (what, act, found) in FOREIGN {
        if found == "old" {
            continue;
        }
        let world = World::new();
        let path = world.put("f", "old theirs END");
        interfere(&world, 1, act);
        let spec = WriteSpec {
            precondition: Some(Precondition::Digest(Digest::of(b"old theirs END"))),
            ..WriteSpec::new("f")
        };
        let error = world.write_as(&spec, "ours").unwrap_err();
        assert!(
            matches!(error, FileError::PreconditionFailed { .. }),
            "{what}: {error}"
        );
        assert!(text(&path).contains(found), "{what}");
        assert_eq!(world.names(), ["f"], "{what}");
    }
}

#[test]
fn who_is_always_overtaken_is_told_and_changes_nothing() {
    let world = World::new();
    let path = world.put("f", "END 0");
    let count = AtomicUsize::new(0);
    interfere(&world, usize::MAX, move |path| {
        let n = count.fetch_add(1, Ordering::SeqCst);
        fs::write(path, format!("END {n} theirs")).unwrap();
    });
    let error = world.edit("f", "END", "ours END").unwrap_err();
    assert!(matches!(error, FileError::Changed { .. }), "{error}");
    assert!(text(&path).ends_with("theirs"));
    assert_eq!(world.names(), ["f"]);
}

#[test]
fn a_name_given_to_the_file_meanwhile_is_not_split_off() {
    let world = World::new();
    let path = world.put("f", "old");
    interfere(&world, 1, |path| {
        fs::hard_link(path, path.with_extension("second")).unwrap();
    });
    let error = world.edit("f", "old", "new").unwrap_err();
    assert!(
        matches!(error, FileError::WouldBreakLinks { .. }),
        "{error}"
    );
    assert_eq!(text(&path), "old");
    assert_eq!(fs::metadata(&path).unwrap().nlink(), 2);
}

#[test]
fn a_new_file_takes_no_name_that_was_taken_meanwhile() {
    for exchange in [true, false] {
        let world = World::new();
        if !exchange {
            world.files.hooks.without_exchange();
        }
        interfere(&world, 1, |path| fs::write(path, "theirs").unwrap());
        let spec = WriteSpec {
            precondition: Some(Precondition::MustNotExist),
            ..WriteSpec::new("f")
        };
        let error = world.write_as(&spec, "ours").unwrap_err();
        assert!(
            matches!(error, FileError::PreconditionFailed { .. }),
            "{error}"
        );
        assert_eq!(text(world.at("f")), "theirs");
        assert_eq!(world.names(), ["f"]);
    }
}

#[test]
fn a_file_written_in_place_by_others_meanwhile_is_read_again() {
    let world = World::new();
    let path = world.put("f", "old END");
    fs::hard_link(&path, world.at("g")).unwrap();
    interfere(&world, 1, |path| fs::write(path, "theirs END").unwrap());
    let spec = EditSpec {
        in_place: true,
        ..EditSpec::new("f", vec![edit("END", "ours END")])
    };
    world.edit_as(&spec).unwrap();
    assert_eq!(text(&path), "theirs ours END");
}

#[test]
fn readers_see_the_old_content_or_the_new() {
    let world = World::new();
    let (one, two) = ("1".repeat(300_000), "2".repeat(200_000));
    let path = world.put("f", &one);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0;
            while !stop.load(Ordering::Relaxed) {
                let seen = text(&path);
                assert!(seen == one || seen == two, "{} bytes", seen.len());
                reads += 1;
            }
            reads
        });
        for n in 0..60 {
            let content = if n % 2 == 0 { &two } else { &one };
            world.write("f", content).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
    });
}

#[test]
fn b127_a_mutation_that_is_slow_delays_no_other_file() {
    let world = World::new();
    world.put("slow", "x");
    world.put("quick", "x");
    let (entered, wait) = std::sync::mpsc::sync_channel(1);
    let (release, released) = std::sync::mpsc::sync_channel::<()>(1);
    let (entered, released) = (
        std::sync::Mutex::new(entered),
        std::sync::Mutex::new(released),
    );
    world.files.hooks.before_commit(move |path| {
        if path.ends_with("slow") {
            entered.lock().unwrap().send(()).unwrap();
            released.lock().unwrap().recv().unwrap();
        }
    });
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| world.write("slow", "y").unwrap());
        wait.recv().unwrap();
        for n in 0..50 {
            world.write("quick", &n.to_string()).unwrap();
            world.write(format!("new {n}"), "x").unwrap();
            world.remove(format!("new {n}")).unwrap();
        }
        release.send(()).unwrap();
        slow.join().unwrap();
    });
}

#[test]
fn who_waits_too_long_for_its_turn_is_told() {
    let mut world = World::new();
    let patience = std::time::Duration::from_millis(50);
    let mut files = Files::open(&world.state);
    files.be_patient(patience);
    world.files = Arc::new(files);
    world.put("f", "x");
    let (entered, wait) = std::sync::mpsc::sync_channel(1);
    let (release, released) = std::sync::mpsc::sync_channel::<()>(1);
    let (entered, released) = (
        std::sync::Mutex::new(entered),
        std::sync::Mutex::new(released),
    );
    world.files.hooks.before_commit(move |_| {
        entered.lock().unwrap().send(()).unwrap();
        released.lock().unwrap().recv().unwrap();
    });
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| world.write("f", "y").unwrap());
        wait.recv().unwrap();
        let error = world.write("f", "z").unwrap_err();
        assert!(matches!(error, FileError::Busy { .. }), "{error}");
        release.send(()).unwrap();
        slow.join().unwrap();
    });
    assert_eq!(text(world.at("f")), "y");
}
