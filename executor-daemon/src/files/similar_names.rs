//! Names that look like one that does not exist: equal once kinds of spaces,
//! quotes, dashes and of writing accents are folded. They are told, never
//! opened in its place.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use rustix::fs::{Dir, Mode, OFlags};
use unicode_normalization::UnicodeNormalization as _;

use super::resolve::Directory;
use super::roots::components;

/// Names that are looked at in one directory.
const LOOKED_AT: usize = 20_000;
/// Names that are told.
const TOLD: usize = 8;

/// The entries of `directory` that look like `name`.
pub(super) fn in_directory(directory: &Directory, name: &OsStr) -> Vec<Vec<u8>> {
    let Some(wanted) = folded(name.as_bytes()) else {
        return Vec::new();
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(&directory.handle, c".", flags, Mode::empty());
    let Some(entries) = opened.ok().and_then(|handle| Dir::new(handle).ok()) else {
        return Vec::new();
    };
    let mut found: Vec<_> = entries
        .take(LOOKED_AT)
        .map_while(Result::ok)
        .map(|entry| entry.file_name().to_bytes().to_owned())
        .filter(|other| other != name.as_bytes() && folded(other).as_ref() == Some(&wanted))
        .take(TOLD)
        .collect();
    found.sort_unstable();
    found
}

/// The paths that `path` may have meant: in its place the first component that
/// is missing has a name that looks like it. `open` opens a directory by a
/// path, as `path` itself would be.
pub(super) fn of_path(path: &OsStr, open: impl Fn(&OsStr) -> Option<Directory>) -> Vec<PathBuf> {
    let mut rest: VecDeque<&OsStr> = components(path).collect();
    let start = if path.as_bytes().starts_with(b"/") {
        "/"
    } else {
        ""
    };
    let mut above = PathBuf::from(start);
    let mut directory = open(above.as_os_str());
    while let Some(name) = rest.pop_front() {
        let next = open(above.join(name).as_os_str());
        let last = rest.is_empty();
        if next.is_none() || last {
            let Some(directory) = directory else {
                // Above a root nothing may be listed.
                above.push(name);
                continue;
            };
            let mut found = Vec::new();
            for other in in_directory(&directory, name) {
                let mut candidate = above.join(OsStr::from_bytes(&other));
                candidate.extend(&rest);
                found.push(candidate);
            }
            return found;
        }
        above.push(name);
        directory = next;
    }
    Vec::new()
}

/// `None` for a name that is no text.
fn folded(name: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(name).ok()?;
    Some(text.nfc().map(fold).collect())
}

fn fold(character: char) -> char {
    match character {
        '\u{2018}' | '\u{2019}' | '\u{201b}' | '\u{2032}' | '\u{02bc}' => '\'',
        '\u{201c}' | '\u{201d}' | '\u{201f}' | '\u{2033}' => '"',
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        space if space.is_whitespace() && !space.is_control() => ' ',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_told_apart_by_sight_is_folded_and_nothing_else() {
        let same = |a: &str, b: &str| folded(a.as_bytes()) == folded(b.as_bytes());
        assert!(same("Shot 1.01\u{202f}AM.png", "Shot 1.01 AM.png"));
        assert!(same("a\u{a0}b", "a\u{2003}b"));
        assert!(same("cafe\u{301}", "caf\u{e9}"));
        assert!(same("it\u{2019}s", "it's"));
        assert!(same("a\u{2013}b", "a-b"));
        assert!(!same("a b", "ab"));
        assert!(!same("a\tb", "a b"), "a control character is no space");
        assert!(!same("A", "a"));
        assert!(!same("cafe", "caf\u{e9}"));
    }
}
