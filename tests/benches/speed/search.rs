//! F2 and F3: text and paths found in large trees, beside `rg` with the same
//! switches.
//!
//! The trees are made here, always the same, of words as source code has them;
//! `rg` is the one in `PATH` (its version is noted). Each is run in turn, with
//! the tree in the page cache. What both find must be the same number of lines
//! or paths.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use executor_client::v1;

use crate::Bench;
use crate::stats::{Goal, Row, Samples, Unit};

/// Directories of one level.
const WIDE: usize = 10;
const WORDS: [&str; 24] = [
    "let", "fn", "return", "struct", "impl", "self", "value", "index", "count", "buffer", "length",
    "error", "result", "match", "while", "for", "if", "else", "true", "false", "mut", "usize",
    "string", "vector",
];

/// What is looked for: a word that few lines have, and a regular expression.
const LOOKED_FOR: [(&str, &str); 2] = [
    ("literal", "needle_in_a_haystack"),
    ("regex", r"needle_\w+_haystack\(\d+\)"),
];

/// F2: text in a tree of 54,000 files.
pub(crate) async fn grep(bench: &mut Bench) -> anyhow::Result<()> {
    let files = bench.options.scaled(54_000, 4_000);
    let rounds = bench.options.scaled(12, 5);
    let place = tempfile::tempdir()?;
    let bytes = plant(place.path(), files, 21 << 10)?;
    let daemon = bench.daemon("").await?;
    let session = daemon.session().await?;
    bench.report.note(format!("F2, F3: beside {}", version()?));
    for (kind, pattern) in LOOKED_FOR {
        let mut samples = [const { Unit::Milliseconds }; 2].map(Samples::new);
        for round in 0..=rounds {
            let begin = Instant::now();
            let lines = rg(&["--line-number", "--regexp", pattern], place.path())?;
            let by_floor = begin.elapsed();
            let request = v1::GrepRequest {
                scope: Some(scope(place.path())),
                pattern: pattern.to_owned(),
                limit: 1_000_000,
                ..v1::GrepRequest::default()
            };
            let begin = Instant::now();
            let found = session.grep_all(request).await?;
            let by_daemon = begin.elapsed();
            let ours = usize::try_from(found.summary.matches)?;
            ensure!(
                found.summary.complete && ours == lines,
                "{ours} lines, {lines} of rg"
            );
            // The first round fills the page cache.
            if round > 0 {
                let [floor, daemon] = &mut samples;
                floor.time(by_floor);
                daemon.time(by_daemon);
            }
        }
        let [floor, by_daemon] = samples;
        bench.report.row(Row {
            name: if kind == "literal" {
                "F2 literal"
            } else {
                "F2 regex"
            },
            what: format!(
                "a {kind} in {files} files of {} MB; floor: `rg`",
                bytes / 1_000_000
            ),
            goal: Goal::Floor(1.1),
            floor: Some(floor),
            relay: None,
            daemon: by_daemon,
        });
    }
    session.end(Duration::ZERO).await?;
    daemon.stop().await
}

/// F3: the paths of 100,000 files.
pub(crate) async fn glob(bench: &mut Bench) -> anyhow::Result<()> {
    let files = bench.options.scaled(100_000, 10_000);
    let rounds = bench.options.scaled(20, 5);
    let place = tempfile::tempdir()?;
    plant(place.path(), files, 0)?;
    let daemon = bench.daemon("").await?;
    let session = daemon.session().await?;
    let mut samples = [const { Unit::Milliseconds }; 2].map(Samples::new);
    for round in 0..=rounds {
        let begin = Instant::now();
        let lines = rg(&["--files"], place.path())?;
        let by_floor = begin.elapsed();
        let request = v1::GlobRequest {
            scope: Some(scope(place.path())),
            limit: 1_000_000,
            ..v1::GlobRequest::default()
        };
        let begin = Instant::now();
        let found = session.glob_all(request).await?;
        let by_daemon = begin.elapsed();
        let ours = found.entries.len();
        ensure!(
            found.summary.complete && ours == lines,
            "{ours} paths, {lines} of rg"
        );
        if round > 0 {
            let [floor, daemon] = &mut samples;
            floor.time(by_floor);
            daemon.time(by_daemon);
        }
    }
    let [floor, by_daemon] = samples;
    bench.report.row(Row {
        name: "F3",
        what: format!("the paths of {files} files, in order; floor: `rg --files`, in none"),
        goal: Goal::Floor(1.1),
        floor: Some(floor),
        relay: None,
        daemon: by_daemon,
    });
    session.end(Duration::ZERO).await?;
    daemon.stop().await
}

fn scope(path: &Path) -> v1::SearchScope {
    v1::SearchScope {
        paths: vec![executor_client::path_bytes(path)],
        ..v1::SearchScope::default()
    }
}

fn version() -> anyhow::Result<String> {
    let output = Command::new("rg").arg("--version").output();
    let output = output.context("rg does not run; install it: apt-get install ripgrep")?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// Lines that `rg` prints, read as they come.
fn rg(words: &[&str], path: &Path) -> anyhow::Result<usize> {
    let mut child = Command::new("rg")
        .args(["--no-config", "--color=never", "--no-heading"])
        .args(words)
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("rg does not run; install it: apt-get install ripgrep")?;
    let mut out = child.stdout.take().context("its output")?;
    let mut printed = Vec::new();
    std::io::Read::read_to_end(&mut out, &mut printed)?;
    if !child.wait()?.success() {
        bail!("rg {words:?} failed");
    }
    Ok(memchr::memchr_iter(b'\n', &printed).count())
}

/// A repository with so many files of about `size` bytes, ten to a directory,
/// and now and then an ignore file. Gives their bytes.
fn plant(top: &Path, files: usize, size: usize) -> anyhow::Result<u64> {
    let mut dice = 1_u64;
    let mut roll = move |most: usize| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(dice >> 33).map(|value| value % most)
    };
    fs::create_dir(top.join(".git"))?;
    fs::write(top.join(".gitignore"), "target/\n*.o\n")?;
    let mut bytes = 0;
    for directory in 0..files.div_ceil(WIDE) {
        let digits = [
            directory / 1000,
            directory / 100 % 10,
            directory / 10 % 10,
            directory % 10,
        ];
        let mut path = top.to_owned();
        for digit in digits {
            path.push(format!("module_{digit}"));
        }
        fs::create_dir_all(&path)?;
        if roll(50)? == 0 {
            fs::write(path.join(".gitignore"), "*.tmp\n/generated\n")?;
        }
        for file in 0..WIDE.min(files - directory * WIDE) {
            let mut text = String::new();
            while text.len() < size {
                for _ in 0..2 + roll(9)? {
                    let word = WORDS.get(roll(WORDS.len())?).context("a word")?;
                    write!(text, "{word} ")?;
                }
                if roll(20_000)? == 0 {
                    write!(text, "needle_in_a_haystack({})", roll(1_000)?)?;
                }
                text.push('\n');
            }
            bytes += text.len() as u64;
            fs::write(path.join(format!("source_{file}.rs")), text)?;
        }
    }
    Ok(bytes)
}
