//! Cases of stopping where pids come around or orphans pile up.

use std::collections::VecDeque;
use std::path::Path;

use executor_client::{ExitStatus, Process, Session, v1};
use executor_tests::{Daemon, DaemonOptions, eventually, in_time, scaled};

/// A daemon in a PID namespace of its own where numbers come around after 400,
/// and with it strangers that come and go, so that numbers of ours soon become
/// theirs. One that a signal ends is noted in the file `hits`. Not for the
/// machine: the limit is the namespace's own (since Linux 6.14;
/// pid_namespaces(7)); where it is not, `None`.
async fn in_a_small_namespace(means: &str, hits: &Path) -> Option<Daemon> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut parts = release.split('.').map(|part| part.parse().unwrap_or(0u32));
    if (parts.next(), parts.next()) < (Some(6), Some(14)) {
        return None;
    }
    let limit = || std::fs::read_to_string("/proc/sys/kernel/pid_max").unwrap();
    let before = limit();
    let script = format!(
        "echo 400 > /proc/sys/kernel/pid_max || exit 9; \
         for i in 1 2 3 4; do \
           while :; do sleep 0.05; [ $? = 137 ] && echo hit >> {hits}; done & \
         done; \"$@\" & wait $!",
        hits = hits.display()
    );
    let unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let daemon = Daemon::start_with(DaemonOptions {
        under: unshare
            .into_iter()
            .chain(["bash", "-c", &script, "bash"])
            .map(str::to_owned)
            .collect(),
        configuration: format!("stop_means = {means:?}\n[limits]\nprocesses_per_session = 1000\n"),
        ..DaemonOptions::default()
    })
    .await;
    assert_eq!(limit(), before, "the machine's own limit");
    Some(daemon)
}

/// One start, exit and stop after the other; meanwhile those that ended before
/// are signalled and stopped again. Returns the pids.
async fn rounds(session: Session, number: usize, count: usize) -> Vec<u32> {
    let mut ended: VecDeque<Process> = VecDeque::new();
    let mut pids = Vec::new();
    for round in 0..count {
        let process = session.program(["true"]).spawn().await.unwrap();
        if (round + number).is_multiple_of(2) {
            in_time("exit", process.wait()).await.unwrap();
        }
        // Before, while or after it exits by itself.
        let stopped = in_time("stop", process.kill()).await.unwrap();
        assert!(stopped.survivors.is_empty(), "{stopped:?}");
        pids.push(stopped.process.unwrap().pid.unwrap());
        if let Some(old) = ended.get(round % 16) {
            let before = old.info().await.unwrap().exit;
            let sent = old.signal(9, v1::SignalTarget::Group).await.unwrap();
            assert!(!sent, "it had ended");
            assert!(!old.signal(9, v1::SignalTarget::Leader).await.unwrap());
            let again = old.kill().await.unwrap();
            assert!(again.already_ended && again.signalled == 0, "{again:?}");
            assert_eq!(again.process.unwrap().exit, before);
        }
        ended.push_back(process);
        if ended.len() > 16 {
            ended.pop_front().unwrap().remove().await.unwrap();
        }
    }
    pids
}

#[tokio::test]
async fn b119_pids_that_come_around_at_once_lead_to_no_stranger() {
    for means in ["cgroup", "reaper"] {
        let directory = tempfile::tempdir().unwrap();
        let hits = directory.path().join("hits");
        let Some(daemon) = in_a_small_namespace(means, &hits).await else {
            return;
        };
        let session = daemon.session().await;
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..8 {
            let count = scaled(50_000, 240) / 8;
            tasks.spawn(rounds(session.clone(), number, count));
        }
        let mut pids = Vec::new();
        // Each call has its own deadline; 50,000 rounds take minutes.
        while let Some(some) = tasks.join_next().await {
            pids.extend(some.unwrap());
        }
        let count = pids.len();
        pids.sort_unstable();
        pids.dedup();
        assert!(pids.iter().all(|pid| *pid < 400), "{pids:?}");
        assert!(pids.len() < count, "no number came twice in {count}");
        assert!(!hits.exists(), "{means}: a stranger was hit");
        let done = session.run("echo still here").await.unwrap();
        assert_eq!(done.output, b"still here\n", "{means}");
    }
}

/// Zombies among the descendants of a process.
fn zombies_below(root: u32) -> Vec<(u32, u32)> {
    let mut parents = std::collections::HashMap::new();
    let mut zombies = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        let pid: u32 = stat.split(' ').next().unwrap().parse().unwrap();
        let mut rest = stat.rsplit(") ").next().unwrap().split(' ');
        let state = rest.next().unwrap().to_owned();
        let parent: u32 = rest.next().unwrap().parse().unwrap();
        parents.insert(pid, parent);
        if state == "Z" {
            zombies.push((pid, parent));
        }
    }
    zombies.retain(|(pid, _)| {
        let mut at = *pid;
        while let Some(parent) = parents.get(&at) {
            if *parent == root {
                return true;
            }
            at = *parent;
        }
        false
    });
    zombies
}

#[tokio::test]
async fn b121_orphans_leave_no_zombies_and_take_no_exit_away() {
    // As PID 1: docs/cases.md.
    for means in ["cgroup", "reaper"] {
        let daemon = Daemon::start_with(DaemonOptions {
            configuration: format!("stop_means = {means:?}\n"),
            ..DaemonOptions::default()
        })
        .await;
        let session = daemon.session().await;
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..6 {
            let session = session.clone();
            tasks.spawn(async move {
                for round in 0..scaled(3_000, 150) / 6 {
                    let code = i32::try_from(round % 200).unwrap();
                    let text = format!("(true &) ; (true & true &) ; exit {code}");
                    let done = in_time("exit", session.run(text)).await.unwrap();
                    assert_eq!(done.exit.status, ExitStatus::Code(code));
                }
            });
        }
        // Each round has its deadline.
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
        let text = "bash -c 'sleep 0.1 & exec sleep 0.3'";
        let done = in_time(text, session.run(text)).await.unwrap();
        assert_eq!(done.exit.status, ExitStatus::Code(0));
        eventually("no zombie to be left", || async {
            zombies_below(daemon.pid()).is_empty().then_some(())
        })
        .await;
    }
}
