//! What is promised of results: by another value of [`Receipts`] on the same
//! directory where a death is meant.

#![expect(
    clippy::disallowed_methods,
    reason = "tests look at files as an outsider does"
)]

use std::time::Duration;

use super::*;

struct World {
    top: tempfile::TempDir,
    turns: Turns,
    session: SessionId,
}

impl World {
    fn new() -> Self {
        Self {
            top: tempfile::tempdir().unwrap(),
            turns: Turns::default(),
            session: SessionId::random(),
        }
    }

    fn open(&self) -> Receipts {
        Receipts::open(self.top.path()).unwrap()
    }

    fn operation(&self, request: u8) -> Operation {
        Operation {
            session: self.session,
            id: OperationId::random(),
            request: [request; 32],
        }
    }

    fn look(&self, receipts: &Receipts, operation: &Operation) -> Result<Known, ReceiptError> {
        self.look_at(receipts, operation, millis_now())
    }

    fn look_at(
        &self,
        receipts: &Receipts,
        operation: &Operation,
        now: u64,
    ) -> Result<Known, ReceiptError> {
        receipts.look(operation, &self.turns, soon(), now)
    }

    fn write(&self, receipts: &Receipts, operation: &Operation, done: bool, bytes: &[u8]) {
        receipts
            .write(operation, done, bytes.to_vec(), &self.turns, soon())
            .unwrap();
    }

