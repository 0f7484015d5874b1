//! Whole contents.

use std::os::unix::fs::{MetadataExt as _, symlink};

use super::*;
use crate::files::mutation::{Durability, Precondition};
use crate::files::object::FileKind;
use crate::files::version::Digest;

const ATOMIC: Durability = Durability {
    atomic: true,
    checked: true,
};

#[test]
fn a_file_is_made_and_replaced() {
    let world = World::new();
    let made = world.write("f", "one\n").unwrap();
    assert!(made.created);
    assert_eq!(made.digest, Digest::of(b"one\n"));
    assert_eq!(made.durability, ATOMIC);
    assert_eq!(made.file.path, world.at("f"));
    let before = fs::metadata(world.at("f")).unwrap();
    assert_eq!(made.file.facts.ino, before.ino());
    assert_eq!(made.file.facts.ctime.0, before.ctime());
    assert_eq!(i64::from(made.file.facts.ctime.1), before.ctime_nsec());
    let replaced = world.write("f", "two, longer\n").unwrap();
    assert!(!replaced.created);
    assert_eq!(replaced.durability, ATOMIC);
    assert_eq!(text(world.at("f")), "two, longer\n");
    let now = fs::metadata(world.at("f")).unwrap();
    assert_eq!(i64::from(replaced.file.facts.ctime.1), now.ctime_nsec());
    assert_eq!(world.names(), ["f"], "a temporary was left");
}

#[test]
fn an_empty_content_and_one_larger_than_memory_are_written_whole() {
    let world = World::new();
    for length in [0, 1, (1 << 20) - 1, 1 << 20, (3 << 20) + 7] {
        let mut writer = world.files.content("f".into());
        let bytes: Vec<u8> = (0..length)
            .map(|n: u32| (n / 251).to_le_bytes()[0])
            .collect();
        for part in bytes.chunks(100_003) {
            writer.push(part).unwrap();
        }
        let content = writer.finish();
        let spec = WriteSpec::new("f");
        let written = world.files.write(world.caller(), &spec, &content).unwrap();
        assert_eq!(written.value.digest, Digest::of(&bytes));
        assert!(fs::read(world.at("f")).unwrap() == bytes, "{length}");
    }
}

#[test]
fn more_than_the_limit_is_refused_while_it_comes() {
    let world = World::new();
    let mut writer = world.files.content("f".into());
    let part = vec![0; 1 << 20];
    for _ in 0..256 {
        writer.push(&part).unwrap();
    }
    let error = writer.push(b"x").unwrap_err();
    assert!(matches!(error, FileError::TooLarge { .. }), "{error}");
}

