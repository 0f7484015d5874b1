//! What is no regular file, ranges of bytes, and what a name is told to be.

use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode};

use super::super::cancel::Cancel;
use super::super::entry::Last;
use super::super::error::FileError;
use super::super::fence::Fence;
use super::super::line_index::LineIndexes;
use super::super::object::FileKind;
use super::super::read_bytes::ReadBytes;
use super::super::read_lines::{ReadLines, read_lines};
use super::super::resolve::{Means, Resolver, directory};
use super::super::roots::{Root, Roots};
use super::super::stat::stat;
use super::super::version::{Digest, Version};
use super::{BOTH, Tree};
use crate::session::record::Access;

fn lines(fence: &Fence, given: &str) -> Result<String, FileError> {
    let (indexes, cancel) = (LineIndexes::new(1), Cancel::new());
    let request = ReadLines::default();
    read_lines(fence, given.as_ref(), &request, &indexes, &cancel).map(|page| page.text)
}

fn bytes(mut reader: ReadBytes) -> Result<Vec<u8>, FileError> {
    let mut all = Vec::new();
    while let Some(piece) = reader.next_piece(&Cancel::new())? {
        all.extend(piece);
    }
    Ok(all)
}

fn digest(fence: &Fence, given: &str) -> Result<Option<Digest>, FileError> {
    let (indexes, cancel) = (LineIndexes::new(1), Cancel::new());
    let stat = stat(fence, given.as_ref(), Last::Follow, true, &indexes, &cancel)?;
    Ok(stat.digest)
}

#[test]
fn b050_what_has_no_content_is_named_and_never_opened() {
    let tree = Tree::new();
    let make = |name: &str, kind| {
        rustix::fs::mknodat(CWD, tree.at("w/app").join(name), kind, Mode::RUSR, 0).unwrap();
    };
    make("fifo", FileType::Fifo);
    make("socket", FileType::Socket);
    symlink("fifo", tree.at("w/app/to-fifo")).unwrap();
    symlink("socket", tree.at("w/app/to-socket")).unwrap();
    for means in BOTH {
        let fence = tree.fence(means);
        for (name, kind) in [
            ("fifo", FileKind::Fifo),
            ("to-fifo", FileKind::Fifo),
            ("socket", FileKind::Socket),
            ("to-socket", FileKind::Socket),
        ] {
            refused(&fence, name, kind);
        }
        assert!(matches!(
            lines(&fence, "sub"),
            Err(FileError::IsADirectory { .. })
        ));
    }
    // Had the FIFO been opened for reading, this would find a reader.
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
    let writer = rustix::fs::open(tree.at("w/app/fifo"), flags, Mode::empty());
    assert_eq!(writer.unwrap_err(), rustix::io::Errno::NXIO);
}

#[test]
fn b050_devices_are_named_and_never_opened() {
    let dev = Path::new("/dev");
    for means in BOTH {
        let roots = Roots::new(vec![Root::open(dev, Access::ReadOnly).unwrap()]);
        let cwd = directory(&roots, dev, dev.as_os_str(), means).unwrap();
        let fence = super::fence(Resolver::new(roots, cwd, means));
        for name in ["zero", "null", "tty", "/dev/zero"] {
            refused(&fence, name, FileKind::CharacterDevice);
        }
    }
}

