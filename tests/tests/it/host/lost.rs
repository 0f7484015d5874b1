//! The process host itself is killed: nothing is hidden and nothing runs twice.

use std::time::Duration;

use executor_client::{Reason, SessionOptions};
use executor_tests::{Daemon, DaemonOptions, alive_with, eventually, in_time, is_alive};
use rustix::process::{Pid, Signal, kill_process};

fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

#[tokio::test]
async fn the_next_host_ends_what_was_left_and_the_epoch_is_over() {
    for means in ["cgroup", "best_effort"] {
        let daemon = Daemon::start_with(DaemonOptions {
            configuration: format!("stop_means = \"{means}\"\n"),
            ..DaemonOptions::default()
        })
        .await;
        let session = daemon.session().await;
        let mark = format!("mark-{}-{means}", std::process::id());
        let text = format!("setsid sleep 901 & sleep 902 # {mark}");
        let process = session
            .command(text)
            .env("MARK", &mark)
            .spawn()
            .await
            .unwrap();
        let pid = process.info().await.unwrap().pid.unwrap();
        let mut stranger = std::process::Command::new("sleep")
            .arg("903")
            .spawn()
            .unwrap();
        let host = daemon.host_pid().unwrap();

        kill(host);

        let lost = eventually("the loss is told", || async { process.info().await.err() }).await;
        assert_eq!(lost.reason(), Some(Reason::HostLost), "{means}: {lost}");
        eventually("what was left is ended", || async {
            (!is_alive(pid) && alive_with(&mark).is_empty()).then_some(())
        })
        .await;
        assert!(stranger.try_wait().unwrap().is_none(), "a stranger lives");
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        eventually("another host", || async {
            daemon.host_pid().filter(|pid| *pid != host)
        })
        .await;
        let again = session.command("echo twice").spawn().await.unwrap_err();
        assert_eq!(again.reason(), Some(Reason::StartOutcomeUnknown), "{again}");
        assert!(daemon.log().contains("ended what a lost process host left"));

        // A new session works, in a new epoch.
        let new = daemon.session().await;
        assert_ne!(new.epoch(), session.epoch());
        let done = in_time("run", new.command("echo new").run()).await.unwrap();
        assert_eq!(done.output, b"new\n");
    }
}

#[tokio::test]
async fn streams_and_waits_are_told_that_the_host_is_lost() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let process = session.command("echo x; sleep 900").spawn().await.unwrap();
    let mut output = process.output();
    in_time("a page", output.next()).await.unwrap();
    let waiting = {
        let process = process.clone();
        tokio::spawn(async move { process.wait().await })
    };
    let next = tokio::spawn(async move { output.next().await });
    // Both are under way: the process is known to the daemon by now.
    process.info().await.unwrap();
    kill(daemon.host_pid().unwrap());
    let wait = in_time("wait", waiting).await.unwrap().unwrap_err();
    assert_eq!(wait.reason(), Some(Reason::HostLost), "{wait}");
    let next = in_time("stream", next).await.unwrap().unwrap_err();
    assert_eq!(next.reason(), Some(Reason::HostLost), "{next}");
}

#[tokio::test]
async fn a_lease_stands_still_while_no_daemon_is_there() {
    let mut daemon = Daemon::start().await;
    let options = SessionOptions {
        lease: executor_client::Lease::After(Duration::from_secs(4)),
        working_directory: Some(daemon.work()),
        ..SessionOptions::default()
    };
    let session = daemon.machine().await.open_session(options).await.unwrap();
    let process = session.command("sleep 900").spawn().await.unwrap();
    let pid = process.info().await.unwrap().pid.unwrap();
    daemon.kill().await;
    let begin = std::time::Instant::now();
    // Longer than the lease: the process must be there all the time.
    while begin.elapsed() < Duration::from_secs(6) {
        assert!(is_alive(pid), "ended after {:?}", begin.elapsed());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    daemon.start_again().await;
    in_time("the process", process.info()).await.unwrap();
}
