//! The daemon is killed while it writes: old or new, and no temporary left.

use std::fs;
use std::path::Path;
use std::time::Duration;

use executor_client::{CallOptions, Session};
use executor_tests::{Daemon, in_time, scaled};
use tokio::task::JoinSet;

use super::*;
use crate::cases::faults::dice;

const LINES: usize = 40_000;

fn text(number: usize) -> String {
    format!("version {number}\n").repeat(LINES)
}

/// Writes one version after the other until the daemon is gone; each is whole.
async fn write(session: Session, from: usize) {
    for number in from.. {
        let answer = session.write_file(open("w"), text(number)).await;
        if answer.is_err() {
            return;
        }
    }
}

/// Changes every line, again and again.
async fn edit_all(session: Session, from: usize) {
    for number in from.. {
        let page = session.read_lines(lines("e")).await;
        let Ok(page) = page else { return };
        let line = page.text.split(|byte| *byte == b'\n').next().unwrap();
        let line = String::from_utf8(line.to_vec()).unwrap();
        let mut request = edit("e", &line, &format!("version {number}"));
        request.edits[0].replace_all = true;
        if session.edit_file(request).await.is_err() {
            return;
        }
    }
}

#[track_caller]
fn whole(path: &Path) {
    let text = fs::read_to_string(path).unwrap();
    let first = text.lines().next().unwrap();
    assert!(first.starts_with("version "), "{first}");
    let count = text.lines().filter(|line| *line == first).count();
    assert_eq!(
        (count, text.lines().count()),
        (LINES, LINES),
        "{}",
        path.display()
    );
}

#[tokio::test]
async fn b044_a_daemon_killed_while_it_writes_leaves_old_or_new_and_nothing_else() {
    let mut daemon = Daemon::start().await;
    let mut dice = dice();
    for name in ["w", "e"] {
        fs::write(daemon.work().join(name), text(0)).unwrap();
    }
    for round in 0..scaled(200, 8) {
        let session = daemon.session().await.with_options(CallOptions {
            deadline: Duration::from_millis(300),
        });
        let mut busy = JoinSet::new();
        let from = round * 1_000_000 + 1;
        busy.spawn(write(session.clone(), from));
        busy.spawn(edit_all(session, from));
        tokio::time::sleep(Duration::from_millis(dice.next() % 120)).await;
        daemon.kill().await;
        while let Some(done) = in_time("the clients", busy.join_next()).await {
            done.unwrap();
        }
        whole(&daemon.work().join("w"));
        whole(&daemon.work().join("e"));
        daemon.start_again().await;
        whole(&daemon.work().join("w"));
        whole(&daemon.work().join("e"));
        let mut left: Vec<_> = fs::read_dir(daemon.work())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        left.sort_unstable();
        assert_eq!(left, ["e", "w"], "round {round}");
    }
}
