//! The daemon is killed, and nothing is lost.

use std::time::Duration;

use executor_client::{ExitStatus, OutputEvent, OutputOptions};
use executor_tests::{Daemon, eventually, in_time, scaled};

use super::crowd::{Moments, all_well, alone, crowd, roomy, sizes};

#[tokio::test]
async fn a_crowd_loses_nothing_when_the_daemon_is_killed_again_and_again() {
    let _alone = alone().await;
    for _ in 0..scaled(20, 1) {
        let (count, kills) = sizes();
        let mut daemon = roomy().await;
        let host = daemon.host_pid();
        let session = daemon.session().await;
        let crowd = crowd(&session, count, scaled(400, 300)).await;
        let mut moments = Moments::new();
        for _ in 0..kills {
            moments.next(Duration::from_millis(600)).await;
            daemon.restart().await;
        }
        all_well(crowd).await;
        assert_eq!(daemon.host_pid(), host, "it is the same host all along");
    }
}

#[tokio::test]
async fn a_restarted_daemon_knows_sessions_processes_input_and_exits() {
    let mut daemon = Daemon::start().await;
    let session = daemon.session().await;
    let typed = session
        .command("read a; read b; echo $a-$b; exit 7")
        .stdin_pipe();
    let typed = typed.spawn().await.unwrap();
    let mut stdin = typed.stdin();
    stdin.write("one\n").await.unwrap();
    let ended = session
        .command("echo before; exit 3")
        .spawn()
        .await
        .unwrap();
    in_time("exit", ended.wait()).await.unwrap();
    let terminal = session.command("read x; stty size").terminal(30, 100);
    let terminal = terminal.spawn().await.unwrap();
    let epoch = daemon.machine().await.info().await.unwrap().epoch;

    daemon.restart().await;

    let machine = daemon.machine().await.info().await.unwrap();
    assert_eq!(machine.epoch, epoch, "nothing of it is over");
    stdin.write("two\n").await.unwrap();
    let exit = in_time("exit", typed.wait()).await.unwrap();
    assert_eq!(exit.status, ExitStatus::Code(7));
    let page = typed.read_output(0, 100, Duration::ZERO).await.unwrap();
    assert_eq!(&page.page.unwrap().data[..], b"one-two\n");
    let exit = in_time("exit", ended.wait()).await.unwrap();
    assert_eq!(
        exit.status,
        ExitStatus::Code(3),
        "an exit from before is still told"
    );
    let page = ended.read_output(0, 100, Duration::ZERO).await.unwrap();
    assert_eq!(&page.page.unwrap().data[..], b"before\n");
    terminal.resize(40, 90).await.unwrap();
    terminal.stdin().write("x\n").await.unwrap();
    in_time("exit", terminal.wait()).await.unwrap();
    let page = terminal.read_output(0, 100, Duration::ZERO).await.unwrap();
    assert_eq!(&page.page.unwrap().data[..], b"x\r\n40 90\r\n");
}

#[tokio::test]
async fn a_lossless_reader_that_comes_back_has_every_byte() {
    let mut daemon = Daemon::start().await;
    let session = daemon.session().await;
    let size = 64 << 20;
    let text = format!("head -c {size} /dev/zero; echo done");
    let process = session.command(text).lossless().spawn().await.unwrap();
    let options = OutputOptions {
        reader_id: Some("reader".into()),
        ..OutputOptions::default()
    };
    let mut output = process.stream_output(options);
    let (mut read, mut kills) = (0u64, 0);
    while let Some(event) = in_time("output", output.next()).await.unwrap() {
        let OutputEvent::Page(page) = event else {
            continue;
        };
        assert!(page.gap.is_none(), "{:?}", page.gap);
        assert_eq!(page.start, read);
        read += page.data.len() as u64;
        if read > (kills + 1) * (size / 4) && kills < 3 {
            kills += 1;
            daemon.restart().await;
        }
    }
    assert_eq!((read, kills), (size + 5, 3));
}

#[tokio::test]
async fn invariant_1_a_lost_daemon_holds_no_child_up() {
    let mut daemon = Daemon::start().await;
    let session = daemon.session().await;
    let done = daemon.work().join("done");
    let text = format!("head -c 8M /dev/zero; echo $? > {}", done.display());
    let process = session.command(text).lossless().spawn().await.unwrap();
    let options = OutputOptions {
        reader_id: Some("reader".into()),
        ..OutputOptions::default()
    };
    let mut output = process.stream_output(options);
    in_time("a page", output.next()).await.unwrap();
    drop(output);
    daemon.kill().await;
    // No daemon is there, and nobody reads: after five seconds it goes on.
    eventually("the end of a command whose reader is lost", || async {
        done.exists().then_some(())
    })
    .await;
    daemon.start_again().await;
    let exit = in_time("exit", process.wait()).await.unwrap();
    assert_eq!(exit.status, ExitStatus::Code(0));
}

#[tokio::test]
async fn a_command_that_runs_costs_the_host_one_descriptor() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let open = |daemon: &Daemon| {
        let host = daemon.host_pid().unwrap();
        std::fs::read_dir(format!("/proc/{host}/fd"))
            .unwrap()
            .count()
    };
    // What the first one opens for all: the memory of logs, the signals.
    session.command("sleep 900").spawn().await.unwrap();
    let before = open(&daemon);
    for _ in 0..20 {
        session.command("sleep 900").spawn().await.unwrap();
    }
    assert_eq!(open(&daemon), before + 20);
}
