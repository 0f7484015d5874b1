//! Readers in another process: addresses, segments that come and go.

use std::collections::BTreeSet;
use std::os::fd::AsFd;

use super::super::{LogAddress, SegmentFile, Stream};
use super::*;

/// One log per segment.
const ALONE: Geometry = Geometry { slots: 1, ..TINY };

fn segment(store: &LogStore, id: u64) -> SegmentFile {
    let segment = store.segment(id).expect("a descriptor");
    segment.expect("a segment")
}

#[test]
fn an_address_leads_to_the_same_bytes_without_taking_part_in_the_log() {
    let store = LogStore::new(TINY, PLENTY);
    let logs = elsewhere(&store);
    let (mut writer, reader) = store.create(Arc::default()).expect("a log");
    let there = reader_there(&store, &logs, &reader);
    assert_eq!(there.address(), reader.address());
    writer.append(&record_bytes(0, 500), Stream::Stdout);
    writer.append(b"error", Stream::Stderr);
    assert_eq!(pages(&there, 0, 100), pages(&reader, 0, 100));
    assert_eq!(there.status(), reader.status());

    drop(there.clone());
    drop((writer, reader));
    assert!(gone(&there), "the other process alone decides");
    assert_eq!(store.used(), 0);
}

#[test]
fn the_next_log_in_a_slot_is_not_the_one_that_was_there() {
    let store = LogStore::new(ALONE, PLENTY);
    let logs = elsewhere(&store);
    let (mut writer, reader) = store.create(Arc::default()).expect("a log");
    let old = reader_there(&store, &logs, &reader);
    writer.append(b"old", Stream::Stdout);
    drop((writer, reader));
    let (mut writer, reader) = store.create(Arc::default()).expect("a log");
    writer.append(b"new", Stream::Stdout);
    let new = reader_there(&store, &logs, &reader);
    let (was, is) = (old.address(), new.address());
    assert_eq!((was.segment, was.slot), (is.segment, is.slot));
    assert_ne!(was.generation, is.generation);
    assert!(gone(&old) && gone(&logs.reader(was).expect("a segment")));
    assert_eq!(new.page(0, 10).expect("a page").data[..], b"new"[..]);
}

#[test]
fn the_descriptor_passed_on_cannot_be_written_and_is_made_once() {
    let store = LogStore::new(TINY, PLENTY);
    let (_writer, reader) = store.create(Arc::default()).expect("a log");
    let file = segment(&store, reader.address().segment).file;
    assert!(rustix::io::write(&*file, b"x").is_err());
    let mode = rustix::fs::fcntl_getfl(&*file).expect("flags") & rustix::fs::OFlags::ACCMODE;
    assert_eq!(mode, rustix::fs::OFlags::RDONLY);
    assert!(Arc::ptr_eq(&file, &segment(&store, 0).file));
    assert!(store.segment(1).expect("no error").is_none());
}

#[test]
fn segments_that_are_gone_are_forgotten_and_their_readers_find_it_out() {
    let store = LogStore::new(ALONE, PLENTY);
    let logs = elsewhere(&store);
    let mut writers: Vec<_> = (0..5)
        .map(|_| store.create(Arc::default()).expect("a log"))
        .collect();
    let readers: Vec<_> = writers
        .iter()
        .map(|(_, reader)| reader_there(&store, &logs, reader))
        .collect();
    assert_eq!(store.live(), [0, 1, 2, 3, 4]);
    // The first of them that is empty is kept.
    writers.drain(1..4);
    assert_eq!(store.live(), [0, 1, 4]);
    logs.retain(&store.live());
    for (id, reader) in readers.iter().enumerate() {
        let known = logs.reader(reader.address()).is_some();
        assert_eq!(known, [0, 1, 4].contains(&id), "segment {id}");
        assert_eq!(gone(reader), [1, 2, 3].contains(&id), "segment {id}");
    }
}

