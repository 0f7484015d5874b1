//! A session is given another root, and has it for as long as it lives.

use std::fs;
use std::path::Path;

use executor_client::{ClientError, Reason, Session, SessionOptions, path_bytes, v1};
use executor_tests::{Daemon, DaemonOptions, in_time};

fn root(path: &Path, mode: v1::AccessMode) -> v1::Root {
    v1::Root {
        path: path_bytes(path.to_owned()),
        mode: mode.into(),
    }
}

async fn read(session: &Session, path: &Path) -> Result<Vec<u8>, ClientError> {
    let request = v1::ReadLinesRequest {
        path: path_bytes(path.to_owned()),
        ..Default::default()
    };
    Ok(in_time("a page", session.read_lines(request))
        .await?
        .text
        .to_vec())
}

#[tokio::test]
async fn a_granted_root_stays_across_a_restart_and_an_upgrade() {
    let place = tempfile::tempdir().unwrap();
    let place = fs::canonicalize(place.path()).unwrap();
    for name in ["first", "second", "elsewhere"] {
        fs::create_dir_all(place.join("all").join(name)).unwrap();
        fs::write(place.join("all").join(name).join("f"), name).unwrap();
    }
    let all = place.join("all");
    let mut daemon = Daemon::start_with(DaemonOptions {
        configuration: format!("roots = [{all:?}]"),
        ..DaemonOptions::default()
    })
    .await;
    let options = SessionOptions {
        roots: vec![root(&all.join("first"), v1::AccessMode::ReadWrite)],
        ..SessionOptions::default()
    };
    let session = daemon.machine().await.open_session(options).await.unwrap();
    let second = all.join("second");
    let reason = |result: Result<Vec<u8>, ClientError>| result.unwrap_err().reason();
    assert_eq!(
        reason(read(&session, &second.join("f")).await),
        Some(Reason::PathOutsideRoots)
    );
    let read_only = || root(&second, v1::AccessMode::ReadOnly);
    let granted = session.grant_root(read_only()).await.unwrap();
    assert!(granted.added);
    assert_eq!(granted.session.unwrap().roots.len(), 2);
    assert!(
        !session.grant_root(read_only()).await.unwrap().added,
        "idempotent"
    );
    assert_eq!(read(&session, &second.join("f")).await.unwrap(), b"second");

    daemon.restart().await;
    assert_eq!(read(&session, &second.join("f")).await.unwrap(), b"second");
    let upgraded = daemon.command(&["upgrade"]).await;
    assert!(upgraded.status.success(), "{}", daemon.log());
    assert_eq!(read(&session, &second.join("f")).await.unwrap(), b"second");

    // Nothing else came with it, and nothing beyond the operator's roots can.
    let elsewhere = read(&session, &all.join("elsewhere/f")).await;
    assert_eq!(reason(elsewhere), Some(Reason::PathOutsideRoots));
    for outside in [place.as_path(), Path::new("/etc"), Path::new("/")] {
        let refused = session.grant_root(root(outside, v1::AccessMode::ReadOnly));
        let refused = refused.await.unwrap_err();
        assert_eq!(
            refused.reason(),
            Some(Reason::PathOutsideRoots),
            "{outside:?}"
        );
    }
    let widened = session.grant_root(root(&second, v1::AccessMode::ReadWrite));
    let widened = widened.await.unwrap();
    assert!(widened.added);
    assert_eq!(widened.session.unwrap().roots.len(), 2, "the same root");
}
