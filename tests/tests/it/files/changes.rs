//! Each change once over a real daemon, with what it promises.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};

use executor_client::v1::precondition::Condition;
use executor_client::{OperationId, Reason, v1};
use executor_tests::Daemon;

use super::*;

#[tokio::test]
async fn a_write_makes_and_replaces_under_its_precondition() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let path = daemon.work().join("d/f");
    let request = v1::WriteFileOpen {
        parents: true,
        mode: Some(0o751),
        precondition: must(Condition::MustNotExist(true)),
        ..open("d/f")
    };
    let first = session.write_file(request.clone(), "one\n").await.unwrap();
    assert!(first.created && !first.replayed);
    assert_eq!(fs::read_to_string(&path).unwrap(), "one\n");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o751);
    let again = session.write_file(request, "two\n").await;
    refused(again, Reason::PreconditionFailed);
    let version = first.file.unwrap().version;
    let request = v1::WriteFileOpen {
        precondition: must(Condition::Version(version.clone())),
        ..open("d/f")
    };
    let second = session.write_file(request, "two\n").await.unwrap();
    assert!(!second.created && second.durability.unwrap().atomic);
    // B043: what somebody else wrote meanwhile is not wiped.
    fs::write(&path, "theirs\n").unwrap();
    for condition in [
        Condition::Version(version),
        Condition::Digest(second.digest),
    ] {
        let request = v1::WriteFileOpen {
            precondition: must(condition),
            ..open("d/f")
        };
        let error = refused(
            session.write_file(request, "mine\n").await,
            Reason::PreconditionFailed,
        );
        assert!(error.metadata("version").is_some());
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "theirs\n");
    let elided = session.write_file(open("d/f"), "a\n// ... rest unchanged\n");
    let error = refused(elided.await, Reason::ElisionRefused);
    assert_eq!(error.metadata("line"), Some("2"));
    for condition in [
        None,
        Some(Condition::MustNotExist(false)),
        Some(Condition::Digest("x".into())),
    ] {
        let request = v1::WriteFileOpen {
            precondition: Some(v1::Precondition { condition }),
            ..open("d/f")
        };
        refused(
            session.write_file(request, "").await,
            Reason::InvalidArgument,
        );
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "theirs\n");
}

#[tokio::test]
async fn an_edit_changes_what_it_names_and_its_errors_say_what_is_there() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let path = daemon.work().join("f");
    fs::write(&path, "a\r\nb\r\nc\r\n").unwrap();
    let dry = v1::EditFileRequest {
        dry_run: true,
        ..edit("f", "a\nb", "a\nB")
    };
    let shown = session.edit_file(dry).await.unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"a\r\nb\r\nc\r\n");
    let done = session.edit_file(edit("f", "a\nb", "a\nB")).await.unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"a\r\nB\r\nc\r\n");
    assert_eq!((&done.diff, &done.digest), (&shown.diff, &shown.digest));
    assert!(done.line_endings_adapted);
    assert_eq!((done.lines_added, done.lines_removed), (1, 1));
    assert_eq!(done.replacements, [1]);
    assert!(done.diff.contains("-b\r\n+B\r\n"), "{}", done.diff);

    for replace_all in [false, true] {
        let mut request = edit("f", "", "x");
        request.edits[0].replace_all = replace_all;
        refused(session.edit_file(request).await, Reason::EditEmpty);
    }
    refused(
        session.edit_file(edit("f", "a", "a")).await,
        Reason::EditUnchanged,
    );
    let error = refused(
        session.edit_file(edit("f", "  c", "x")).await,
        Reason::EditNotFound,
    );
    assert_eq!(error.metadata("nearest_line"), Some("3"));
    assert_eq!(error.metadata("edit"), Some("0"));
    let error = refused(
        session.edit_file(edit("f", "\r", "x")).await,
        Reason::EditNotUnique,
    );
    assert_eq!(error.metadata("count"), Some("3"));
    assert_eq!(error.metadata("lines"), Some("1,2,3"));
    refused(
        session.edit_file(edit("none", "a", "b")).await,
        Reason::PathNotFound,
    );
    let none = v1::EditFileRequest {
        edits: Vec::new(),
        ..edit("f", "", "")
    };
    refused(session.edit_file(none).await, Reason::InvalidArgument);
    assert_eq!(fs::read(&path).unwrap(), b"a\r\nB\r\nc\r\n");
}

#[tokio::test]
async fn what_was_changed_is_taken_back_once_and_only_as_it_was_left() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let path = daemon.work().join("f");
    let read = || fs::read_to_string(&path).ok();
    fs::write(&path, "one\n").unwrap();
    let edited = session.edit_file(edit("f", "one", "two")).await.unwrap();
    session.undo(edited.undo_token.clone()).await.unwrap();
    assert_eq!(read().as_deref(), Some("one\n"));
    refused(session.undo(edited.undo_token).await, Reason::UndoForgotten);
    refused(session.undo("no such token").await, Reason::UndoForgotten);

    let written = session.write_file(open("f"), "three\n").await.unwrap();
    fs::write(&path, "theirs\n").unwrap();
    refused(session.undo(written.undo_token).await, Reason::UndoConflict);
    assert_eq!(read().as_deref(), Some("theirs\n"));

    let removed = session.remove_file(remove("f")).await.unwrap();
    assert_eq!(read(), None);
    session.undo(removed.undo_token).await.unwrap();
    assert_eq!(read().as_deref(), Some("theirs\n"));

    let renamed = session.rename_file(rename("f", "g")).await.unwrap();
    assert_eq!(read(), None);
    session.undo(renamed.undo_token).await.unwrap();
    assert_eq!(read().as_deref(), Some("theirs\n"));

    // Another session's token is none of ours.
    let other = daemon.session().await;
    let written = session.write_file(open("f"), "four\n").await.unwrap();
    refused(other.undo(written.undo_token).await, Reason::UndoForgotten);
    assert_eq!(read().as_deref(), Some("four\n"));
}

