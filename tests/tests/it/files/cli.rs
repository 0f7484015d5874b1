//! The commands on files as a person uses them.

use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use executor_tests::{Daemon, in_time, program};
use serde_json::Value;
use tempfile::TempDir;

pub(super) struct Cli {
    home: TempDir,
    machine: String,
}

impl Cli {
    /// In a machine of its own, or on a daemon.
    pub(super) fn on(daemon: Option<&Daemon>) -> Self {
        Self {
            home: tempfile::tempdir().unwrap(),
            machine: daemon.map_or_else(|| "local".into(), Daemon::address),
        }
    }

    pub(super) fn path(&self) -> &Path {
        self.home.path()
    }

    pub(super) async fn run_with(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = Command::new(program("executor"));
        command
            .args(arguments)
            .current_dir(self.path())
            .env("HOME", self.path())
            .env("XDG_STATE_HOME", self.path().join(".state"))
            .env("XDG_RUNTIME_DIR", self.path())
            .env("EXECUTOR_MACHINE", &self.machine)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let input = input.to_vec();
        let run = tokio::task::spawn_blocking(move || {
            let mut child = command.spawn().unwrap();
            let mut stdin = child.stdin.take().unwrap();
            // Who wants no input may be gone already.
            let _ = stdin.write_all(&input);
            drop(stdin);
            child.wait_with_output().unwrap()
        });
        in_time(&arguments.join(" "), run).await.unwrap()
    }

    pub(super) async fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run_with(arguments, b"").await;
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// stdout and stderr of what succeeds.
    pub(super) async fn does(&self, arguments: &[&str]) -> (Vec<u8>, String) {
        let output = self.run_with(arguments, b"").await;
        assert!(output.status.success(), "{output:?}");
        (output.stdout, String::from_utf8(output.stderr).unwrap())
    }

    pub(super) async fn prints(&self, arguments: &[&str]) -> String {
        String::from_utf8(self.does(arguments).await.0).unwrap()
    }

