//! The programs that are started, and killed or let go on.

use std::io::{Read as _, Write as _};

use executor_daemon::files::error::FileError;
use executor_proto::id::OperationId;

use super::{Dice, Mutator, variable, whole, word_of};

/// Files that are replaced, each a whole content at every moment.
pub(super) const REPLACED: [&str; 3] = ["f0", "f1", "f2"];
/// Two names of one file, which is written in place.
pub(super) const LINKED: [&str; 2] = ["h0", "h1"];
/// A number that each edit makes greater by one.
pub(super) const COUNT: &str = "count";
/// A file of the program that is not killed.
pub(super) const STEADY: &str = "steady";
/// Lines of the largest content, of ten bytes each.
const LINES: u64 = 80_000;
/// Of one that is written in place: it shall take a while.
const LINES_IN_PLACE: u64 = 300_000;

fn mutator() -> Option<(Mutator, Dice)> {
    let root = variable("FILES_TEST_ROOT")?;
    let state = variable("FILES_TEST_STATE")?;
    let session = std::env::var("FILES_TEST_SESSION").ok()?.parse().ok()?;
    let seed = std::env::var("FILES_TEST_SEED").ok()?.parse().ok()?;
    Some((Mutator::new(&root, &state, session), Dice(seed)))
}

fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// A small disk may be full; nothing else may go wrong.
fn fine<T>(what: &str, result: Result<T, FileError>) {
    match result {
        Ok(_) | Err(FileError::NoSpace { .. }) => {}
        Err(error) => panic!("{what}: {error}"),
    }
}

#[test]
#[ignore = "the program that the tests beside it start and kill"]
fn mutating_program() {
    let Some((mutator, mut dice)) = mutator() else {
        return;
    };
    if mutator.files.problem().is_some() {
        // The disk is too full for a directory of our own.
        tell("ready");
        return;
    }
    tell("ready");
    let mut word: u32 = 1;
    loop {
        word += 1;
        let lines = usize::try_from(dice.below(LINES)).unwrap();
        let replaced = REPLACED[usize::try_from(dice.below(3)).unwrap()];
        match dice.below(6) {
            0 | 1 => fine("write", mutator.write(replaced, whole(word, lines), false)),
            2 => edit(&mutator, replaced, word, false),
            3 => {
                let name = LINKED[usize::try_from(dice.below(2)).unwrap()];
                let lines = usize::try_from(dice.below(LINES_IN_PLACE)).unwrap();
                tell("in place");
                fine("in place", mutator.write(name, whole(word, lines), true));
            }
            4 => edit(&mutator, LINKED[0], word, true),
            _ => count(&mutator),
        }
    }
}

/// Another word, in every line at once.
fn edit(mutator: &Mutator, name: &str, word: u32, in_place: bool) {
    let path = variable("FILES_TEST_ROOT").unwrap().join(name);
    let now = std::fs::read_to_string(path).unwrap();
    let now = word_of(&now).unwrap_or_else(|| panic!("{name} is damaged"));
    if !std::fs::metadata(variable("FILES_TEST_ROOT").unwrap().join(name))
        .is_ok_and(|m| m.len() > 8)
        || now == word
    {
        return;
    }
    let (old, new) = (format!("w{now:08}"), format!("w{word:08}"));
    fine(
        "edit",
        mutator.edit(OperationId::random(), name, &old, &new, in_place),
    );
}

/// What is about to be done is told first: the operation, and the number.
fn count(mutator: &Mutator) {
    let path = variable("FILES_TEST_ROOT").unwrap().join(COUNT);
    let now = std::fs::read_to_string(path).unwrap();
    let number: u64 = now.trim_end_matches("!\n").parse().unwrap();
    let operation = OperationId::random();
    tell(&format!("count {operation} {number}"));
    let (old, new) = (format!("{number}!"), format!("{}!", number + 1));
    fine("count", mutator.edit(operation, COUNT, &old, &new, false));
}

#[test]
#[ignore = "the program beside the one that is killed"]
fn steady_program() {
    let Some((mutator, mut dice)) = mutator() else {
        return;
    };
    assert_eq!(mutator.files.problem(), None);
    tell("ready");
    let stopped = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The end of input is the sign to stop.
            let mut rest = Vec::new();
            drop(std::io::stdin().read_to_end(&mut rest));
            stopped.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let mut word = 1;
        let mut done: u64 = 0;
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            word += 1;
            let lines = usize::try_from(dice.below(2_000)).unwrap() + 1;
            match mutator.write(STEADY, whole(word, lines), false) {
                Ok(_) => done += 1,
                Err(FileError::NoSpace { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        tell(&format!("done {done}"));
    });
}
