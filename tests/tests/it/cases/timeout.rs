//! Cases of time limits, and of telling apart how something ended.

use std::time::Duration;

use executor_client::{ExitCause, ExitStatus, State};
use executor_tests::{Here, alive_with, eventually, in_time};

#[tokio::test]
async fn b125_a_timeout_ends_the_tree_and_keeps_the_output() {
    let here = Here::new().await;
    let text = "mkfifo q; (while :; do echo c; sleep 0.1; done) > q & cat q";
    let process = here
        .bash(text)
        .timeout(Duration::from_secs(1))
        .spawn()
        .await
        .unwrap();
    let exit = in_time("exit", process.wait()).await.unwrap();
    assert_eq!(exit.cause, ExitCause::Timeout);
    let info = process.info().await.unwrap();
    assert_eq!(State::from(info.state()), State::Killed);
    let page = process
        .read_output(0, 8192, Duration::ZERO)
        .await
        .unwrap()
        .page
        .unwrap();
    assert!(page.data.starts_with(b"c\nc\n"), "{page:?}");
    // By the timeout itself, without a stop.
    eventually("the tree to be gone", || async {
        alive_with(&process.id().to_string())
            .is_empty()
            .then_some(())
    })
    .await;
    let info = process.info().await.unwrap();
    assert!(
        info.output_ended && info.held_open_by.is_empty(),
        "{info:?}"
    );
    here.end().await;
}

#[tokio::test]
async fn an_idle_timeout_counts_from_the_last_output() {
    let here = Here::new().await;
    let text = "for i in 1 2 3 4 5; do echo $i; sleep 0.2; done; sleep 900";
    let command = here.bash(text).idle_timeout(Duration::from_secs(1));
    let done = in_time("exit", command.run()).await.unwrap();
    assert_eq!(done.exit.cause, ExitCause::IdleTimeout);
    assert_eq!(done.output, b"1\n2\n3\n4\n5\n");
    here.end().await;
}

#[tokio::test]
async fn b128_four_ways_to_die_are_four_results() {
    let here = Here::new().await;
    let loops = "trap '' TERM; while :; do sleep 0.1; done";
    let timed_out = in_time(
        "timeout",
        here.bash(loops).timeout(Duration::from_millis(200)).run(),
    )
    .await
    .unwrap();
    assert_eq!(timed_out.exit.cause, ExitCause::Timeout);
    assert_eq!(
        (timed_out.exit.status, timed_out.exit.forced),
        (ExitStatus::Signal(9), true)
    );
    let state = async |text: &str| {
        let process = here.bash(text).spawn().await.unwrap();
        in_time(text, process.wait()).await.unwrap();
        State::from(process.info().await.unwrap().state())
    };
    assert_eq!(state("kill -9 $$").await, State::Exited, "not by us");
    assert_eq!(state("exit 137").await, State::Exited);
    let killed = here.run("kill -9 $$").await;
    assert_eq!(killed.exit.cause, ExitCause::Signaled);
    assert_eq!(
        (killed.exit.status, killed.exit.forced),
        (ExitStatus::Signal(9), false)
    );
    let code = here.run("exit 137").await;
    assert_eq!(
        (code.exit.status, code.exit.cause),
        (ExitStatus::Code(137), ExitCause::Exited)
    );
    // The fourth, the memory limit, comes with limits (docs/cases.md).
    here.end().await;
}

#[tokio::test]
async fn b127_a_program_on_a_stalled_file_delays_nobody() {
    // A write lease (fcntl(2), F_SETLEASE) holds up whoever opens the file:
    // here execve(2), as a file system that does not answer would.
    let here = Here::new().await;
    let path = here.path().join("slow");
    std::fs::write(&path, "#!/bin/sh\necho slow\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, mode).unwrap();
    let holder = "import fcntl,signal,sys\n\
        signal.signal(signal.SIGIO, signal.SIG_IGN)\n\
        f = open(sys.argv[1])\n\
        fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n\
        print('held', flush=True)\n\
        sys.stdin.read()";
    let mut holder = std::process::Command::new("python3")
        .args(["-c", holder, &path.display().to_string()])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut told = std::io::BufReader::new(holder.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut told, &mut line).unwrap();
    assert_eq!(line, "held\n");

    let slow = tokio::task::spawn(here.session.program(["./slow"]).run());
    let known = here.bash("echo known").spawn().await.unwrap();
    known.wait().await.unwrap();
    for _ in 0..200 {
        let page = known.read_output(0, 100, Duration::ZERO).await.unwrap();
        assert_eq!(&page.page.unwrap().data[..], b"known\n");
    }
    for _ in 0..20 {
        assert_eq!(here.run("echo quick").await.output, b"quick\n");
        here.session.list().await.unwrap();
    }
    assert!(!slow.is_finished(), "the small calls came first");
    drop(holder.stdin.take());
    holder.wait().unwrap();
    let slow = in_time("slow", slow).await.unwrap().unwrap();
    assert_eq!(slow.output, b"slow\n");
    here.end().await;
}

#[tokio::test]
async fn b127_a_slow_start_delays_nobody() {
    // Start-up files that take long, for the policy `login`: the capture goes
    // on while everything else is answered.
    let home = tempfile::tempdir().unwrap();
    let fifo = home.path().join("never");
    std::process::Command::new("mkfifo")
        .arg(&fifo)
        .status()
        .unwrap();
    std::fs::write(
        home.path().join(".bash_profile"),
        format!("cat {}\n", fifo.display()),
    )
    .unwrap();
    let text = home.path().display().to_string();
    let here = Here::with(|config| {
        config.environment = vec![
            ("HOME".into(), text.into()),
            ("SHELL".into(), "/bin/bash".into()),
        ];
    })
    .await;
    let slow = here
        .bash("echo slow")
        .environment(executor_client::v1::EnvironmentPolicy::Login);
    let slow = tokio::task::spawn(slow.run());
    // As many as go by until it is given up: one that waited for it would be
    // the only one.
    let mut quick = 0;
    while quick < 200 && !slow.is_finished() {
        let done = here.run("echo quick").await;
        assert_eq!(done.output, b"quick\n");
        here.session.list().await.unwrap();
        quick += 1;
    }
    assert!(quick >= 10, "{quick} small calls beside a slow start");
    let slow = in_time("slow", slow).await.unwrap().unwrap();
    assert_eq!(slow.output, b"slow\n", "the policy core stands in");
    here.end().await;
}
