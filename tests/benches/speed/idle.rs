//! P9, P10: what a daemon costs that does nothing, with and without processes
//! that do nothing either, and how soon it is there.

use std::fmt;
use std::time::Duration;

use crate::crowd::{AT_A_TIME, Crowd, Prints};
use crate::daemon::Daemon;
use crate::relay::Relay;
use crate::stats::{Goal, Row, Samples, Unit, megabytes};
use crate::{Bench, figures, spawn};

/// After the first answer or the last start, so that what it used is given back.
const SETTLE: Duration = Duration::from_millis(300);

/// P9: what idle processes add to daemon and process host.
pub(crate) async fn processes(bench: &mut Bench) -> anyhow::Result<()> {
    for (name, full, quick, rounds) in
        [("P9 1,000", 1_000, 100, 3), ("P9 10,000", 10_000, 1_000, 1)]
    {
        let count = bench.options.scaled(full, quick);
        let rounds = bench.options.scaled(rounds, 1);
        let idle = bench.options.scaled(10, 2);
        let [mut taken, mut resident] = [const { Unit::Megabytes }; 2].map(Samples::new);
        let mut cpu = Samples::new(Unit::Milliseconds);
        let mut descriptors = Samples::new(Unit::Descriptors);
        let (mut there, mut why) = (count, None);
        for _ in 0..rounds {
            let added = added(bench, count, Duration::from_secs(idle.try_into()?)).await?;
            taken.value(added.taken);
            resident.value(added.resident);
            cpu.time(added.cpu);
            descriptors.value(f64::from(u32::try_from(added.descriptors)?));
            bench.report.note(format!("{name}: {}", added.beside));
            there = there.min(added.count);
            why = why.or(added.refused);
        }
        let fewer = why.map(|why| format!("; of {count}, the next one: {why}"));
        let fewer = fewer.unwrap_or_default();
        // One descriptor for each, and half as many for all else.
        let most = f64::from(u32::try_from(count + count / 2)?);
        for (measured, goal, samples) in [
            (
                format!("Pss added per 1,000, without the program's pages{fewer}"),
                4.0,
                taken,
            ),
            ("VmRSS added per 1,000".into(), 4.0, resident),
            (format!("CPU of both in {idle} s"), 0.0, cpu),
            ("descriptors of the one with more".into(), most, descriptors),
        ] {
            bench.report.row(Row {
                name,
                what: format!("{there} idle processes: {measured} ({rounds} times)"),
                goal: Goal::AtMost(goal),
                floor: None,
                relay: None,
                daemon: samples,
            });
        }
    }
    Ok(())
}

/// What a crowd added to daemon and host together. Memory in MB per 1,000
/// processes.
struct Added {
    count: usize,
    /// Why not all that were wanted could be started.
    refused: Option<String>,
    /// Pss of what is private or shared memory. The pages of the program count
    /// for less the more reapers share them.
    taken: f64,
    /// VmRSS: what both share counts twice.
    resident: f64,
    /// In steps of a tick.
    cpu: Duration,
    /// Of the daemon or of the host: the larger number.
    descriptors: usize,
    /// What is worth telling beside.
    beside: String,
}