#[test]
fn a_number_used_again_does_not_mix_up_logs() {
    let store = LogStore::new(ALONE, PLENTY);
    let logs = elsewhere(&store);
    let create = || store.create(Arc::default()).expect("a log");
    let (first, second) = (create(), create());
    let old = reader_there(&store, &logs, &second.1);
    let number_of = |reader: &LogReader| segment(&store, reader.address().segment).number;
    assert_eq!((number_of(&first.1), number_of(&old)), (0, 1));

    // Somebody waits for the old log, and nobody listens yet.
    let waits = wait_on_a_thread(&old);
    let old_line = passed_again(&logs);
    until(|| old_line.waits(1) != 0);
    drop(first);
    drop(second);
    assert_eq!(store.live(), [0]);
    let (third, mut fourth) = (create(), create());
    let new = reader_there(&store, &logs, &fourth.1);
    assert_eq!((number_of(&third.1), number_of(&new)), (0, 1));
    assert_ne!(new.address().segment, old.address().segment);

    // The one who waits for the new log is not forgotten when the other leaves.
    let waits_too = wait_on_a_thread(&new);
    let _listener = Listener::start(&logs);
    assert_eq!(waits.join().expect("a wake-up"), Err(ReadError::Gone));
    assert!(gone(&old));
    fourth.0.append(b"new", Stream::Stdout);
    waits_too.join().expect("a wake-up").expect("a status");
    assert_eq!(new.page(0, 10).expect("a page").data[..], b"new"[..]);
    assert!(gone(&old));
}

/// The doorbell of these logs as an onlooker has it.
fn passed_again(logs: &RemoteLogs) -> Doorbell {
    passed(&logs.doorbell())
}

#[test]
fn numbers_are_the_lowest_that_are_free() {
    let store = LogStore::new(ALONE, PLENTY);
    let mut held: Vec<_> = (0..10)
        .map(|_| store.create(Arc::default()).expect("a log"))
        .collect();
    held.drain(2..7);
    held.extend((0..7).map(|_| store.create(Arc::default()).expect("a log")));
    let live = store.live();
    assert_eq!(live.len(), 12);
    let numbers: BTreeSet<u32> = live.iter().map(|id| segment(&store, *id).number).collect();
    assert_eq!(numbers, (0..12).collect());
}

#[test]
fn what_is_no_segment_is_refused() {
    let store = LogStore::new(TINY, PLENTY);
    let logs = elsewhere(&store);
    let (_writer, reader) = store.create(Arc::default()).expect("a log");
    let good = segment(&store, 0);
    let with = |geometry| SegmentFile {
        geometry,
        ..good.clone()
    };
    let (pipe, _) = rustix::pipe::pipe().expect("a pipe");
    let bad = [
        with(Geometry {
            head: 1 << 20,
            ..TINY
        }),
        with(Geometry { slots: 3, ..TINY }),
        with(Geometry { slots: 0, ..TINY }),
        with(Geometry { slots: 65, ..TINY }),
        with(Geometry {
            retained: usize::MAX,
            ..TINY
        }),
        SegmentFile {
            number: 16_384,
            ..good.clone()
        },
        SegmentFile {
            file: Arc::new(pipe.as_fd().try_clone_to_owned().expect("a descriptor")),
            ..good.clone()
        },
    ];
    for segment in bad {
        assert!(logs.add(&segment).is_err(), "{segment:?}");
        assert!(logs.reader(reader.address()).is_none());
    }
    logs.add(&good).expect("a mapping");
    logs.add(&good).expect("the same again");
    let address = reader.address();
    assert!(logs.reader(address).is_some());
    for slot in [4, u32::MAX] {
        assert!(logs.reader(LogAddress { slot, ..address }).is_none());
    }
}

#[test]
fn a_remote_reader_of_a_slot_without_a_log_yet_finds_none() {
    let store = LogStore::new(TINY, PLENTY);
    let logs = elsewhere(&store);
    let (_writer, reader) = store.create(Arc::default()).expect("a log");
    let there = reader_there(&store, &logs, &reader);
    let generation = there.address().generation + 1;
    let later = LogAddress {
        generation,
        ..there.address()
    };
    assert!(gone(&logs.reader(later).expect("a segment")));
}
