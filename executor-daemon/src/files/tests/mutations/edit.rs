//! Edits: what the text is afterwards, byte for byte.

use std::os::unix::fs::MetadataExt as _;

use super::*;
use crate::files::edit::EDIT_BYTES;
use crate::files::mutation::Precondition;
use crate::files::text::edits::EditError;
use crate::files::text::encoding::TextError;
use crate::files::version::Digest;

fn all(old: &str, new: &str) -> Edit {
    Edit {
        replace_all: true,
        ..edit(old, new)
    }
}

/// `before`, edited, is `after`.
#[track_caller]
fn becomes(before: &str, edits: Vec<Edit>, after: &str) -> Edited {
    let world = World::new();
    world.put("f", before);
    let edited = world.edit_as(&EditSpec::new("f", edits)).unwrap();
    assert_eq!(text(world.at("f")), after);
    assert_eq!(edited.digest_before, Digest::of(before.as_bytes()));
    assert_eq!(edited.digest, Digest::of(after.as_bytes()));
    edited
}

/// It is refused, and the file is untouched.
#[track_caller]
fn refused(before: &str, edits: Vec<Edit>) -> EditError {
    let world = World::new();
    let path = world.put("f", before);
    let inode = fs::metadata(&path).unwrap().ino();
    let error = world.edit_as(&EditSpec::new("f", edits)).unwrap_err();
    assert_eq!(text(&path), before);
    assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
    assert_eq!(world.names(), ["f"]);
    match error {
        FileError::Edit { error, .. } => error,
        other => panic!("{other}"),
    }
}

#[test]
fn an_edit_says_what_changed() {
    let world = World::new();
    world.put("f", "one\ntwo\nthree\n");
    let edits = vec![edit("two", "2\n2b"), all("e", "E")];
    let edited = world.edit_as(&EditSpec::new("f", edits)).unwrap();
    assert_eq!(text(world.at("f")), "onE\n2\n2b\nthrEE\n");
    assert_eq!(edited.replacements, [1, 3]);
    assert_eq!((edited.lines_added, edited.lines_removed), (4, 3));
    assert!(edited.diff.contains("-two\n") && edited.diff.contains("+2b\n"));
    assert!(edited.durability.atomic && edited.durability.checked);
    assert!(!edited.line_endings_adapted && !edited.diff_truncated);
    assert_eq!(edited.file.path, world.at("f"));
}

#[test]
fn b031_a_replacement_is_no_template() {
    let new = "$& $1 $$ $' $` ${x} \\1 \\0 %s {}";
    becomes(
        "A TOKEN B\n",
        vec![edit("TOKEN", new)],
        &format!("A {new} B\n"),
    );
    let twice = format!("{new} {new}\n");
    becomes("TOKEN TOKEN\n", vec![all("TOKEN", new)], &twice);
}

#[test]
fn b032_escapes_are_bytes_like_any_others() {
    let four = "\"\\n\\t\"";
    becomes("x = X\n", vec![edit("X", four)], &format!("x = {four}\n"));
    becomes("x = X\n", vec![edit("X", "a\n\tb")], "x = a\n\tb\n");
    becomes(
        "p(\"\\n\")\n",
        vec![edit("\"\\n\"", "\"\n\"")],
        "p(\"\n\")\n",
    );
}

#[test]
fn b034_empty_text_and_equal_text_are_refused_for_every_file() {
    for replace_all in [false, true] {
        let empty = Edit {
            replace_all,
            ..edit("", "x")
        };
        assert_eq!(
            refused("abc", vec![empty.clone()]),
            EditError::Empty { edit: 0 }
        );
        assert_eq!(
            refused("", vec![empty.clone()]),
            EditError::Empty { edit: 0 }
        );
        let second = vec![edit("a", "b"), empty.clone()];
        assert_eq!(refused("abc", second), EditError::Empty { edit: 1 });
        let world = World::new();
        let error = world.edit_as(&EditSpec::new("missing", vec![empty]));
        assert!(matches!(error, Err(FileError::Edit { .. })), "{error:?}");
        let same = Edit {
            replace_all,
            ..edit("a", "a")
        };
        let error = refused("abc", vec![same]);
        assert_eq!(error, EditError::Unchanged { edit: 0 });
        assert!(error.to_string().contains("are the same"), "{error}");
    }
}

#[test]
fn b035_only_the_matched_bytes_go() {
    let deleted = || vec![edit("/legacy", "")];
    becomes("URL=ftp://h/legacy\nN=3\n", deleted(), "URL=ftp://h\nN=3\n");
    becomes(
        "URL=ftp://h/legacy\r\nN=3\r\n",
        deleted(),
        "URL=ftp://h\r\nN=3\r\n",
    );
    becomes("a;\nb;\n", vec![all(";", "")], "a\nb\n");
    becomes(
        "no newline at the end;",
        vec![edit(";", "")],
        "no newline at the end",
    );
}

