//! B140: a change whose answer is lost is made once.

use std::fs;

use executor_client::{Session, v1};
use executor_tests::{Fault, in_time, scaled};

use super::*;
use crate::cases::faults::Behind;

/// What a change did, whether it was told again, and how to see it.
async fn change(session: &Session, kind: &str, token: &str) -> (bool, String) {
    match kind {
        "write" => {
            let done = session.write_file(open("w"), "new\n").await.unwrap();
            (done.replayed, done.undo_token)
        }
        "edit" => {
            let done = session.edit_file(edit("e", "+", "++")).await.unwrap();
            assert_eq!(done.replacements, [1]);
            (done.replayed, done.undo_token)
        }
        "remove" => {
            let done = session.remove_file(remove("r")).await.unwrap();
            assert_eq!(done.removed, 1);
            (done.replayed, done.undo_token)
        }
        "rename" => {
            let done = session.rename_file(rename("m", "n")).await.unwrap();
            assert!(!done.unchanged);
            (done.replayed, done.undo_token)
        }
        "mkdir" => {
            let done = session.make_directory(make("d")).await.unwrap();
            assert!(done.created);
            (done.replayed, String::new())
        }
        _ => {
            let done = session.undo(token).await.unwrap();
            (done.replayed, String::new())
        }
    }
}

#[tokio::test]
async fn b140_a_change_of_files_whose_answer_is_lost_is_made_once() {
    let here = Behind::new().await;
    let work = here.daemon.work();
    for round in 0..scaled(100, 3) {
        for fault in [
            Fault::LoseAnswer,
            Fault::CutAfterRequest,
            Fault::CutAfter(20 + 5 * (round % 24)),
        ] {
            for name in ["w", "r", "m"] {
                fs::write(work.join(name), name).unwrap();
            }
            fs::write(work.join("e"), "+\n").unwrap();
            let mut token = String::new();
            for kind in ["write", "remove", "rename", "mkdir", "edit", "undo"] {
                let call = change(&here.session, kind, &token);
                let (replayed, undo) = here.struck(fault, kind, call).await;
                token = undo;
                if fault == Fault::LoseAnswer {
                    assert!(replayed, "{kind}: it is the first one that is told of");
                }
            }
            // Twice would have failed, or left "++".
            assert_eq!(fs::read(work.join("e")).unwrap(), b"+\n", "{fault:?}");
            assert_eq!(fs::read(work.join("w")).unwrap(), b"new\n");
            assert!(!work.join("r").try_exists().unwrap());
            assert_eq!(fs::read(work.join("n")).unwrap(), b"m");
            fs::remove_dir(work.join("d")).unwrap();
            fs::remove_file(work.join("n")).unwrap();
        }
    }
}

#[tokio::test]
async fn b140_a_change_is_told_again_also_after_the_daemon_died() {
    let mut here = Behind::new().await;
    let work = here.daemon.work();
    fs::write(work.join("f"), "+\n").unwrap();
    let request = v1::EditFileRequest {
        operation_id: executor_client::OperationId::random().to_string(),
        ..edit("f", "+", "++")
    };
    let first = here.session.edit_file(request.clone()).await.unwrap();
    here.daemon.restart().await;
    here.proxy.cut();
    let again = in_time("again", here.session.edit_file(request))
        .await
        .unwrap();
    assert!(again.replayed);
    assert_eq!((again.digest, again.diff), (first.digest, first.diff));
    assert_eq!(fs::read(work.join("f")).unwrap(), b"++\n");
}

#[tokio::test]
async fn b140_bytes_are_read_whole_over_connections_that_break() {
    let here = Behind::new().await;
    let content = content(3_000_000);
    fs::write(here.daemon.work().join("f"), &content).unwrap();
    for fault in [
        Fault::LoseAnswer,
        Fault::CutAfterRequest,
        Fault::CutAfter(30),
    ] {
        let read = all(here.session.read_bytes(bytes("f")));
        let read = here.struck(fault, "read", read).await.unwrap();
        assert!(read == content, "{fault:?}");
    }
}
