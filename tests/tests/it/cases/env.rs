//! Cases of the environment.

use std::time::Duration;

use executor_client::{Completed, ExitStatus};
use executor_tests::{Daemon, DaemonOptions, Here, in_time};

use super::run_in;

#[tokio::test]
async fn b130_nothing_waits_for_a_person() {
    let here = Here::new().await;
    let setup = "git init -q repo && cd repo && git config user.email a@example.org && \
        git config user.name a && for i in $(seq 200); do echo $i > f; git add f; \
        git commit -qm \"change $i\"; done";
    assert_eq!(here.run(setup).await.exit.status, ExitStatus::Code(0));
    for terminal in [false, true] {
        for (text, fails) in [
            ("cd repo && git log", false),
            ("cd repo && echo x > f && git commit -a", true),
            ("cd repo && git rebase -i HEAD~3", true),
            ("man ls || true", false),
            ("cd repo && git ls-remote https://127.0.0.1:1/x", true),
        ] {
            let command = here.bash(text).quiet().timeout(Duration::from_secs(30));
            let command = if terminal {
                command.terminal(24, 80)
            } else {
                command
            };
            let done: Completed = in_time(text, command.run()).await.unwrap();
            assert_eq!(
                done.exit.success(),
                !fails,
                "{text} (terminal: {terminal}): {done:?}"
            );
            let expected = executor_client::ExitCause::Exited;
            assert_eq!(done.exit.cause, expected, "{text}: it ended by itself");
        }
    }
    let own = here
        .bash("echo $PAGER $GIT_EDITOR")
        .quiet()
        .env("PAGER", "less")
        .run()
        .await
        .unwrap();
    assert_eq!(own.output, b"less false\n");
    here.end().await;
}

#[tokio::test]
async fn b131_text_is_utf8_when_the_daemon_has_no_environment() {
    let daemon = Daemon::start_with(DaemonOptions {
        environment: Some(Vec::new()),
        ..DaemonOptions::default()
    })
    .await;
    let session = daemon.session().await;
    std::fs::write(daemon.work().join("\u{8a9e}.txt"), "").unwrap();
    for (text, expected) in [
        ("python3 -c 'print(\"\\u00e9\")'", "\u{e9}\n"),
        ("ls", "\u{8a9e}.txt\n"),
        ("printf 'b\\n\u{e9}\\na\\n' | sort", "a\nb\n\u{e9}\n"),
        ("perl -e1 2>&1", ""),
        (
            "echo $LANG; test -n \"$PATH\" -a -n \"$HOME\" -a -n \"$USER\" -a -n \"$SHELL\" && echo sane",
            "C.UTF-8\nsane\n",
        ),
    ] {
        let (status, output) = run_in(&session, false, text).await;
        assert_eq!(String::from_utf8_lossy(&output), expected, "{text}");
        assert_eq!(status, ExitStatus::Code(0), "{text}");
    }
    let (_, output) = run_in(&session, true, "echo $TERM").await;
    assert_eq!(output, b"xterm-256color\r\n");
}

#[tokio::test]
async fn the_login_policy_has_what_the_login_shell_sets() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(
        home.path().join(".bash_profile"),
        "echo BANNER\nexport PATH=/from/login:$PATH\nexport NVM_DIR=/nvm\n",
    )
    .unwrap();
    let text = home.path().display().to_string();
    let here = Here::with(|config| {
        config.environment = vec![
            ("HOME".into(), text.into()),
            ("SHELL".into(), "/bin/bash".into()),
            ("PATH".into(), "/usr/bin:/bin".into()),
        ];
    })
    .await;
    let command = here.bash("echo $PATH $NVM_DIR");
    let done = command
        .environment(executor_client::v1::EnvironmentPolicy::Login)
        .run()
        .await
        .unwrap();
    // What /etc/profile makes of PATH in between is the machine's.
    let text = String::from_utf8_lossy(&done.output).into_owned();
    assert!(
        text.starts_with("/from/login:") && text.ends_with(" /nvm\n"),
        "{text}"
    );
    here.end().await;
}
