//! The process host, and the daemon, go on as another image.

use std::time::Duration;

use executor_client::{ExitStatus, OutputOptions, v1};
use executor_tests::{Daemon, DaemonOptions, eventually, in_time, is_alive, scaled};

use super::crowd::{Moments, all_well, alone, crowd, roomy, sizes};

async fn upgraded(daemon: &Daemon) {
    let done = daemon.command(&["upgrade"]).await;
    assert!(
        done.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&done.stderr),
        daemon.log()
    );
}

#[tokio::test]
async fn a_crowd_loses_nothing_when_the_host_is_upgraded() {
    let _alone = alone().await;
    for _ in 0..scaled(20, 1) {
        let (count, _) = sizes();
        let daemon = roomy().await;
        let (host, pid) = (daemon.host_pid(), daemon.pid());
        let session = daemon.session().await;
        let crowd = crowd(&session, count, scaled(400, 300)).await;
        let mut moments = Moments::new();
        for _ in 0..3 {
            moments.next(Duration::from_millis(800)).await;
            upgraded(&daemon).await;
        }
        all_well(crowd).await;
        assert_eq!((daemon.host_pid(), daemon.pid()), (host, pid), "in place");
    }
}

#[tokio::test]
async fn what_was_under_way_goes_on_after_an_upgrade() {
    for means in ["cgroup", "reaper", "best_effort"] {
        let daemon = Daemon::start_with(DaemonOptions {
            configuration: format!("stop_means = \"{means}\"\n"),
            ..DaemonOptions::default()
        })
        .await;
        let session = daemon.session().await;
        // Ends during the upgrade, after it, by a timeout after it, by a stop
        // that began before it and by one after it.
        let soon = session.command("sleep 0.05; exit 5").spawn().await.unwrap();
        let later = session
            .command("read x; exit 6")
            .stdin_pipe()
            .spawn()
            .await
            .unwrap();
        let timed = session.command("sleep 900").timeout(Duration::from_secs(2));
        let timed = timed.spawn().await.unwrap();
        let stubborn = session
            .command("trap '' TERM; echo ready; while :; do sleep 0.1; done")
            .spawn()
            .await
            .unwrap();
        let forks = session
            .command("setsid sleep 900 & sleep 900")
            .spawn()
            .await
            .unwrap();
        eventually("the trap is set", || async {
            let page = stubborn.read_output(0, 10, Duration::ZERO).await.unwrap();
            (page.page.unwrap().end > 0).then_some(())
        })
        .await;
        let stopping = {
            let stubborn = stubborn.clone();
            tokio::spawn(async move { stubborn.stop(Duration::from_secs(1)).await })
        };
        eventually("the stop has begun", || async {
            let info = stubborn.info().await.unwrap();
            (info.state() == v1::ProcessState::Running).then_some(())
        })
        .await;

        upgraded(&daemon).await;

        let exit = in_time("exit", soon.wait()).await.unwrap();
        assert_eq!(exit.status, ExitStatus::Code(5), "{means}");
        later.stdin().write("x\n").await.unwrap();
        let exit = in_time("exit", later.wait()).await.unwrap();
        assert_eq!(exit.status, ExitStatus::Code(6), "{means}");
        let exit = in_time("exit", timed.wait()).await.unwrap();
        assert_eq!(exit.cause.name(), "timeout", "{means}: {exit:?}");
        let stopped = in_time("stop", stopping).await.unwrap().unwrap();
        assert!(stopped.survivors.is_empty(), "{means}");
        let exit = in_time("exit", stubborn.wait()).await.unwrap();
        assert_eq!(exit.cause.name(), "stopped", "{means}: {exit:?}");
        let stopped = in_time("stop", forks.kill()).await.unwrap();
        assert!(stopped.survivors.is_empty(), "{means}");
        let again = session.command("echo again").run().await.unwrap();
        assert_eq!(again.output, b"again\n", "{means}");
    }
}

#[tokio::test]
async fn a_program_that_cannot_go_on_is_refused_and_nothing_changes() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let process = session.command("read x; echo $x").stdin_pipe();
    let process = process.spawn().await.unwrap();
    for program in [
        "/bin/true",
        "/bin/false",
        "/nonexistent",
        "/bin/sh",
        "/bin/echo",
    ] {
        let done = daemon.command(&["upgrade", "--program", program]).await;
        assert!(!done.status.success(), "{program}");
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(said.contains(program), "{said}");
    }
    process.stdin().write("still here\n").await.unwrap();
    in_time("exit", process.wait()).await.unwrap();
    let page = process.read_output(0, 100, Duration::ZERO).await.unwrap();
    assert_eq!(&page.page.unwrap().data[..], b"still here\n");
}

#[tokio::test]
async fn stop_does_not_wait_for_a_reader_that_reads_no_more() {
    let mut daemon = Daemon::start().await;
    let session = daemon.session().await;
    let process = session.command("yes").lossless().spawn().await.unwrap();
    let options = OutputOptions {
        reader_id: Some("reader".into()),
        ..OutputOptions::default()
    };
    let mut output = process.stream_output(options);
    in_time("a page", output.next()).await.unwrap();
    let host = daemon.host_pid().unwrap();
    let done = daemon.command(&["stop"]).await;
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    assert!(in_time("the daemon's end", daemon.ended()).await.success());
    assert!(!is_alive(host));
    drop(output);
}

#[tokio::test]
async fn stop_ends_daemon_host_and_commands_and_says_when_there_is_nothing() {
    let mut daemon = Daemon::start().await;
    let session = daemon.session().await;
    let process = session.command("sleep 900").spawn().await.unwrap();
    let pid = process.info().await.unwrap().pid.unwrap();
    let host = daemon.host_pid().unwrap();
    let done = daemon.command(&["stop"]).await;
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    assert!(in_time("the daemon's end", daemon.ended()).await.success());
    assert!(!is_alive(pid) && !is_alive(host));
    let done = daemon.command(&["stop"]).await;
    assert!(done.status.success());
    assert!(String::from_utf8_lossy(&done.stdout).contains("nothing is running"));

    // A host whose daemon was killed is stopped as well.
    daemon.start_again().await;
    let session = daemon.session().await;
    let process = session.command("sleep 900").spawn().await.unwrap();
    let pid = process.info().await.unwrap().pid.unwrap();
    let host = daemon.host_pid().unwrap();
    daemon.kill().await;
    assert!(is_alive(pid) && is_alive(host));
    let done = daemon.command(&["stop"]).await;
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    assert!(!is_alive(pid) && !is_alive(host));
}
