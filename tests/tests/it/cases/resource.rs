//! Cases of resources.

use std::time::Duration;

use executor_client::{ExitStatus, Reason};
use executor_tests::{Daemon, DaemonOptions, Here, in_time, nobody, scaled};

#[tokio::test]
async fn b146_finished_and_failed_processes_leave_nothing_behind() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let terminals = || std::fs::read_dir("/dev/pts").unwrap().count();
    let round = async |count: usize| {
        for n in 0..count {
            let command = match n % 4 {
                0 => session.command("echo x"),
                1 => session.command("echo x").terminal(24, 80),
                2 => session.program(["/no/such/program"]),
                _ => session.command("echo x").terminal(24, 80).cwd("/"),
            };
            if n % 10 == 9 {
                // A client that goes away in the middle of its call, at
                // another moment each time.
                let moment = Duration::from_micros(100 * (n as u64 % 37));
                let _ = tokio::time::timeout(moment, command.run()).await;
            } else {
                in_time("run", command.run()).await.unwrap();
            }
        }
    };
    // Fill the table, so that what is kept is the same before and after.
    round(70).await;
    let status = |field: &str| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        let value = line.split_whitespace().nth(1).unwrap();
        value.parse::<u64>().unwrap()
    };
    let before = (daemon.descriptors().await, terminals());
    let (threads, memory) = (status("Threads:"), status("VmRSS:"));
    round(scaled(5_000, 200)).await;
    executor_tests::eventually("descriptors and terminals to come back", || async {
        let now = (daemon.descriptors().await, terminals());
        (now.0 <= before.0 + 4 && now.1 <= before.1 + 2).then_some(())
    })
    .await;
    // Threads for blocking work are bounded; memory is that of what is kept.
    assert!(status("Threads:") <= threads + 16);
    assert!(status("VmRSS:") <= memory + (16 << 10), "more than 16 MiB");
    assert!(session.list().await.unwrap().len() <= 64);
}

#[tokio::test]
async fn the_cap_on_running_processes_is_told_with_its_name() {
    let here = Here::with(|config| config.limits.processes_per_session = 3).await;
    let mut running = Vec::new();
    for _ in 0..3 {
        running.push(here.bash("sleep 900").spawn().await.unwrap());
    }
    let refused = here.bash("true").spawn().await.unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::ProcessLimit));
    assert!(
        refused.to_string().contains("processes_per_session"),
        "{refused}"
    );
    running.pop().unwrap().kill().await.unwrap();
    let done = here.bash("true").run().await.unwrap();
    assert!(done.exit.success());
    let forgotten: Vec<_> = here.session.list().await.unwrap();
    assert_eq!(forgotten.len(), 3);
    here.end().await;
}

#[tokio::test]
async fn b148_at_the_process_limit_a_stop_works_and_starts_recover() {
    let user = nobody();
    let socket = user.home().join("run/executor/daemon.sock");
    let limit = ["prlimit", "--nproc=120:120"];
    let mut daemon = user.command(&user.daemon_program(), &limit);
    let mut daemon = daemon.arg("serve").spawn().unwrap();
    executor_tests::eventually("the socket", || async { socket.exists().then_some(()) }).await;
    let executor = |arguments: &[&str]| user.executor(arguments).output().unwrap();
    let hog = executor(&[
        "run",
        "--detach",
        "for i in $(seq 500); do sleep 900 & done 2>/dev/null; wait",
    ]);
    assert!(hog.status.success(), "{hog:?}");
    let hog = String::from_utf8(hog.stdout).unwrap().trim().to_owned();
    // The client is under the same uid and not under the limit.
    executor_tests::eventually("the limit to be reached", || async {
        let out = user
            .executor(&["--json", "run", "--detach", "--", "true"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned()
            + &String::from_utf8_lossy(&out.stderr);
        if out.status.success() {
            return None;
        }
        assert!(
            text.contains("OUT_OF_RESOURCES") && text.contains("limit of processes"),
            "{text}"
        );
        Some(())
    })
    .await;
    let stopped = executor(&["stop", "--kill", &hog]);
    assert!(stopped.status.success(), "{stopped:?}");
    let after = executor(&["run", "--detach", "echo fine"]);
    let id = String::from_utf8(after.stdout).unwrap().trim().to_owned();
    let waited = executor(&["wait", &id]);
    assert_eq!(waited.status.code(), Some(0), "{waited:?}");
    user.stop_daemon();
    assert!(daemon.wait().unwrap().success());
}

#[tokio::test]
async fn b149_codes_and_signals_are_not_confused() {
    let here = Here::new().await;
    for (text, status, shell_code) in [
        ("kill -9 $$", ExitStatus::Signal(9), 137),
        ("kill -TERM $$", ExitStatus::Signal(15), 143),
        ("kill -SEGV $$", ExitStatus::Signal(11), 139),
        ("exit 300", ExitStatus::Code(44), 44),
        ("exit -1", ExitStatus::Code(255), 255),
    ] {
        let exit = here.run(text).await.exit;
        assert_eq!(
            (exit.status, exit.shell_code),
            (status, shell_code),
            "{text}"
        );
    }
    let inner = here
        .run("{ sh -c 'kill -9 $$'; } 2>/dev/null; echo $?")
        .await;
    assert_eq!(
        (inner.output.as_slice(), inner.exit.status),
        (b"137\n".as_slice(), ExitStatus::Code(0))
    );
    let process = here.bash("kill -9 $$").spawn().await.unwrap();
    process.wait().await.unwrap();
    let exit = process.info().await.unwrap().exit.unwrap();
    assert_eq!(
        (exit.code, exit.signal),
        (None, Some(9)),
        "no code when signalled"
    );
    here.end().await;
}

#[tokio::test]
async fn a_daemon_with_few_descriptors_says_so_and_recovers() {
    let daemon = Daemon::start_with(DaemonOptions {
        under: ["prlimit", "--nofile=120:120"].map(str::to_owned).to_vec(),
        configuration: "[limits]\nprocesses_per_session = 1000\n".into(),
        ..DaemonOptions::default()
    })
    .await;
    let session = daemon.session().await;
    let mut running = Vec::new();
    let mut refused = false;
    for _ in 0..200 {
        let started = session
            .command("sleep 900")
            .wait(Duration::ZERO)
            .start()
            .await;
        match started {
            Ok(started) if started.info.exit.is_none() => running.push(started.process),
            Ok(started) => {
                let failure = started.info.exit.unwrap().spawn_failure.unwrap();
                assert_eq!(failure.kind, "out_of_resources");
                refused = true;
            }
            Err(error) => {
                assert_eq!(error.reason(), Some(Reason::OutOfResources), "{error}");
                refused = true;
            }
        }
        if refused {
            break;
        }
    }
    assert!(refused, "120 descriptors were enough for 200 processes");
    for process in running {
        let stopped = in_time("stop", process.kill()).await.unwrap();
        assert!(stopped.survivors.is_empty());
    }
    let done = in_time("after", session.command("echo fine").run())
        .await
        .unwrap();
    assert_eq!(done.output, b"fine\n");
}
