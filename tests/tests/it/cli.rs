//! The CLI as a person uses it, and real work through it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use executor_tests::{Daemon, alive_with, eventually, in_time, program, scaled};
use tempfile::TempDir;

/// The CLI in a private home: no daemon runs unless a test starts one.
struct Cli {
    home: TempDir,
}

impl Cli {
    fn new() -> Self {
        Self {
            home: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self) -> &Path {
        self.home.path()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program("executor"));
        command
            .args(arguments)
            .current_dir(self.home.path())
            .env("HOME", self.home.path())
            .env("XDG_STATE_HOME", self.home.path().join("state"))
            .env("XDG_RUNTIME_DIR", self.home.path())
            .env("EXECUTOR_MACHINE", "local")
            .stdin(Stdio::null());
        command
    }

    async fn output(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(arguments);
        let run = tokio::task::spawn_blocking(move || command.output().unwrap());
        in_time(&arguments.join(" "), run).await.unwrap()
    }

    /// Against a daemon.
    fn on<'a>(&'a self, daemon: &'a Daemon) -> impl Fn(&[&str]) -> Command + 'a {
        move |arguments| {
            let mut command = self.command(arguments);
            command.env("EXECUTOR_MACHINE", daemon.address());
            command
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn run_passes_output_errors_input_and_exit_code() {
    let cli = Cli::new();
    let done = cli.output(&["run", "echo out; echo err >&2; exit 7"]).await;
    assert_eq!(done.status.code(), Some(7), "{done:?}");
    assert_eq!(
        (text(&done.stdout).as_str(), text(&done.stderr).as_str()),
        ("out\n", "err\n")
    );

    let done = cli
        .output(&["run", "--", "printf", "%s|", "a b", "$HOME"])
        .await;
    assert_eq!(text(&done.stdout), "a b|$HOME|", "words are not a shell's");

    let mut sort = cli.command(&["run", "sort"]);
    let mut sort = sort
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    sort.stdin.take().unwrap().write_all(b"b\na\n").unwrap();
    let done = tokio::task::spawn_blocking(move || sort.wait_with_output().unwrap());
    assert_eq!(text(&in_time("sort", done).await.unwrap().stdout), "a\nb\n");

    for (command, code) in [("kill -9 $$", 137), ("kill -TERM $$", 143), ("true", 0)] {
        assert_eq!(
            cli.output(&["run", command]).await.status.code(),
            Some(code),
            "{command}"
        );
    }
    let mistyped = cli.output(&["run", "--detatch", "true"]).await;
    assert_eq!(mistyped.status.code(), Some(125), "{mistyped:?}");
    assert!(text(&mistyped.stderr).contains("unknown option --detatch"));
    let missing = cli.output(&["run", "--", "no-such-program-4711"]).await;
    assert_eq!(missing.status.code(), Some(127));
    assert!(
        text(&missing.stderr).contains("no-such-program-4711"),
        "{missing:?}"
    );
    let late = cli.output(&["run", "--timeout", "200ms", "sleep 60"]).await;
    assert_eq!(late.status.code(), Some(124));
}

#[tokio::test]
async fn run_names_and_ends_what_a_command_left_behind() {
    let cli = Cli::new();
    let done = cli
        .output(&["run", "nohup sleep 931 >/dev/null 2>&1 & echo started"])
        .await;
    assert!(done.status.success(), "{done:?}");
    assert_eq!(text(&done.stdout), "started\n");
    assert!(text(&done.stderr).contains("left behind"), "{done:?}");
    assert_eq!(alive_with("sleep\0931"), Vec::<u32>::new());
}

#[tokio::test]
async fn a_gigabyte_through_a_redirect_is_whole() {
    let cli = Cli::new();
    let bytes = scaled(1 << 30, 64 << 20);
    let file = cli.path().join("file");
    let mut command = cli.command(&["run", &format!("head -c {bytes} /dev/zero")]);
    command.stdout(fs::File::create(&file).unwrap());
    let status = tokio::task::spawn_blocking(move || command.status().unwrap());
    assert!(in_time("head", status).await.unwrap().success());
    let mut file = fs::File::open(&file).unwrap();
    let (mut chunk, mut total) = (vec![0u8; 1 << 20], 0);
    loop {
        let read = file.read(&mut chunk).unwrap();
        if read == 0 {
            break;
        }
        assert!(chunk[..read].iter().all(|byte| *byte == 0));
        total += read;
    }
    assert_eq!(total, bytes);

    // Content that shows a byte out of place, too.
    let lines = scaled(10_000_000, 500_000);
    let seq = cli.output(&["run", &format!("seq {lines}")]).await;
    let plain = Command::new("seq").arg(lines.to_string()).output().unwrap();
    assert!(seq.stdout == plain.stdout);
}

#[tokio::test]
async fn a_reader_that_stops_reading_ends_the_command() {
    let cli = Cli::new();
    let mut yes = cli
        .command(&["run", "yes"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut head = [0u8; 4];
    yes.stdout.take().unwrap().read_exact(&mut head).unwrap();
    let status = tokio::task::spawn_blocking(move || yes.wait().unwrap());
    let status = in_time("yes", status).await.unwrap();
    assert_eq!(status.code(), Some(141));
}

#[tokio::test]
async fn detached_commands_are_listed_followed_typed_into_and_stopped() {
    let (cli, daemon) = (Cli::new(), Daemon::start().await);
    let executor = cli.on(&daemon);
    let run = |arguments: &[&str]| {
        let output = executor(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        text(&output.stdout)
    };
    let id = run(&[
        "run",
        "--detach",
        "--pty",
        "--label",
        "my python",
        "--",
        "python3",
        "-i",
        "-q",
    ]);
    let id = id.trim().to_owned();
    assert!(id.starts_with("prc_"), "{id}");
    let list = run(&["ps"]);
    assert!(
        list.contains("my python") && list.contains("running"),
        "{list}"
    );
    run(&["send", &id, "print(6 * 7)", "--enter"]);
    eventually("42", || async {
        run(&["logs", &id]).contains("42\r\n").then_some(())
    })
    .await;
    // A shortened id will do.
    run(&["send", &id[..12], "exit(5)", "--enter"]);
    let waited = executor(&["wait", &id]).output().unwrap();
    assert_eq!(waited.status.code(), Some(5), "{waited:?}");
    let json: serde_json::Value =
        serde_json::from_str(run(&["--json", "ps"]).lines().next().unwrap()).unwrap();
    assert_eq!(json["id"], id.as_str());
    assert_eq!(json["exit"]["code"], 5);

    let id = run(&["run", "--detach", "sleep 932 & sleep 932"])
        .trim()
        .to_owned();
    run(&["stop", &id]);
    assert_eq!(alive_with("sleep\0932"), Vec::<u32>::new());
    let unknown = executor(&["logs", "prc_aaaaaaaaaaaaaaaaaaaaaaaaaa"])
        .output()
        .unwrap();
    assert_eq!(unknown.status.code(), Some(125));
    assert!(
        text(&unknown.stderr).starts_with("executor: "),
        "{unknown:?}"
    );
}

#[tokio::test]
async fn a_daemon_is_started_when_one_is_needed() {
    let user = executor_tests::nobody();
    let detached = user
        .executor(&["run", "--detach", "echo first; sleep 933"])
        .output()
        .unwrap();
    assert!(detached.status.success(), "{detached:?}");
    assert!(
        text(&detached.stderr).contains("started your daemon"),
        "it says that it starts one"
    );
    let id = text(&detached.stdout).trim().to_owned();
    let listed = user.executor(&["ps"]).output().unwrap();
    assert!(text(&listed.stdout).contains(&id[..12]), "{listed:?}");
    eventually("output", || async {
        let logs = user.executor(&["logs", &id]).output().unwrap();
        (text(&logs.stdout) == "first\n").then_some(())
    })
    .await;
    assert!(user.executor(&["stop", &id]).status().unwrap().success());
    user.stop_daemon();
    assert_eq!(alive_with("sleep\0933"), Vec::<u32>::new());
}

#[tokio::test]
async fn real_work_clone_and_repl() {
    let cli = Cli::new();
    let setup = "git init -q source && cd source && git config user.email a@example.org && \
        git config user.name a && seq 1000 > file && git add file && git commit -qm first";
    assert!(cli.output(&["run", setup]).await.status.success());
    let clone = cli
        .output(&["run", "--", "git", "clone", "source", "copy"])
        .await;
    assert!(clone.status.success(), "{clone:?}");
    assert_eq!(
        fs::read(cli.path().join("copy/file")).unwrap(),
        fs::read(cli.path().join("source/file")).unwrap()
    );
    let mut python = cli.command(&["run", "--pty", "--", "python3", "-i", "-q"]);
    let mut python = python
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    python
        .stdin
        .take()
        .unwrap()
        .write_all(b"print(6 * 7)\nexit(9)\n")
        .unwrap();
    let done = tokio::task::spawn_blocking(move || python.wait_with_output().unwrap());
    let done = in_time("python", done).await.unwrap();
    assert_eq!(done.status.code(), Some(9), "{done:?}");
    assert!(text(&done.stdout).contains("42"), "{done:?}");
}

#[tokio::test]
async fn a_thousand_commands_at_once() {
    let daemon = Daemon::start_with(executor_tests::DaemonOptions {
        configuration: "[limits]\nprocesses_per_session = 2000\n".into(),
        ..Default::default()
    })
    .await;
    let session = daemon.session().await;
    let mut commands = tokio::task::JoinSet::new();
    for n in 0..scaled(1_000, 200) {
        let command = session.command(format!("echo {n}; exit {}", n % 100));
        commands.spawn(async move { (n, command.run().await.unwrap()) });
    }
    while let Some(done) = in_time("commands", commands.join_next()).await {
        let (n, done) = done.unwrap();
        assert_eq!(text(&done.output), format!("{n}\n"));
        assert_eq!(done.exit.shell_code, i32::try_from(n % 100).unwrap());
    }
}
