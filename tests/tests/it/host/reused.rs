//! A host is killed, and the numbers of what it held become strangers' before
//! the next one cleans up.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use executor_client::Reason;
use executor_tests::{Daemon, DaemonOptions, alive_with, eventually, in_time};
use rustix::process::{Pid, Signal, kill_process};

/// Runs in a PID namespace of its own where numbers come around after 400. The
/// daemon is started again when `again` is there. A number named in `wanted`
/// is given to a stranger, which is noted in `taken`.
const SCRIPT: &str = r#"
    echo 400 > /proc/sys/kernel/pid_max || exit 9
    cd "$1"; shift
    declare -A kept
    name=STRANGER
    # Numbers below 300 do not come again.
    for ((i = 0; i < 300; i++)); do (:); done
    "$@" &
    while :; do
        if [ -e again ]; then rm again; "$@" & fi
        for number in $(cat wanted 2>/dev/null); do
            [ "${kept[$number]}" ] && continue
            while [ -e /proc/$number ]; do sleep 0.01; done
            until [ "$last" = "$number" ]; do
                [ "$last" ] && { kill -9 $last; wait $last; } 2>/dev/null
                env "$name=$number" sleep 1000 &
                last=$!
            done
            kept[$number]=1
            last=
            echo $number >> taken
        done
        sleep 0.02
    done
"#;

async fn in_a_small_namespace(means: &str, files: &Path) -> Option<Daemon> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut parts = release.split('.').map(|part| part.parse().unwrap_or(0u32));
    // The limit is the namespace's own since Linux 6.14.
    if (parts.next(), parts.next()) < (Some(6), Some(14)) {
        return None;
    }
    let files = files.display().to_string();
    let unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let under = unshare
        .into_iter()
        .chain(["bash", "-c", SCRIPT, "bash", &files]);
    let daemon = Daemon::start_with(DaemonOptions {
        under: under.map(str::to_owned).collect(),
        configuration: format!("stop_means = {means:?}\n"),
        ..DaemonOptions::default()
    });
    Some(daemon.await)
}

/// The machine's number of each process whose environment or command line
/// holds `mark`, by its number in its own namespace.
fn numbers(mark: &str) -> HashMap<u32, u32> {
    let inner = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find(|line| line.starts_with("NSpid:"))?;
        line.split_whitespace().next_back()?.parse().ok()
    };
    let all = alive_with(mark).into_iter();
    all.filter_map(|pid| Some((inner(&pid)?, pid))).collect()
}

/// The one whose command line holds `mark` and begins with the daemon's name.
fn ours(mark: &str) -> Option<u32> {
    alive_with(mark).into_iter().find(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        let mut words = line.split('\0');
        let program = words.next().unwrap_or_default();
        program.ends_with("executor-daemon") && line.contains(mark)
    })
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

async fn gone(pid: u32) {
    eventually("a death", || async {
        (!executor_tests::is_alive(pid)).then_some(())
    })
    .await;
}

async fn reused(means: &str) {
    let files = tempfile::tempdir().unwrap();
    let Some(daemon) = in_a_small_namespace(means, files.path()).await else {
        return;
    };
    let session = daemon.session().await;
    let mark = format!("held-{}-{means}", std::process::id());
    let mut processes = Vec::new();
    for _ in 0..2 {
        // A leader that ends when it is let go, and a descendant that stays.
        let text = "setsid sleep 900 & read x; exec true";
        let command = session.command(text).env("MARK", &mark).stdin_pipe();
        processes.push(in_time("start", command.spawn()).await.unwrap());
    }
    let mut leaders = Vec::new();
    for process in &processes {
        leaders.push(process.info().await.unwrap().pid.unwrap());
    }
    let held = numbers(&mark);
    assert!(leaders.iter().all(|leader| held.contains_key(leader)));
    eventually("the descendants", || async {
        (numbers(&mark).len() >= 2 * leaders.len()).then_some(())
    })
    .await;

    // The daemon first, so that nobody starts the next host.
    let front = ours(&daemon.directory().join("daemon.toml").display().to_string()).unwrap();
    let host = ours(&format!("{}.host", daemon.socket().display())).unwrap();
    let host_number = daemon.host_pid().unwrap();
    assert_eq!(
        numbers(&format!("{}.host", daemon.socket().display())).get(&host_number),
        Some(&host)
    );
    kill(front);
    gone(front).await;
    kill(host);
    gone(host).await;
    // Held by a reaper, they end by themselves.
    for leader in &leaders {
        if executor_tests::is_alive(held[leader]) {
            kill(held[leader]);
        }
        gone(held[leader]).await;
    }
    let wanted: Vec<_> = leaders.iter().chain([&host_number]).collect();
    let list: String = wanted.iter().map(|number| format!("{number}\n")).collect();
    fs::write(files.path().join("new"), list).unwrap();
    fs::rename(files.path().join("new"), files.path().join("wanted")).unwrap();
    eventually("strangers with their numbers", || async {
        let taken = fs::read_to_string(files.path().join("taken")).unwrap_or_default();
        (taken.lines().count() == wanted.len()).then_some(())
    })
    .await;
    let strangers = numbers("STRANGER=");
    for number in &wanted {
        assert!(strangers.contains_key(number), "{number} is a stranger's");
    }
    let left = alive_with(&mark);
    assert_eq!(left.is_empty(), means == "reaper", "{means}: {left:?}");

    fs::write(files.path().join("again"), "").unwrap();
    let told = eventually("the loss is told", || async {
        processes[0].info().await.err()
    })
    .await;
    assert_eq!(told.reason(), Some(Reason::HostLost), "{means}: {told}");
    eventually("what was left is ended", || async {
        alive_with(&mark).is_empty().then_some(())
    })
    .await;
    let now = numbers("STRANGER=");
    for number in &wanted {
        assert_eq!(
            now.get(number),
            strangers.get(number),
            "{means}: {number} lives"
        );
    }
    let log = daemon.log();
    assert!(log.contains("ended what a lost process host left"), "{log}");
    let done = in_time("run", daemon.session().await.run("echo new"))
        .await
        .unwrap();
    assert_eq!(done.output, b"new\n");
}

#[tokio::test]
async fn strangers_with_the_numbers_of_a_lost_hosts_commands_live() {
    for means in ["cgroup", "reaper", "best_effort"] {
        reused(means).await;
    }
}
