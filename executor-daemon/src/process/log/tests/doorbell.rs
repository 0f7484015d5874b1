//! Readers that wait in another process.

use std::os::fd::AsFd;
use std::task::{Context, Waker};

use super::super::doorbell::SEGMENTS;
use super::super::segment::Ask;
use super::super::{LogStatus, Stream};
use super::*;

/// A log, its reader elsewhere, and the doorbell between as an onlooker has it.
struct Setup {
    store: LogStore,
    writer: LogWriter,
    here: LogReader,
    logs: RemoteLogs,
    reader: LogReader,
    onlooker: Doorbell,
}

impl Setup {
    fn new() -> Self {
        let store = LogStore::new(TINY, PLENTY);
        let (writer, here) = store.create(Arc::default()).expect("a log");
        let doorbell = Doorbell::new().expect("a doorbell");
        let onlooker = passed(&doorbell);
        store.attach(passed(&doorbell));
        let logs = RemoteLogs::new(doorbell);
        let reader = reader_there(&store, &logs, &here);
        let setup = Self {
            store,
            writer,
            here,
            logs,
            reader,
            onlooker,
        };
        // Attaching rings once.
        assert_eq!(setup.rung(), []);
        setup
    }

    /// What was rung since, which nobody else will find any more.
    fn rung(&self) -> Vec<(u32, u64)> {
        rung(&self.onlooker)
    }

    fn write(&mut self) {
        self.writer.append(b"x", Stream::Stdout);
    }
}

fn rung(doorbell: &Doorbell) -> Vec<(u32, u64)> {
    let mut rung = Vec::new();
    doorbell.take(0..10, |number, bits| rung.push((number, bits)));
    rung
}

/// Waits on a thread of its own; returns when it has registered.
fn waiting(setup: &Setup, reader: &LogReader) -> JoinHandle<Result<LogStatus, ReadError>> {
    let waits = |doorbell: &Doorbell| doorbell.waits(0) != 0;
    assert!(!waits(&setup.onlooker));
    let thread = wait_on_a_thread(reader);
    until(|| waits(&setup.onlooker));
    thread
}

#[test]
fn a_reader_elsewhere_waits_until_something_changes() {
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
    let mut setup = Setup::new();
    let _listener = Listener::start(&setup.logs);
    for change in changes {
        let thread = waiting(&setup, &setup.reader);
        change(&mut setup.writer);
        thread.join().expect("a wake-up").expect("a status");
    }
    let thread = waiting(&setup, &setup.reader);
    let Setup { writer, reader, .. } = setup;
    drop(writer.retire());
    assert_eq!(thread.join().expect("a wake-up"), Err(ReadError::Gone));
    assert!(gone(&reader));
}

#[test]
fn nothing_is_rung_while_nobody_waits() {
    let mut setup = Setup::new();
    setup.write();
    assert_eq!(setup.rung(), []);
    let seen = setup.reader.status().expect("a status");
    {
        let runtime = runtime();
        let first = setup.reader.changed(seen);
        let second = setup.reader.changed(seen);
        runtime.block_on(async {
            let mut second = std::pin::pin!(second);
            {
                let mut first = std::pin::pin!(first);
                tokio::select! { biased;
                    () = &mut first => unreachable!("nothing changed"),
                    () = &mut second => unreachable!("nothing changed"),
                    () = std::future::ready(()) => {}
                }
            }
            // One of two has left.
            assert_eq!(setup.onlooker.waits(0), 1);
        });
    }
    assert_eq!(setup.onlooker.waits(0), 0, "and the last one, too");
    setup.write();
    assert_eq!(setup.rung(), []);
}

#[test]
fn only_the_slots_that_changed_are_rung_and_once() {
    let mut setup = Setup::new();
    let (mut other, here) = setup.store.create(Arc::default()).expect("a log");
    let quiet = reader_there(&setup.store, &setup.logs, &here);
    let threads = [waiting(&setup, &setup.reader), wait_on_a_thread(&quiet)];
    until(|| setup.onlooker.waits(0) == 0b11);
    setup.write();
    setup.write();
    assert_eq!(setup.rung(), [(0, 1)]);
    assert_eq!(setup.rung(), []);
    other.append(b"y", Stream::Stdout);
    setup.write();
    assert_eq!(setup.rung(), [(0, 0b11)]);
    // For the two that wait; what was rung before, the onlooker has eaten.
    setup.write();
    other.append(b"y", Stream::Stdout);
    let _listener = Listener::start(&setup.logs);
    for thread in threads {
        thread.join().expect("a wake-up").expect("a status");
    }
}

#[test]
fn who_waits_before_the_doorbell_is_attached_misses_nothing() {
    let mut setup = Setup::new();
    setup.store.detach();
    let thread = waiting(&setup, &setup.reader);
    let _listener = Listener::start(&setup.logs);
    setup.write();
    setup.store.attach(passed(&setup.onlooker));
    thread.join().expect("a wake-up").expect("a status");
}

#[test]
fn a_waiting_reader_goes_on_waiting_at_the_doorbell_of_the_next_connection() {
    let mut setup = Setup::new();
    let thread = waiting(&setup, &setup.reader);
    let next = Doorbell::new().expect("a doorbell");
    let onlooker = passed(&next);
    runtime().block_on(async {
        let mut listening = std::pin::pin!(setup.logs.listen());
        tokio::select! { biased;
            _ = &mut listening => unreachable!("nothing was closed"),
            () = std::future::ready(()) => {}
        }
        setup.store.attach(passed(&next));
        setup.logs.connect(next);
        until(|| onlooker.waits(0) != 0);
        assert_eq!(setup.onlooker.waits(0), 0, "the bit before is cleared");
        setup.writer.append(b"x", Stream::Stdout);
        let woken = tokio::task::spawn_blocking(|| thread.join());
        tokio::select! {
            _ = &mut listening => unreachable!("nothing was closed"),
            woken = deadline(woken) => woken.expect("a thread").expect("a wake-up").expect("a status"),
        };
    });
}

