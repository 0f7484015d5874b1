//! Files over connections that break.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use executor_client::{ClientError, FileBytes, OperationId, Reason, path_bytes, v1};

use crate::fake::{self, State};

fn content(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at * 7 % 251).to_le_bytes()[0])
        .collect()
}

async fn all(bytes: &mut FileBytes) -> Result<Vec<u8>, ClientError> {
    let mut read = Vec::new();
    while let Some(data) = bytes.next().await? {
        assert!(!data.is_empty());
        read.extend_from_slice(&data);
        assert_eq!(bytes.offset(), read.len() as u64);
    }
    Ok(read)
}

#[tokio::test]
async fn a_change_whose_answer_is_lost_is_made_once_under_one_id() {
    let (session, state) = fake::session(State::default(), Vec::new()).await;
    let path = || path_bytes("x");
    for what in ["write", "edit", "remove", "rename", "mkdir", "undo"] {
        state.lose_next_answer.store(true, Ordering::SeqCst);
        let calls = state.change_calls.load(Ordering::SeqCst);
        let replayed = match what {
            "write" => {
                let open = v1::WriteFileOpen {
                    path: path(),
                    ..Default::default()
                };
                session.write_file(open, "content").await.unwrap().replayed
            }
            "edit" => {
                let request = v1::EditFileRequest {
                    path: path(),
                    ..Default::default()
                };
                session.edit_file(request).await.unwrap().replayed
            }
            "remove" => {
                let request = v1::RemoveFileRequest {
                    path: path(),
                    ..Default::default()
                };
                session.remove_file(request).await.unwrap().replayed
            }
            "rename" => {
                let request = v1::RenameFileRequest {
                    from: path(),
                    to: path(),
                    ..Default::default()
                };
                session.rename_file(request).await.unwrap().replayed
            }
            "mkdir" => {
                let request = v1::MakeDirectoryRequest {
                    path: path(),
                    ..Default::default()
                };
                session.make_directory(request).await.unwrap().replayed
            }
            _ => session.undo("token").await.unwrap().replayed,
        };
        assert!(replayed, "{what}: the first arrival made it");
        assert_eq!(
            state.change_calls.load(Ordering::SeqCst),
            calls + 2,
            "{what}"
        );
        let changes = state.changes.lock().unwrap();
        let made = changes.iter().filter(|change| change.starts_with(what));
        assert_eq!(made.count(), 1, "{changes:?}");
    }
}

#[tokio::test]
async fn an_id_of_the_callers_own_is_kept() {
    let (session, state) = fake::session(State::default(), Vec::new()).await;
    let id = OperationId::random().to_string();
    for replayed in [false, true] {
        let open = v1::WriteFileOpen {
            operation_id: id.clone(),
            ..Default::default()
        };
        let answer = session.write_file(open, Bytes::new()).await.unwrap();
        assert_eq!(answer.replayed, replayed);
    }
    assert_eq!(*state.changes.lock().unwrap(), [format!("write {id}")]);
}

#[tokio::test]
async fn a_content_arrives_whole_also_after_a_cut_within_it() {
    let content = content(3_500_000);
    for budget in [10_000, 1_500_000] {
        let (session, state) = fake::session(State::default(), vec![budget]).await;
        let open = v1::WriteFileOpen::default();
        session.write_file(open, content.clone()).await.unwrap();
        assert!(*state.stdin.lock().unwrap() == content);
        assert_eq!(state.changes.lock().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn bytes_go_on_where_the_connection_broke() {
    let content = content(200_000);
    for budgets in [vec![], vec![50_000, 5_000, 60_000], vec![3_000; 12]] {
        let cuts = budgets.len();
        let state = State {
            output: content.clone(),
            page: 10_000,
            ..Default::default()
        };
        let (session, state) = fake::session(state, budgets).await;
        let mut bytes = session.read_bytes(v1::ReadBytesRequest::default());
        assert!(all(&mut bytes).await.unwrap() == content);
        assert!(bytes.info().is_some());
        assert_eq!(bytes.next().await.unwrap(), None);
        assert!(state.change_calls.load(Ordering::SeqCst) <= cuts + 1);
    }
}

#[tokio::test]
async fn a_range_is_read_to_its_end_and_no_further() {
    let state = State {
        output: content(1_000),
        page: 64,
        ..Default::default()
    };
    let (session, _) = fake::session(state, vec![2_000]).await;
    let request = v1::ReadBytesRequest {
        length: Some(130),
        ..Default::default()
    };
    let mut bytes = session.read_bytes(request);
    assert!(all(&mut bytes).await.unwrap() == content(130));
}

#[tokio::test]
async fn bytes_of_two_versions_are_never_mixed() {
    let state = State {
        output: content(200_000),
        page: 10_000,
        ..Default::default()
    };
    let (session, state) = fake::session(state, vec![50_000]).await;
    *state.version.lock().unwrap() = "first".into();
    let mut bytes = session.read_bytes(v1::ReadBytesRequest::default());
    bytes.next().await.unwrap().unwrap();
    *state.version.lock().unwrap() = "second".into();
    let error = all_of(&mut bytes).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::FileChanged));
}

/// To the end, whatever was read before.
async fn all_of(bytes: &mut FileBytes) -> Result<(), ClientError> {
    while bytes.next().await?.is_some() {}
    Ok(())
}

#[tokio::test]
async fn a_listing_that_broke_off_is_begun_again() {
    let (session, _) = fake::session(State::default(), vec![10_000]).await;
    let listing = session
        .list_directory(v1::ListDirectoryRequest::default())
        .await
        .unwrap();
    assert_eq!(listing.entries.len(), 200);
    for (at, entry) in listing.entries.iter().enumerate() {
        assert!(entry.path.starts_with(at.to_string().as_bytes()));
    }
}

#[tokio::test]
async fn a_read_is_repeated_and_a_refusal_is_not() {
    let (session, state) = fake::session(State::default(), Vec::new()).await;
    state.lose_next_answer.store(true, Ordering::SeqCst);
    session.stat(v1::StatFileRequest::default()).await.unwrap();
    let request = v1::ReadLinesRequest::default();
    let error = session.read_lines(request).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::BinaryFile));
}

#[tokio::test]
async fn a_search_is_begun_again_only_where_all_is_asked_for_at_once() {
    let request = v1::GlobRequest::default;
    let (session, state) = fake::session(State::default(), Vec::new()).await;
    state.lose_next_answer.store(true, Ordering::SeqCst);
    let all = session.glob_all(request()).await.unwrap();
    assert_eq!(all.entries.len(), 200);
    for (at, entry) in all.entries.iter().enumerate() {
        assert!(entry.path.starts_with(at.to_string().as_bytes()));
    }
    state.lose_next_answer.store(true, Ordering::SeqCst);
    let mut found = session.glob(request()).await.unwrap();
    let (mut told, mut ended) = (0, None);
    while ended.is_none() {
        match found.next().await {
            Ok(Some(entries)) => told += entries.len(),
            other => ended = Some(other),
        }
    }
    let error = ended.unwrap().unwrap_err();
    assert_eq!(error.reason(), Some(Reason::Unreachable));
    assert_eq!(told, 50);
    assert!(found.summary().is_none());
    // Nothing comes after the end; on a connection that holds all does.
    assert!(found.next().await.unwrap().is_none());
    let mut found = session.glob(request()).await.unwrap();
    let mut told = 0;
    while let Some(entries) = found.next().await.unwrap() {
        told += entries.len();
    }
    assert!(told == 200 && found.summary().is_some());
}