    fn file(&self) -> std::path::PathBuf {
        self.top
            .path()
            .join("operations")
            .join(self.session.to_string())
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[test]
fn a_repeat_gets_the_first_result_also_after_a_death() {
    let world = World::new();
    let receipts = world.open();
    let operation = world.operation(1);
    assert_eq!(world.look(&receipts, &operation), Ok(Known::Nothing));
    world.write(&receipts, &operation, false, b"intent");
    for receipts in [&receipts, &world.open()] {
        let known = world.look(receipts, &operation);
        assert_eq!(known, Ok(Known::Begun(b"intent".to_vec())));
    }
    world.write(&receipts, &operation, true, b"result");
    for receipts in [&receipts, &world.open()] {
        let known = world.look(receipts, &operation);
        assert_eq!(known, Ok(Known::Done(b"result".to_vec())));
        let other = Operation {
            request: [2; 32],
            ..operation
        };
        assert_eq!(world.look(receipts, &other), Err(ReceiptError::Conflict));
    }
}

#[test]
fn a_record_that_was_cut_short_is_none_and_the_next_ones_count() {
    let world = World::new();
    let receipts = world.open();
    let (one, two) = (world.operation(1), world.operation(2));
    world.write(&receipts, &one, true, b"one");
    let whole = std::fs::metadata(world.file()).unwrap().len();
    world.write(&receipts, &two, true, b"two");
    let all = std::fs::read(world.file()).unwrap();
    for cut in whole..all.len() as u64 {
        let mut bytes = all[..usize::try_from(cut).unwrap()].to_vec();
        // Also as a file system may fill what was not written: with zeros.
        bytes.resize(bytes.len() + usize::try_from(cut % 3).unwrap() * 7, 0);
        std::fs::write(world.file(), bytes).unwrap();
        let receipts = world.open();
        assert_eq!(
            world.look(&receipts, &one),
            Ok(Known::Done(b"one".to_vec()))
        );
        assert_eq!(world.look(&receipts, &two), Ok(Known::Nothing), "{cut}");
        let three = world.operation(3);
        world.write(&receipts, &three, true, b"three");
        let known = world.look(&world.open(), &three);
        assert_eq!(known, Ok(Known::Done(b"three".to_vec())));
    }
}

#[test]
fn the_newest_1024_results_are_kept_and_older_ones_are_forgotten_not_unknown() {
    let world = World::new();
    let receipts = world.open();
    let all: Vec<_> = (0..=RESULTS + 1).map(|_| world.operation(1)).collect();
    for operation in &all {
        world.write(&receipts, operation, false, b"i");
        world.write(&receipts, operation, true, b"r");
    }
    for receipts in [&receipts, &world.open()] {
        for (index, operation) in all.iter().enumerate() {
            let expected = if index < 2 {
                Err(ReceiptError::Forgotten)
            } else {
                Ok(Known::Done(b"r".to_vec()))
            };
            assert_eq!(world.look(receipts, operation), expected, "{index}");
        }
    }
}

#[test]
fn a_result_is_forgotten_after_a_day() {
    let world = World::new();
    let receipts = world.open();
    let operation = world.operation(1);
    world.write(&receipts, &operation, true, b"r");
    let now = millis_now();
    let within = world.look_at(&receipts, &operation, now + KEPT_MILLIS - 60_000);
    assert_eq!(within, Ok(Known::Done(b"r".to_vec())));
    for receipts in [&receipts, &world.open()] {
        let after = world.look_at(receipts, &operation, now + KEPT_MILLIS + 60_000);
        assert_eq!(after, Err(ReceiptError::Forgotten));
    }
}

#[test]
fn a_file_is_bounded_and_compacting_keeps_what_is_promised() {
    let world = World::new();
    let receipts = world.open();
    let result = vec![7; 8 << 10];
    let mut all = Vec::new();
    for _ in 0..3 * RESULTS {
        let operation = world.operation(1);
        world.write(&receipts, &operation, false, &result);
        world.write(&receipts, &operation, true, &result);
        all.push(operation);
    }
    let length = std::fs::metadata(world.file()).unwrap().len();
    let bound = 2 * (RESULTS as u64) * (result.len() as u64 + 200) + 2 * SLACK;
    assert!(length <= bound, "{length} bytes");
    for receipts in [&receipts, &world.open()] {
        let newest = all.last().unwrap();
        assert_eq!(
            world.look(receipts, newest),
            Ok(Known::Done(result.clone()))
        );
        for forgotten in &all[..2 * RESULTS] {
            let known = world.look(receipts, forgotten);
            assert_eq!(known, Err(ReceiptError::Forgotten));
        }
    }
}

#[test]
fn a_session_that_ends_leaves_nothing_and_touches_no_other() {
    let world = World::new();
    let receipts = world.open();
    let operation = world.operation(1);
    let other = Operation {
        session: SessionId::random(),
        ..operation
    };
    world.write(&receipts, &operation, true, b"r");
    assert_eq!(world.look(&receipts, &other), Ok(Known::Nothing));
    world.write(&receipts, &other, true, b"o");
    receipts.end(world.session);
    assert!(world.file().metadata().is_err());
    assert_eq!(
        world.look(&receipts, &other),
        Ok(Known::Done(b"o".to_vec()))
    );
    receipts.end(world.session);
}

#[test]
fn files_of_sessions_of_long_ago_are_swept() {
    let world = World::new();
    let receipts = world.open();
    let (old, new) = (world.operation(1), world.operation(1));
    world.write(&receipts, &old, true, b"r");
    let file = std::fs::File::open(world.file()).unwrap();
    let long_ago =
        std::time::SystemTime::now() - Duration::from_millis(over::ABANDONED_MILLIS + 10_000);
    file.set_modified(long_ago).unwrap();
    drop(world.open());
    assert!(world.file().metadata().is_err());
    drop(receipts);
    let receipts = world.open();
    world.write(&receipts, &new, true, b"r");
    drop(world.open());
    assert!(world.file().metadata().is_ok());
}

#[test]
fn too_large_a_result_is_refused_before_anything_is_written() {
    let world = World::new();
    let receipts = world.open();
    let operation = world.operation(1);
    let written = receipts.write(
        &operation,
        true,
        vec![0; RESULT_BYTES + 1],
        &world.turns,
        soon(),
    );
    assert_eq!(written, Err(ReceiptError::Errno(Errno::TOOBIG)));
    assert_eq!(world.look(&receipts, &operation), Ok(Known::Nothing));
}
