//! B140 for files: a repeat gets the first result and does nothing.

use super::*;
use crate::files::cancel::Cancel;
use crate::files::make_directory::MakeDirectorySpec;
use crate::files::mutation::Reply;

/// The records of the session after the first `keep` are lost, as when the
/// daemon dies before it writes them; another life begins.
fn reborn(world: &mut World, keep: usize) {
    let path = world
        .state
        .join("operations")
        .join(world.session.to_string());
    let all = fs::read(&path).unwrap();
    let mut end = 0;
    for _ in 0..keep {
        let length: [u8; 4] = all[end..end + 4].try_into().unwrap();
        end += 20 + u32::from_le_bytes(length) as usize;
    }
    fs::write(&path, &all[..end]).unwrap();
    world.files = Arc::new(Files::open(&world.state));
}

fn content(text: &str) -> Content {
    Content::of(text.as_bytes().to_vec())
}

fn first<T>(reply: Result<Reply<T>, FileError>) -> T {
    let reply = reply.unwrap();
    assert!(!reply.replayed);
    reply.value
}

fn again<T>(reply: Result<Reply<T>, FileError>) -> T {
    let reply = reply.unwrap();
    assert!(reply.replayed);
    reply.value
}

#[test]
fn b140_a_repeat_of_any_mutation_does_nothing() {
    let world = World::new();
    let files = &world.files;
    world.put("f", "a");
    world.put("gone", "x");
    let edits = EditSpec::new("f", vec![edit("a", "aa")]);
    let (a, b, c, d, e) = (
        world.caller(),
        world.caller(),
        world.caller(),
        world.caller(),
        world.caller(),
    );
    let edited = first(files.edit(a, &edits));
    let removed = first(files.remove(b, &RemoveSpec::new("gone")));
    let renamed = first(files.rename(c, &RenameSpec::new("f", "g")));
    let directory = MakeDirectorySpec {
        path: "dir".into(),
        parents: false,
        mode: None,
    };
    let made = first(files.make_directory(d, &directory));
    let written = first(files.write(e, &WriteSpec::new("w"), &content("w")));
    // The world goes on.
    world.put("f", "a");
    world.put("gone", "y");
    fs::remove_dir(world.at("dir")).unwrap();
    world.put("w", "theirs");
    for files in [files, &Arc::new(Files::open(&world.state))] {
        assert_eq!(again(files.edit(a, &edits)), edited);
        assert_eq!(again(files.remove(b, &RemoveSpec::new("gone"))), removed);
        assert_eq!(again(files.rename(c, &RenameSpec::new("f", "g"))), renamed);
        assert_eq!(again(files.make_directory(d, &directory)), made);
        let spec = WriteSpec::new("w");
        assert_eq!(again(files.write(e, &spec, &content("w"))), written);
    }
    assert_eq!(world.names(), ["f", "g", "gone", "w"]);
    assert_eq!(text(world.at("f")), "a");
    assert_eq!(text(world.at("g")), "aa");
    assert_eq!(text(world.at("w")), "theirs");
}

#[test]
fn b140_an_undo_that_is_repeated_is_done_once() {
    let world = World::new();
    world.put("f", "old");
    let token = world.write("f", "new").unwrap().undo_token.unwrap();
    let caller = world.caller();
    let undone = first(world.files.undo(caller, &token));
    world.put("f", "later");
    assert_eq!(again(world.files.undo(caller, &token)), undone);
    assert_eq!(text(world.at("f")), "later");
}

#[test]
fn an_id_is_for_one_request() {
    let world = World::new();
    let caller = world.caller();
    let spec = WriteSpec::new("f");
    first(world.files.write(caller, &spec, &content("one")));
    let conflict = |error: FileError| {
        assert!(
            matches!(error, FileError::OperationConflict { .. }),
            "{error}"
        );
    };
    conflict(
        world
            .files
            .write(caller, &spec, &content("two"))
            .unwrap_err(),
    );
    let other = WriteSpec {
        mode: Some(0o600),
        ..spec.clone()
    };
    conflict(
        world
            .files
            .write(caller, &other, &content("one"))
            .unwrap_err(),
    );
    conflict(
        world
            .files
            .remove(caller, &RemoveSpec::new("f"))
            .unwrap_err(),
    );
    assert_eq!(text(world.at("f")), "one");
    // Another session's id is another id.
    let other = Caller {
        session: SessionId::random(),
        ..caller
    };
    first(world.files.write(other, &spec, &content("two")));
}

