//! Each call once over a real daemon, with what it promises.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use executor_client::{Reason, path_bytes, v1};
use executor_tests::{Daemon, in_time};

use super::*;

#[tokio::test]
async fn stat_tells_what_a_path_names() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    fs::write(daemon.work().join("f"), "abc").unwrap();
    fs::set_permissions(daemon.work().join("f"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("f", daemon.work().join("l")).unwrap();
    let request = v1::StatFileRequest {
        with_digest: true,
        ..stat("f")
    };
    let answer = session.stat(request).await.unwrap();
    let file = answer.file.unwrap();
    let metadata = fs::metadata(daemon.work().join("f")).unwrap();
    assert_eq!(file.kind(), v1::FileKind::Regular);
    assert_eq!((file.size, file.mode, file.links), (3, 0o640, 1));
    assert_eq!((file.uid, file.gid), (metadata.uid(), metadata.gid()));
    let modified = file.modified_at.unwrap();
    assert_eq!(modified.seconds, metadata.mtime());
    assert_eq!(i64::from(modified.nanos), metadata.mtime_nsec());
    let real = fs::canonicalize(daemon.work().join("f")).unwrap();
    assert_eq!(file.path, path_bytes(real));
    // BLAKE3 of "abc".
    assert_eq!(
        answer.digest,
        "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"
    );
    let link = session
        .stat(v1::StatFileRequest {
            no_follow: true,
            ..stat("l")
        })
        .await
        .unwrap();
    let link = link.file.unwrap();
    assert_eq!(link.kind(), v1::FileKind::Link);
    assert_eq!(link.link_target, b"f");
    assert_eq!(session.stat(stat("l")).await.unwrap().file.unwrap().size, 3);
    refused(session.stat(stat("none")).await, Reason::PathNotFound);
    refused(session.stat(stat("f/x")).await, Reason::PathNotADirectory);
    refused(session.stat(stat("")).await, Reason::InvalidArgument);
    refused(session.stat(stat("a\0b")).await, Reason::InvalidArgument);
    refused(
        session.stat(stat("n".repeat(5000))).await,
        Reason::InvalidArgument,
    );
}

#[tokio::test]
async fn lines_come_in_pages_that_follow_each_other() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let text: String = (1..=450)
        .map(|line| format!("line {line}\t\u{e9}\n"))
        .collect();
    fs::write(daemon.work().join("f"), &text).unwrap();
    let (mut read, mut next, mut pages) = (String::new(), Some(1), 0);
    while let Some(offset) = next {
        let request = v1::ReadLinesRequest {
            offset: Some(offset),
            ..lines("f")
        };
        let page = session.read_lines(request).await.unwrap();
        assert_eq!(page.first_line, offset);
        assert_eq!(page.total_lines, Some(450));
        assert_eq!(page.line_ending(), v1::LineEnding::Lf);
        assert_eq!((page.encoding.as_str(), page.bom), ("UTF-8", false));
        read.push_str(std::str::from_utf8(&page.text).unwrap());
        next = page.next_offset;
        pages += 1;
    }
    assert_eq!((read, pages), (text, 3));
    let ahead = v1::ReadLinesRequest {
        offset: Some(451),
        ..lines("f")
    };
    let error = refused(session.read_lines(ahead).await, Reason::LineOffsetAhead);
    assert_eq!(error.metadata("lines"), Some("450"));
    for (offset, limit) in [(Some(0), None), (None, Some(0)), (None, Some(2001))] {
        let request = v1::ReadLinesRequest {
            offset,
            limit,
            ..lines("f")
        };
        refused(session.read_lines(request).await, Reason::InvalidArgument);
    }
    fs::write(daemon.work().join("odd"), b"abc\xff\n").unwrap();
    let error = refused(session.read_lines(lines("odd")).await, Reason::NotText);
    assert_eq!(error.metadata("offset"), Some("3"));
    fs::write(daemon.work().join("bin"), b"abc\0\n").unwrap();
    refused(session.read_lines(lines("bin")).await, Reason::BinaryFile);
    let request = v1::ReadLinesRequest {
        encoding: "no such".into(),
        ..lines("f")
    };
    let error = refused(session.read_lines(request).await, Reason::InvalidArgument);
    assert_eq!(error.metadata("field"), Some("encoding"));
}

