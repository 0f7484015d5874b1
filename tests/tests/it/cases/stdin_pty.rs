//! Cases of input and terminals.

use std::time::Duration;

use executor_client::{ExitStatus, Process, Reason, v1};
use executor_tests::{Daemon, DaemonOptions, Here, eventually, in_time, scaled};

use super::{everything, run_in};

/// Waits until what was printed holds `text`; returns all of it.
async fn printed(process: &Process, text: &str) -> String {
    printed_when(process, text, |so_far| so_far.contains(text)).await
}

async fn printed_when(process: &Process, what: &str, done: impl Fn(&str) -> bool) -> String {
    let mut all = Vec::new();
    let begin = std::time::Instant::now();
    loop {
        let so_far = String::from_utf8_lossy(&all).into_owned();
        if done(&so_far) {
            return so_far;
        }
        assert!(
            begin.elapsed() < executor_tests::PATIENCE,
            "{what:?} is not in {so_far:?}"
        );
        let read = process.read_output(all.len() as u64, 65_536, Duration::from_secs(5));
        let reply = in_time(what, read).await.unwrap();
        let page = reply.page.unwrap();
        assert!(
            !page.data.is_empty() || !reply.output_ended,
            "{what:?} is not in {so_far:?}, and no more will come"
        );
        all.extend_from_slice(&page.data);
    }
}

#[tokio::test]
async fn b103_end_of_input_comes_after_all_input() {
    let here = Here::new().await;
    let sort = here.bash("sort").stdin_pipe().spawn().await.unwrap();
    let mut stdin = sort.stdin();
    stdin.write("b\na\n").await.unwrap();
    stdin.close().await.unwrap();
    stdin.close().await.unwrap();
    assert_eq!(everything(&sort).await, b"a\nb\n");

    let bytes: Vec<u8> = (0..5 << 20).map(|n: u32| (n % 251) as u8).collect();
    let cat = here
        .bash("cat")
        .stdin_pipe()
        .lossless()
        .spawn()
        .await
        .unwrap();
    let mut stdin = cat.stdin();
    let write = async {
        for chunk in bytes.chunks(100_000) {
            stdin.write(chunk.to_vec()).await.unwrap();
        }
        stdin.close().await.unwrap();
    };
    let read = async {
        let mut all = Vec::new();
        let mut stream = cat.stream_output(executor_client::OutputOptions {
            cursor: 0,
            reader_id: Some("r".into()),
        });
        while let Some(event) = in_time("cat", stream.next()).await.unwrap() {
            if let executor_client::OutputEvent::Page(page) = event {
                assert_eq!(page.gap, None);
                all.extend_from_slice(&page.data);
            }
        }
        all
    };
    let ((), all) = tokio::join!(write, read);
    assert!(all == bytes);
    let late = cat.stdin_as("late", 0).write("x").await.unwrap_err();
    assert_eq!(late.reason(), Some(Reason::StdinClosed));

    let open = here.bash("sleep 900").stdin_pipe().spawn().await.unwrap();
    open.stdin_as("a", 0).close().await.unwrap();
    let after = open.stdin_as("b", 0).write("x").await.unwrap_err();
    assert_eq!(after.code(), executor_client::Code::FailedPrecondition);
    assert_eq!(after.reason(), Some(Reason::StdinClosed));

    let terminal = here
        .bash("cat; echo end")
        .terminal(24, 80)
        .spawn()
        .await
        .unwrap();
    terminal.stdin().write("mid\x04\x04").await.unwrap();
    assert!(printed(&terminal, "end").await.contains("mid"));
    let terminal = here
        .bash("cat; echo end")
        .terminal(24, 80)
        .spawn()
        .await
        .unwrap();
    let refused = terminal.stdin_as("closer", 0).close().await.unwrap_err();
    assert!(refused.to_string().contains("0x04"), "{refused}");
    terminal.stdin().write("line\n\x04").await.unwrap();
    printed(&terminal, "end").await;
    here.end().await;
}

