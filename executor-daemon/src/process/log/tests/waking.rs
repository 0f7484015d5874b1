//! Readers that wait.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;

use super::super::Stream;
use super::super::segment::Ask;
use super::*;

fn ready(future: std::pin::Pin<&mut impl Future<Output = ()>>) -> bool {
    future.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
}

#[test]
fn a_reader_waits_until_something_changes() {
    let changes: [fn(&mut LogWriter); 5] = [
        |writer| writer.append(b"x", Stream::Stdout),
        LogWriter::publish_exit,
        |writer| writer.append(b"y", Stream::Stdout),
        |writer| {
            writer.ask(Ask::All);
            writer.shrink_if_asked();
        },
        LogWriter::publish_end,
    ];
    let (mut writer, reader) = log(TINY);
    for change in changes {
        let seen = reader.status().expect("a status");
        let mut changed = pin!(reader.changed(seen));
        assert!(!ready(changed.as_mut()));
        change(&mut writer);
        assert!(ready(changed));
        assert_ne!(reader.status(), Ok(seen));
    }
}

#[test]
fn what_changed_before_the_wait_is_not_waited_for() {
    let (mut writer, reader) = log(TINY);
    let seen = reader.status().expect("a status");
    writer.append(b"x", Stream::Stdout);
    assert!(ready(pin!(reader.changed(seen))));
}

#[test]
fn a_reader_that_waits_is_told_that_the_log_is_gone() {
    let (writer, reader) = log(TINY);
    let retired = writer.retire();
    let seen = reader.status().expect("a status");
    let mut changed = pin!(reader.changed(seen));
    assert!(!ready(changed.as_mut()));
    drop(retired);
    assert!(ready(changed));
    assert!(gone(&reader));
}

#[test]
fn no_wake_up_is_lost_between_looking_and_waiting() {
    const ROUNDS: u64 = 5_000;
    let store = LogStore::new(TINY, PLENTY);
    for there in [false, true] {
        let (mut out, mut ping) = store.create(Arc::default()).expect("a log");
        let (mut back, mut pong) = store.create(Arc::default()).expect("a log");
        // Both go over one doorbell, and its listener.
        let logs = elsewhere(&store);
        let _listener = Listener::start(&logs);
        let _kept = (ping.clone(), pong.clone());
        if there {
            ping = reader_there(&store, &logs, &ping);
            pong = reader_there(&store, &logs, &pong);
        }
        thread::scope(|scope| {
            scope.spawn(move || {
                let runtime = runtime();
                for round in 1..=ROUNDS {
                    runtime.block_on(reach(&ping, round));
                    back.append(b"o", Stream::Stdout);
                }
            });
            let runtime = runtime();
            for round in 1..=ROUNDS {
                out.append(b"i", Stream::Stdout);
                runtime.block_on(reach(&pong, round));
            }
        });
    }
}

/// Waits until so many bytes were written.
async fn reach(reader: &LogReader, end: u64) {
    loop {
        let status = reader.status().expect("a status");
        if status.end >= end {
            return;
        }
        deadline(reader.changed(status)).await;
    }
}
