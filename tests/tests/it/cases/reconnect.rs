//! Connections that break: whoever comes back goes on where it was.

use std::time::Duration;

use executor_client::{OutputEvent, Process, Reason};
use executor_tests::{Daemon, Fault, eventually, in_time, is_alive, scaled};

use super::everything;
use super::faults::{Behind, bash, dice};

/// Cuts a client off at random moments, each time for a while.
async fn outages(here: &Behind) {
    let mut dice = dice();
    for _ in 0..scaled(10, 4) {
        let longest = scaled(3000, 300) as u64;
        tokio::time::sleep(Duration::from_millis(dice.next() % 300)).await;
        here.proxy
            .fault(dice.one(&[Fault::Refuse, Fault::Deaf, Fault::None]));
        here.proxy.cut();
        tokio::time::sleep(Duration::from_millis(dice.next() % longest)).await;
        here.proxy.fault(Fault::None);
        here.proxy.cut();
    }
}

#[tokio::test]
async fn b142_output_is_gapless_and_without_repeats_across_cuts() {
    let here = Behind::new().await;
    let text = "i=0; until [ -e over ]; do echo $i; i=$((i+1)); sleep 0.001; done; echo $i > count";
    let process = in_time("start", bash(&here.session, text).spawn())
        .await
        .unwrap();
    let reading = everything(&process);
    let cutting = async {
        outages(&here).await;
        std::fs::write(here.daemon.work().join("over"), "").unwrap();
    };
    let (output, ()) = tokio::join!(reading, cutting);
    let count = std::fs::read_to_string(here.daemon.work().join("count")).unwrap();
    let count: usize = count.trim().parse().unwrap();
    let expected: String = (0..count).map(|line| format!("{line}\n")).collect();
    assert!(count > 0 && output == expected.as_bytes());
}

#[tokio::test]
async fn b142_what_was_overwritten_meanwhile_is_told_to_the_byte() {
    let here = Behind::new().await;
    // At a time about half of what is kept.
    let text = "i=0; until [ -e over ]; do seq 0 83332; i=$((i+1)); \
                sleep 0.01; done; echo $i > count";
    let process = in_time("start", bash(&here.session, text).spawn())
        .await
        .unwrap();
    let block: String = (0..83_333).map(|line| format!("{line}\n")).collect();
    let block = block.as_bytes();
    let length = block.len() as u64;
    let reading = async {
        let mut stream = process.output();
        let (mut next, mut lost) = (0, 0);
        while let Some(event) = in_time("output", stream.next()).await.unwrap() {
            let OutputEvent::Page(page) = event else {
                continue;
            };
            if let Some(gap) = &page.gap {
                assert_eq!((gap.from, gap.to), (next, page.start));
                lost += gap.to - gap.from;
                next = gap.to;
            }
            assert_eq!(page.start, next);
            for (at, byte) in (page.start..).zip(&page.data) {
                let due = block[usize::try_from(at % length).unwrap()];
                assert_eq!(*byte, due, "at {at}");
            }
            next = page.next_cursor;
        }
        (next, lost)
    };
    let cutting = async {
        outages(&here).await;
        here.proxy.fault(Fault::Refuse);
        here.proxy.cut();
        // Until what comes next for whoever reads is gone.
        let direct = here.daemon.machine().await;
        let credentials = here.session.credentials().clone();
        let direct = executor_client::Session::resume(&direct, credentials)
            .await
            .unwrap();
        let dropped = || async {
            direct
                .process(process.id())
                .info()
                .await
                .unwrap()
                .output_dropped
        };
        let before = dropped().await;
        eventually("what was kept is overwritten", || async {
            (dropped().await > before + (4 << 20)).then_some(())
        })
        .await;
        here.proxy.fault(Fault::None);
        std::fs::write(here.daemon.work().join("over"), "").unwrap();
    };
    let ((end, lost), ()) = tokio::join!(reading, cutting);
    let count = std::fs::read_to_string(here.daemon.work().join("count")).unwrap();
    let count: u64 = count.trim().parse().unwrap();
    assert_eq!(end, count * length, "{lost} lost");
    assert!(lost > 0);
}

async fn refused(process: &Process) -> [Option<Reason>; 4] {
    let info = in_time("info", process.info()).await;
    let stop = in_time("stop", process.kill()).await;
    let write = in_time("write", process.stdin().write("x\n")).await;
    let start = process.session().command("echo twice >> log").spawn();
    let start = in_time("start", start).await;
    [
        info.unwrap_err().reason(),
        stop.unwrap_err().reason(),
        write.unwrap_err().reason(),
        start.unwrap_err().reason(),
    ]
}

const LOST: [Option<Reason>; 4] = [
    Some(Reason::HostLost),
    Some(Reason::HostLost),
    Some(Reason::HostLost),
    Some(Reason::StartOutcomeUnknown),
];

#[tokio::test]
async fn b143_old_ids_mean_the_same_processes_or_none() {
    let mut here = Behind::new().await;
    let sleeper = here
        .session
        .command("read x; echo $x; sleep 600")
        .stdin_pipe();
    let sleeper = in_time("start", sleeper.spawn()).await.unwrap();
    let pid = sleeper.info().await.unwrap().pid.unwrap();

    // The daemon is killed: everything goes on.
    here.daemon.restart().await;
    assert_eq!(sleeper.info().await.unwrap().pid, Some(pid));

    // Another daemon answers at the same address: its own is not touched.
    let other = Daemon::start().await;
    let others = other
        .session()
        .await
        .command("sleep 600")
        .spawn()
        .await
        .unwrap();
    let stranger = others.info().await.unwrap().pid.unwrap();
    here.proxy.turn_to(&other.socket());
    assert_eq!(refused(&sleeper).await, LOST);
    assert!(is_alive(pid) && is_alive(stranger));

    // The first one is there again.
    here.proxy.turn_to(&here.daemon.socket());
    in_time("write", sleeper.stdin().write("typed\n"))
        .await
        .unwrap();
    eventually("what was typed", || async {
        let read = sleeper.read_output(0, 10, Duration::from_secs(1)).await;
        (&read.unwrap().page.unwrap().data[..] == b"typed\n").then_some(())
    })
    .await;

    // Its host is killed.
    let host = i32::try_from(here.daemon.host_pid().unwrap()).unwrap();
    let host = rustix::process::Pid::from_raw(host).unwrap();
    rustix::process::kill_process(host, rustix::process::Signal::KILL).unwrap();
    eventually("what was left is ended", || async {
        (!is_alive(pid)).then_some(())
    })
    .await;
    assert_eq!(refused(&sleeper).await, LOST);
    assert!(is_alive(stranger));
    assert!(!here.daemon.work().join("log").exists(), "nothing ran");
    assert!(!other.work().join("log").exists(), "nothing ran");
}
