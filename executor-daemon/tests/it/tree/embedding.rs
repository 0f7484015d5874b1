//! A program that embeds us is killed: its commands end with it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use executor_daemon::process::snapshot::StopMeans;
use executor_daemon::process::tree::{Containment, ContainmentSettings, Preferred};
use executor_proto::id::Epoch;

use super::{NOBODY, daemon, eventually, lives, plan};

/// This test program, asked for one ignored test.
pub(crate) fn again(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "--nocapture", test]);
    command
}

/// Runs one ignored test in a process of its own.
pub(super) fn in_own_process(test: &str) {
    let output = again(test).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && told.contains("1 passed"),
        "{told}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// What the embedding program says of itself.
struct Embedder {
    process: Child,
    cgroup: Option<std::path::PathBuf>,
    pids: Vec<u32>,
}

/// Starts one with a command that has children of every kind.
fn embedder(preferred: &str) -> Embedder {
    let mut process = again("tree::embedding::embedding_program")
        .env("TREE_TEST_MEANS", preferred)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut cgroup = None;
    let mut pids = Vec::new();
    for line in BufReader::new(process.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if let Some(path) = line.strip_prefix("cgroup ") {
            cgroup = Some(path.into());
        } else if let Some(pid) = line.strip_prefix("pid ") {
            pids.push(pid.parse().unwrap());
        } else if line == "ready" {
            break;
        }
    }
    Embedder {
        process,
        cgroup,
        pids,
    }
}

#[test]
#[ignore = "the program that the tests beside it start and kill"]
fn embedding_program() {
    let preferred = match std::env::var("TREE_TEST_MEANS").as_deref() {
        Ok("cgroup") => Preferred::Cgroup,
        Ok("reaper") => Preferred::Reaper,
        _ => return,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let epoch = Epoch::random();
    let _context = runtime.enter();
    let containment = Containment::probe(&ContainmentSettings {
        epoch,
        preferred,
        reaper: Some(daemon()),
        embedded: true,
    });
    if containment.means() == StopMeans::Cgroup {
        let directory = executor_daemon::sandbox::cgroup::own_directory().unwrap();
        println!(
            "cgroup {}",
            directory.join(format!("executor-{epoch}")).display()
        );
    }
    let script = "trap '' TERM; setsid sh -c 'echo pid $$; exec sleep 900' & \
                  (setsid sh -c 'echo pid $$; exec sleep 900' &); echo pid $$; \
                  sh -c 'echo pid $$; kill -STOP $$' & sleep 900";
    let (plan, output) = plan(&["/bin/sh"], &["sh", "-c", script], "/".as_ref());
    let launched = containment.launch(plan).unwrap();
    for line in BufReader::new(output).lines().take(4) {
        println!("{}", line.unwrap());
    }
    for child in children(std::process::id()) {
        if child != launched.pid {
            // The reaper or the guard.
            println!("pid {child}");
        }
    }
    println!("ready");
    loop {
        std::thread::park();
    }
}

fn children(pid: u32) -> Vec<u32> {
    std::fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .filter_map(Result::ok)
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|text| {
            text.split_whitespace()
                .map(|pid| pid.parse().unwrap())
                .collect::<Vec<_>>()
        })
        .collect()
}

fn dies_with_everything(preferred: &str, expected: usize) {
    let mut embedder = embedder(preferred);
    if preferred == "cgroup" && embedder.cgroup.is_none() {
        let _ = embedder.process.kill();
        let _ = embedder.process.wait();
        eprintln!("not on this machine: {preferred}");
        return;
    }
    assert_eq!(embedder.pids.len(), expected, "{:?}", embedder.pids);
    assert!(embedder.pids.iter().all(|pid| lives(*pid)));
    embedder.process.kill().unwrap();
    embedder.process.wait().unwrap();
    eventually("all of the tree is gone", || {
        embedder.pids.iter().all(|pid| !lives(*pid))
    });
    if let Some(cgroup) = embedder.cgroup {
        eventually("the cgroup is gone", || std::fs::metadata(&cgroup).is_err());
    }
}

#[test]
fn killing_the_embedding_program_ends_its_commands_by_the_reaper() {
    // Four of the tree, and the reaper.
    dies_with_everything("reaper", 5);
}

#[test]
fn killing_the_embedding_program_ends_its_commands_by_the_guard() {
    // Four of the tree, and the guard.
    dies_with_everything("cgroup", 5);
}

#[test]
fn a_guard_goes_when_the_engine_closes() {
    in_own_process("tree::embedding::guard_and_close");
}

#[test]
#[ignore = "run in a process of its own by a_guard_goes_when_the_engine_closes"]
fn guard_and_close() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let containment = Containment::probe(&ContainmentSettings {
            epoch: Epoch::random(),
            preferred: Preferred::Cgroup,
            reaper: Some(daemon()),
            embedded: true,
        });
        if containment.means() != StopMeans::Cgroup {
            return;
        }
        assert_eq!(children(std::process::id()), NOBODY);
        for _ in 0..3 {
            let (plan, _output) = plan(&["/bin/true"], &["true"], "/".as_ref());
            let mut launched = containment.launch(plan).unwrap();
            launched.leader.wait().await;
            launched.tree.release();
        }
        assert_eq!(children(std::process::id()).len(), 1, "one guard");
        containment.close();
        assert_eq!(children(std::process::id()), NOBODY);
    });
}

#[test]
fn a_reaper_that_is_killed_takes_its_command_with_it_and_that_is_told() {
    super::with(&[Preferred::Reaper], async |fixture| {
        let mut run = fixture.sh("setsid sleep 900 & echo $!; wait").await;
        let child: u32 = run.some_output().await.trim().parse().unwrap();
        let status = std::fs::read_to_string(format!("/proc/{}/stat", run.launched.pid)).unwrap();
        let reaper = status.split_whitespace().nth(3).unwrap().to_owned();
        fixture.run(&format!("kill -9 {reaper}")).await;
        assert_eq!(
            run.launched.leader.wait().await.status,
            executor_daemon::process::exit::WaitStatus::Signal(9)
        );
        assert!(!lives(run.launched.pid) && !lives(child));
    });
}

#[test]
fn a_program_that_is_no_reaper_is_not_used_as_one() {
    let containment = Containment::probe(&ContainmentSettings {
        epoch: Epoch::random(),
        preferred: Preferred::Reaper,
        reaper: Some("/bin/true".into()),
        embedded: false,
    });
    assert_eq!(containment.means(), StopMeans::BestEffort);
}
