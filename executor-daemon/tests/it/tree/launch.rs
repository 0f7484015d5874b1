//! What a program begins with, and what is told of one that cannot begin.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use executor_daemon::process::backend::pty;
use executor_daemon::process::exit::{SpawnFailure, SpawnStage, WaitStatus};
use executor_daemon::process::spec::TerminalSize;
use executor_daemon::process::tree::{ChildStdio, LaunchPlan};

use super::{eventually, plan, strings, with_each};

#[test]
fn codes_and_signals_arrive_as_they_are() {
    with_each(async |fixture| {
        assert_eq!(fixture.run("exit 0").await.1, WaitStatus::Code(0));
        assert_eq!(fixture.run("exit 7").await.1, WaitStatus::Code(7));
        assert_eq!(fixture.run("exit 300").await.1, WaitStatus::Code(44));
        assert_eq!(fixture.run("kill -9 $$").await.1, WaitStatus::Signal(9));
        assert_eq!(fixture.run("kill -34 $$").await.1, WaitStatus::Signal(34));
        let (output, status) = fixture.run("echo out; echo err >&2").await;
        assert_eq!((&*output, status), ("out\nerr\n", WaitStatus::Code(0)));
    });
}

#[test]
fn the_exit_is_the_same_however_often_it_is_asked_for() {
    with_each(async |fixture| {
        let mut run = fixture.sh("exit 3").await;
        let first = run.launched.leader.wait().await;
        assert_eq!(first.status, WaitStatus::Code(3));
        assert_eq!(run.launched.leader.wait().await, first);
        // Dropped waits lose nothing.
        let mut run = fixture.sh("read x </dev/zero; exit 4").await;
        for _ in 0..3 {
            let wait = run.launched.leader.wait();
            let patience = std::time::Duration::from_millis(1);
            assert!(tokio::time::timeout(patience, wait).await.is_err());
        }
        assert!(run.launched.tree.signal(
            executor_daemon::process::control::SignalTarget::Leader,
            libc::SIGKILL
        ));
        assert_eq!(
            run.launched.leader.wait().await.status,
            WaitStatus::Signal(9)
        );
    });
}

#[test]
fn a_program_begins_with_empty_mask_default_dispositions_and_three_descriptors() {
    with_each(async |fixture| {
        let (output, _) = fixture
            .run("ls -m /proc/self/fd; exec cat /proc/self/status")
            .await;
        // The fourth descriptor is the directory that ls reads.
        assert_eq!(output.lines().next(), Some("0, 1, 2, 3"));
        for mask in ["SigBlk:\t", "SigIgn:\t", "SigCgt:\t"] {
            let line = output.lines().find_map(|line| line.strip_prefix(mask));
            assert_eq!(line, Some("0000000000000000"), "{mask}");
        }
    });
}

#[test]
fn a_program_leads_its_own_session_and_group_and_its_pid_is_told() {
    with_each(async |fixture| {
        let mut run = fixture.sh("cut -d' ' -f1,5,6,7 /proc/$$/stat").await;
        run.launched.leader.wait().await;
        let pid = run.launched.pid;
        assert_eq!(run.all_output().await, format!("{pid} {pid} {pid} 0\n"));
    });
}

#[test]
fn a_terminal_is_the_controlling_one_with_the_program_in_the_foreground() {
    with_each(async |fixture| {
        let size = TerminalSize::new(33, 101).unwrap();
        let terminal = pty::open(size).unwrap();
        let script = "tty; stty size; cut -d' ' -f1,5,6,8 /proc/$$/stat; \
                      ls -m /proc/self/fd; echo from-tty >/dev/tty; exec sleep 100";
        let mut launched = fixture
            .launch(LaunchPlan {
                programs: strings(&["/bin/sh"]),
                argv: strings(&["sh", "-c", script]),
                envp: strings(&["PATH=/usr/bin:/bin"]),
                cwd: Arc::new(std::fs::File::open("/").unwrap().into()),
                stdio: ChildStdio::Terminal {
                    path: terminal.path.clone(),
                },
                attempt: Arc::default(),
            })
            .await
            .unwrap();
        let pid = launched.pid;
        let path = terminal.path.to_str().unwrap();
        let expected =
            format!("{path}\r\n33 101\r\n{pid} {pid} {pid} {pid}\r\n0, 1, 2, 3\r\nfrom-tty\r\n");
        let mut shown = String::new();
        while shown.len() < expected.len() {
            let mut buffer = [0; 4096];
            match rustix::io::read(&terminal.master, &mut buffer) {
                Ok(length) => shown.push_str(&String::from_utf8_lossy(&buffer[..length])),
                Err(rustix::io::Errno::AGAIN) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}: {shown}"),
            }
        }
        assert_eq!(shown, expected);
        // Not the shell, which has a handler of its own.
        eventually("sleep is executed", || {
            launched.tree.members().iter().all(|m| m.name == "sleep")
        });
        pty::interrupt(std::os::fd::AsFd::as_fd(&terminal.master)).unwrap();
        assert_eq!(launched.leader.wait().await.status, WaitStatus::Signal(2));
    });
}