#[tokio::test]
async fn several_changes_are_taken_back_one_after_the_other() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let read = || fs::read_to_string(daemon.work().join("f")).ok();
    let mut tokens = Vec::new();
    let made = session.write_file(open("f"), "one\n").await.unwrap();
    tokens.push(made.undo_token);
    for (old, new) in [("one", "two"), ("two", "three")] {
        let edited = session.edit_file(edit("f", old, new)).await.unwrap();
        tokens.push(edited.undo_token);
    }
    refused(session.undo(tokens[1].clone()).await, Reason::UndoConflict);
    for left in [Some("two\n"), Some("one\n"), None] {
        session.undo(tokens.pop().unwrap()).await.unwrap();
        assert_eq!(read().as_deref(), left);
    }
}

#[tokio::test]
async fn removing_takes_the_link_and_not_what_it_leads_to() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    fs::create_dir_all(daemon.work().join("d/e")).unwrap();
    fs::write(daemon.work().join("d/e/f"), "x").unwrap();
    symlink("d/e/f", daemon.work().join("l")).unwrap();
    assert_eq!(session.remove_file(remove("l")).await.unwrap().removed, 1);
    assert!(daemon.work().join("d/e/f").is_file());
    refused(
        session.remove_file(remove("d")).await,
        Reason::DirectoryNotEmpty,
    );
    let request = v1::RemoveFileRequest {
        recursive: true,
        ..remove("d")
    };
    assert_eq!(session.remove_file(request).await.unwrap().removed, 3);
    refused(session.remove_file(remove("d")).await, Reason::PathNotFound);
    let request = v1::RemoveFileRequest {
        missing_ok: true,
        ..remove("d")
    };
    assert_eq!(session.remove_file(request).await.unwrap().removed, 0);
    refused(session.remove_file(remove(".")).await, Reason::IsARoot);
}

#[tokio::test]
async fn a_rename_takes_no_name_that_is_taken_unless_asked() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let work = daemon.work();
    fs::write(work.join("a"), "a").unwrap();
    fs::write(work.join("b"), "b").unwrap();
    refused(
        session.rename_file(rename("a", "b")).await,
        Reason::FileExists,
    );
    let request = v1::RenameFileRequest {
        replace: true,
        ..rename("a", "b")
    };
    let renamed = session.rename_file(request).await.unwrap();
    assert!(!renamed.unchanged);
    assert_eq!(fs::read_to_string(work.join("b")).unwrap(), "a");
    assert!(
        session
            .rename_file(rename("b", "b"))
            .await
            .unwrap()
            .unchanged
    );
    let request = v1::RenameFileRequest {
        parents: true,
        ..rename("b", "x/y/b")
    };
    session.rename_file(request).await.unwrap();
    assert_eq!(fs::read_to_string(work.join("x/y/b")).unwrap(), "a");
    refused(
        session.rename_file(rename("none", "c")).await,
        Reason::PathNotFound,
    );
}

#[tokio::test]
async fn a_directory_is_made_with_those_above_it_where_asked() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    refused(
        session.make_directory(make("a/b")).await,
        Reason::PathNotFound,
    );
    let request = v1::MakeDirectoryRequest {
        parents: true,
        mode: Some(0o750),
        ..make("a/b")
    };
    let made = session.make_directory(request.clone()).await.unwrap();
    assert!(made.created);
    assert_eq!(made.file.unwrap().kind(), v1::FileKind::Directory);
    let mode = fs::metadata(daemon.work().join("a/b")).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o750);
    let again = session.make_directory(request).await.unwrap();
    assert!(!again.created);
    refused(
        session.make_directory(make("a/b")).await,
        Reason::FileExists,
    );
}

#[tokio::test]
async fn an_operation_id_stands_for_one_request() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let id = OperationId::random().to_string();
    let request = v1::WriteFileOpen {
        operation_id: id.clone(),
        ..open("f")
    };
    let first = session.write_file(request.clone(), "one").await.unwrap();
    fs::write(daemon.work().join("f"), "theirs").unwrap();
    let again = session.write_file(request.clone(), "one").await.unwrap();
    assert!(again.replayed && again.digest == first.digest);
    assert_eq!(
        fs::read_to_string(daemon.work().join("f")).unwrap(),
        "theirs"
    );
    let other = session.write_file(request, "two").await;
    refused(other, Reason::OperationIdConflict);
    let other = v1::RemoveFileRequest {
        operation_id: id,
        ..remove("f")
    };
    refused(
        session.remove_file(other).await,
        Reason::OperationIdConflict,
    );
    let odd = v1::RemoveFileRequest {
        operation_id: "op_odd".into(),
        ..remove("f")
    };
    let error = refused(session.remove_file(odd).await, Reason::InvalidArgument);
    assert_eq!(error.metadata("field"), Some("operation_id"));
}
