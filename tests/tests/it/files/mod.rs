//! Files through the wire: a real daemon, a real client.

mod blocked;
mod calls;
mod changes;
mod cli;
mod images;
mod killed;
mod lost;
mod search;
mod sizes;
mod streams;

use std::path::Path;

use executor_client::{ClientError, FileBytes, Reason, path_bytes, v1};

fn open(path: impl AsRef<Path>) -> v1::WriteFileOpen {
    v1::WriteFileOpen {
        path: path_bytes(path.as_ref()),
        ..Default::default()
    }
}

fn edit(path: impl AsRef<Path>, old: &str, new: &str) -> v1::EditFileRequest {
    v1::EditFileRequest {
        path: path_bytes(path.as_ref()),
        edits: vec![v1::Edit {
            old: old.into(),
            new: new.into(),
            replace_all: false,
        }],
        ..Default::default()
    }
}

fn stat(path: impl AsRef<Path>) -> v1::StatFileRequest {
    v1::StatFileRequest {
        path: path_bytes(path.as_ref()),
        ..Default::default()
    }
}

fn lines(path: impl AsRef<Path>) -> v1::ReadLinesRequest {
    v1::ReadLinesRequest {
        path: path_bytes(path.as_ref()),
        ..Default::default()
    }
}

fn bytes(path: impl AsRef<Path>) -> v1::ReadBytesRequest {
    v1::ReadBytesRequest {
        path: path_bytes(path.as_ref()),
        ..Default::default()
    }
}

fn directory(path: impl AsRef<Path>) -> v1::ListDirectoryRequest {
    v1::ListDirectoryRequest {
        path: path_bytes(path.as_ref()),
        ..Default::default()
    }
}

fn remove(path: impl AsRef<Path>) -> v1::RemoveFileRequest {
    v1::RemoveFileRequest {
        path: path_bytes(path.as_ref()),
        ..Default::default()
    }
}

fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> v1::RenameFileRequest {
    v1::RenameFileRequest {
        from: path_bytes(from.as_ref()),
        to: path_bytes(to.as_ref()),
        ..Default::default()
    }
}

fn make(path: impl AsRef<Path>) -> v1::MakeDirectoryRequest {
    v1::MakeDirectoryRequest {
        path: path_bytes(path.as_ref()),
        ..Default::default()
    }
}

fn must(condition: v1::precondition::Condition) -> Option<v1::Precondition> {
    Some(v1::Precondition {
        condition: Some(condition),
    })
}

/// All bytes of a stream.
async fn all(mut stream: FileBytes) -> Result<Vec<u8>, ClientError> {
    let mut read = Vec::new();
    while let Some(data) = stream.next().await? {
        read.extend_from_slice(&data);
    }
    Ok(read)
}

/// Bytes in which no two pieces are alike.
fn content(length: usize) -> Vec<u8> {
    let mut state = length as u64 + 1;
    (0..length)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        })
        .collect()
}

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, ClientError>, reason: Reason) -> ClientError {
    let error = answer.unwrap_err();
    assert_eq!(error.reason(), Some(reason), "{error}");
    error
}
