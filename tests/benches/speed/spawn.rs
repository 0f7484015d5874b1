//! P1, P2, P8: how long it takes to run something that takes no time.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use executor_client::Session;
use tokio::task::JoinSet;

use crate::daemon::Daemon;
use crate::stats::{Goal, Row, Samples, Unit};
use crate::{Bench, figures, floor};

/// The start itself waits for the exit: one call, as the relay's.
const WAIT: Duration = Duration::from_secs(60);

/// One command after the other, by each subject in turn.
pub(crate) async fn one_at_a_time(
    bench: &mut Bench,
    name: &'static str,
    argv: &'static [&'static str],
    goal: f64,
) -> anyhow::Result<()> {
    let session = bench.daemon.session().await?;
    let rounds = bench.options.scaled(2_000, 200);
    // More than the 64 that a session keeps: from then on each start forgets
    // one, as in a long life.
    let warm_up = 100;
    let mut samples = [const { Unit::Milliseconds }; 3].map(Samples::new);
    let mut cpu = (Duration::ZERO, Duration::ZERO);
    for round in 0..warm_up + rounds {
        if round == warm_up {
            cpu = (
                figures::cpu(bench.relay.pid())?,
                figures::cpu(bench.daemon.pid())?,
            );
        }
        let begin = Instant::now();
        floor::run(argv)?;
        let by_floor = begin.elapsed();
        let begin = Instant::now();
        bench.relay.run(argv).await?;
        let by_relay = begin.elapsed();
        let begin = Instant::now();
        run(&session, argv).await?;
        let by_daemon = begin.elapsed();
        if round >= warm_up {
            let times = [by_floor, by_relay, by_daemon];
            samples
                .iter_mut()
                .zip(times)
                .for_each(|(samples, time)| samples.time(time));
        }
    }
    let per_start = |now: Duration, before: Duration| {
        let rounds = u32::try_from(rounds).unwrap_or(1);
        ((now - before) / rounds).as_micros()
    };
    let by_relay = per_start(figures::cpu(bench.relay.pid())?, cpu.0);
    let by_daemon = per_start(figures::cpu(bench.daemon.pid())?, cpu.1);
    bench.report.note(format!(
        "{name}: CPU of the server per start, children not counted: relay {by_relay} µs, \
         daemon {by_daemon} µs"
    ));
    let [by_floor, by_relay, by_daemon] = samples;
    bench.report.row(Row {
        name,
        what: format!("`{}` → exit known ({rounds} times)", argv.join(" ")),
        goal: Goal::Floor(goal),
        floor: Some(by_floor),
        relay: Some(by_relay),
        daemon: by_daemon,
    });
    session.end(Duration::ZERO).await?;
    Ok(())
}

/// Runs one to its exit.
fn run(
    session: &Session,
    argv: &[&str],
) -> impl Future<Output = anyhow::Result<()>> + Send + use<> {
    let command = session.program(argv.iter().copied()).wait(WAIT);
    async move {
        let started = command.start().await?;
        let code = started.info.exit.and_then(|exit| exit.code);
        anyhow::ensure!(code == Some(0), "the daemon's program ended with {code:?}");
        Ok(())
    }
}

/// Many at a time, with a daemon whose sessions may keep so many.
pub(crate) async fn concurrent(bench: &mut Bench) -> anyhow::Result<()> {
    let more = "[limits]\nprocesses_per_session = 2048";
    let daemon = Daemon::start(&bench.options.means, more).await?;
    for (name, count, full, quick) in [("P8 64", 64, 40, 5), ("P8 1,000", 1_000, 7, 2)] {
        let rounds = bench.options.scaled(full, quick);
        let mut samples = [const { Unit::Milliseconds }; 3].map(Samples::new);
        // The first round warms up.
        for round in 0..=rounds {
            let begin = Instant::now();
            raw(count)?;
            let by_floor = begin.elapsed();
            let begin = Instant::now();
            all((0..count).map(|_| bench.relay.run(&["true"]))).await?;
            let by_relay = begin.elapsed();
            let session = daemon.session().await?;
            let begin = Instant::now();
            all((0..count).map(|_| run(&session, &["true"]))).await?;
            let by_daemon = begin.elapsed();
            session.end(Duration::ZERO).await?;
            if round > 0 {
                let times = [by_floor, by_relay, by_daemon];
                samples
                    .iter_mut()
                    .zip(times)
                    .for_each(|(samples, time)| samples.time(time));
            }
        }
        let [by_floor, by_relay, by_daemon] = samples;
        bench.report.row(Row {
            name,
            what: format!("{count} concurrent `true`, no error ({rounds} times)"),
            goal: Goal::Relay(1.2),
            floor: Some(by_floor),
            relay: Some(by_relay),
            daemon: by_daemon,
        });
    }
    daemon.stop().await
}

/// Starts all, then reads and waits for all.
fn raw(count: usize) -> anyhow::Result<()> {
    let started: anyhow::Result<Vec<_>> = (0..count).map(|_| floor::start(&["true"])).collect();
    for (child, output) in started? {
        floor::finish(child, output, |_| {})?;
    }
    Ok(())
}

async fn all<F>(runs: impl Iterator<Item = F>) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let mut set: JoinSet<_> = runs.collect();
    let count = set.len();
    let mut failed = Vec::new();
    while let Some(done) = set.join_next().await {
        failed.extend(done.context("a run panicked")?.err());
    }
    match failed.first() {
        None => Ok(()),
        Some(first) => anyhow::bail!("{} of {count} failed, the first: {first:#}", failed.len()),
    }
}
