//! A process that is all our own: exits come by SIGCHLD.
//!
//! The threads of a test program are made before a test can block a signal. So
//! such tests run again in a process that begins with SIGCHLD blocked, one at
//! a time, since a process has one reader of it.

use std::process::Command;

use executor_daemon::process::exit::WaitStatus;
use executor_daemon::process::snapshot::StopMeans;
use executor_daemon::process::tree::{EndMode, Preferred};
use executor_daemon::sys::signal;

use super::{NOBODY, with};

/// Set in such a process.
const MARK: &str = "TREE_TEST_OWN_PROCESS";

pub(super) fn is_own() -> bool {
    std::env::var_os(MARK).is_some()
}

/// What the `main` of such a program does first.
pub(super) fn prepare() {
    if is_own() {
        signal::block_child_signals();
    }
}

fn descriptors(kind: &str) -> usize {
    std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(Result::ok)
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter(|target| target.to_str() == Some(kind))
        .count()
}

/// After a launch: children are followed by signals, if they are to be.
pub(super) fn check(means: StopMeans) {
    if is_own() && means != StopMeans::Reaper {
        assert_eq!(descriptors("anon_inode:[signalfd]"), 1);
    }
}

/// This test program in a process of its own.
pub(super) fn own_process(arguments: &[&str]) -> Command {
    let mut command = Command::new("env");
    command
        .arg("--block-signal=CHLD")
        .arg(std::env::current_exe().unwrap())
        .args(["--test-threads=1"])
        .args(arguments)
        .env(MARK, "1");
    command
}

fn passes(arguments: &[&str], count: usize) {
    let output = own_process(arguments).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let passed = told
        .lines()
        .find_map(|line| line.strip_prefix("test result: ok. "))
        .and_then(|line| line.split(' ').next()?.parse::<usize>().ok());
    assert!(
        passed.is_some_and(|passed| passed >= count),
        "{told}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn everything_about_starting_holds_in_a_process_of_our_own() {
    passes(&["tree::launch::"], 9);
}

#[test]
fn everything_about_ending_holds_in_a_process_of_our_own() {
    passes(&["tree::stop::"], 10);
}

#[test]
fn a_thousand_launches_leave_nothing_behind_in_a_process_of_our_own() {
    passes(
        &["--ignored", "--exact", "tree::leaks::thousand_launches"],
        1,
    );
}

#[test]
fn running_children_cost_no_descriptor_and_no_exit_of_many_at_once_is_missed() {
    passes(&["--ignored", "tree::own_process::many_"], 3);
}

const DIRECT: [Preferred; 2] = [Preferred::Cgroup, Preferred::BestEffort];

#[test]
#[ignore = "run in a process of its own"]
fn many_children_that_run_cost_no_descriptor() {
    with(&DIRECT, async |fixture| {
        let mut runs = Vec::new();
        for _ in 0..20 {
            runs.push(fixture.sh("exec sleep 900").await);
        }
        assert_eq!(descriptors("anon_inode:[pidfd]"), 0);
        for mut run in runs {
            assert_eq!(run.launched.tree.end(EndMode::Kill).await.survivors, NOBODY);
            let status = run.launched.leader.wait().await.status;
            assert_eq!(status, WaitStatus::Signal(9));
        }
    });
}

/// More than are swept at once, ending by one event.
const MANY: i32 = 300;

#[test]
#[ignore = "run in a process of its own"]
fn many_that_end_at_once_are_all_told() {
    with(&DIRECT, async |fixture| {
        for count in [20, MANY] {
            // They end when nobody has it open for writing any more.
            let gate = fixture.path("gate");
            let status = Command::new("mkfifo").arg(&gate).status().unwrap();
            assert!(status.success());
            let mut runs = Vec::new();
            for number in 0..count {
                let script = format!("read x <gate; exit {}", number % 200);
                runs.push(fixture.sh(&script).await);
            }
            let opened = std::fs::File::options().write(true).open(&gate).unwrap();
            super::eventually("all have opened the gate", || {
                runs.iter().all(|run| {
                    let fd = format!("/proc/{}/fd/0", run.launched.pid);
                    std::fs::read_link(fd).is_ok_and(|path| path.to_string_lossy().contains("gate"))
                })
            });
            drop(opened);
            std::fs::remove_file(&gate).unwrap();
            for (number, mut run) in (0..count).zip(runs) {
                let status = run.launched.leader.wait().await.status;
                assert_eq!(status, WaitStatus::Code(number % 200));
            }
        }
    });
}

#[test]
#[ignore = "run in a process of its own"]
fn many_exits_are_told_beside_children_that_nobody_follows() {
    with(&DIRECT, async |fixture| {
        // Ended and never reaped by the engine: each hides the others.
        let mut strangers: Vec<_> = (0..3)
            .map(|_| Command::new("true").spawn().unwrap())
            .collect();
        for round in 0..5 {
            let mut runs = Vec::new();
            for number in 0..20 {
                runs.push(fixture.sh(&format!("exit {}", round * 20 + number)).await);
            }
            for (number, mut run) in (0..20).zip(runs) {
                let status = run.launched.leader.wait().await.status;
                assert_eq!(status, WaitStatus::Code(round * 20 + number));
            }
        }
        for stranger in &mut strangers {
            assert!(stranger.wait().unwrap().success(), "its status is its own");
        }
    });
}
