//! Inputs made of any bytes: those of a corpus, and changes of them.
//!
//! Whose tests these are says how an input is changed, and runs one: that panics
//! where a promise is broken, and returns what it was like. [`replay`] belongs to
//! every run of the tests; [`explore`] is for a person with some minutes, and
//! keeps in the corpus what was like none before.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::panic::RefUnwindSafe;
use std::path::Path;
use std::time::{Duration, Instant};

/// A pseudo-random sequence that a seed repeats (xorshift).
pub(in crate::files) struct Random(u64);

impl Random {
    pub(in crate::files) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Any number below `bound`; 0 if there is none.
    pub(in crate::files) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % (bound as u64).max(1)).unwrap()
    }

    pub(in crate::files) fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[3]
    }
}

/// The files of directories, in the order of their names. One that is missing
/// has none.
#[expect(clippy::disallowed_methods, reason = "the corpus of a test")]
pub(in crate::files) fn corpus(directories: &[&str]) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    for directory in directories {
        let Ok(entries) = std::fs::read_dir(directory) else {
            continue;
        };
        let mut some: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        some.sort();
        names.extend(some);
    }
    names
        .iter()
        .map(|name| std::fs::read(name).unwrap())
        .collect()
}

/// Runs all of the corpus, and `count` changes.
pub(in crate::files) fn replay<Sign>(
    corpus: &[Vec<u8>],
    count: usize,
    changed: impl Fn(&mut Random, &[Vec<u8>]) -> Vec<u8>,
    run: impl Fn(&[u8]) -> Sign,
) {
    for bytes in corpus {
        run(bytes);
    }
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..count {
        run(&changed(&mut random, corpus));
    }
}

/// Runs changes for as many minutes as `EXECUTOR_FUZZ_MINUTES` says. What shows
/// a new sign is kept in `directory`; what panics stays there as `found`.
#[expect(
    clippy::disallowed_methods,
    reason = "how a person asks a test for more"
)]
pub(in crate::files) fn explore<Sign, Signs>(
    directory: &str,
    mut corpus: Vec<Vec<u8>>,
    changed: impl Fn(&mut Random, &[Vec<u8>]) -> Vec<u8>,
    run: impl Fn(&[u8]) -> Signs + RefUnwindSafe,
) where
    Sign: Eq + Hash + Debug,
    Signs: IntoIterator<Item = Sign>,
{
    let minutes = std::env::var("EXECUTOR_FUZZ_MINUTES").unwrap();
    let minutes: f64 = minutes.parse().unwrap();
    let end = Instant::now() + Duration::from_secs_f64(60.0 * minutes);
    std::fs::create_dir_all(directory).unwrap();
    let mut known: HashSet<Sign> = corpus.iter().flat_map(|bytes| run(bytes)).collect();
    let mut random = Random(u64::from(std::process::id()) << 20 | 1);
    let mut count = 0_u64;
    while Instant::now() < end {
        let bytes = changed(&mut random, &corpus);
        let signs = match std::panic::catch_unwind(|| run(&bytes)) {
            Ok(signs) => signs,
            Err(panic) => {
                std::fs::write(Path::new(directory).join("found"), &bytes).unwrap();
                std::panic::resume_unwind(panic);
            }
        };
        count += 1;
        let before = known.len();
        known.extend(signs);
        if known.len() > before {
            let name = blake3::hash(&bytes).to_hex();
            std::fs::write(Path::new(directory).join(&name[..16]), &bytes).unwrap();
            corpus.push(bytes);
        }
    }
    println!(
        "{count} inputs, {} kept, {} signs",
        corpus.len(),
        known.len()
    );
}