#[tokio::test]
async fn bytes_come_as_they_are_and_of_one_version() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let content = content(1_000_000);
    fs::write(daemon.work().join("f"), &content).unwrap();
    assert!(all(session.read_bytes(bytes("f"))).await.unwrap() == content);
    let range = v1::ReadBytesRequest {
        offset: 999_000,
        length: Some(500),
        ..bytes("f")
    };
    let read = all(session.read_bytes(range)).await.unwrap();
    assert!(read == content[999_000..999_500]);
    fs::write(daemon.work().join("empty"), "").unwrap();
    let mut empty = session.read_bytes(bytes("empty"));
    assert_eq!(empty.next().await.unwrap(), None);
    let version = empty.info().unwrap().version.clone();
    fs::write(daemon.work().join("empty"), "no more").unwrap();
    let range = v1::ReadBytesRequest {
        version,
        ..bytes("empty")
    };
    refused(all(session.read_bytes(range)).await, Reason::FileChanged);
    refused(
        all(session.read_bytes(bytes("."))).await,
        Reason::IsADirectory,
    );
    let range = v1::ReadBytesRequest {
        version: "odd".into(),
        ..bytes("f")
    };
    refused(
        all(session.read_bytes(range)).await,
        Reason::InvalidArgument,
    );
}

#[tokio::test]
async fn b134_names_that_are_no_text_are_listed_read_and_removed() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let names: [&[u8]; 5] = [b"\xff.txt", b"\xe9", b"\xed\xa0\x80", b"a\nb", b" "];
    for name in names {
        let path = daemon.work().join(std::ffi::OsStr::from_bytes(name));
        fs::write(path, name).unwrap();
    }
    let listing = session.list_directory(directory(".")).await.unwrap();
    let mut listed: Vec<_> = listing.entries.iter().map(|entry| &*entry.path).collect();
    listed.sort_unstable();
    let mut expected = names.to_vec();
    expected.sort_unstable();
    assert_eq!(listed, expected);
    for entry in listing.entries {
        let request = v1::ReadBytesRequest {
            path: entry.path.clone(),
            ..Default::default()
        };
        assert_eq!(all(session.read_bytes(request)).await.unwrap(), entry.path);
        let request = v1::RemoveFileRequest {
            path: entry.path,
            ..Default::default()
        };
        assert_eq!(session.remove_file(request).await.unwrap().removed, 1);
    }
    assert_eq!(fs::read_dir(daemon.work()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_listing_counts_what_it_leaves_out() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    fs::create_dir_all(daemon.work().join("a/b/c")).unwrap();
    fs::create_dir_all(daemon.work().join("target/x")).unwrap();
    fs::create_dir(daemon.work().join(".git")).unwrap();
    for name in ["a/f", "a/b/g", "a/b/c/h", ".hidden", "z", "target/x/o"] {
        fs::write(daemon.work().join(name), name).unwrap();
    }
    fs::write(daemon.work().join(".gitignore"), "target\n").unwrap();
    symlink("/", daemon.work().join("l")).unwrap();
    let request = v1::ListDirectoryRequest {
        depth: 3,
        gitignore: true,
        skip_hidden: true,
        ..directory(".")
    };
    let listing = session.list_directory(request).await.unwrap();
    let names: Vec<_> = listing
        .entries
        .iter()
        .map(|entry| String::from_utf8(entry.path.clone()).unwrap())
        .collect();
    assert_eq!(names, ["a", "a/b", "a/b/c", "a/b/g", "a/f", "l", "z"]);
    assert_eq!(listing.entries[5].link_target, b"/");
    assert_eq!(listing.summary.entries, 7);
    // .git, .gitignore, .hidden and target.
    assert_eq!(listing.summary.ignored, 4);
    let request = v1::ListDirectoryRequest {
        limit: 2,
        ..directory(".")
    };
    let listing = session.list_directory(request).await.unwrap();
    assert_eq!(listing.entries.len(), 2);
    assert!(listing.summary.limit_reached);
    for (depth, limit) in [(9, 0), (1, 100_001)] {
        let request = v1::ListDirectoryRequest {
            depth,
            limit,
            ..directory(".")
        };
        refused(
            session.list_directory(request).await,
            Reason::InvalidArgument,
        );
    }
    refused(
        session.list_directory(directory("z")).await,
        Reason::PathNotADirectory,
    );
}

#[tokio::test]
async fn special_and_secret_files_are_refused_at_once() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let fifo = daemon.work().join("p");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    symlink("p", daemon.work().join("lp")).unwrap();
    symlink("/dev/zero", daemon.work().join("lz")).unwrap();
    for name in ["p", "lp", "lz", "/dev/zero", "/dev/tty"] {
        let read = in_time(name, session.read_lines(lines(name))).await;
        refused(read, Reason::NotARegularFile);
        let read = in_time(name, all(session.read_bytes(bytes(name)))).await;
        refused(read, Reason::NotARegularFile);
        let request = v1::ReadImageRequest {
            path: path_bytes(name),
            ..Default::default()
        };
        let read = in_time(name, session.read_image(request)).await;
        refused(read, Reason::NotARegularFile);
        let edited = in_time(name, session.edit_file(edit(name, "a", "b"))).await;
        refused(edited, Reason::NotARegularFile);
        let written = in_time(name, session.write_file(open(name), "x")).await;
        refused(written, Reason::NotARegularFile);
    }
    fs::write(daemon.work().join(".env"), "KEY=1").unwrap();
    let secret_image = v1::ReadImageRequest {
        path: path_bytes(".env"),
        ..Default::default()
    };
    for answer in [
        session.read_lines(lines(".env")).await.map(drop),
        session.read_image(secret_image).await.map(drop),
        session.write_file(open(".env"), "x").await.map(drop),
        session.edit_file(edit(".env", "1", "2")).await.map(drop),
        session.rename_file(rename(".env", "e")).await.map(drop),
        session.remove_file(remove(".env")).await.map(drop),
        session.stat(stat(".env")).await.map(drop),
    ] {
        refused(answer, Reason::SecretFile);
    }
}

