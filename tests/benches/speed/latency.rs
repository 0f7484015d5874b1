//! P3: from a child's write to the bytes at the client.

use executor_client::{OutputEvent, Process};

use crate::stamp::Ages;
use crate::stats::{Goal, Row, Samples, Unit};
use crate::{Bench, floor};

/// The first records of each child, in which everything warms up.
const WARM_UP: usize = 20;

pub(crate) async fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let daemon = bench.daemon("").await?;
    let session = daemon.session().await?;
    let program = floor::this_program()?;
    let (rounds, records) = (bench.options.scaled(5, 2), 220);
    let count = records.to_string();
    let argv = [program.as_str(), "stamp", count.as_str()];
    for (name, terminal) in [("P3 pipe", false), ("P3 terminal", true)] {
        let mut samples = [const { Unit::Microseconds }; 3].map(Samples::new);
        for _ in 0..rounds {
            let by_floor = raw(&argv, terminal)?;
            let mut by_relay = Ages::default();
            let following = bench.relay.follow(&argv, terminal).await?;
            following.read_all(|bytes| by_relay.take(bytes)).await?;
            let command = session.program(argv);
            let command = if terminal {
                command.terminal(0, 0)
            } else {
                command
            };
            let by_daemon = follow(&command.spawn().await?).await?;
            for (samples, ages) in samples.iter_mut().zip([by_floor, by_relay, by_daemon]) {
                for age in ages.after_warm_up(records, WARM_UP)? {
                    samples.time(age);
                }
            }
        }
        let [by_floor, by_relay, by_daemon] = samples;
        bench.report.row(Row {
            name,
            what: format!(
                "write → client ({} writes, 2 ms apart)",
                rounds * (records - WARM_UP)
            ),
            goal: Goal::Relay(1.2),
            floor: Some(by_floor),
            relay: Some(by_relay),
            daemon: by_daemon,
        });
    }
    session.end(std::time::Duration::ZERO).await?;
    daemon.stop().await
}

fn raw(argv: &[&str], terminal: bool) -> anyhow::Result<Ages> {
    let mut ages = Ages::default();
    if terminal {
        let (child, master) = floor::start_on_terminal(argv)?;
        floor::finish(child, master, |bytes| ages.take(bytes))?;
    } else {
        let (child, pipe) = floor::start(argv)?;
        floor::finish(child, pipe, |bytes| ages.take(bytes))?;
    }
    Ok(ages)
}

async fn follow(process: &Process) -> anyhow::Result<Ages> {
    let mut ages = Ages::default();
    let mut output = process.output();
    while let Some(event) = output.next().await? {
        if let OutputEvent::Page(page) = event {
            ages.take(&page.data);
        }
    }
    Ok(ages)
}
