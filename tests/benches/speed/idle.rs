//! P10: what a daemon costs that does nothing, and how soon it is there.

use std::time::Duration;

use crate::daemon::Daemon;
use crate::relay::Relay;
use crate::stats::{Goal, Row, Samples, Unit, megabytes};
use crate::{Bench, figures};

/// After the first answer, so that what the start used is given back.
const SETTLE: Duration = Duration::from_millis(300);

pub(crate) async fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let rounds = bench.options.scaled(30, 5);
    let mut ready = [const { Unit::Milliseconds }; 2].map(Samples::new);
    let mut resident = [const { Unit::Megabytes }; 2].map(Samples::new);
    let mut proportional = [const { Unit::Megabytes }; 2].map(Samples::new);
    // The first round warms up.
    for round in 0..=rounds {
        let relay = Relay::start().await?;
        let daemon = Daemon::start(&bench.options.means, "").await?;
        tokio::time::sleep(SETTLE).await;
        if round > 0 {
            let times = [relay.ready_after, daemon.ready_after];
            ready
                .iter_mut()
                .zip(times)
                .for_each(|(samples, time)| samples.time(time));
            for (at, pid) in [relay.pid(), daemon.pid()].into_iter().enumerate() {
                if let (Some(resident), Some(proportional)) =
                    (resident.get_mut(at), proportional.get_mut(at))
                {
                    resident.value(megabytes(figures::resident(pid)?));
                    proportional.value(megabytes(figures::proportional(pid)?));
                }
            }
        }
        daemon.stop().await?;
    }
    for (what, goal, [by_relay, by_daemon]) in [
        ("idle: VmRSS", 12.0, resident),
        ("idle: Pss", 12.0, proportional),
        ("start → first answer", 30.0, ready),
    ] {
        bench.report.row(Row {
            name: "P10",
            what: format!("{what} ({rounds} times)"),
            goal: Goal::AtMost(goal),
            floor: None,
            relay: Some(by_relay),
            daemon: by_daemon,
        });
    }
    Ok(())
}