#[tokio::test]
async fn another_root_is_granted_to_a_session_that_is_open() {
    let daemon = Daemon::start().await;
    for name in ["a", "b"] {
        fs::create_dir(daemon.work().join(name)).unwrap();
    }
    let b = daemon.work().join("b");
    fs::write(b.join("f"), "b").unwrap();
    let root = |name: &str, mode: v1::AccessMode| v1::Root {
        path: path_bytes(daemon.work().join(name)),
        mode: mode.into(),
    };
    let options = executor_client::SessionOptions {
        roots: vec![root("a", v1::AccessMode::ReadWrite)],
        ..Default::default()
    };
    let machine = daemon.machine().await;
    let session = machine.open_session(options).await.unwrap();
    let error = refused(
        session.read_lines(lines(b.join("f"))).await,
        Reason::PathOutsideRoots,
    );
    assert!(error.metadata("nearest_root").is_some());
    refused(
        session.read_lines(lines("../b/f")).await,
        Reason::PathOutsideRoots,
    );
    let read_only = root("b", v1::AccessMode::ReadOnly);
    let granted = session.grant_root(read_only.clone()).await.unwrap();
    assert!(granted.added);
    assert_eq!(granted.session.unwrap().roots.len(), 2);
    assert!(!session.grant_root(read_only).await.unwrap().added);
    let page = session.read_lines(lines("../b/f")).await.unwrap();
    assert_eq!(&*page.text, b"b");
    refused(
        session.write_file(open("../b/f"), "x").await,
        Reason::RootReadOnly,
    );
    let writable = root("b", v1::AccessMode::ReadWrite);
    session.grant_root(writable).await.unwrap();
    session.write_file(open("../b/f"), "x").await.unwrap();
    assert_eq!(fs::read_to_string(b.join("f")).unwrap(), "x");
    let none = root("none", v1::AccessMode::ReadWrite);
    refused(session.grant_root(none).await, Reason::RootUnusable);
}
