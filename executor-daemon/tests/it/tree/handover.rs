//! A program executes itself in place: its commands go on, and every exit is
//! told once, whenever it happened.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use executor_daemon::process::exit::WaitStatus;
use executor_daemon::process::snapshot::StopMeans;
use executor_daemon::process::tree::{
    Containment, ContainmentState, EndMode, Launched, Preferred, TreeState,
};
use executor_proto::id::Epoch;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use serde::{Deserialize, Serialize};

use super::embedding::again;
use super::own_process::own_process;
use super::{NOBODY, containment, eventually, lives, own_process, plan};

/// What one image leaves to the next.
#[derive(Serialize, Deserialize)]
struct Left {
    containment: ContainmentState,
    trees: Vec<(TreeState, Vec<i32>)>,
    pids: Vec<u32>,
}

/// The commands, in the order of their exits, and how they exit.
const SCRIPTS: [(&str, WaitStatus); 6] = [
    ("exit 3", WaitStatus::Code(3)),
    ("sleep 900 >/dev/null 2>&1 & exit 4", WaitStatus::Code(4)),
    ("exit 5", WaitStatus::Code(5)),
    ("read x <gate; kill -34 $$", WaitStatus::Signal(34)),
    (
        "while ! test -e go; do sleep 0.01; done; exit 6",
        WaitStatus::Code(6),
    ),
    (
        "trap '' TERM; setsid sh -c 'echo $$ >>pids; exec sleep 900' & read x </dev/zero",
        WaitStatus::Signal(9),
    ),
];
/// Waited for by the first image.
const WAITED: usize = 2;
/// Those from here on run when the first image ends.
const RUNNING: usize = 3;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

fn directory() -> PathBuf {
    std::env::var_os("TREE_TEST_DIRECTORY").unwrap().into()
}

/// This test program at one of the two images, with SIGCHLD blocked or not.
fn image(test: &str) -> Command {
    if own_process::is_own() {
        own_process(&["--ignored", "--exact", "--nocapture", test])
    } else {
        again(test)
    }
}

fn goes_on(preferred: &str, mut command: Command) {
    let directory = tempfile::tempdir().unwrap();
    let output = command
        .env("TREE_TEST_MEANS", preferred)
        .env("TREE_TEST_DIRECTORY", directory.path())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && told.contains("1 passed"),
        "{told}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    if told.contains("not on this machine") {
        eprintln!("not on this machine: {preferred}");
    } else {
        assert!(told.contains("went on"), "{told}");
    }
}

#[test]
fn an_image_executed_in_place_goes_on_with_every_tree() {
    const FIRST: &str = "tree::handover::first_image";
    for preferred in ["cgroup", "reaper", "best_effort"] {
        let arguments = ["--ignored", "--exact", "--nocapture", FIRST];
        goes_on(preferred, own_process(&arguments));
        goes_on(preferred, again(FIRST));
    }
}

#[test]
#[ignore = "run in a process of its own by the test above"]
fn first_image() {
    own_process::prepare();
    let (preferred, wanted) = match std::env::var("TREE_TEST_MEANS").as_deref() {
        Ok("cgroup") => (Preferred::Cgroup, StopMeans::Cgroup),
        Ok("reaper") => (Preferred::Reaper, StopMeans::Reaper),
        Ok("best_effort") => (Preferred::BestEffort, StopMeans::BestEffort),
        _ => return,
    };
    runtime().block_on(async {
        let containment = containment(Epoch::random(), preferred);
        if containment.means() != wanted {
            println!("not on this machine");
            return;
        }
        // Closed when the next image is executed, which ends one command.
        let _gate = gate(&directory());
        let mut launched = Vec::new();
        for (script, _) in SCRIPTS {
            let (plan, _output) = plan(&["/bin/sh"], &["sh", "-c", script], &directory());
            launched.push(containment.launch(plan).unwrap());
        }
        for (run, (_, status)) in launched.iter_mut().zip(SCRIPTS).take(WAITED) {
            assert_eq!(run.leader.wait().await.status, status);
        }
        eventually("another has ended, and nobody has asked", || {
            !lives(launched[RUNNING - 1].pid)
        });
        eventually("the last runs", || {
            std::fs::read_to_string(directory().join("pids")).is_ok_and(|text| text.ends_with('\n'))
        });
        let left = leave(&containment, &launched);
        std::fs::write(directory().join("left"), serde_json::to_vec(&left).unwrap()).unwrap();
        panic!("{}", image("tree::handover::second_image").exec());
    });
}