#[test]
fn a_start_that_fails_tells_where_and_why() {
    with_each(async |fixture| {
        let path = |name: &str| fixture.path(name).to_str().unwrap().to_owned();
        let (missing, plain, garbage) = (path("missing"), path("plain"), path("garbage"));
        std::fs::write(&plain, "x").unwrap();
        std::fs::write(&garbage, "\u{1}\u{2}").unwrap();
        std::fs::set_permissions(&garbage, PermissionsExt::from_mode(0o755)).unwrap();
        let long = "x".repeat(200_000);
        let directory = fixture.directory.path().to_owned();
        let file = fixture.path("plain");
        let exec = SpawnStage::Exec;
        for (programs, argument, cwd, stage, errno, kind) in [
            (
                vec![&*missing],
                "",
                &directory,
                exec,
                libc::ENOENT,
                "not_found",
            ),
            (
                vec![&*plain, &*missing],
                "",
                &directory,
                exec,
                libc::EACCES,
                "permission_denied",
            ),
            (
                vec![&*garbage],
                "",
                &directory,
                exec,
                libc::ENOEXEC,
                "not_executable",
            ),
            (
                vec!["/bin/true"],
                &*long,
                &directory,
                exec,
                libc::E2BIG,
                "argument_list_too_long",
            ),
            (
                vec!["/bin/true"],
                "",
                &file,
                SpawnStage::WorkingDirectory,
                libc::ENOTDIR,
                "not_found",
            ),
        ] {
            let (plan, _output) = plan(&programs, &["x", argument], cwd);
            let failure = fixture.launch(plan).await.unwrap_err();
            assert_eq!(failure, SpawnFailure { stage, errno }, "{programs:?}");
            assert_eq!(failure.kind(), kind);
        }
    });
}

#[test]
fn a_directory_that_was_removed_after_it_was_opened_is_told_as_such() {
    with_each(async |fixture| {
        let gone = fixture.path("gone");
        std::fs::create_dir(&gone).unwrap();
        let (plan, mut output) = plan(&["/bin/sh"], &["sh", "-c", "echo here"], &gone);
        std::fs::remove_dir(&gone).unwrap();
        // Linux lets a process enter it; nothing else may happen than that or
        // a failure at this stage.
        match fixture.launch(plan).await {
            Ok(mut launched) => {
                launched.leader.wait().await;
                let mut text = String::new();
                std::io::Read::read_to_string(&mut output, &mut text).unwrap();
                assert!(text.ends_with("here\n"), "{text}");
            }
            Err(failure) => assert_eq!(failure.stage, SpawnStage::WorkingDirectory),
        }
    });
}

#[test]
fn a_large_plan_arrives_whole() {
    with_each(async |fixture| {
        let (mut plan, _output) = plan(
            &["/nowhere/sh", "/bin/sh"],
            &[
                "sh",
                "-c",
                "test ${#BIG} = 100000 && test ${#1} = 120000",
                "sh",
            ],
            fixture.directory.path(),
        );
        plan.argv.extend(strings(&[&"y".repeat(120_000)]));
        plan.envp
            .extend(strings(&[&format!("BIG={}", "z".repeat(100_000))]));
        let mut launched = fixture.launch(plan).await.unwrap();
        assert_eq!(launched.leader.wait().await.status, WaitStatus::Code(0));
    });
}

#[test]
fn usage_is_told_while_it_runs_and_at_its_end() {
    with_each(async |fixture| {
        let mut run = fixture
            .sh("i=0; while test $i -lt 300000; do i=$((i+1)); done; echo done; read x </dev/zero")
            .await;
        assert_eq!(run.some_output().await, "done\n");
        let so_far = run.launched.tree.usage();
        assert!(
            !so_far.user_cpu.is_zero() && so_far.max_rss > 0,
            "{so_far:?}"
        );
        run.launched
            .tree
            .end(executor_daemon::process::tree::EndMode::Kill)
            .await;
        let exit = run.launched.leader.wait().await;
        assert!(!exit.usage.user_cpu.is_zero(), "{exit:?}");
        assert!(exit.usage.max_rss > 100_000, "{exit:?}");
        assert_eq!(run.launched.tree.usage(), exit.usage);
    });
}
