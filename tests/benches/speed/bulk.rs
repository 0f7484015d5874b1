//! P5, P6, P7: much output.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use executor_client::{Command, OutputEvent, OutputOptions};

use crate::stats::{Goal, Row, Samples, Unit, megabytes};
use crate::{Bench, figures, floor};

const WAIT: Duration = Duration::from_secs(300);

/// P5: the time until the child ends when nobody reads.
pub(crate) async fn unread(bench: &mut Bench) -> anyhow::Result<()> {
    let daemon = bench.daemon("").await?;
    let session = daemon.session().await?;
    let mebibytes = bench.options.scaled(1024, 128);
    let rounds = bench.options.scaled(11, 3);
    let count = format!("{mebibytes}M");
    let head = ["head", "-c", count.as_str(), "/dev/zero"];
    let cat = format!("{} | cat >/dev/null", head.join(" "));
    let mut samples = [const { Unit::Seconds }; 3].map(Samples::new);
    // The first round warms up.
    for round in 0..=rounds {
        let begin = Instant::now();
        floor::run(&["sh", "-c", &cat])?;
        let by_floor = begin.elapsed();
        let begin = Instant::now();
        bench.relay.run(&head).await?;
        let by_relay = begin.elapsed();
        let begin = Instant::now();
        let ended = session.program(head).wait(WAIT).start().await?.info;
        let by_daemon = begin.elapsed();
        let code = ended.exit.and_then(|exit| exit.code);
        anyhow::ensure!(code == Some(0), "head ended with {code:?}");
        anyhow::ensure!(ended.output_end == bytes(mebibytes), "output is missing");
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
        name: "P5",
        what: format!(
            "{mebibytes} MiB written, nobody reads; floor: `… \\| cat >/dev/null` ({rounds} times)"
        ),
        goal: Goal::Floor(1.1),
        floor: Some(by_floor),
        relay: Some(by_relay),
        daemon: by_daemon,
    });
    session.end(Duration::ZERO).await?;
    daemon.stop().await
}

/// P6: from the start to the end of the output at one lossless client.
pub(crate) async fn streamed(bench: &mut Bench) -> anyhow::Result<()> {
    let daemon = bench.daemon("").await?;
    let session = daemon.session().await?;
    let mebibytes = bench.options.scaled(1024, 128);
    let rounds = bench.options.scaled(9, 3);
    let count = format!("{mebibytes}M");
    let head = ["head", "-c", count.as_str(), "/dev/zero"];
    let mut samples = [const { Unit::MegabytesPerSecond }; 3].map(Samples::new);
    let mut subjects = [
        Subject::new("the relay", &[bench.relay.pid()]),
        Subject::new("daemon and process host", &daemon.pids()),
        Subject::new("the process host alone", &[daemon.host_pid()]),
    ];
    // The first round warms up.
    for round in 0..=rounds {
        if round == 1 {
            for subject in &mut subjects {
                subject.begin()?;
            }
        }
        let begin = Instant::now();
        let (child, pipe) = floor::start(&head)?;
        let by_floor = (floor::finish(child, pipe, |_| {})?, begin.elapsed());
        let begin = Instant::now();
        let following = bench.relay.follow(&head, false).await?;
        let by_relay = (following.read_all(|_| {}).await?, begin.elapsed());
        let begin = Instant::now();
        let by_daemon = (lossless(session.program(head)).await?, begin.elapsed());
        for (samples, (total, time)) in samples.iter_mut().zip([by_floor, by_relay, by_daemon]) {
            anyhow::ensure!(total == bytes(mebibytes), "only {total} bytes came");
            if round > 0 {
                samples.rate(total, time);
            }
        }
    }
    for subject in &subjects {
        bench.report.note(subject.told(u32::try_from(rounds)?)?);
    }
    let [by_floor, by_relay, by_daemon] = samples;
    bench.report.row(Row {
        name: "P6",
        what: format!(
            "{mebibytes} MiB streamed to one lossless client; floor: a pipe reader ({rounds} times)"
        ),
        goal: Goal::RelayRate(1.8),
        floor: Some(by_floor),
        relay: Some(by_relay),
        daemon: by_daemon,
    });
    session.end(Duration::ZERO).await?;
    daemon.stop().await
}

