//! Records what a host hands over to its next image, for the tests of
//! `executor-daemon/src/host/tests/handover.rs`.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use executor_client::Session;
use executor_tests::{Daemon, DaemonOptions, in_time};

/// Processes in as many states as can be had at once.
async fn held(session: &Session) {
    let ended = session.command("echo ended; exit 3").spawn().await.unwrap();
    in_time("exit", ended.wait()).await.unwrap();
    let typed = session.command("cat").stdin_pipe().separate_stderr();
    let typed = typed.spawn().await.unwrap();
    typed.stdin().write("typed\n").await.unwrap();
    let unread = session.command("sleep 900").stdin_pipe().spawn();
    let unread = unread.await.unwrap();
    unread.stdin().write(vec![b'x'; 65 << 10]).await.unwrap();
    let terminal = session.command("sleep 900").terminal(24, 80);
    terminal.spawn().await.unwrap();
    let lossless = session.command("sleep 900").lossless();
    let limited = lossless.timeout(Duration::from_secs(900));
    limited.spawn().await.unwrap();
    let left = session.command("setsid sleep 900 & sleep 900").spawn();
    left.await.unwrap();
}

#[tokio::test]
#[ignore = "adds to the recorded handovers what a host hands over now; run by hand"]
async fn record_handovers() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../executor-daemon/tests/fixtures/host/handover-1.txt");
    for means in ["cgroup", "reaper", "best_effort"] {
        let environment = [("PATH", "/usr/bin:/bin"), ("HOME", "/")];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let daemon = Daemon::start_with(DaemonOptions {
            configuration: format!("stop_means = \"{means}\"\n"),
            environment: Some(environment.to_vec()),
            ..DaemonOptions::default()
        })
        .await;
        let session = daemon.session().await;
        held(&session).await;
        let waiting = session.command("sleep 900").spawn().await.unwrap();
        let waiting = tokio::spawn(async move { waiting.wait().await });
        // A program that keeps what it is given, and cannot go on with it.
        let (program, kept) = (
            daemon.directory().join("keep"),
            daemon.directory().join("kept"),
        );
        fs::write(
            &program,
            format!("#!/bin/sh\n/bin/cat > {}\nexit 1\n", kept.display()),
        )
        .unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let refused = daemon
            .command(&["upgrade", "--program", program.to_str().unwrap()])
            .await;
        assert!(!refused.status.success());
        let handover = fs::read(kept).unwrap();
        let digits: String = handover.iter().map(|byte| format!("{byte:02x}")).collect();
        let file = fs::File::options()
            .create(true)
            .append(true)
            .open(&fixtures);
        let release = env!("CARGO_PKG_VERSION");
        writeln!(file.unwrap(), "{means}-{release} {digits}").unwrap();
        waiting.abort();
    }
}
