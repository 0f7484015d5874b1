//! P12: the daemon is killed under many processes and started again at once.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use executor_client::v1::{ProcessState, ReadOutputResponse};
use executor_client::{Process, Session};

use crate::Bench;
use crate::crowd::{Crowd, LINE, Prints};
use crate::daemon::Daemon;
use crate::stats::{Goal, Row, Samples, Unit};

/// Who reads after the restart.
#[derive(Debug, Clone, Copy)]
enum Client {
    /// The one from before, which comes back by itself.
    Known,
    /// One that is made when somebody listens again, and finds the session.
    New,
}

pub(crate) async fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let count = bench.options.scaled(1_000, 100);
    let rounds = bench.options.scaled(20, 3);
    let more = format!("[limits]\nprocesses_per_session = {count}");
    let mut daemon = bench.daemon(&more).await?;
    let session = daemon.session().await?;
    let crowd = Crowd::start(&session, count, Prints::ALine).await?;
    crowd.complete()?;
    let mut known = Samples::new(Unit::Milliseconds);
    let mut new = Samples::new(Unit::Milliseconds);
    // The first round warms up.
    for round in 0..=rounds {
        for (client, samples) in [(Client::Known, &mut known), (Client::New, &mut new)] {
            let process = crowd.one(round)?;
            let time = kill_and_read(&mut daemon, &session, process, client).await?;
            if round > 0 {
                samples.time(time);
            }
        }
    }
    for (client, samples) in [
        ("the client from before comes back", known),
        ("a new client", new),
    ] {
        bench.report.row(Row {
            name: "P12",
            what: format!(
                "daemon killed and started again under {count} processes → ReadOutput \
                 answers: {client} ({rounds} times)"
            ),
            goal: Goal::AtMost(300.0),
            floor: None,
            relay: None,
            daemon: samples,
        });
    }
    crowd.end(daemon.host_pid()).await?;
    daemon.stop().await
}

/// From the kill to the answer. It has to be the right one, from the same host.
async fn kill_and_read(
    daemon: &mut Daemon,
    session: &Session,
    process: &Process,
    client: Client,
) -> anyhow::Result<Duration> {
    // The client from before is connected, as one that works here would be.
    let page = process.read_output(0, 0, Duration::from_secs(20)).await?;
    expected(page).context("before the kill")?;
    let begin = Instant::now();
    daemon.kill_and_start()?;
    let page = match client {
        Client::Known => process.read_output(0, 0, Duration::ZERO).await?,
        Client::New => {
            let machine = daemon.new_client().await?;
            let session = Session::resume(&machine, session.credentials().clone()).await?;
            let process = session.process(process.id());
            process.read_output(0, 0, Duration::ZERO).await?
        }
    };
    let time = begin.elapsed();
    expected(page).context("after the kill")?;
    let (before, now) = (daemon.host_pid(), daemon.host_now()?.pid());
    anyhow::ensure!(before == now, "the host was {before} and is {now}");
    Ok(time)
}

fn expected(answer: ReadOutputResponse) -> anyhow::Result<()> {
    let state = answer.state();
    let page = answer.page.context("no page")?;
    anyhow::ensure!(page.data == LINE.as_bytes(), "{:?} was read", page.data);
    anyhow::ensure!(state == ProcessState::Running, "it is {state:?}");
    Ok(())
}