fn refused(fence: &Fence, name: &str, expected: FileKind) {
    let open = |fence: &Fence| ReadBytes::open(fence, name.as_ref(), 0, None, None).map(drop);
    for result in [
        lines(fence, name).map(drop),
        open(fence),
        digest(fence, name).map(drop),
    ] {
        match result {
            Err(FileError::NotARegularFile { kind, .. }) => assert_eq!(kind, expected, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    let text = lines(fence, name).unwrap_err().to_string();
    assert!(
        text.contains(&format!("not a regular file ({expected})")),
        "{text}"
    );
    let (indexes, cancel) = (LineIndexes::new(1), Cancel::new());
    let told = stat(fence, name.as_ref(), Last::Follow, false, &indexes, &cancel).unwrap();
    assert_eq!(told.facts.kind, expected);
}

#[test]
fn b076_a_hard_link_is_a_file_of_its_own_and_may_be_read() {
    let tree = Tree::new();
    let outside = tree.file("w/other/secret", "content\n");
    std::fs::hard_link(outside, tree.at("w/app/h")).unwrap();
    for means in BOTH {
        let fence = tree.fence(means);
        assert_eq!(lines(&fence, "h").unwrap(), "content\n");
        let object = fence.object("h".as_ref(), Last::Follow).unwrap();
        assert_eq!(object.facts().links, 2, "which writes have to see");
    }
}

#[test]
fn bytes_of_a_range_are_those_and_no_more() {
    let tree = Tree::new();
    let content: Vec<u8> = (0..700_000_u32)
        .map(|n| n.to_le_bytes()[0] ^ 0x5a)
        .collect();
    tree.file("w/app/f", &content);
    let fence = tree.fence(Means::Kernel);
    let open = |offset, length| ReadBytes::open(&fence, "f".as_ref(), offset, length, None);
    let size = content.len() as u64;
    for (offset, length) in [
        (0, None),
        (1, None),
        (size, None),
        (0, Some(0)),
        (300_000, Some(1)),
        (10, Some(u64::MAX)),
        (262_144, Some(262_144)),
        (size - 1, Some(5)),
    ] {
        let found = bytes(open(offset, length).unwrap()).unwrap();
        let end = offset.saturating_add(length.unwrap_or(size)).min(size);
        let [from, to] = [offset, end].map(|at| usize::try_from(at).unwrap());
        assert!(found == content[from..to], "{offset} {length:?}");
    }
    assert!(matches!(
        open(size + 1, None),
        Err(FileError::InvalidArgument { .. })
    ));
}

#[test]
fn every_byte_is_of_the_version_that_was_told() {
    let tree = Tree::new();
    let path = tree.file("w/app/f", vec![b'a'; 600_000]);
    let fence = tree.fence(Means::Kernel);
    let open = |version| ReadBytes::open(&fence, "f".as_ref(), 0, None, version);
    let mut reader = open(None).unwrap();
    let version = reader.facts().version();
    reader.next_piece(&Cancel::new()).unwrap().unwrap();
    super::settle(&path);
    // In place, of the same length.
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"b", 599_999).unwrap();
    let changed = reader.next_piece(&Cancel::new());
    assert!(
        matches!(changed, Err(FileError::Changed { .. })),
        "{changed:?}"
    );
    let resumed = open(Some(version));
    assert!(matches!(resumed, Err(FileError::Changed { .. })));
    let text = open(None).unwrap().facts().version().to_string();
    let version: Version = text.parse().unwrap();
    bytes(open(Some(version)).unwrap()).unwrap();
    // Replaced by another file: what was opened is still whole.
    let mut reader = open(None).unwrap();
    tree.file("w/app/new", "other");
    std::fs::rename(tree.at("w/app/new"), &path).unwrap();
    let first = reader.next_piece(&Cancel::new());
    assert!(
        matches!(first, Err(FileError::Changed { .. })),
        "it lost its name"
    );
}

#[test]
fn a_stat_tells_links_apart_and_computes_a_digest_on_request() {
    let tree = Tree::new();
    let big = vec![b'x'; 9 << 20];
    tree.file("w/app/big", &big);
    symlink("big", tree.at("w/app/link")).unwrap();
    for means in BOTH {
        let fence = tree.fence(means);
        let (indexes, cancel) = (LineIndexes::new(4), Cancel::new());
        let look =
            |name: &str, last, digest| stat(&fence, name.as_ref(), last, digest, &indexes, &cancel);
        let kept = look("link", Last::Keep, false).unwrap();
        assert_eq!(
            (kept.facts.kind, kept.link_target),
            (FileKind::Link, Some("big".into()))
        );
        let followed = look("link", Last::Follow, true).unwrap();
        assert_eq!(followed.path, tree.at("w/app/big"));
        assert_eq!(followed.digest, Some(Digest::of(&big)));
        assert!(
            look("link", Last::Keep, true).is_err(),
            "a link has no content"
        );
        let root = look(".", Last::Follow, false).unwrap();
        assert_eq!(
            (root.facts.kind, root.path),
            (FileKind::Directory, tree.at("w/app"))
        );
    }
}