/// Whose memory and CPU time P6 watches. What daemon and host share counts in
/// both, and their peaks need not have been at one time: at most that much.
struct Subject {
    name: &'static str,
    pids: Vec<u32>,
    memory: u64,
    cpu: Duration,
}

impl Subject {
    fn new(name: &'static str, pids: &[u32]) -> Self {
        Self {
            name,
            pids: pids.to_vec(),
            memory: 0,
            cpu: Duration::ZERO,
        }
    }

    fn begin(&mut self) -> anyhow::Result<()> {
        for pid in &self.pids {
            figures::reset_peak(*pid)?;
        }
        self.memory = figures::total(&self.pids, figures::resident)?;
        self.cpu = figures::total(&self.pids, figures::cpu)?;
        Ok(())
    }

    fn told(&self, rounds: u32) -> anyhow::Result<String> {
        Ok(format!(
            "P6: memory of {}: {:.1} MB before, {:.1} MB at most; CPU {:.2} s each time",
            self.name,
            megabytes(self.memory),
            megabytes(figures::total(&self.pids, figures::peak)?),
            ((figures::total(&self.pids, figures::cpu)? - self.cpu) / rounds).as_secs_f64(),
        ))
    }
}

/// P7: the same through a terminal, cooked and raw.
pub(crate) async fn terminal(bench: &mut Bench) -> anyhow::Result<()> {
    let daemon = bench.daemon("").await?;
    let session = daemon.session().await?;
    let mebibytes = bench.options.scaled(256, 32);
    let rounds = bench.options.scaled(5, 2);
    let head = format!("exec head -c {mebibytes}M /dev/zero");
    let raw_head = format!("stty raw; {head}");
    for (name, mode, script) in [
        ("P7 cooked", "cooked", head.as_str()),
        ("P7 raw", "raw", raw_head.as_str()),
    ] {
        let argv = ["sh", "-c", script];
        let mut samples = [const { Unit::MegabytesPerSecond }; 3].map(Samples::new);
        for round in 0..=rounds {
            let begin = Instant::now();
            let (child, master) = floor::start_on_terminal(&argv)?;
            let by_floor = (floor::finish(child, master, |_| {})?, begin.elapsed());
            let begin = Instant::now();
            let following = bench.relay.follow(&argv, true).await?;
            let by_relay = (following.read_all(|_| {}).await?, begin.elapsed());
            let begin = Instant::now();
            let command = session.program(argv).terminal(0, 0);
            let by_daemon = (lossless(command).await?, begin.elapsed());
            for (samples, (total, time)) in samples.iter_mut().zip([by_floor, by_relay, by_daemon])
            {
                anyhow::ensure!(total == bytes(mebibytes), "only {total} bytes came");
                if round > 0 {
                    samples.rate(total, time);
                }
            }
        }
        let [by_floor, by_relay, by_daemon] = samples;
        bench.report.row(Row {
            name,
            what: format!(
                "{mebibytes} MiB through a {mode} terminal to one client ({rounds} times)"
            ),
            goal: Goal::FloorRate(0.95),
            floor: Some(by_floor),
            relay: Some(by_relay),
            daemon: by_daemon,
        });
    }
    session.end(Duration::ZERO).await?;
    daemon.stop().await
}

/// Starts it, follows it as the reader that it waits for; the number of bytes.
async fn lossless(command: Command) -> anyhow::Result<u64> {
    let process = command.lossless().spawn().await?;
    let mut output = process.stream_output(OutputOptions {
        reader_id: Some("speed".into()),
        ..OutputOptions::default()
    });
    let mut total = 0;
    let mut exit = None;
    while let Some(event) = output.next().await? {
        match event {
            OutputEvent::Page(page) => {
                anyhow::ensure!(page.gap.is_none(), "a lossless reader lost something");
                total += page.data.len() as u64;
            }
            OutputEvent::Exit(told) => exit = Some(told),
            OutputEvent::End => {}
        }
    }
    let exit = exit.context("the stream told no exit")?;
    anyhow::ensure!(exit.success(), "{exit:?}");
    Ok(total)
}

fn bytes(mebibytes: usize) -> u64 {
    (mebibytes as u64) << 20
}
