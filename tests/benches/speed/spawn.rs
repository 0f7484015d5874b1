//! P1, P2, P8, P11: how long it takes to run something that takes no time.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use executor_client::Session;
use tokio::task::JoinSet;

use crate::crowd::{Crowd, Prints};
use crate::stats::{Goal, Row, Samples, Unit};
use crate::{Bench, figures, floor};

/// The start itself waits for the exit: one call, as the relay's.
const WAIT: Duration = Duration::from_secs(60);
/// Rounds before those that count: more than the 64 that a session keeps, so
/// that each start forgets one, as in a long life.
const WARM_UP: usize = 100;

/// One command after the other, by each subject in turn.
pub(crate) async fn one_at_a_time(
    bench: &mut Bench,
    name: &'static str,
    argv: &'static [&'static str],
    goal: f64,
) -> anyhow::Result<()> {
    let daemon = bench.daemon("").await?;
    let session = daemon.session().await?;
    let rounds = bench.options.scaled(2_000, 200);
    let mut samples = [const { Unit::Milliseconds }; 3].map(Samples::new);
    let servers = [bench.relay.pid(), daemon.pid(), daemon.host_pid()];
    let mut before = [Duration::ZERO; 3];
    for round in 0..WARM_UP + rounds {
        if round == WARM_UP {
            before = all_cpu(servers)?;
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
        if round >= WARM_UP {
            let times = [by_floor, by_relay, by_daemon];
            samples
                .iter_mut()
                .zip(times)
                .for_each(|(samples, time)| samples.time(time));
        }
    }
    let [relay, front, host] = per_start(before, all_cpu(servers)?, rounds)?;
    bench.report.note(format!(
        "{name}: CPU of the server per start, children not counted: relay {relay} µs, daemon \
         and process host {} µs ({front} + {host})",
        front + host
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
    daemon.stop().await
}

/// P11: the same beside idle processes and alone, by two daemons in turn.
pub(crate) async fn beside_idle(bench: &mut Bench) -> anyhow::Result<()> {
    let count = bench.options.scaled(1_000, 100);
    let rounds = bench.options.scaled(2_000, 200);
    let alone = bench.daemon("").await?;
    // Both keep 64 finished processes, and forget one at each start.
    let more = format!("[limits]\nprocesses_per_session = {}", count + 64);
    let crowded = bench.daemon(&more).await?;
    let sessions = [alone.session().await?, crowded.session().await?];
    let crowd = Crowd::start(&sessions[1], count, Prints::Nothing).await?;
    crowd.complete()?;
    let servers = [
        alone.pid(),
        alone.host_pid(),
        crowded.pid(),
        crowded.host_pid(),
    ];
    let mut samples = [const { Unit::Milliseconds }; 2].map(Samples::new);
    let mut before = [Duration::ZERO; 4];
    for round in 0..WARM_UP + rounds {
        if round == WARM_UP {
            before = all_cpu(servers)?;
        }
        let mut turns: Vec<_> = sessions.iter().zip(&mut samples).collect();
        // Neither has always what the other left in the caches.
        if round % 2 == 1 {
            turns.reverse();
        }
        for (session, samples) in turns {
            let begin = Instant::now();
            run(session, &["true"]).await?;
            if round >= WARM_UP {
                samples.time(begin.elapsed());
            }
        }
    }
    let [a, b, c, d] = per_start(before, all_cpu(servers)?, rounds)?;
    bench.report.note(format!(
        "P11: CPU of daemon and process host per start: {} µs alone, {} µs beside {count}",
        a + b,
        c + d
    ));
    let [by_alone, by_crowded] = samples;
    bench.report.row(Row {
        name: "P11",
        what: format!(
            "`true` → exit known, {count} idle processes in the same session; floor: another \
             daemon without them, in turn ({rounds} times)"
        ),
        goal: Goal::Floor(1.1),
        floor: Some(by_alone),
        relay: None,
        daemon: by_crowded,
    });
    crowd.end(crowded.host_pid()).await?;
    alone.stop().await?;
    crowded.stop().await
}

fn all_cpu<const N: usize>(pids: [u32; N]) -> anyhow::Result<[Duration; N]> {
    let mut times = [Duration::ZERO; N];
    for (time, pid) in times.iter_mut().zip(pids) {
        *time = figures::cpu(pid)?;
    }
    Ok(times)
}

/// Microseconds of each.
fn per_start<const N: usize>(
    before: [Duration; N],
    now: [Duration; N],
    rounds: usize,
) -> anyhow::Result<[u128; N]> {
    let rounds = u32::try_from(rounds)?;
    let mut times = now
        .into_iter()
        .zip(before)
        .map(|(now, before)| (now - before) / rounds);
    Ok([(); N].map(|()| times.next().unwrap_or_default().as_micros()))
}

/// Runs one to its exit.
pub(crate) fn run(
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
    let daemon = bench.daemon(more).await?;
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

pub(crate) async fn all<F>(runs: impl Iterator<Item = F>) -> anyhow::Result<()>
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
