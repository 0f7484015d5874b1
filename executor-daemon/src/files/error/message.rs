//! Parts of the messages.

use std::fmt;
use std::path::{Path, PathBuf};

use super::super::version::{Digest, Version};

/// A name as a message shows it.
pub(super) struct Name<'a>(pub(super) &'a Path);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shortened: PathBuf = super::super::resolve::shortened(self.0);
        write!(f, "{shortened:?}")
    }
}

/// Names that look alike, with everything beyond ASCII escaped: what tells
/// them apart is what cannot be seen.
pub(super) struct Candidates<'a>(pub(super) &'a [PathBuf]);

impl fmt::Display for Candidates<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, more) = match self.0 {
            [] => return Ok(()),
            [one] => (one, [].as_slice()),
            [first, more @ ..] => (first, more),
        };
        f.write_str(if more.is_empty() {
            "; there is one that differs only in kinds of spaces, quotes or accents: "
        } else {
            "; there are some that differ only in kinds of spaces, quotes or accents: "
        })?;
        for (index, path) in std::iter::once(first).chain(more).enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{}", escaped(path))?;
        }
        Ok(())
    }
}

fn escaped(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    let mut text = String::from("\"");
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text.extend(chunk.valid().chars().flat_map(char::escape_default));
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text.push('"');
    text
}

pub(super) struct Now<'a>(pub(super) Option<&'a (Version, Option<Digest>)>);

impl fmt::Display for Now<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("nothing has this name now"),
            Some((version, None)) => write!(f, "it has version {version} now"),
            Some((version, Some(digest))) => {
                write!(f, "it has digest {digest} and version {version} now")
            }
        }
    }
}