#[test]
fn each_of_two_that_wait_for_one_log_moves_to_the_next_doorbell() {
    let setup = Setup::new();
    let seen = setup.reader.status().expect("a status");
    let mut first = std::pin::pin!(setup.reader.changed(seen));
    let mut second = std::pin::pin!(setup.reader.changed(seen));
    let mut context = Context::from_waker(Waker::noop());
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(second.as_mut().poll(&mut context).is_pending());
    let next = Doorbell::new().expect("a doorbell");
    setup.logs.connect(next.clone());
    assert_eq!(next.waits(0), 0);
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert_eq!(next.waits(0), 1);
    assert!(second.as_mut().poll(&mut context).is_pending());
    assert_eq!(next.waits(0), 1);
}

#[test]
fn bits_left_by_a_reading_process_that_died_cost_the_next_one_nothing() {
    let mut setup = Setup::new();
    // Nobody listens, nobody will.
    let dead = waiting(&setup, &setup.reader);
    setup.write();
    let logs = elsewhere(&setup.store);
    let reader = reader_there(&setup.store, &logs, &setup.here);
    assert_eq!(setup.rung(), [(0, 1)]);
    setup.write();
    assert_eq!(setup.rung(), [], "the doorbell before is not rung any more");
    let _listener = Listener::start(&logs);
    let thread = wait_on_a_thread(&reader);
    until(|| logs.doorbell().waits(0) != 0);
    setup.write();
    thread.join().expect("a wake-up").expect("a status");
    setup.logs.close();
    assert_eq!(dead.join().expect("the end"), Err(ReadError::Gone));
}

#[test]
fn when_the_writing_process_is_lost_every_reader_finds_its_log_gone() {
    let setup = Setup::new();
    let listener = Listener::start(&setup.logs);
    let thread = waiting(&setup, &setup.reader);
    drop(listener);
    assert_eq!(thread.join().expect("a wake-up"), Err(ReadError::Gone));
    assert!(gone(&setup.reader));
}

#[test]
fn listening_can_be_broken_off_and_goes_on_later() {
    let mut setup = Setup::new();
    let thread = waiting(&setup, &setup.reader);
    runtime().block_on(async {
        let listening = setup.logs.listen();
        tokio::select! { biased;
            _ = listening => unreachable!("nothing was closed"),
            () = std::future::ready(()) => {}
        }
    });
    setup.write();
    let _listener = Listener::start(&setup.logs);
    thread.join().expect("a wake-up").expect("a status");
}

#[test]
fn one_knock_is_enough_until_somebody_looks() {
    let mut setup = Setup::new();
    let thread = waiting(&setup, &setup.reader);
    let [_, event] = setup.onlooker.descriptors();
    let event = event.try_clone_to_owned().expect("a descriptor");
    let knocks = || {
        let mut count = [0; 8];
        match rustix::io::read(&event, &mut count) {
            Ok(_) => u64::from_ne_bytes(count),
            Err(_) => 0,
        }
    };
    for _ in 0..10 {
        setup.write();
    }
    assert_eq!(knocks(), 1);
    setup.write();
    assert_eq!(knocks(), 0);
    assert_eq!(setup.rung(), [(0, 1)]);
    setup.write();
    assert_eq!(knocks(), 1);
    setup.logs.close();
    assert_eq!(thread.join().expect("the end"), Err(ReadError::Gone));
}

#[test]
fn the_highest_numbers_have_bits_of_their_own() {
    use super::super::doorbell::Spot;
    let doorbell = Doorbell::new().expect("a doorbell");
    let spots = [
        (0, 0),
        (0, 63),
        (1, 0),
        (SEGMENTS - 1, 0),
        (SEGMENTS - 1, 63),
    ];
    for (number, slot) in spots {
        doorbell.wait(Spot { number, slot });
    }
    let bits = 1 | 1 << 63;
    let waits = [0, 1, 2, SEGMENTS - 2, SEGMENTS - 1].map(|number| doorbell.waits(number));
    assert_eq!(waits, [bits, 1, 0, 0, bits]);
    doorbell.leave(Spot {
        number: 0,
        slot: 63,
    });
    assert_eq!(doorbell.waits(0), 1);
}

#[test]
fn only_the_descriptors_of_a_doorbell_make_one() {
    let doorbell = Doorbell::new().expect("a doorbell");
    let [memory, event] = doorbell.descriptors();
    let own = |descriptor: std::os::fd::BorrowedFd<'_>| {
        descriptor.try_clone_to_owned().expect("a descriptor")
    };
    assert!(Doorbell::from_descriptors(own(memory), own(event)).is_ok());
    let (pipe, _) = rustix::pipe::pipe().expect("a pipe");
    let store = LogStore::new(TINY, PLENTY);
    let _log = store.create(Arc::default()).expect("a log");
    let segment = store.segment(0).expect("a descriptor").expect("a segment");
    for (memory, event) in [
        (event, memory),
        (memory, pipe.as_fd()),
        (pipe.as_fd(), event),
        (segment.file.as_fd(), event),
    ] {
        assert!(Doorbell::from_descriptors(own(memory), own(event)).is_err());
    }
}