#[test]
fn repeats_at_the_same_time_are_done_once() {
    let world = World::new();
    world.put("f", "a");
    let caller = world.caller();
    let spec = EditSpec::new("f", vec![edit("a", "ab")]);
    let replayed = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| world.files.edit(caller, &spec).unwrap().replayed))
            .collect();
        let done = threads.into_iter().map(|thread| thread.join().unwrap());
        done.filter(|replayed| *replayed).count()
    });
    assert_eq!(replayed, 7);
    assert_eq!(text(world.at("f")), "ab");
}

#[test]
fn what_failed_can_be_tried_again_with_its_id() {
    let world = World::new();
    let caller = world.caller();
    let spec = EditSpec::new("f", vec![edit("a", "b")]);
    assert!(world.files.edit(caller, &spec).is_err());
    world.put("f", "a");
    first(world.files.edit(caller, &spec));
    assert_eq!(text(world.at("f")), "b");
}

#[test]
fn after_a_death_a_begun_operation_is_decided_by_looking() {
    let world = &mut World::new();
    world.put("f", "old");
    let spec = EditSpec::new("f", vec![edit("old", "new old")]);
    // Done, and the result was lost.
    let done = world.caller().operation;
    let caller = |world: &World, operation| Caller {
        session: world.session,
        fence: Box::leak(Box::new(world.fence.clone())),
        operation,
        cancel: Cancel::never(),
    };
    let edited = first(world.files.edit(caller(world, done), &spec));
    reborn(world, 1);
    let told = again(world.files.edit(caller(world, done), &spec));
    assert_eq!(told.digest, edited.digest);
    assert_eq!(told.diff, edited.diff);
    assert_eq!(told.file, edited.file);
    assert_eq!(told.undo_token, None);
    assert_eq!(text(world.at("f")), "new old");
    assert!(again(world.files.edit(caller(world, done), &spec)).digest == edited.digest);
}

#[test]
fn after_a_death_what_was_not_done_is_done_and_what_cannot_be_told_is_told() {
    for (what, foreign) in [("as it was", false), ("changed by others", true)] {
        let world = &mut World::new();
        world.put("f", "old");
        let spec = EditSpec::new("f", vec![edit("old", "new old")]);
        let fence = world.fence.clone();
        let caller = Caller {
            fence: &fence,
            ..world.caller()
        };
        let caller = Caller {
            session: world.session,
            fence: &fence,
            operation: caller.operation,
            cancel: Cancel::never(),
        };
        // The death comes just before the exchange.
        world.files.hooks.before_commit(|_| panic!("dies here"));
        let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            world.files.edit(caller, &spec)
        }));
        assert!(died.is_err());
        assert_eq!(text(world.at("f")), "old");
        if foreign {
            world.put("f2", "old theirs");
            fs::rename(world.at("f2"), world.at("f")).unwrap();
        }
        reborn(world, 1);
        let result = world.files.edit(caller, &spec);
        if foreign {
            for _ in 0..2 {
                let error = world.files.edit(caller, &spec).unwrap_err();
                let unknown = matches!(error, FileError::OperationOutcomeUnknown { .. });
                assert!(unknown, "{what}: {error}");
            }
            assert!(result.is_err());
            assert_eq!(text(world.at("f")), "old theirs");
        } else {
            first(result);
            assert_eq!(text(world.at("f")), "new old", "{what}");
        }
    }
}

#[test]
fn after_a_death_removals_renames_and_directories_are_decided_too() {
    let world = &mut World::new();
    let fence = world.fence.clone();
    let session = world.session;
    let caller = || Caller {
        session,
        fence: &fence,
        operation: OperationId::random(),
        cancel: Cancel::never(),
    };
    world.put("f", "x");
    world.put("r", "x");
    let (a, b, c) = (caller(), caller(), caller());
    let directory = MakeDirectorySpec {
        path: "dir".into(),
        parents: false,
        mode: None,
    };
    first(world.files.make_directory(a, &directory));
    reborn(world, 1);
    assert!(again(world.files.make_directory(a, &directory)).created);
    first(world.files.rename(b, &RenameSpec::new("r", "s")));
    reborn(world, 3);
    let renamed = again(world.files.rename(b, &RenameSpec::new("r", "s")));
    assert_eq!(renamed.file.path, world.at("s"));
    first(world.files.remove(c, &RemoveSpec::new("f")));
    reborn(world, 5);
    assert_eq!(
        again(world.files.remove(c, &RemoveSpec::new("f"))).removed,
        1
    );
    assert_eq!(world.names(), ["dir", "s"]);
}
