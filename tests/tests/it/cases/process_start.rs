//! Cases of starting a command.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use executor_client::{ExitCause, Reason, Session, State};
use executor_daemon::config::StopMeansSetting;
use executor_tests::{Daemon, DaemonOptions, Here, in_time, nobody, scaled};
use tokio::task::JoinSet;

use super::{everything, run_in};

#[tokio::test]
async fn b080_a_bad_working_directory_is_told_apart_and_harms_nothing() {
    let here = Here::new().await;
    fs::write(here.path().join("file.txt"), "x").unwrap();
    let start = async |cwd: &str| {
        let outcome = here
            .bash("true")
            .cwd(cwd)
            .wait(Duration::from_secs(30))
            .start()
            .await;
        outcome
            .map(|started| started.info.state())
            .map_err(|error| error.reason())
    };
    assert_eq!(start("nope").await, Err(Some(Reason::CwdNotFound)));
    let told = here.bash("true").cwd("nope").spawn().await.unwrap_err();
    assert_eq!(told.code(), executor_client::Code::NotFound);
    assert!(told.to_string().contains("working directory"), "{told}");
    assert_eq!(start("file.txt").await, Err(Some(Reason::CwdNotADirectory)));
    assert_eq!(
        start("file.txt/x").await,
        Err(Some(Reason::CwdNotADirectory))
    );
    fs::create_dir(here.path().join("gone")).unwrap();
    assert_eq!(
        start("gone").await,
        Ok(executor_client::v1::ProcessState::Exited)
    );
    fs::remove_dir(here.path().join("gone")).unwrap();
    assert_eq!(start("gone").await, Err(Some(Reason::CwdNotFound)));
    assert_eq!(
        start(".").await,
        Ok(executor_client::v1::ProcessState::Exited)
    );
    here.end().await;

    // Root may enter everything; somebody else may not.
    let user = nobody();
    fs::create_dir(user.home().join("locked")).unwrap();
    fs::set_permissions(
        user.home().join("locked"),
        fs::Permissions::from_mode(0o000),
    )
    .unwrap();
    let refused = user
        .executor(&["--json", "run", "--cwd", "locked", "true"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("CWD_PERMISSION_DENIED"), "{text}");
    let fine = user
        .executor(&["run", "--cwd", ".", "true"])
        .output()
        .unwrap();
    assert!(fine.status.success(), "{fine:?}");
}

/// 16 loops write a script and execute it at once, while other commands start
/// all the time. Returns how many did not run.
async fn written_and_run(session: &Session, directory: &Path) -> usize {
    let rounds = scaled(500, 10);
    let mut loops = JoinSet::new();
    for number in 0..16 {
        let (session, directory) = (session.clone(), directory.to_owned());
        loops.spawn(async move {
            let mut failed = 0;
            for round in 0..rounds {
                let path = directory.join(format!("t{number}-{round}"));
                let script = path.clone();
                let written = tokio::task::spawn_blocking(move || {
                    fs::write(&script, "#!/bin/sh\nexit 0\n").unwrap();
                    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
                });
                written.await.unwrap();
                let program = session.program([path.display().to_string()]);
                let done = in_time("script", program.run()).await.unwrap();
                failed += usize::from(!done.exit.success());
                in_time("other", session.program(["true"]).run())
                    .await
                    .unwrap();
            }
            failed
        });
    }
    let mut failed = 0;
    while let Some(one) = loops.join_next().await {
        failed += one.unwrap();
    }
    failed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b082_a_program_written_a_moment_ago_runs() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    assert_eq!(written_and_run(&session, &daemon.work()).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b082_also_where_the_writer_and_the_engine_are_one_process() {
    for means in [StopMeansSetting::Cgroup, StopMeansSetting::Reaper] {
        let here = Here::with(|config| config.stop_means = means).await;
        let failed = written_and_run(&here.session, here.path()).await;
        assert_eq!(failed, 0, "{means:?}");
        here.end().await;
    }
}

#[tokio::test]
async fn b086_signals_are_as_a_program_expects_them_whatever_the_daemon_has() {
    let blocker = "import os,signal,sys\n\
        signal.signal(signal.SIGINT, signal.SIG_IGN)\n\
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGTERM - 1, signal.SIGCHLD])\n\
        os.execv(sys.argv[1], sys.argv[1:])";
    let unders: [Vec<String>; 3] = [
        Vec::new(),
        vec!["nohup".into()],
        vec!["python3".into(), "-c".into(), blocker.into()],
    ];
    for under in unders {
        let daemon = Daemon::start_with(DaemonOptions {
            under,
            ..DaemonOptions::default()
        })
        .await;
        let session = daemon.session().await;
        for terminal in [false, true] {
            let (_, output) =
                run_in(&session, terminal, "yes | head -1; echo ${PIPESTATUS[0]}").await;
            assert!(
                String::from_utf8_lossy(&output).contains("141"),
                "terminal: {terminal}"
            );
            let (_, output) = run_in(
                &session,
                terminal,
                "grep -E 'Sig(Blk|Ign)' /proc/self/status",
            )
            .await;
            let text = String::from_utf8(output).unwrap();
            assert_eq!(text.matches("0000000000000000").count(), 2, "{text}");
        }
    }
}

#[tokio::test]
async fn b088_a_childs_descriptors_block() {
    let here = Here::new().await;
    let flags = "python3 -c 'import fcntl,os;\
        print([bool(fcntl.fcntl(i,3)&os.O_NONBLOCK) for i in (0,1,2)])'";
    for terminal in [false, true] {
        let (_, output) = run_in(&here.session, terminal, flags).await;
        assert_eq!(
            String::from_utf8_lossy(&output).trim(),
            "[False, False, False]"
        );
    }
    let with_stdin = here.bash(flags).stdin_pipe().spawn().await.unwrap();
    assert_eq!(everything(&with_stdin).await, b"[False, False, False]\n");

    // A reader that stays away for a while holds a lossless process back and
    // then gets all of it.
    let text = "python3 -c 'import sys\nfor i in range(20): sys.stdout.write(\"x\"*1000000)'";
    let process = here.bash(text).lossless().spawn().await.unwrap();
    let mut stream = process.stream_output(executor_client::OutputOptions {
        cursor: 0,
        reader_id: Some("reader".into()),
    });
    let mut total = 0;
    let mut paused = false;
    while let Some(event) = in_time("output", stream.next()).await.unwrap() {
        if let executor_client::OutputEvent::Page(page) = event {
            assert_eq!(page.gap, None);
            total += page.data.len();
        }
        if !paused {
            paused = true;
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    }
    assert_eq!(total, 20_000_000);
    here.end().await;
}

#[tokio::test]
async fn a_program_that_cannot_run_is_failed_and_says_why() {
    let here = Here::new().await;
    fs::write(here.path().join("plain"), "not a program").unwrap();
    fs::write(here.path().join("script"), "#!/no/such/interpreter\n").unwrap();
    fs::write(here.path().join("garbage"), b"\x7fELFgarbage").unwrap();
    for name in ["script", "garbage"] {
        fs::set_permissions(here.path().join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    for (program, kind, code) in [
        ("/no/such/program", "not_found", 127),
        ("no-such-program-4711", "not_found", 127),
        ("./script", "not_found", 127),
        ("./plain", "permission_denied", 126),
        ("./garbage", "not_executable", 126),
    ] {
        let started = here
            .session
            .program([program])
            .wait(Duration::from_secs(10))
            .start()
            .await
            .unwrap();
        assert_eq!(
            started.info.state(),
            executor_client::v1::ProcessState::Failed,
            "{program}"
        );
        let exit = in_time(program, started.process.wait()).await.unwrap();
        let ExitCause::SpawnFailed(failure) = &exit.cause else {
            panic!("{exit:?}")
        };
        assert_eq!(
            (failure.kind.as_str(), exit.shell_code),
            (kind, code),
            "{program}: {failure:?}"
        );
        assert!(failure.message.contains("exec failed"), "{failure:?}");
    }
    let long = vec![b'x'; 131_072];
    let started = here
        .session
        .program([b"true".to_vec(), long])
        .wait(Duration::from_secs(10))
        .start()
        .await;
    let exit = started.unwrap().process.wait().await.unwrap();
    let ExitCause::SpawnFailed(failure) = &exit.cause else {
        panic!("{exit:?}")
    };
    assert_eq!(failure.kind, "argument_list_too_long");
    here.end().await;
}

#[tokio::test]
async fn invariant_4_a_start_is_run_once_however_often_it_is_sent() {
    let here = Here::new().await;
    let id = executor_client::ProcessId::random();
    let request = |text: &str| executor_client::v1::StartProcessRequest {
        process_id: id.to_string(),
        created_at: Some(std::time::SystemTime::UNIX_EPOCH.into()),
        command: Some(executor_client::v1::start_process_request::Command::Shell(
            executor_client::v1::ShellCommand {
                shell: 0,
                text: text.into(),
            },
        )),
        ..Default::default()
    };
    let expired = here
        .session
        .start(request("echo x >> log"))
        .await
        .unwrap_err();
    assert_eq!(expired.reason(), Some(Reason::StartExpired));

    let now = Some(std::time::SystemTime::now().into());
    let request = |text: &str| executor_client::v1::StartProcessRequest {
        created_at: now,
        wait: Some(prost_duration(10)),
        ..request(text)
    };
    let first = here.session.start(request("echo x >> log")).await.unwrap();
    assert!(first.created);
    let mut repeats = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (session, request) = (here.session.clone(), request("echo x >> log"));
        repeats.spawn(async move { session.start(request).await.unwrap() });
    }
    while let Some(repeat) = repeats.join_next().await {
        let repeat = repeat.unwrap();
        assert!(!repeat.created);
        assert_eq!(repeat.info.pid, first.info.pid);
    }
    assert_eq!(fs::read_to_string(here.path().join("log")).unwrap(), "x\n");
    let conflict = here
        .session
        .start(request("echo y >> log"))
        .await
        .unwrap_err();
    assert_eq!(conflict.reason(), Some(Reason::ProcessIdConflict));
    first.process.remove().await.unwrap();
    let forgotten = here
        .session
        .start(request("echo x >> log"))
        .await
        .unwrap_err();
    assert_eq!(forgotten.reason(), Some(Reason::ProcessForgotten));
    assert_eq!(fs::read_to_string(here.path().join("log")).unwrap(), "x\n");
    here.end().await;
}

fn prost_duration(seconds: i64) -> prost_types::Duration {
    prost_types::Duration { seconds, nanos: 0 }
}

#[tokio::test]
async fn the_state_of_a_process_is_told_by_its_info() {
    let here = Here::new().await;
    let process = here.bash("read x").stdin_pipe().spawn().await.unwrap();
    let info = process.info().await.unwrap();
    assert_eq!(info.state(), executor_client::v1::ProcessState::Running);
    assert!(info.stdin_open && info.pid.is_some() && info.exit.is_none());
    process.kill().await.unwrap();
    let info = process.info().await.unwrap();
    assert_eq!(State::from(info.state()), State::Killed);
    here.end().await;
}
