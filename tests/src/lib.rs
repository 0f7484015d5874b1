//! What the end-to-end tests share: a machine inside the test, a daemon of
//! the built binary in a private directory, and waiting with a deadline.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::large_futures,
    reason = "a fixture fails by panicking, like the tests that use it"
)]

mod daemon;
mod here;
mod proxy;
/// The README's programs, compiled and run as documentation tests.
#[cfg(doctest)]
mod readme;
mod user;

use std::future::Future;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use daemon::{Daemon, DaemonOptions};
pub use here::Here;
pub use proxy::{Fault, Proxy};
pub use user::{User, nobody};

/// Longer than anything here takes on a slow machine; a test that reaches it
/// has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A count of a heavy case: `full` by hand (`EXECUTOR_TEST_SCALE=full`, see
/// `.ci/full`), `short` otherwise.
#[must_use]
pub fn scaled(full: usize, short: usize) -> usize {
    match std::env::var("EXECUTOR_TEST_SCALE").as_deref() {
        Ok("full") => full,
        _ => short,
    }
}

/// A program of this workspace, as cargo built it beside the tests.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    if path.ends_with("deps") {
        path.pop();
    }
    path.push(name);
    assert!(
        path.is_file(),
        "{} is not built; run `cargo test --workspace`, which builds it",
        path.display()
    );
    path
}

/// Looks again and again until `look` gives something, for at most
/// [`PATIENCE`].
pub async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut look: impl FnMut() -> F,
) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Fails instead of hanging.
pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("not within {PATIENCE:?}: {what}"),
    }
}

/// Pids of living processes (zombies are not) whose environment or command
/// line holds `mark`.
#[must_use]
pub fn alive_with(mark: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        if pid == std::process::id() || !is_alive(pid) {
            continue;
        }
        let holds = |file: &str| {
            std::fs::read(entry.path().join(file))
                .is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(mark))
        };
        if holds("environ") || holds("cmdline") {
            found.push(pid);
        }
    }
    found
}

/// Neither gone nor a zombie.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    !matches!(state, Some('Z' | 'X') | None)
}