async fn added(bench: &Bench, count: usize, idle: Duration) -> anyhow::Result<Added> {
    let more = format!("[limits]\nprocesses_per_session = {}", count + AT_A_TIME);
    let daemon = bench.daemon(&more).await?;
    let session = daemon.session().await?;
    // What so many starts at a time need is there before, and not counted.
    spawn::all((0..AT_A_TIME).map(|_| spawn::run(&session, &["true"]))).await?;
    tokio::time::sleep(SETTLE).await;
    let host = daemon.host_pid();
    let before = (Memory::of(daemon.pid())?, Memory::of(host)?);
    let crowd = Crowd::start(&session, count, Prints::Nothing).await?;
    tokio::time::sleep(SETTLE).await;
    let per_thousand = 1e3 / f64::from(u32::try_from(crowd.len())?);
    let by_daemon = Memory::of(daemon.pid())?.less(&before.0, per_thousand);
    let by_host = Memory::of(host)?.less(&before.1, per_thousand);
    let descriptors = (
        figures::descriptors(daemon.pid())?,
        figures::descriptors(host)?,
    );
    let reapers = crowd.beside(host)?;
    let of_reapers = figures::total(&reapers, figures::proportional)?;
    let pids = daemon.pids();
    let cpu = figures::total(&pids, figures::cpu)?;
    let runtime = figures::total(&pids, figures::runtime)?;
    tokio::time::sleep(idle).await;
    let cpu = figures::total(&pids, figures::cpu)? - cpu;
    // A thread that ended meanwhile has taken its time with it.
    let runtime = figures::total(&pids, figures::runtime)?.saturating_sub(runtime);
    let (started, count) = (crowd.started_in.as_secs_f64(), crowd.len());
    let refused = crowd.refused.clone();
    let ended = crowd.end(host).await?.as_secs_f64();
    daemon.stop().await?;
    Ok(Added {
        count,
        refused,
        taken: by_daemon.taken() + by_host.taken(),
        resident: by_daemon.resident + by_host.resident,
        cpu,
        descriptors: descriptors.0.max(descriptors.1),
        beside: format!(
            "started in {started:.1} s, {AT_A_TIME} at a time, ended in {ended:.1} s; added per \
             1,000: daemon {by_daemon}, process host {by_host}; descriptors: {} and {}; CPU while \
             idle, as the scheduler has it: {} µs; {} reapers beside them with a Pss of {:.1} MB",
            descriptors.0,
            descriptors.1,
            runtime.as_micros(),
            reapers.len(),
            megabytes(of_reapers),
        ),
    })
}

/// One process's memory, in MB.
struct Memory {
    private: f64,
    logs: f64,
    proportional: f64,
    resident: f64,
}

impl Memory {
    fn of(pid: u32) -> anyhow::Result<Self> {
        Ok(Self {
            private: megabytes(figures::private(pid)?),
            logs: megabytes(figures::shared_memory(pid)?),
            proportional: megabytes(figures::proportional(pid)?),
            resident: megabytes(figures::resident(pid)?),
        })
    }

    fn less(&self, before: &Self, factor: f64) -> Self {
        Self {
            private: (self.private - before.private) * factor,
            logs: (self.logs - before.logs) * factor,
            proportional: (self.proportional - before.proportional) * factor,
            resident: (self.resident - before.resident) * factor,
        }
    }

    fn taken(&self) -> f64 {
        self.private + self.logs
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Pss {:.1} MB ({:.1} private, {:.1} logs)",
            self.proportional, self.private, self.logs
        )
    }
}

/// P10: a daemon and its process host without anything to do.
pub(crate) async fn alone(bench: &mut Bench) -> anyhow::Result<()> {
    let rounds = bench.options.scaled(30, 5);
    let mut ready = [const { Unit::Milliseconds }; 2].map(Samples::new);
    let mut resident = [const { Unit::Megabytes }; 2].map(Samples::new);
    let mut proportional = [const { Unit::Megabytes }; 2].map(Samples::new);
    let mut of_host = [const { Unit::Megabytes }; 2].map(Samples::new);
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
            let subjects = [vec![relay.pid()], daemon.pids().to_vec()];
            for (samples, pids) in resident.iter_mut().zip(&subjects) {
                samples.value(megabytes(figures::total(pids, figures::resident)?));
            }
            for (samples, pids) in proportional.iter_mut().zip(&subjects) {
                samples.value(megabytes(figures::total(pids, figures::proportional)?));
            }
            let [by_resident, by_proportional] = &mut of_host;
            by_resident.value(megabytes(figures::resident(daemon.host_pid())?));
            by_proportional.value(megabytes(figures::proportional(daemon.host_pid())?));
        }
        daemon.stop().await?;
    }
    let [by_resident, by_proportional] = of_host;
    bench.report.note(format!(
        "P10: of this the process host: VmRSS {by_resident}, Pss {by_proportional}"
    ));
    for (what, goal, [by_relay, by_daemon]) in [
        ("idle, daemon and process host: VmRSS", 12.0, resident),
        ("idle, daemon and process host: Pss", 12.0, proportional),
        (
            "start → first answer, the host's start included",
            30.0,
            ready,
        ),
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
