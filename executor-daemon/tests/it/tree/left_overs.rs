//! What a lost engine left is found and ended, and nothing else.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use executor_daemon::process::snapshot::StopMeans;
use executor_daemon::process::tree::{
    Containment, ContainmentRecord, EndMode, LeftOvers, LostEpoch, Preferred, left_overs,
};
use executor_proto::id::Epoch;

use super::{Launched, containment, eventually, lives, plan, strings};

const PATIENCE: Duration = Duration::from_secs(20);

/// One command of an engine, with a child in a session of its own.
struct Engine {
    epoch: Epoch,
    containment: Containment,
    launched: Launched,
    pids: Vec<u32>,
}

impl Engine {
    fn start(preferred: Preferred, directory: &Path, tagged: bool) -> Self {
        let epoch = Epoch::random();
        let containment = containment(epoch, preferred);
        let name = format!("pids-{epoch}");
        let script = format!(
            "trap '' TERM; (setsid sh -c 'echo $$ >>{name}; exec sleep 900' &); \
             echo $$ >>{name}; read x </dev/zero"
        );
        let (mut plan, _) = plan(&["/bin/sh"], &["sh", "-c", &script], directory);
        if tagged {
            plan.envp
                .extend(strings(&[&format!("EXECUTOR_TAG={epoch}/prc_x")]));
        }
        let launched = containment.launch(plan).unwrap();
        let mut pids = Vec::new();
        eventually("both run", || {
            let text = std::fs::read_to_string(directory.join(&name)).unwrap_or_default();
            pids = text.lines().filter_map(|line| line.parse().ok()).collect();
            pids.len() == 2 && text.ends_with('\n')
        });
        Self {
            epoch,
            containment,
            launched,
            pids,
        }
    }

    fn lost(&self) -> LostEpoch {
        LostEpoch {
            epoch: self.epoch,
            cgroup: match self.containment.record() {
                ContainmentRecord::Cgroup { parent, .. } => Some(parent),
                ContainmentRecord::Reaper | ContainmentRecord::BestEffort => None,
            },
        }
    }
}

fn told(left: &LeftOvers) -> Vec<u32> {
    left.ended.iter().map(|member| member.pid).collect()
}

/// One of two engines is lost.
fn one_of_two_is_ended(preferred: Preferred, tagged: bool) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _context = runtime.enter();
    let directory = tempfile::tempdir().unwrap();
    let lost = Engine::start(preferred, directory.path(), tagged);
    let other = Engine::start(preferred, directory.path(), tagged);
    let left = left_overs(&lost.lost(), PATIENCE);
    assert_eq!(left.survivors, [0u32; 0]);
    for pid in &lost.pids {
        assert!(told(&left).contains(pid), "{left:?} without {pid}");
        assert!(!lives(*pid));
    }
    for pid in &other.pids {
        assert!(lives(*pid) && !told(&left).contains(pid));
    }
    assert_eq!(left_overs(&lost.lost(), PATIENCE), LeftOvers::default());
    if let ContainmentRecord::Cgroup { parent, name } = lost.containment.record() {
        assert!(std::fs::metadata(parent.join(name)).is_err());
    }
    runtime.block_on(async {
        for engine in [lost, other] {
            let mut launched = engine.launched;
            launched.tree.end(EndMode::Kill).await;
            launched.leader.wait().await;
            launched.tree.release();
            engine.containment.close();
        }
    });
}

#[test]
fn what_a_lost_engine_left_is_ended_by_its_tag() {
    one_of_two_is_ended(Preferred::BestEffort, true);
}

#[test]
fn what_a_lost_engine_left_is_ended_by_its_cgroup_without_any_tag() {
    let containment = containment(Epoch::random(), Preferred::Cgroup);
    if containment.means() != StopMeans::Cgroup {
        eprintln!("not on this machine: a cgroup");
        return;
    }
    one_of_two_is_ended(Preferred::Cgroup, false);
}

#[test]
fn what_only_looks_like_a_tag_is_left_alone() {
    let epoch = Epoch::random();
    let sleeper = |name: &str, value: String| {
        Command::new("sleep")
            .arg("900")
            .env(name, value)
            .spawn()
            .unwrap()
    };
    let mut strangers: Vec<Child> = vec![
        sleeper("EXECUTOR_TAG", epoch.to_string()),
        sleeper("EXECUTOR_TAG", format!("{}/prc_x", Epoch::random())),
        sleeper("EXECUTOR_TAG", format!("x{epoch}/prc_x")),
        sleeper("TAG", format!("EXECUTOR_TAG={epoch}/prc_x")),
    ];
    let mut ours = sleeper("EXECUTOR_TAG", format!("{epoch}/prc_x"));
    eventually("sleep is executed", || {
        let text = std::fs::read(format!("/proc/{}/environ", ours.id())).unwrap_or_default();
        text.windows(12).any(|bytes| bytes == b"EXECUTOR_TAG")
    });
    let lost = LostEpoch {
        epoch,
        cgroup: None,
    };
    let left = left_overs(&lost, PATIENCE);
    assert_eq!(told(&left), [ours.id()]);
    ours.wait().unwrap();
    for stranger in &mut strangers {
        assert_eq!(stranger.try_wait().unwrap(), None);
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }
}

/// Strangers and left-overs that come and go where numbers come around after
/// 400. A stranger that a signal ends is noted in `hits`. The limit is the
/// namespace's own since Linux 6.14 (pid_namespaces(7)).
fn in_a_small_namespace(
    test: &str,
    epoch: Epoch,
    directory: &Path,
) -> Option<std::process::Output> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut parts = release.split('.').map(|part| part.parse().unwrap_or(0u32));
    if (parts.next(), parts.next()) < (Some(6), Some(14)) {
        return None;
    }
    let script = format!(
        "echo 400 >/proc/sys/kernel/pid_max || exit 9; \
         for i in 1 2 3; do \
           while :; do sleep 0.002; [ $? -gt 128 ] && echo hit >>hits; done & \
           while :; do EXECUTOR_TAG={epoch}/prc_x sleep 0.002; echo $? >>ours; done & \
         done 2>/dev/null; \"$@\" & wait $!"
    );
    let output = Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["bash", "-c", &script, "bash"])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", test])
        .env("TREE_TEST_EPOCH", epoch.to_string())
        .current_dir(directory)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    (output.status.code() != Some(9)).then_some(output)
}

#[test]
fn numbers_that_come_around_lead_to_no_stranger() {
    if rustix::process::geteuid().as_raw() != 0 {
        eprintln!("not without a PID namespace");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let test = "tree::left_overs::ends_left_overs_again_and_again";
    let Some(output) = in_a_small_namespace(test, Epoch::random(), directory.path()) else {
        eprintln!("not on this kernel");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name));
    assert!(read("hits").is_err(), "a stranger was hit");
    assert!(
        read("ours").unwrap().lines().any(|code| code == "137"),
        "none of ours was met alive"
    );
}

#[test]
#[ignore = "run in a PID namespace by numbers_that_come_around_lead_to_no_stranger"]
fn ends_left_overs_again_and_again() {
    let Ok(epoch) = std::env::var("TREE_TEST_EPOCH") else {
        return;
    };
    let lost = LostEpoch {
        epoch: epoch.parse().unwrap(),
        cgroup: None,
    };
    let mut ended = 0;
    while ended < 300 {
        // Others come for ever, so that each look finds some.
        ended += left_overs(&lost, Duration::from_millis(20)).ended.len();
    }
}