#[test]
fn b037_line_endings_are_the_files() {
    let edited = becomes(
        "a\r\nb\r\nc\r\n",
        vec![edit("a\nb", "a\nB\nB2")],
        "a\r\nB\r\nB2\r\nc\r\n",
    );
    assert!(edited.line_endings_adapted);
    let edited = becomes("a\nb\nc\n", vec![edit("a\r\nb", "a\r\nB")], "a\nB\nc\n");
    assert!(edited.line_endings_adapted);
    // Mixed inside the match: its very bytes, or nothing.
    let mixed = "a\r\nb\nc\r\n";
    assert!(matches!(
        refused(mixed, vec![edit("a\nb\nc", "x")]),
        EditError::NotFound { .. }
    ));
    let edited = becomes(mixed, vec![edit("a\r\nb\nc", "x")], "x\r\n");
    assert!(!edited.line_endings_adapted);
}

#[test]
fn b038_what_is_not_there_exactly_is_refused_with_what_is_most_like_it() {
    let before = "  hello\n    world\n  end\n";
    let error = refused(before, vec![edit("hello\nworld", "bye\nmoon")]);
    let EditError::NotFound { edit: 0, nearest } = &error else {
        panic!("{error}");
    };
    assert_eq!(nearest.as_ref().unwrap().line, 1);
    assert!(error.to_string().contains("line 1"), "{error}");
}

#[test]
fn all_edits_or_none() {
    let error = refused("a b c", vec![edit("a", "A"), edit("x", "y")]);
    assert!(matches!(error, EditError::NotFound { edit: 1, .. }));
    let error = refused("a a", vec![edit("a", "b")]);
    assert!(matches!(error, EditError::NotUnique { count: 2, .. }));
}

#[test]
fn a_dry_run_says_the_same_and_writes_nothing() {
    let world = World::new();
    let path = world.put("f", "old\n");
    let before = fs::metadata(&path).unwrap();
    let spec = EditSpec {
        dry_run: true,
        ..EditSpec::new("f", vec![edit("old", "new")])
    };
    let dry = world.edit_as(&spec).unwrap();
    assert_eq!(text(&path), "old\n");
    assert_eq!(fs::metadata(&path).unwrap().ino(), before.ino());
    assert_eq!(dry.undo_token, None);
    let real = world.edit("f", "old", "new").unwrap();
    assert_eq!((dry.diff, dry.digest), (real.diff, real.digest));
}

#[test]
fn an_edit_from_an_old_read_is_refused() {
    let world = World::new();
    world.put("f", "old");
    let spec = |precondition| EditSpec {
        precondition: Some(precondition),
        ..EditSpec::new("f", vec![edit("old", "new")])
    };
    let wrong = spec(Precondition::Digest(Digest::of(b"other")));
    let error = world.edit_as(&wrong).unwrap_err();
    assert!(matches!(error, FileError::PreconditionFailed { .. }));
    let senseless = spec(Precondition::MustNotExist);
    let error = world.edit_as(&senseless).unwrap_err();
    assert!(matches!(error, FileError::InvalidArgument { .. }));
    world
        .edit_as(&spec(Precondition::Digest(Digest::of(b"old"))))
        .unwrap();
}

#[test]
fn encodings_and_a_bom_stay() {
    let world = World::new();
    let utf16 = |text: &str| -> Vec<u8> {
        let units = text.encode_utf16().flat_map(u16::to_le_bytes);
        [0xff, 0xfe].into_iter().chain(units).collect()
    };
    world.put("utf16", utf16("größe = 1\r\nrest\r\n"));
    world
        .edit("utf16", "größe = 1\nrest", "größe = 2\nrest €")
        .unwrap();
    assert_eq!(
        fs::read(world.at("utf16")).unwrap(),
        utf16("größe = 2\r\nrest €\r\n")
    );
    world.put("bom", "\u{feff}a\n");
    world.edit("bom", "a", "b").unwrap();
    assert_eq!(text(world.at("bom")), "\u{feff}b\n");
    world.put("latin1", b"caf\xe9\n");
    let error = world.edit("latin1", "caf", "x").unwrap_err();
    let FileError::Text { error, .. } = error else {
        panic!("{error}");
    };
    assert!(matches!(error, TextError::NotText { offset: 3, .. }));
    let spec = EditSpec {
        encoding: Some("iso-8859-1".into()),
        ..EditSpec::new("latin1", vec![edit("café", "thé")])
    };
    world.edit_as(&spec).unwrap();
    assert_eq!(fs::read(world.at("latin1")).unwrap(), b"th\xe9\n");
    world.put("binary", b"a\0b");
    let error = world.edit("binary", "a", "b").unwrap_err();
    assert!(matches!(
        error,
        FileError::Text {
            error: TextError::Binary { .. },
            ..
        }
    ));
}

#[test]
fn a_missing_file_and_one_that_is_too_large_are_told() {
    let world = World::new();
    let error = world.edit("missing", "a", "b").unwrap_err();
    assert!(matches!(error, FileError::NotFound { .. }), "{error}");
    world.put("caf\u{e9}", "x");
    let error = world.edit("cafe\u{301}", "x", "y").unwrap_err();
    let FileError::NotFound { candidates, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(candidates.len(), 1, "the one that looks like it");
    let large = fs::File::create(world.at("large")).unwrap();
    large.set_len(EDIT_BYTES + 1).unwrap();
    let error = world.edit("large", "a", "b").unwrap_err();
    assert!(matches!(error, FileError::TooLarge { .. }), "{error}");
    let none = EditSpec::new("caf\u{e9}", Vec::new());
    let error = world.edit_as(&none).unwrap_err();
    assert!(matches!(error, FileError::InvalidArgument { .. }));
}
