//! Files: requests become the specifications of `files`, and what they did
//! becomes answers. Ranges and names are checked behind, where the bounds are
//! known; here only what the wire alone can get wrong.

pub(in crate::service) mod change;
pub(in crate::service) mod image;
pub(in crate::service) mod read;
pub(in crate::service) mod search;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use executor_proto::reason::Failure;
use executor_proto::v1;

use super::start::path as checked_path;
use crate::files::object::{Facts, FileKind};

/// The name in a field.
pub(in crate::service) fn path(field: &str, bytes: Vec<u8>) -> Result<PathBuf, Failure> {
    checked_path(field, bytes).map(PathBuf::from)
}

/// A label that may be left out.
fn label(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// What has a name.
fn info(path: &Path, facts: &Facts, link_target: Option<&OsStr>) -> v1::FileInfo {
    v1::FileInfo {
        path: bytes(path),
        kind: kind(facts.kind).into(),
        size: facts.size,
        mode: facts.mode,
        uid: facts.uid,
        gid: facts.gid,
        links: facts.links,
        modified_at: Some(time(facts.mtime)),
        version: facts.version().to_string(),
        link_target: link_target
            .map(|text| text.as_bytes().to_vec())
            .unwrap_or_default(),
    }
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

fn kind(kind: FileKind) -> v1::FileKind {
    match kind {
        FileKind::Regular => v1::FileKind::Regular,
        FileKind::Directory => v1::FileKind::Directory,
        FileKind::Link => v1::FileKind::Link,
        FileKind::Fifo => v1::FileKind::Fifo,
        FileKind::Socket => v1::FileKind::Socket,
        FileKind::CharacterDevice => v1::FileKind::CharacterDevice,
        FileKind::BlockDevice => v1::FileKind::BlockDevice,
        FileKind::Unknown => v1::FileKind::Unspecified,
    }
}

fn time((seconds, nanos): (i64, u32)) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds,
        nanos: i32::try_from(nanos).unwrap_or(0),
    }
}
