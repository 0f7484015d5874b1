//! A caller that goes away: what has not begun is not done and ends soon, what
//! has begun is carried through.

use std::time::Instant;

use super::*;
use crate::files::mutation::{Precondition, Reply};
use crate::files::version::Digest;

/// More than one piece is read of it.
const LARGE: usize = 1 << 20;

type Run = fn(&World, Caller<'_>) -> Result<bool, FileError>;

fn replayed<T>(done: Result<Reply<T>, FileError>) -> Result<bool, FileError> {
    done.map(|reply| reply.replayed)
}

fn old() -> String {
    format!("{}END", "line\n".repeat(LARGE / 5))
}

fn digest() -> Option<Precondition> {
    Some(Precondition::Digest(Digest::of(old().as_bytes())))
}

fn writes(world: &World, caller: Caller<'_>, in_place: bool) -> Result<bool, FileError> {
    let spec = WriteSpec {
        precondition: digest(),
        in_place,
        ..WriteSpec::new("f")
    };
    let content = Content::of(b"new".to_vec());
    replayed(world.files.write(caller, &spec, &content))
}

/// Each changes `f`, and how many looks it takes at least.
const KINDS: [(&str, Run, usize); 5] = [
    ("write", |world, caller| writes(world, caller, false), 5),
    (
        "write in place",
        |world, caller| writes(world, caller, true),
        12,
    ),
    (
        "edit",
        |world, caller| {
            let spec = EditSpec {
                precondition: digest(),
                ..EditSpec::new("f", vec![edit("END", "ours"), edit("ours", "END, ours")])
            };
            replayed(world.files.edit(caller, &spec))
        },
        12,
    ),
    (
        "remove",
        |world, caller| {
            let spec = RemoveSpec {
                precondition: digest(),
                ..RemoveSpec::new("f")
            };
            replayed(world.files.remove(caller, &spec))
        },
        5,
    ),
    (
        "remove a tree",
        |world, caller| {
            fs::create_dir_all(world.at("tree")).unwrap();
            (0..10).for_each(|n| drop(world.put(format!("tree/{n}"), "x")));
            let spec = RemoveSpec {
                recursive: true,
                ..RemoveSpec::new("tree")
            };
            let removed = replayed(world.files.remove(caller, &spec));
            assert_eq!(
                names(&world.app).contains(&"tree".to_owned()),
                removed.is_err()
            );
            if removed.is_err() {
                assert_eq!(names(&world.at("tree")).len(), 10);
                fs::remove_dir_all(world.at("tree")).unwrap();
            } else {
                fs::write(world.at("f"), "removed").unwrap();
            }
            removed
        },
        10,
    ),
];

#[test]
fn who_gives_up_at_any_moment_finds_it_undone_or_done_never_half() {
    for (what, run, looks) in KINDS {
        let world = World::new();
        let path = world.put("f", old());
        if what == "write in place" {
            fs::hard_link(&path, world.at("second")).unwrap();
        }
        let before = world.names();
        let operation = OperationId::random();
        let mut tried = 0;
        loop {
            let cancel = Cancel::after(tried);
            let caller = Caller {
                operation,
                cancel: &cancel,
                ..world.caller()
            };
            match run(&world, caller) {
                Err(FileError::Cancelled) => {
                    assert_eq!(world.names(), before, "{what}, {tried}");
                    assert!(text(&path) == old(), "{what}, {tried}");
                }
                // The same operation: it was never begun before.
                done => {
                    assert!(!done.unwrap(), "{what}");
                    break;
                }
            }
            tried += 1;
        }
        assert!(tried >= looks, "{what}: looked only {tried} times");
        let now = fs::read_to_string(&path).ok();
        assert!(now.is_none_or(|now| now != old()), "{what} was not done");
        // Nothing is left where things are prepared.
        let instance = world.state.join("instances");
        let instance = instance.join(&names(&instance)[0]);
        let left = names(&instance);
        let left = left
            .iter()
            .filter(|n| !n.starts_with("slot-") && !n.starts_with("undo-"));
        assert_eq!(left.count(), 0, "{what}");
    }
}

#[test]
fn an_undo_that_is_given_up_can_be_asked_for_again() {
    let world = World::new();
    let path = world.put("f", old());
    let token = world.write("f", "new").unwrap().undo_token.unwrap();
    let operation = OperationId::random();
    for looks in 0.. {
        let cancel = Cancel::after(looks);
        let caller = Caller {
            operation,
            cancel: &cancel,
            ..world.caller()
        };
        match world.files.undo(caller, &token) {
            Err(FileError::Cancelled) => assert_eq!(text(&path), "new"),
            done => {
                done.unwrap();
                assert!(looks > 4);
                break;
            }
        }
    }
    assert!(text(&path) == old());
}

#[test]
fn who_gives_up_does_not_stay_in_the_queue() {
    let world = World::new();
    world.put("f", "x");
    let (entered, wait) = std::sync::mpsc::sync_channel(1);
    let (release, released) = std::sync::mpsc::sync_channel::<()>(1);
    let both = std::sync::Mutex::new((entered, released));
    world.files.hooks.before_commit(move |_| {
        let both = both.lock().unwrap();
        both.0.send(()).unwrap();
        both.1.recv().unwrap();
    });
    let cancel = &Cancel::new();
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| world.write("f", "y").unwrap());
        wait.recv().unwrap();
        let waiting = scope.spawn(|| {
            let caller = Caller {
                cancel,
                ..world.caller()
            };
            let content = Content::of(b"z".to_vec());
            let begun = Instant::now();
            let done = world.files.write(caller, &WriteSpec::new("f"), &content);
            (done, begun.elapsed())
        });
        cancel.cancel();
        let (done, took) = waiting.join().unwrap();
        assert_eq!(done.unwrap_err(), FileError::Cancelled);
        assert!(took < std::time::Duration::from_secs(10), "it stayed");
        release.send(()).unwrap();
        slow.join().unwrap();
    });
}