#[tokio::test]
async fn b104_after_the_exit_everything_says_so() {
    let here = Here::new().await;
    let done = here.bash("true").stdin_pipe().spawn().await.unwrap();
    done.wait().await.unwrap();
    let error = done.stdin().write("x").await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::StdinClosed));
    assert!(
        error.to_string().contains("already exited, code 0"),
        "{error}"
    );
    let signalled = done.signal(2, v1::SignalTarget::Leader).await.unwrap();
    assert!(!signalled);
    assert_eq!(done.info().await.unwrap().exit.unwrap().code, Some(0));

    let sleep = here
        .session
        .program(["sleep", "60"])
        .stdin_pipe()
        .spawn()
        .await
        .unwrap();
    sleep.stdin().write("\x03").await.unwrap();
    in_time("reading it", async {
        while sleep.info().await.unwrap().stdin_writers.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(
        sleep.info().await.unwrap().exit.is_none(),
        "in a pipe \\x03 is data"
    );
    sleep.signal(2, v1::SignalTarget::Leader).await.unwrap();
    let exit = in_time("exit", sleep.wait()).await.unwrap();
    assert_eq!((exit.status, exit.shell_code), (ExitStatus::Signal(2), 130));
    let again = here.session.program(["sleep", "60"]).spawn().await.unwrap();
    again.interrupt().await.unwrap();
    let exit = in_time("exit", again.wait()).await.unwrap();
    assert_eq!(exit.status, ExitStatus::Signal(2), "with pipes, too");
    let late = done.interrupt().await.unwrap();
    assert!(late.already_ended && late.process.unwrap().exit.unwrap().code == Some(0));
    let late = done.resize(24, 80).await.unwrap_err();
    assert_eq!(late.reason(), Some(Reason::NotATerminal));
    let null = here.bash("cat").spawn().await.unwrap();
    let refused = null.stdin().write("x").await.unwrap_err();
    assert!(refused.to_string().contains("stdin: null"), "{refused}");
    here.end().await;
}

#[tokio::test]
async fn b107_bytes_reach_a_raw_terminal_unchanged() {
    let here = Here::new().await;
    let typed = "a\na\ra\r\n\x1b[A\x00\x7f\x03\x04\x1a";
    let reader = format!(
        "python3 -c '\nimport os,tty\ntty.setraw(0)\nos.write(1,b\"ready \")\nb=b\"\"\n\
         while len(b)<{}: b+=os.read(0,100)\nos.write(1,b.hex().encode()+b\".\")'",
        typed.len()
    );
    let raw = here.bash(reader).terminal(24, 80).spawn().await.unwrap();
    printed(&raw, "ready").await;
    raw.stdin().write(typed).await.unwrap();
    let text = printed(&raw, ".").await;
    in_time("exit", raw.wait()).await.unwrap();
    let expected: String = typed.bytes().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(text, format!("ready {expected}."));

    let cooked = here
        .bash("read x; echo \"got $x\"")
        .terminal(24, 80)
        .spawn()
        .await
        .unwrap();
    cooked.stdin().write("line\r").await.unwrap();
    printed(&cooked, "got line").await;
    here.end().await;
}

#[tokio::test]
async fn b106_a_pipe_takes_lines_of_any_length() {
    // The guard for cooked terminals comes later (docs/cases.md).
    let here = Here::new().await;
    for length in [4_000, 4_095, 4_096, 5_000] {
        let cat = here.bash("cat").stdin_pipe().spawn().await.unwrap();
        let mut stdin = cat.stdin();
        let line = format!("{}\n", "x".repeat(length));
        stdin.write(line.clone()).await.unwrap();
        stdin.close().await.unwrap();
        assert_eq!(everything(&cat).await, line.as_bytes());
    }
    here.end().await;
}

/// Waits until the foreground group of a process's terminal is led by a
/// program of this name: before, a key may reach the shell instead.
async fn in_foreground(pid: u32, name: &str) {
    eventually(name, || async {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let leader = stat.rsplit(") ").next().unwrap().split(' ').nth(5).unwrap();
        let comm = std::fs::read_to_string(format!("/proc/{leader}/comm"));
        comm.is_ok_and(|comm| comm.trim_end() == name).then_some(())
    })
    .await;
}

#[tokio::test]
async fn b109_ctrl_c_reaches_the_foreground_program() {
    let ignoring = "import os,signal,sys\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n\
        os.execv(sys.argv[1], sys.argv[1:])";
    for under in [
        Vec::new(),
        vec!["python3".to_owned(), "-c".into(), ignoring.into()],
    ] {
        let daemon = Daemon::start_with(DaemonOptions {
            under,
            ..DaemonOptions::default()
        })
        .await;
        let session = daemon.session().await;
        let sleep = session
            .program(["sleep", "60"])
            .terminal(24, 80)
            .spawn()
            .await
            .unwrap();
        sleep.stdin().write("\x03").await.unwrap();
        let exit = in_time("sleep", sleep.wait()).await.unwrap();
        assert_eq!(exit.status, ExitStatus::Signal(2));

        let shell = session
            .program(["bash", "--norc", "-i"])
            .env("PS1", "ready\\#> ")
            .terminal(24, 80);
        let shell = shell.spawn().await.unwrap();
        printed(&shell, "ready1> ").await;
        let mut stdin = shell.stdin();
        stdin.write("echo go; sleep 60\n").await.unwrap();
        let pid = shell.info().await.unwrap().pid.unwrap();
        in_foreground(pid, "sleep").await;
        stdin.write("\x03").await.unwrap();
        // What is typed before the shell has the terminal again may be lost.
        printed(&shell, "ready2> ").await;
        stdin
            .write("echo al\"\"ive; tty; cut -d' ' -f5-8 /proc/$$/stat; echo shell=$$\"\"=\n")
            .await
            .unwrap();
        let text = printed(&shell, "alive").await;
        assert!(text.contains("^C"), "{text}");
        let text = printed(&shell, &format!("shell={pid}=")).await;
        assert!(text.contains("\n/dev/pts/"), "{text}");
        // Group, session, terminal, foreground group.
        let ids = text
            .lines()
            .find_map(|line| {
                let ids: Vec<i64> = line.split(' ').map_while(|id| id.parse().ok()).collect();
                (ids.len() == 4).then_some(ids)
            })
            .unwrap_or_else(|| panic!("{text}"));
        assert_eq!((ids[0], ids[1]), (pid.into(), pid.into()), "{text}");
        assert_ne!(ids[2], 0, "{text}");
        assert_ne!(ids[3], -1, "{text}");

        // Ctrl-Z stops the foreground job and leaves the shell.
        printed(&shell, "ready3> ").await;
        stdin.write("echo g\"\"o2; sleep 60\n").await.unwrap();
        in_foreground(pid, "sleep").await;
        stdin.write("\x1a").await.unwrap();
        printed(&shell, "Stopped").await;
        stdin
            .write("kill %1; wait %1; echo w\"\"ell\n")
            .await
            .unwrap();
        printed(&shell, "well").await;
        stdin.write("exit 3\n").await.unwrap();
        let exit = in_time("shell", shell.wait()).await.unwrap();
        assert_eq!(exit.status, ExitStatus::Code(3));

        let interrupted = session
            .program(["sleep", "60"])
            .terminal(24, 80)
            .spawn()
            .await
            .unwrap();
        interrupted.interrupt().await.unwrap();
        let exit = in_time("sleep", interrupted.wait()).await.unwrap();
        assert_eq!(exit.status, ExitStatus::Signal(2));
        let quit = session
            .program(["sleep", "60"])
            .terminal(24, 80)
            .spawn()
            .await
            .unwrap();
        quit.stdin().write("\x1c").await.unwrap();
        let exit = in_time("sleep", quit.wait()).await.unwrap();
        assert_eq!(exit.status, ExitStatus::Signal(3));
    }
}

#[tokio::test]
async fn b112_a_daemon_started_from_a_terminal_does_not_lend_it() {
    let of_a_terminal = "import pty,sys; pty.spawn(sys.argv[1:])";
    for means in ["cgroup", "reaper"] {
        let daemon = Daemon::start_with(DaemonOptions {
            under: vec!["python3".into(), "-c".into(), of_a_terminal.into()],
            configuration: format!("stop_means = {means:?}\n"),
            ..DaemonOptions::default()
        })
        .await;
        let session = daemon.session().await;
        let (_, output) = run_in(&session, false, "exec 3</dev/tty; echo not reached").await;
        let text = String::from_utf8_lossy(&output).into_owned();
        assert!(
            text.contains("No such device or address"),
            "{means}: {text}"
        );
        let (_, output) = run_in(&session, true, "echo P >/dev/tty").await;
        assert_eq!(output, b"P\r\n", "{means}");
    }
}

#[tokio::test]
async fn b112_password_prompts_stay_in_the_session() {
    let here = Here::new().await;
    let (_, output) = run_in(&here.session, false, "exec 3</dev/tty; echo after 2>&1").await;
    let text = String::from_utf8_lossy(&output).into_owned();
    assert!(text.contains("No such device or address"), "{text}");
    let prompt = "echo P >/dev/tty; read -s x </dev/tty; echo \"got $x\"";
    let process = here.bash(prompt).terminal(24, 80).spawn().await.unwrap();
    printed(&process, "P").await;
    // Typed before the echo is off it would be shown by the terminal itself.
    let pid = process.info().await.unwrap().pid.unwrap();
    eventually("echo off", || async {
        let state = here.run(&format!("stty -a < /proc/{pid}/fd/1")).await;
        String::from_utf8_lossy(&state.output)
            .contains("-echo ")
            .then_some(())
    })
    .await;
    process.stdin().write("secret\n").await.unwrap();
    let text = printed(&process, "got secret").await;
    assert_eq!(text.matches("secret").count(), 1, "{text}");
    here.end().await;
}

#[tokio::test]
async fn b110_queries_of_the_terminal_are_not_answered_and_the_program_goes_on() {
    // No emulator yet: a program that asks gets no answer; it must neither
    // hang for ever nor find a late answer at its prompt (docs/cases.md).
    let here = Here::new().await;
    let ask = "python3 -c '\nimport os,select,tty\ntty.setraw(0)\n\
        for q in (b\"\\033[6n\", b\"\\033[c\", b\"\\033[5n\"):\n os.write(1,q)\n\
        r=select.select([0],[],[],0.3)[0]\nos.write(1, b\"answers: %d\" % len(r))'";
    let process = here.bash(ask).terminal(24, 80).spawn().await.unwrap();
    printed(&process, "answers: 0").await;
    let exit = in_time("exit", process.wait()).await.unwrap();
    assert!(exit.success());
    here.end().await;
}

#[tokio::test]
async fn b113_terminals_leave_no_descriptor_and_end_at_once() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let terminals = || std::fs::read_dir("/dev/pts").unwrap().count();
    let run = async |count: usize| {
        for _ in 0..count {
            let done = in_time("true", session.program(["true"]).terminal(24, 80).run())
                .await
                .unwrap();
            assert!(done.exit.success());
        }
    };
    run(70).await;
    let before = (daemon.descriptors().await, terminals());
    run(scaled(2_000, 100)).await;
    eventually("descriptors and terminals to come back", || async {
        let now = (daemon.descriptors().await, terminals());
        (now.0 <= before.0 + 4 && now.1 <= before.1 + 2).then_some(())
    })
    .await;
    let process = session
        .program(["true"])
        .terminal(24, 80)
        .spawn()
        .await
        .unwrap();
    assert_eq!(
        everything(&process).await,
        b"",
        "the stream ends after the exit"
    );
}

#[tokio::test]
async fn a_terminal_has_the_size_it_was_given() {
    let here = Here::new().await;
    let text = "trap 'stty size; exit' WINCH; stty size; while :; do sleep 0.1; done";
    let process = here.bash(text).terminal(30, 100).spawn().await.unwrap();
    printed(&process, "30 100").await;
    process.resize(40, 120).await.unwrap();
    printed(&process, "40 120").await;
    let pipes = here.bash("sleep 900").spawn().await.unwrap();
    let error = pipes.resize(40, 120).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::NotATerminal));
    let error = here
        .bash("true")
        .terminal(0, 1001)
        .spawn()
        .await
        .unwrap_err();
    assert_eq!(error.reason(), Some(Reason::InvalidArgument));
    here.end().await;
}
