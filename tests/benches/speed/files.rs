//! F1 and F5: pages deep in a large text, and a durable edit.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, ensure};
use executor_client::v1;

use crate::Bench;
use crate::stats::{Goal, Row, Samples, Unit};

/// Longest page of lines, in bytes.
const PAGE: usize = 64 << 10;
const BLOCK: usize = 1 << 20;

/// F1: the page at nine tenths of a text that was not looked at before, and the
/// page after it.
pub(crate) async fn deep_lines(bench: &mut Bench) -> anyhow::Result<()> {
    let size = bench.options.scaled(1 << 30, 64 << 20);
    let rounds = bench.options.scaled(12, 5);
    let place = tempfile::tempdir()?;
    let path = place.path().join("text");
    let (deep, deep_at) = write_lines(&path, size)?;
    let daemon = bench.daemon("").await?;
    let session = daemon.session().await?;
    let mut cold = [const { Unit::Milliseconds }; 2].map(Samples::new);
    let mut next = [const { Unit::Microseconds }; 2].map(Samples::new);
    for round in 0..=rounds {
        // Another version: nothing that is remembered of the text fits it.
        File::options()
            .write(true)
            .open(&path)?
            .set_modified(SystemTime::now())?;
        let begin = Instant::now();
        let counted = count_lines(&path, deep_at + PAGE as u64)?;
        let by_floor = begin.elapsed();
        ensure!(counted > deep, "the floor counted {counted} lines");

        let begin = Instant::now();
        let page = session.read_lines(page(&path, deep)).await?;
        let by_daemon = begin.elapsed();
        let expected = format!("line {deep} ");
        ensure!(
            page.text.starts_with(expected.as_bytes()),
            "another line than {deep} came back"
        );

        let begin = Instant::now();
        session.machine().info().await?;
        let by_call = begin.elapsed();
        let after = page.next_offset.context("there is more")?;
        let begin = Instant::now();
        let following = session.read_lines(self::page(&path, after)).await?;
        let by_next = begin.elapsed();
        ensure!(following.first_line == after, "the next page is another");
        // The first round fills the page cache.
        if round > 0 {
            let [floor, daemon] = &mut cold;
            floor.time(by_floor);
            daemon.time(by_daemon);
            let [floor, daemon] = &mut next;
            floor.time(by_call);
            daemon.time(by_next);
        }
    }
    let [floor, by_daemon] = cold;
    bench.report.row(Row {
        name: "F1 cold",
        what: format!(
            "a page of lines at 90 % of a text of {} MiB; floor: `memchr` count up to there",
            size >> 20
        ),
        goal: Goal::Floor(1.2),
        floor: Some(floor),
        relay: None,
        daemon: by_daemon,
    });
    let [floor, by_daemon] = next;
    bench.report.row(Row {
        name: "F1 next",
        what: "the page after it; floor: a unary call".into(),
        goal: Goal::Floor(3.0),
        floor: Some(floor),
        relay: None,
        daemon: by_daemon,
    });
    session.end(Duration::ZERO).await?;
    daemon.stop().await
}

/// F5: one line of a 1 MiB file.
pub(crate) async fn edit(bench: &mut Bench) -> anyhow::Result<()> {
    let rounds = bench.options.scaled(200, 20);
    let place = tempfile::tempdir()?;
    let path = place.path().join("source");
    write_lines(&path, BLOCK)?;
    let half = "line 1000 ";
    let daemon = bench.daemon("").await?;
    let session = daemon.session().await?;
    let mut samples = [const { Unit::Milliseconds }; 2].map(Samples::new);
    let mut now = half.to_owned();
    for round in 0..10 + rounds {
        let content = fs::read(&path)?;
        let begin = Instant::now();
        replace(place.path(), "floor", &content)?;
        let by_floor = begin.elapsed();
        let new = format!("edit {round:04} ");
        let request = v1::EditFileRequest {
            path: executor_client::path_bytes(&path),
            edits: vec![v1::Edit {
                old: now,
                new: new.clone(),
                replace_all: false,
            }],
            ..v1::EditFileRequest::default()
        };
        let begin = Instant::now();
        let done = session.edit_file(request).await?;
        let by_daemon = begin.elapsed();
        let durability = done.durability.context("how it was written")?;
        ensure!(durability.atomic && durability.checked, "{durability:?}");
        now = new;
        if round >= 10 {
            let [floor, daemon] = &mut samples;
            floor.time(by_floor);
            daemon.time(by_daemon);
        }
    }
    let [floor, by_daemon] = samples;
    bench.report.row(Row {
        name: "F5",
        what: format!(
            "one line of a 1 MiB file edited, durable ({rounds} times); floor: write, fsync, \
             rename, fsync of the directory"
        ),
        goal: Goal::Floor(1.2),
        floor: Some(floor),
        relay: None,
        daemon: by_daemon,
    });
    session.end(Duration::ZERO).await?;
    daemon.stop().await
}

fn page(path: &Path, offset: u64) -> v1::ReadLinesRequest {
    v1::ReadLinesRequest {
        path: executor_client::path_bytes(path),
        offset: Some(offset),
        limit: Some(2_000),
        ..v1::ReadLinesRequest::default()
    }
}

/// Writes numbered lines of different lengths. Gives the line, from 1, that
/// begins at nine tenths, and where it begins.
fn write_lines(path: &Path, size: usize) -> anyhow::Result<(u64, u64)> {
    let mut out = BufWriter::with_capacity(BLOCK, File::create(path)?);
    let (mut written, mut number) = (0, 1u64);
    let mut deep = None;
    while written < size {
        if deep.is_none() && written >= size / 10 * 9 {
            deep = Some((number, written as u64));
        }
        let length = usize::try_from(number * 7 % 80)?;
        let line = format!("line {number} {:length$}|\n", "");
        out.write_all(line.as_bytes())?;
        written += line.len();
        number += 1;
    }
    out.into_inner()?.sync_all()?;
    deep.context("the text is long enough")
}

fn count_lines(path: &Path, until: u64) -> anyhow::Result<u64> {
    let file = File::open(path)?;
    let mut block = vec![0; BLOCK];
    let (mut at, mut lines) = (0, 0);
    while at < until {
        let read = file.read_at(&mut block, at)?;
        if read == 0 {
            break;
        }
        let bytes = block.get(..read).context("no more than asked for")?;
        lines += memchr::memchr_iter(b'\n', bytes).count() as u64;
        at += read as u64;
    }
    Ok(lines)
}

fn replace(directory: &Path, name: &str, content: &[u8]) -> anyhow::Result<()> {
    let temporary = directory.join("floor.new");
    let mut file = File::create(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&temporary, directory.join(name))?;
    File::open(directory)?.sync_all()?;
    Ok(())
}