    pub(super) async fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let text = self.prints(arguments).await;
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

#[tokio::test]
async fn files_are_written_read_edited_and_removed_without_a_daemon() {
    let cli = Cli::on(None);
    let written = cli
        .run_with(&["write", "-p", "d/f", "--new"], b"one\ntwo\n")
        .await;
    assert!(written.status.success(), "{written:?}");
    assert!(!String::from_utf8_lossy(&written.stderr).contains("undo"));
    assert_eq!(cli.prints(&["cat", "d/f"]).await, "one\ntwo\n");
    assert_eq!(
        cli.prints(&["cat", "--offset", "4", "--length", "2", "d/f"])
            .await,
        "tw"
    );
    let again = cli.fails(&["write", "d/f", "--new"]).await;
    assert!(again.contains("is not what was expected"), "{again}");

    let dry = cli
        .prints(&["edit", "-n", "d/f", "--old", "two", "--new", "2"])
        .await;
    assert_eq!(
        fs::read_to_string(cli.path().join("d/f")).unwrap(),
        "one\ntwo\n"
    );
    let diff = cli
        .prints(&["edit", "d/f", "--old", "two", "--new", "2"])
        .await;
    assert_eq!(dry, diff);
    assert!(
        diff.contains("\n-two\n+2\n") && !diff.contains('\x1b'),
        "{diff}"
    );
    let odd = cli
        .fails(&["edit", "d/f", "--old", " one", "--new", "x"])
        .await;
    assert!(
        odd.contains("line 1") && odd.contains("whitespace"),
        "{odd}"
    );

    assert_eq!(cli.prints(&["ls"]).await, "d/\n");
    assert_eq!(
        cli.prints(&["ls", "-l", "d"]).await.split(' ').next(),
        Some("-rw-r--r--")
    );
    let tree = cli.prints(&["tree"]).await;
    assert!(tree.contains("\n  d/\n    f\n2 entries, "), "{tree}");
    let stat = cli.prints(&["stat", "--digest", "d/f"]).await;
    assert!(
        stat.contains("6 bytes") && stat.contains("digest  "),
        "{stat}"
    );

    cli.does(&["mkdir", "-p", "x/y"]).await;
    cli.does(&["mv", "d/f", "x/y/g"]).await;
    assert_eq!(cli.prints(&["cat", "x/y/g"]).await, "one\n2\n");
    assert!(cli.fails(&["rm", "x"]).await.contains("not empty"));
    cli.does(&["rm", "-r", "x"]).await;
    cli.does(&["rm", "-f", "x"]).await;
    assert!(cli.fails(&["rm", "x"]).await.contains("does not exist"));
    assert!(cli.fails(&["undo", "token"]).await.contains("no daemon"));
}

#[tokio::test]
async fn a_change_on_a_daemon_is_taken_back_by_a_later_command() {
    let daemon = Daemon::start().await;
    let cli = Cli::on(Some(&daemon));
    fs::write(cli.path().join("f"), "one\n").unwrap();
    let (_, told) = cli
        .does(&["edit", "f", "--old", "one", "--new", "two"])
        .await;
    let token = told.trim().rsplit(' ').next().unwrap();
    assert_eq!(fs::read_to_string(cli.path().join("f")).unwrap(), "two\n");
    cli.does(&["undo", token]).await;
    assert_eq!(fs::read_to_string(cli.path().join("f")).unwrap(), "one\n");
    let again = cli.fails(&["undo", token]).await;
    assert!(again.contains("used up"), "{again}");
}

#[tokio::test]
async fn json_tells_what_the_protocol_tells() {
    let daemon = Daemon::start().await;
    let cli = Cli::on(Some(&daemon));
    let odd = cli.path().join(std::ffi::OsStr::from_bytes(b"\xff"));
    fs::write(cli.path().join("f"), "one\n").unwrap();
    let edited = cli
        .json(&["--json", "edit", "f", "--old", "one", "--new", "two"])
        .await;
    assert_eq!(edited[0]["lines_added"], 1);
    assert_eq!(edited[0]["replacements"], serde_json::json!([1]));
    let token = edited[0]["undo_token"].as_str().unwrap();
    let stat = cli.json(&["--json", "stat", "--digest", "f"]).await;
    assert_eq!(stat[0]["digest"], edited[0]["digest"]);
    assert_eq!(stat[0]["version"], edited[0]["version"]);
    assert_eq!(
        cli.json(&["--json", "undo", token]).await[0]["present"],
        true
    );

    fs::write(&odd, b"\xff\n").unwrap();
    let listed = cli.json(&["--json", "ls"]).await;
    assert_eq!(listed[0]["path"], "f");
    assert_eq!(listed[1]["path_base64"], "/w==");
    assert_eq!(listed[2]["summary"]["entries"], 2);
    assert_eq!(cli.prints(&["ls"]).await, "f\n\\xff\n");
    let read = cli.json(&["--json", "cat", "f"]).await;
    assert_eq!(read[0]["text"], "one\n");
    let error = cli.fails(&["--json", "cat", "none"]).await;
    let error: Value = serde_json::from_str(&error).unwrap();
    assert_eq!(error["error"]["reason"], "PATH_NOT_FOUND");
}

#[tokio::test]
async fn cat_prints_every_byte() {
    let daemon = Daemon::start().await;
    let cli = Cli::on(Some(&daemon));
    let content = super::content(5_000_000);
    fs::write(cli.path().join("f"), &content).unwrap();
    assert!(cli.does(&["cat", "f"]).await.0 == content);
    let written = cli.run_with(&["write", "g"], &content).await;
    assert!(written.status.success(), "{written:?}");
    assert!(fs::read(cli.path().join("g")).unwrap() == content);
}

#[tokio::test]
async fn glob_and_grep_print_what_they_find_and_what_they_passed_over() {
    let daemon = Daemon::start().await;
    for cli in [Cli::on(Some(&daemon)), Cli::on(None)] {
        fs::create_dir_all(cli.path().join("src/deep")).unwrap();
        for (name, content) in [
            ("src/a.rs", "one\ntwo needle\nthree\n"),
            ("src/deep/b.rs", "Needle\n"),
            ("-rf", "--pre=x\n"),
            ("bin", "\0needle"),
        ] {
            fs::write(cli.path().join(name), content).unwrap();
        }
        // On a daemon paths start in its session's directory.
        let top = cli.path().to_str().unwrap().to_owned();
        let at = |name: &str| format!("{top}/{name}");
        let (found, told) = cli.does(&["grep", "-i", "needle", &top]).await;
        let expected = format!(
            "{}:2:two needle\n{}:1:Needle\n",
            at("src/a.rs"),
            at("src/deep/b.rs")
        );
        assert_eq!(String::from_utf8(found).unwrap(), expected);
        assert!(told.contains("1 binary"), "{told}");
        let found = cli.prints(&["grep", "-C1", "-F", "two", &top]).await;
        let path = at("src/a.rs");
        assert_eq!(
            found,
            format!("{path}-1-one\n{path}:2:two needle\n{path}-3-three\n")
        );
        assert_eq!(
            cli.prints(&["grep", "-l", "Needle", &top]).await,
            at("src/deep/b.rs") + "\n"
        );
        let counted = cli.prints(&["grep", "-c", "e", "-g", "*.rs", &top]).await;
        assert_eq!(
            counted,
            format!("{}:3\n{}:1\n", at("src/a.rs"), at("src/deep/b.rs"))
        );
        let found = cli.prints(&["glob", "*.rs", &top]).await;
        assert_eq!(
            found,
            format!("{}\n{}\n", at("src/a.rs"), at("src/deep/b.rs"))
        );
        let json = cli.prints(&["grep", "--json", "n.edle", &top]).await;
        let lines: Vec<Value> = json
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(
            (lines[0]["line"].as_u64(), lines[0]["column"].as_u64()),
            (Some(2), Some(5))
        );
        assert_eq!(lines[0]["text"], "two needle");
        assert_eq!(lines[1]["summary"]["binary"], 1);
        // B062
        let found = cli.prints(&["grep", "--", "--pre=x", &top]).await;
        assert_eq!(found, at("-rf") + ":1:--pre=x\n");
        let output = cli.run_with(&["grep", "nothing at all", &top], b"").await;
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
        let told = cli.fails(&["grep", "(", &top]).await;
        assert!(
            told.contains("unclosed group") && told.contains("byte 0"),
            "{told}"
        );
        let told = cli.fails(&["glob", "a[", &top]).await;
        assert!(told.contains("byte 1"), "{told}");
    }
    // In the current directory names are short.
    let cli = Cli::on(None);
    fs::create_dir(cli.path().join("src")).unwrap();
    fs::write(cli.path().join("src/a.rs"), "needle\n").unwrap();
    assert_eq!(cli.prints(&["grep", "needle"]).await, "src/a.rs:1:needle\n");
    assert_eq!(cli.prints(&["glob", "*.rs", "src"]).await, "src/a.rs\n");
}