#[test]
fn b040_what_a_file_is_stays_but_for_its_content() {
    let world = World::new();
    for bits in [0o755, 0o600, 0o4755, 0o2750, 0o640, 0o222, 0o1666] {
        let path = world.put("run.sh", "old old\n");
        chmod(&path, bits);
        let before = fs::metadata(&path).unwrap();
        world.write("run.sh", "new\n").unwrap();
        assert_eq!(mode(&path), bits, "write {bits:o}");
        world.edit("run.sh", "new", "newer").unwrap();
        assert_eq!(mode(&path), bits, "edit {bits:o}");
        let after = fs::metadata(&path).unwrap();
        assert_eq!((before.uid(), before.gid()), (after.uid(), after.gid()));
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn b040_another_owner_and_group_stay_where_we_may_set_them() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let world = World::new();
    let path = world.put("f", "old");
    std::os::unix::fs::chown(&path, Some(1234), Some(2345)).unwrap();
    chmod(&path, 0o6750);
    world.write("f", "new").unwrap();
    let after = fs::metadata(&path).unwrap();
    assert_eq!((after.uid(), after.gid()), (1234, 2345));
    assert_eq!(mode(&path), 0o6750);
}

#[test]
fn b040_a_file_that_nobody_may_write_is_refused_also_for_root() {
    let world = World::new();
    for bits in [0o444, 0o400, 0o555, 0o000] {
        let path = world.put("f", "old");
        chmod(&path, bits);
        for in_place in [false, true] {
            let spec = WriteSpec {
                in_place,
                ..WriteSpec::new("f")
            };
            let error = world.write_as(&spec, "new").unwrap_err();
            assert!(matches!(error, FileError::ReadOnly { mode, .. } if mode == bits));
        }
        if bits & 0o400 != 0 {
            let error = world.edit("f", "old", "new").unwrap_err();
            assert!(matches!(error, FileError::ReadOnly { .. }), "{error}");
        }
        chmod(&path, 0o600);
        assert_eq!(text(&path), "old");
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn b040_a_private_file_is_never_readable_by_others_even_briefly() {
    let world = World::new();
    let path = world.put("f", "secret");
    chmod(&path, 0o600);
    let app = world.app.clone();
    world.files.hooks.before_commit(move |_| {
        // At this moment the temporary has its whole content.
        for name in names(&app) {
            assert_eq!(mode(app.join(&name)), 0o600, "{name}");
        }
        assert_eq!(names(&app).len(), 2);
    });
    world.write("f", "new secret").unwrap();
    world.edit("f", "new", "newer").unwrap();
    let spec = WriteSpec {
        mode: Some(0o600),
        ..WriteSpec::new("made")
    };
    fs::remove_file(&path).unwrap();
    let app = world.app.clone();
    world.files.hooks.before_commit(move |_| {
        assert!(names(&app).iter().all(|name| mode(app.join(name)) == 0o600));
    });
    world.write_as(&spec, "secret").unwrap();
}

#[test]
fn a_new_files_mode_is_the_one_given_or_that_of_any_new_file() {
    let world = World::new();
    let like = world.put("like", "");
    world.write("f", "").unwrap();
    assert_eq!(mode(world.at("f")), mode(like));
    for bits in [0o777, 0o600, 0o400, 0o666, 0o000] {
        let spec = WriteSpec {
            mode: Some(bits),
            ..WriteSpec::new(format!("f{bits:o}"))
        };
        world.write_as(&spec, "x").unwrap();
        assert_eq!(mode(world.at(&spec.path)), bits);
    }
    let spec = WriteSpec {
        mode: Some(0o700),
        ..WriteSpec::new("like")
    };
    world.write_as(&spec, "x").unwrap();
    assert_eq!(mode(world.at("like")), 0o700);
    let spec = WriteSpec {
        mode: Some(0o4755),
        ..WriteSpec::new("setuid")
    };
    let error = world.write_as(&spec, "x").unwrap_err();
    assert!(matches!(
        error,
        FileError::InvalidArgument { field: "mode", .. }
    ));
}

#[test]
fn extended_attributes_and_an_acl_stay() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    let world = World::new();
    let path = world.put("f", "old");
    chmod(&path, 0o640);
    let set = |name: &str, value: &[u8]| setxattr(&path, name, value, XattrFlags::empty());
    if set("user.note", b"kept").is_err() {
        eprintln!("no extended attributes here: skipped");
        return;
    }
    set("user.empty", b"").unwrap();
    set("user.long", &[7; 3000]).unwrap();
    // user::rw-, user:1234:r--, group::r--, mask::r--, other::---
    let mut acl = vec![2, 0, 0, 0];
    for (tag, bits, id) in [
        (1_u16, 6_u16, u32::MAX),
        (2, 4, 1234),
        (4, 4, u32::MAX),
        (0x10, 4, u32::MAX),
        (0x20, 0, u32::MAX),
    ] {
        acl.extend(tag.to_le_bytes());
        acl.extend(bits.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    let with_acl = set("system.posix_acl_access", &acl).is_ok();
    world.write("f", "new").unwrap();
    let get = |name: &str| {
        let mut value = vec![0; 4096];
        let length = getxattr(&path, name, &mut value[..]).unwrap();
        value.truncate(length);
        value
    };
    assert_eq!(get("user.note"), b"kept");
    assert_eq!(get("user.empty"), b"");
    assert_eq!(get("user.long"), [7; 3000]);
    if with_acl {
        assert_eq!(get("system.posix_acl_access"), acl);
    }
    assert_eq!(mode(&path), 0o640);
}

#[test]
fn a_link_stays_a_link_and_what_it_leads_to_is_written() {
    let world = World::new();
    fs::create_dir(world.at("sub")).unwrap();
    world.put("sub/f", "old");
    symlink("sub/f", world.at("link")).unwrap();
    symlink("link", world.at("second")).unwrap();
    symlink("sub/new", world.at("dangling")).unwrap();
    let written = world.write("second", "new").unwrap();
    assert_eq!(written.file.path, world.at("sub/f"));
    assert_eq!(text(world.at("sub/f")), "new");
    let made = world.write("dangling", "made").unwrap();
    assert!(made.created);
    assert_eq!(text(world.at("sub/new")), "made");
    for link in ["link", "second", "dangling"] {
        assert!(fs::symlink_metadata(world.at(link)).unwrap().is_symlink());
    }
}

#[test]
fn preconditions_say_what_the_file_is_and_write_nothing() {
    let world = World::new();
    let write = |name: &str, precondition| {
        let spec = WriteSpec {
            precondition: Some(precondition),
            ..WriteSpec::new(name)
        };
        world.write_as(&spec, "new")
    };
    let failed = |result: Result<Written, FileError>| match result.unwrap_err() {
        FileError::PreconditionFailed { now, .. } => now.map(|now| *now),
        other => panic!("{other}"),
    };
    world.put("f", "old");
    symlink("nothing", world.at("dangling")).unwrap();
    let (of_old, of_other) = (Digest::of(b"old"), Digest::of(b"other"));
    let version = world.write("f", "old").unwrap().file.facts.version();
    assert!(failed(write("f", Precondition::MustNotExist)).is_some());
    assert_eq!(failed(write("dangling", Precondition::MustNotExist)), None);
    assert!(fs::symlink_metadata(world.at("nothing")).is_err());
    assert_eq!(
        failed(write("f", Precondition::Digest(of_other))),
        Some((version, Some(of_old)))
    );
    assert_eq!(failed(write("missing", Precondition::Digest(of_old))), None);
    assert_eq!(
        failed(write("missing", Precondition::Version(version))),
        None
    );
    assert_eq!(text(world.at("f")), "old");
    write("f", Precondition::Version(version)).unwrap();
    assert!(failed(write("f", Precondition::Version(version))).is_some());
    write("f", Precondition::Digest(Digest::of(b"new"))).unwrap();
    write("fresh", Precondition::MustNotExist).unwrap();
    assert_eq!(world.names(), ["dangling", "f", "fresh"]);
}

#[test]
fn b043_a_write_from_an_old_read_is_refused_and_without_one_the_last_wins() {
    let world = World::new();
    world.put("f", "first");
    let read = world.write("f", "first").unwrap();
    let tokens = [
        Precondition::Digest(read.digest),
        Precondition::Version(read.file.facts.version()),
    ];
    // As a shell does it, in the same file, with the same length.
    fs::write(world.at("f"), "other").unwrap();
    for token in tokens {
        let spec = WriteSpec {
            precondition: Some(token),
            ..WriteSpec::new("f")
        };
        let error = world.write_as(&spec, "from an old read").unwrap_err();
        assert!(matches!(error, FileError::PreconditionFailed { .. }));
        assert_eq!(text(world.at("f")), "other");
    }
    world.write("f", "last").unwrap();
    assert_eq!(text(world.at("f")), "last");
}

#[test]
fn parents_are_made_only_when_asked_for() {
    let world = World::new();
    let error = world.write("a/b/c", "x").unwrap_err();
    assert!(matches!(error, FileError::NoParent { .. }), "{error}");
    assert_eq!(world.names(), [""; 0]);
    for name in ["a/b/c", "a/b/d", "./x/../y/z"] {
        let spec = WriteSpec {
            parents: true,
            ..WriteSpec::new(name)
        };
        world.write_as(&spec, name).unwrap();
        assert_eq!(text(world.at(name)), name);
    }
    world.put("file", "");
    let spec = WriteSpec {
        parents: true,
        ..WriteSpec::new("file/below")
    };
    assert!(world.write_as(&spec, "x").is_err());
    let spec = WriteSpec {
        parents: true,
        ..WriteSpec::new("../outside/f")
    };
    assert!(world.write_as(&spec, "x").is_err());
    assert!(fs::symlink_metadata(world.at("../outside")).is_err());
}

#[test]
fn what_has_no_content_to_replace_is_refused() {
    let world = World::new();
    fs::create_dir(world.at("dir")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        world.at("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(world.at("socket")).unwrap();
    for (name, kind) in [("fifo", FileKind::Fifo), ("socket", FileKind::Socket)] {
        let refused =
            |error| matches!(error, FileError::NotARegularFile { kind: k, .. } if k == kind);
        assert!(refused(world.write(name, "x").unwrap_err()), "{name}");
        assert!(refused(world.edit(name, "x", "y").unwrap_err()), "{name}");
    }
    for name in ["dir", "dir/", "new/"] {
        let error = world.write(name, "x").unwrap_err();
        assert!(matches!(error, FileError::IsADirectory { .. }), "{error}");
    }
    for name in [".", "dir/.", "..", world.app.to_str().unwrap()] {
        let error = world.write(name, "x").unwrap_err();
        let fine = matches!(error, FileError::IsARoot { .. } | FileError::Resolve(_));
        assert!(fine, "{name}: {error}");
    }
    assert_eq!(world.names(), ["dir", "fifo", "socket"]);
}

#[test]
fn b041_a_file_with_several_names_is_refused_or_written_in_place_never_split() {
    let world = World::new();
    let a = world.put("a", "old, and longer");
    fs::hard_link(&a, world.at("b")).unwrap();
    let inode = fs::metadata(&a).unwrap().ino();
    for result in [
        world.write("a", "new").map(|_| ()),
        world.edit("a", "old", "new").map(|_| ()),
    ] {
        let error = result.unwrap_err();
        assert!(matches!(error, FileError::WouldBreakLinks { links: 2, .. }));
        assert!(error.to_string().contains("in_place"), "{error}");
        assert_eq!(text(world.at("b")), "old, and longer");
    }
    let spec = WriteSpec {
        in_place: true,
        ..WriteSpec::new("a")
    };
    for content in ["new", "", "and longer than it ever was before"] {
        let written = world.write_as(&spec, content).unwrap();
        assert!(!written.durability.atomic);
        assert_eq!(text(world.at("b")), content);
        let now = fs::metadata(&a).unwrap();
        assert_eq!((now.ino(), now.nlink()), (inode, 2));
    }
    let spec = EditSpec {
        in_place: true,
        ..EditSpec::new("b", vec![edit("longer", "shorter")])
    };
    world.edit_as(&spec).unwrap();
    assert!(text(&a).contains("shorter"));
    assert_eq!(world.names(), ["a", "b"]);
    let instance = names(&world.state.join("instances"));
    let left = names(&world.state.join("instances").join(&instance[0]));
    assert!(
        !left.iter().any(|name| name.starts_with("redo-")),
        "{left:?}"
    );
}

#[test]
fn b076_a_hard_link_to_a_file_outside_is_not_written_unless_in_place() {
    let world = World::new();
    let outside = world.app.parent().unwrap().join("secret");
    fs::write(&outside, "outside").unwrap();
    fs::hard_link(&outside, world.at("h")).unwrap();
    let error = world.write("h", "new").unwrap_err();
    assert!(matches!(error, FileError::WouldBreakLinks { .. }));
    let error = world.edit("h", "outside", "new").unwrap_err();
    assert!(matches!(error, FileError::WouldBreakLinks { .. }));
    assert_eq!(text(outside), "outside");
}

#[test]
fn in_place_replaces_where_a_replacement_loses_nothing() {
    let world = World::new();
    let path = world.put("f", "old");
    let inode = fs::metadata(&path).unwrap().ino();
    let spec = WriteSpec {
        in_place: true,
        ..WriteSpec::new("f")
    };
    assert_eq!(world.write_as(&spec, "new").unwrap().durability, ATOMIC);
    assert_ne!(fs::metadata(&path).unwrap().ino(), inode);
}

#[test]
fn a_line_that_stands_for_text_left_out_is_refused_unless_the_file_had_it() {
    let world = World::new();
    world.put("f", "fn a() {}\nfn b() {}\n");
    let elided = "fn a() { changed }\n// ... rest unchanged\n";
    let error = world.write("f", elided).unwrap_err();
    assert!(
        matches!(error, FileError::Elision { line: 2, .. }),
        "{error}"
    );
    assert_eq!(text(world.at("f")), "fn a() {}\nfn b() {}\n");
    world.write("new", elided).unwrap();
    world.write("new", &format!("x\n{elided}")).unwrap();
    let spec = WriteSpec {
        allow_elision: true,
        ..WriteSpec::new("f")
    };
    world.write_as(&spec, elided).unwrap();
    assert_eq!(text(world.at("f")), elided);
}

#[test]
fn b062_and_b134_any_name_can_be_written_edited_and_removed() {
    use std::os::unix::ffi::OsStrExt as _;
    let world = World::new();
    let all: [&[u8]; 9] = [
        b"-rf",
        b"--",
        b"--pre=x.sh",
        b"\xff.txt",
        b"\xe9",
        b"\xed\xa0\x80",
        b" leading and trailing ",
        b"new\nline",
        b"*?[a]",
    ];
    for bytes in all {
        let name = Path::new(OsStr::from_bytes(bytes));
        world.write(name, "old").unwrap();
        world.edit(name, "old", "new").unwrap();
        assert_eq!(text(world.at(name)), "new");
    }
    assert_eq!(world.names().len(), all.len(), "two names became one");
    for bytes in all {
        let name = OsStr::from_bytes(bytes);
        let removed = world.remove(name).unwrap();
        assert_eq!(removed.path, world.at(name));
        assert!(fs::symlink_metadata(world.at(name)).is_err());
    }
    assert_eq!(world.names(), [""; 0]);
}

#[test]
fn without_an_exchange_a_file_is_replaced_and_the_reply_says_so() {
    let world = World::new();
    world.files.hooks.without_exchange();
    let made = world.write("f", "one").unwrap();
    assert_eq!(made.durability, ATOMIC, "link(2) replaces nothing");
    let left = fs::metadata(world.at("f")).unwrap();
    assert_eq!(i64::from(made.file.facts.ctime.1), left.ctime_nsec());
    let written = world.write("f", "two").unwrap();
    assert!(written.durability.atomic && !written.durability.checked);
    assert_eq!(text(world.at("f")), "two");
    assert_eq!(world.names(), ["f"]);
    world.undo(written.undo_token.as_ref()).unwrap();
    assert_eq!(text(world.at("f")), "one");
}