/// A command's `read x <gate` returns when this is closed.
fn gate(directory: &Path) -> File {
    let path = directory.join("gate");
    assert!(
        Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    // Also for reading, so that it opens before anybody reads.
    File::options().read(true).write(true).open(path).unwrap()
}

fn leave(containment: &Containment, launched: &[Launched]) -> Left {
    let numbers = |files: Vec<Arc<OwnedFd>>| {
        files
            .iter()
            .map(|file| {
                rustix::io::fcntl_setfd(file.as_fd(), rustix::io::FdFlags::empty()).unwrap();
                file.as_raw_fd()
            })
            .collect::<Vec<_>>()
    };
    let trees = launched.iter().map(|launched| {
        let (state, files) = launched.tree.export();
        (state, numbers(files))
    });
    let trees = trees.collect();
    let (state, files) = containment.export();
    assert!(files.is_empty());
    Left {
        containment: state,
        trees,
        pids: launched.iter().map(|launched| launched.pid).collect(),
    }
}

#[test]
#[ignore = "executed by the first image"]
fn second_image() {
    let Some(directory) = std::env::var_os("TREE_TEST_DIRECTORY").map(PathBuf::from) else {
        return;
    };
    own_process::prepare();
    let left = std::fs::read(directory.join("left")).unwrap();
    let left: Left = serde_json::from_slice(&left).unwrap();
    runtime().block_on(async {
        tokio::time::timeout(super::DEADLINE, go_on(left, &directory))
            .await
            .expect("within the deadline");
    });
    println!("went on");
}

async fn go_on(left: Left, directory: &Path) {
    let own = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let files = |numbers: Vec<i32>| {
        let file = |number| pidfd_getfd(&own, number, PidfdGetfdFlags::empty()).unwrap();
        numbers
            .into_iter()
            .map(|number| Arc::new(file(number)))
            .collect::<Vec<_>>()
    };
    let containment = Containment::import(left.containment, &[]).unwrap();
    let mut resumed = Vec::new();
    for (state, numbers) in left.trees {
        resumed.push(containment.resume(state, &files(numbers)).unwrap());
    }
    let status = |index: usize| SCRIPTS[index].1;

    // Ended before, told before or not, and while it was executed.
    for (index, (leader, _)) in resumed.iter_mut().enumerate().take(RUNNING + 1) {
        assert_eq!(leader.wait().await.status, status(index));
    }
    // What outlived its leader.
    let members = resumed[1].1.members();
    assert_eq!(members.len(), 1, "{members:?}");
    assert_eq!(resumed[1].1.end(EndMode::Kill).await.survivors, NOBODY);
    assert!(!lives(members[0].pid));
    // Afterwards.
    assert!(lives(left.pids[RUNNING + 1]));
    File::create(directory.join("go")).unwrap();
    assert_eq!(resumed[4].0.wait().await.status, status(4));
    // Ended by us.
    let pids = std::fs::read_to_string(directory.join("pids")).unwrap();
    let child: u32 = pids.trim().parse().unwrap();
    assert!(lives(child));
    assert_eq!(resumed[5].1.end(EndMode::Kill).await.survivors, NOBODY);
    assert_eq!(resumed[5].0.wait().await.status, status(5));
    assert!(!lives(child) && !lives(left.pids[5]));
    // New ones start beside them.
    let (plan, _output) = plan(&["/bin/sh"], &["sh", "-c", "exit 7"], directory);
    let mut launched = containment.launch(plan).unwrap();
    assert_eq!(launched.leader.wait().await.status, WaitStatus::Code(7));
    launched.tree.release();
    for (_, tree) in resumed {
        tree.release();
    }
    own_process::check(containment.means());
    let record = containment.record();
    containment.close();
    if let executor_daemon::process::tree::ContainmentRecord::Cgroup { parent, name } = record {
        assert!(std::fs::metadata(parent.join(name)).is_err());
    }
}

#[test]
fn where_the_execution_fails_the_same_image_goes_on() {
    super::with_each(async |fixture| {
        let mut runs = Vec::new();
        for script in ["exit 3", "read x <gate; exit 4", "read x </dev/zero"] {
            if script.contains("gate") {
                let status = Command::new("mkfifo").arg(fixture.path("gate")).status();
                assert!(status.unwrap().success());
            }
            runs.push(fixture.sh(script).await.launched);
        }
        assert_eq!(runs[0].leader.wait().await.status, WaitStatus::Code(3));
        let trees: Vec<_> = runs.iter().map(|run| run.tree.export()).collect();
        let (state, files) = fixture.containment.export();
        let pids: Vec<u32> = runs.iter().map(|run| run.pid).collect();
        // One ends while nobody follows it.
        let gate = File::options().write(true).open(fixture.path("gate"));
        drop(gate.unwrap());
        eventually("the second has ended", || !lives(pids[1]));
        drop(runs);
        // What followed the trees lets go.
        while fixture.containment.following() > 0 {
            tokio::task::yield_now().await;
        }
        let containment = Containment::import(state, &files).unwrap();
        let mut resumed = Vec::new();
        for (state, files) in trees {
            resumed.push(containment.resume(state, &files).unwrap());
        }
        for (index, code) in [(0, 3), (1, 4)] {
            let status = resumed[index].0.wait().await.status;
            assert_eq!(status, WaitStatus::Code(code));
        }
        assert!(lives(pids[2]));
        assert_eq!(resumed[2].1.end(EndMode::Kill).await.survivors, NOBODY);
        assert_eq!(resumed[2].0.wait().await.status, WaitStatus::Signal(9));
        for (_, tree) in resumed {
            tree.release();
        }
        containment.close();
    });
}
