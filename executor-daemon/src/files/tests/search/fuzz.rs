//! Globs from any bytes: what is none is told with its place, what is one
//! matches as a plain and slow matcher says.
//!
//! `.ci/run` replays the corpus and some random ones. To look for more:
//! `EXECUTOR_FUZZ_MINUTES=10 cargo test -p executor-daemon --lib look_for_globs
//! -- --ignored`. It keeps in `fuzz/globs` those that do something new.

use super::super::super::error::FileError;
use crate::files::search::globs_for_tests::PathGlobs;
use crate::files::tests::exploring::{Random, corpus, explore, replay};
use crate::files::tests::scaled;

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/globs");
/// What globs are made of, most of all.
const ALPHABET: &[u8] = b"ab./*?[]!^-{},\\ \xc3\xa9";

/// What happened: kinds of error, and which of the plain globs matched.
type Sign = (String, bool, bool, bool);

/// The glob and the path that bytes say; panics where a promise is broken.
fn run(bytes: &[u8]) -> Sign {
    let half = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len() / 2);
    let (glob, path) = bytes.split_at(half);
    let glob = String::from_utf8_lossy(glob).into_owned();
    let path: Vec<u8> = path.iter().copied().filter(|byte| *byte != 0).collect();
    let globs = match PathGlobs::new(std::slice::from_ref(&glob), false, "globs") {
        Ok(globs) => globs,
        Err(FileError::Glob {
            offset,
            glob: told,
            why,
            ..
        }) => {
            assert!(offset <= glob.len() && told == glob, "{glob:?}: {offset}");
            assert!(glob.is_char_boundary(offset), "{glob:?}: {offset}");
            let kind = why.split(['\'', ';']).next().unwrap_or_default().to_owned();
            return (kind, false, false, false);
        }
        Err(other) => panic!("{glob:?}: {other}"),
    };
    let chosen = globs.choose(&path);
    let directory = globs.leave_out_directory(&path);
    let out = glob.starts_with('!');
    if out {
        assert!(chosen || directory || path.is_empty(), "{glob:?} {path:?}");
    } else {
        assert!(!directory, "{glob:?} {path:?}");
        // Paths have no empty components.
        let plain = !path.is_empty()
            && path
                .split(|byte| *byte == b'/')
                .all(|name| !name.is_empty());
        if plain && let Some(expected) = plain_match(&glob, &path) {
            assert_eq!(
                chosen,
                expected,
                "{glob:?} {:?}",
                String::from_utf8_lossy(&path)
            );
        }
    }
    let spelled = globs.spell_out(b".a");
    (String::new(), chosen, directory, spelled)
}

/// Matches globs of letters, `*`, `?`, `/` and `**` as whole components; `None`
/// for others.
fn plain_match(glob: &str, path: &[u8]) -> Option<bool> {
    let simple = |byte: &u8| byte.is_ascii_alphanumeric() || b"./*? ".contains(byte);
    if !glob.bytes().all(|byte| simple(&byte)) || !path.is_ascii() {
        return None;
    }
    let directory = glob.ends_with('/');
    let pattern = glob.trim_end_matches('/');
    let bare = pattern.trim_start_matches('/');
    if directory && glob.ends_with("//") || bare.contains("//") || pattern.len() > bare.len() + 1 {
        return None;
    }
    let mut parts: Vec<&str> = bare.split('/').collect();
    if parts
        .iter()
        .any(|part| part.contains("**") && *part != "**")
    {
        return None;
    }
    if parts.len() == 1 && pattern == bare {
        parts.insert(0, "**");
    }
    if directory {
        parts.push("**");
    }
    let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    Some(components(&parts, &names))
}

fn components(parts: &[&str], names: &[&[u8]]) -> bool {
    match parts {
        [] => names.is_empty(),
        // At the end it is what is below, not the directory itself.
        ["**"] => !names.is_empty(),
        ["**", rest @ ..] => (0..=names.len()).any(|skip| components(rest, &names[skip..])),
        [part, rest @ ..] => match names {
            [] => false,
            [name, below @ ..] => within(part.as_bytes(), name) && components(rest, below),
        },
    }
}

fn within(part: &[u8], name: &[u8]) -> bool {
    match part {
        [] => name.is_empty(),
        [b'*', rest @ ..] => (0..=name.len()).any(|skip| within(rest, &name[skip..])),
        [b'?', rest @ ..] => !name.is_empty() && within(rest, &name[1..]),
        [byte, rest @ ..] => name.first() == Some(byte) && within(rest, &name[1..]),
    }
}

fn byte(random: &mut Random) -> u8 {
    match random.below(12) {
        0 => 0,
        1 => random.byte(),
        _ => ALPHABET[random.below(ALPHABET.len())],
    }
}

/// A known one changed, or a new one.
fn changed(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    if corpus.is_empty() || random.below(4) == 0 {
        return (0..=random.below(24)).map(|_| byte(random)).collect();
    }
    let mut bytes = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        match random.below(3) {
            0 if at < bytes.len() => bytes[at] = byte(random),
            1 => bytes.insert(at, byte(random)),
            _ if at < bytes.len() => drop(bytes.remove(at)),
            _ => {}
        }
    }
    bytes.truncate(120);
    bytes
}

#[test]
fn known_globs_and_some_random_ones_keep_every_promise() {
    replay(&corpus(&[CORPUS]), scaled(100_000, 2_000), changed, run);
}

#[test]
#[ignore = "looks for new globs, for as many minutes as EXECUTOR_FUZZ_MINUTES says"]
fn look_for_globs() {
    explore(CORPUS, corpus(&[CORPUS]), changed, |bytes| [run(bytes)]);
}
