//! Nothing is left of a command: no descriptor, no zombie, no cgroup.
//!
//! In a process of its own, since the other tests of this program open and
//! close descriptors meanwhile.

use std::collections::BTreeSet;

use executor_daemon::process::exit::WaitStatus;
use executor_daemon::process::snapshot::StopMeans;
use executor_daemon::process::tree::EndMode;

use super::{NOBODY, with_each};
use crate::tree::embedding::in_own_process;

const COMMANDS: usize = 1000;

fn open_descriptors() -> BTreeSet<String> {
    std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(Result::ok)
        .map(|entry| {
            let target = std::fs::read_link(entry.path()).unwrap_or_default();
            format!("{:?} {}", entry.file_name(), target.display())
        })
        .filter(|text| !text.contains("/proc/"))
        .collect()
}

fn children() -> String {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(Result::ok)
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok())
        .collect()
}

#[test]
fn a_thousand_launches_leave_nothing_behind() {
    in_own_process("tree::leaks::thousand_launches");
}

#[test]
#[ignore = "run in a process of its own by a_thousand_launches_leave_nothing_behind"]
fn thousand_launches() {
    with_each(async |fixture| {
        // What is opened once stays open.
        let mut first = fixture.sh("exit 0").await;
        first.launched.leader.wait().await;
        first.launched.tree.end(EndMode::Kill).await;
        drop(first);
        let before = open_descriptors();
        let mut running = Vec::new();
        for number in 0..COMMANDS {
            let run = fixture.sh(&format!("exit {}", number % 2)).await;
            running.push((number, run));
            if running.len() == 50 {
                for (number, mut run) in running.drain(..) {
                    let status = run.launched.leader.wait().await.status;
                    let code = i32::try_from(number % 2).unwrap();
                    assert_eq!(status, WaitStatus::Code(code));
                    // What only /proc tells takes too long to ask so often.
                    if fixture.containment.means() != StopMeans::BestEffort {
                        assert_eq!(run.launched.tree.end(EndMode::Kill).await.survivors, NOBODY);
                    }
                    run.launched.tree.release();
                }
            }
        }
        assert_eq!(open_descriptors(), before);
        assert_eq!(children(), "");
    });
}
