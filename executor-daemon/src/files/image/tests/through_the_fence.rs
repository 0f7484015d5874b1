//! Images of files.

use std::os::unix::fs::symlink;

use rustix::fs::{CWD, FileType, Mode};

use super::super::{KILOBYTES, SIDE, read_image};
use super::*;
use crate::files::error::FileError;
use crate::files::object::FileKind;
use crate::files::tests::{BOTH, Tree};

fn read(tree: &Tree, name: &str) -> Result<Image, FileError> {
    let [first, second] = BOTH.map(|means| {
        let fence = tree.fence(means);
        let read = read_image(&fence, name.as_ref(), &Bounds::default(), &Cancel::new());
        read.map(|read| read.image)
    });
    assert_eq!(first, second, "by either means");
    first
}

#[test]
fn an_image_is_read_whatever_its_name_says() {
    let tree = Tree::new();
    let bytes = fixture("gradient.jpg");
    let path = tree.file("w/app/notes.txt", &bytes);
    symlink("notes.txt", tree.at("w/app/link.png")).unwrap();
    for name in ["notes.txt", "link.png"] {
        let image = read(&tree, name).unwrap();
        assert!(image.format == Format::Jpeg && image.data == bytes);
    }
    let fence = tree.fence(BOTH[0]);
    let read_one = read_image(
        &fence,
        "link.png".as_ref(),
        &Bounds::default(),
        &Cancel::new(),
    );
    let read_one = read_one.unwrap();
    assert_eq!(
        (read_one.path, read_one.facts.size),
        (path, bytes.len() as u64)
    );
    tree.file("w/app/text.png", "no image\n");
    let error = read(&tree, "text.png").unwrap_err().to_string();
    assert!(
        error.starts_with("\"text.png\": its content is not an image"),
        "{error}"
    );
}

#[test]
fn b050_special_files_are_named_and_never_opened_for_an_image() {
    let tree = Tree::new();
    for (name, kind, is) in [
        ("fifo", FileType::Fifo, FileKind::Fifo),
        ("socket", FileType::Socket, FileKind::Socket),
    ] {
        rustix::fs::mknodat(CWD, tree.at("w/app").join(name), kind, Mode::RUSR, 0).unwrap();
        match read(&tree, name) {
            Err(FileError::NotARegularFile { kind, .. }) => assert_eq!(kind, is),
            other => panic!("{name}: {other:?}"),
        }
    }
    assert!(matches!(
        read(&tree, "sub"),
        Err(FileError::IsADirectory { .. })
    ));
}

#[test]
fn secret_files_and_what_lies_outside_are_no_images() {
    let tree = Tree::new();
    tree.file("w/app/.env", fixture("gradient.png"));
    tree.file("w/other/x.png", fixture("gradient.png"));
    symlink("../other/x.png", tree.at("w/app/out.png")).unwrap();
    assert!(matches!(read(&tree, ".env"), Err(FileError::Secret { .. })));
    assert!(matches!(read(&tree, "out.png"), Err(FileError::Resolve(_))));
}

#[test]
fn a_file_that_is_too_large_is_told_with_its_size_and_not_read() {
    let tree = Tree::new();
    let path = tree.file("w/app/large.png", fixture("gradient.png"));
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    // A hole: a terabyte could not be read.
    file.set_len(1 << 40).unwrap();
    let error = read(&tree, "large.png").unwrap_err().to_string();
    assert!(
        error.contains("1099511627776 bytes") && error.contains("20971520"),
        "{error}"
    );
    // A bomb of the allowed length is refused from its first bytes.
    let path = tree.file("w/app/bomb.png", png_header(60_000, 60_000));
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(20 << 20).unwrap();
    let error = read(&tree, "bomb.png").unwrap_err().to_string();
    assert!(error.contains("60000 x 60000"), "{error}");
}

#[test]
fn bounds_have_bounds() {
    let tree = Tree::new();
    tree.file("w/app/x.png", fixture("gradient.png"));
    let fence = tree.fence(BOTH[0]);
    for (kilobytes, side, wrong) in [
        (0, 1, Some("max_image_kb")),
        (KILOBYTES + 1, 1, Some("max_image_kb")),
        (1, 0, Some("max_side")),
        (1, SIDE + 1, Some("max_side")),
        (KILOBYTES, SIDE, None),
    ] {
        let bounds = Bounds { kilobytes, side };
        let field = match read_image(&fence, "x.png".as_ref(), &bounds, &Cancel::new()) {
            Ok(_) => None,
            Err(FileError::InvalidArgument { field, .. }) => Some(field),
            Err(other) => panic!("{other}"),
        };
        assert_eq!(field, wrong);
    }
}
