//! Cases of texts for a shell: process-start, as far as shells go.

use std::fs;
use std::process::Command as Plain;

use executor_client::{ExitStatus, Reason};
use executor_daemon::config::StopMeansSetting;
use executor_tests::{Daemon, DaemonOptions, Here, in_time};

use super::everything;

/// Texts that wrappers damage.
const TEXTS: &[&str] = &[
    "printf '%s' 'a!b'",
    "printf '%s' 'a\\\\b'",
    "printf '%s' \"a\\\\b\"",
    "cat <<'END'\nit's $x \\ ` body\nEND",
    "true | true; { echo hi; }",
    "bash <<'MY-MARK'\necho nested $((1+1))\nMY-MARK",
    "test $$ -gt 1 && echo pid | cat",
    "echo $0 $# $-",
    "echo a \\",
    "echo background &",
    "echo a!b \"a!b\" !! !$ ^x^y",
    "cat <<END\nunquoted $((6*7)) `echo tick` \\$x\nEND\n",
    "echo b #c",
    "sleep 0 & wait; echo d &",
    "echo one\r\necho two\r\n",
    "echo no newline at the end",
    "echo '{a,b}' {a,b} ~nobody-such \"$(echo '$x')\"",
    "echo \u{8a9e} 'é'; printf '\\377\\n'",
    "",
    "exit 7",
    "nonexistent-command-4711",
    "if then",
];

#[tokio::test]
async fn b083_a_text_reaches_the_shell_byte_for_byte() {
    let here = Here::new().await;
    for text in TEXTS {
        // Both outputs into one pipe, as ours is.
        let plain = Plain::new("sh")
            .args(["-c", "exec \"$@\" 2>&1", "sh", "bash", "-c", text])
            .current_dir(here.path())
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        let process = here.bash(*text).spawn().await.unwrap();
        let output = everything(&process).await;
        let status = in_time(text, process.wait()).await.unwrap().status;
        assert_eq!(
            String::from_utf8_lossy(&output),
            String::from_utf8_lossy(&plain.stdout),
            "{text:?}"
        );
        assert_eq!(
            status,
            ExitStatus::Code(plain.status.code().unwrap()),
            "{text:?}"
        );
        // The same bytes as a script's: nothing is added or taken away.
        let script = here.path().join("script");
        fs::write(&script, text).unwrap();
        let started = here.session.program(["bash", "script"]).run().await;
        assert_eq!(started.unwrap().exit.status, status, "{text:?}");
    }
    here.end().await;
}

#[tokio::test]
async fn b083_a_text_above_the_kernels_limit_runs_and_its_input_is_usable() {
    let here = Here::new().await;
    for shell in [
        executor_client::v1::Shell::Sh,
        executor_client::v1::Shell::Bash,
    ] {
        for filler in [131_000, 131_071, 131_072, 1 << 20] {
            let mut text = String::from("read line; echo \"got $line $0\"\n: '");
            text.push_str(&"x".repeat(filler - text.len() - 2));
            text.push_str("'\n");
            assert_eq!(text.len(), filler);
            let command = here.session.command(text).with_shell(shell).stdin_pipe();
            let process = in_time("start", command.spawn()).await.unwrap();
            let mut stdin = process.stdin();
            stdin.write("hello\n").await.unwrap();
            stdin.close().await.unwrap();
            let name = if shell == executor_client::v1::Shell::Sh {
                "sh"
            } else {
                "bash"
            };
            assert_eq!(
                String::from_utf8(everything(&process).await).unwrap(),
                format!("got hello {name}\n"),
                "{filler} bytes"
            );
        }
    }
    let too_long = here
        .session
        .command(vec![b' '; (4 << 20) + 1])
        .run()
        .await
        .unwrap_err();
    assert_eq!(
        too_long.reason(),
        Some(Reason::InvalidArgument),
        "{too_long}"
    );
    here.end().await;
}

#[tokio::test]
async fn b085_no_command_can_spoil_the_next_one() {
    let here = Here::new().await;
    for (text, status) in [
        ("set -euo pipefail; false", ExitStatus::Code(1)),
        ("exit 3", ExitStatus::Code(3)),
        ("exec true", ExitStatus::Code(0)),
        ("PS1=x; PROMPT_COMMAND=exit", ExitStatus::Code(0)),
        ("kill -9 $$", ExitStatus::Signal(9)),
        // The parent is a shell of the command's own.
        ("bash -c 'kill -9 $PPID; :'; :", ExitStatus::Signal(9)),
    ] {
        assert_eq!(here.run(text).await.exit.status, status, "{text}");
        assert_eq!(here.run("echo ok").await.output, b"ok\n", "after {text}");
    }
    here.end().await;

    // Under a reaper $PPID is the reaper: the command ends with it, which is
    // told, and nothing else is hurt.
    let here = Here::with(|config| config.stop_means = StopMeansSetting::Reaper).await;
    let other = here
        .bash("read x; echo $x")
        .stdin_pipe()
        .spawn()
        .await
        .unwrap();
    let mark = executor_client::random_name();
    let killed = here
        .bash("kill -9 $PPID; sleep 90085")
        .env("MARK", &mark)
        .spawn()
        .await
        .unwrap();
    let exit = in_time("the end of a command without its reaper", killed.wait())
        .await
        .unwrap();
    assert!(!exit.success(), "{exit:?}");
    executor_tests::eventually("its tree to be gone", || async {
        executor_tests::alive_with(&mark).is_empty().then_some(())
    })
    .await;
    assert_eq!(here.run("echo ok").await.output, b"ok\n");
    other.stdin().write("still here\n").await.unwrap();
    assert_eq!(everything(&other).await, b"still here\n");
    here.end().await;
}

#[tokio::test]
async fn b089_start_up_files_are_not_read() {
    let home = tempfile::tempdir().unwrap();
    let trap = "echo BANNER; read x; printf '\\033]0;t\\007'; exit 9\n";
    for name in [".bash_profile", ".bashrc", ".profile", ".zshenv", "env"] {
        fs::write(home.path().join(name), trap).unwrap();
    }
    let path = |name: &str| home.path().join(name).display().to_string();
    let daemon = Daemon::start_with(DaemonOptions {
        environment: Some(vec![
            ("HOME".into(), home.path().display().to_string()),
            ("BASH_ENV".into(), path("env")),
            ("ENV".into(), path("env")),
        ]),
        ..DaemonOptions::default()
    })
    .await;
    let session = daemon.session().await;
    for policy in [
        executor_client::v1::EnvironmentPolicy::Core,
        executor_client::v1::EnvironmentPolicy::All,
        executor_client::v1::EnvironmentPolicy::None,
    ] {
        for shell in [
            executor_client::v1::Shell::Sh,
            executor_client::v1::Shell::Bash,
        ] {
            let command = || {
                session
                    .command("echo ok")
                    .with_shell(shell)
                    .environment(policy)
            };
            let done = in_time("echo", command().run()).await.unwrap();
            assert_eq!(
                (done.output.as_slice(), done.exit.status),
                (b"ok\n".as_slice(), ExitStatus::Code(0))
            );
            let cat = session
                .command("cat")
                .with_shell(shell)
                .environment(policy)
                .stdin_pipe();
            let cat = cat.spawn().await.unwrap();
            let mut stdin = cat.stdin();
            stdin.write("hi").await.unwrap();
            stdin.close().await.unwrap();
            assert_eq!(everything(&cat).await, b"hi");
        }
    }
}
