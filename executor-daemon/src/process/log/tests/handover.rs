//! A store whose logs another image goes on with.

use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;

use super::super::{LogAddress, RetiredLog, StoreState, Stream};
use super::*;

/// As execve(2) leaves it: what the old image held is not dropped.
type Left<T> = ManuallyDrop<T>;

fn exported(store: &LogStore) -> (StoreState, Vec<OwnedFd>) {
    let (state, files) = store.export();
    let text = serde_json::to_string(&state).expect("text");
    let state = serde_json::from_str(&text).expect("the same state");
    let files = files
        .iter()
        .map(|file| file.try_clone().expect("a descriptor"));
    (state, files.collect())
}

fn handed_over(store: &LogStore) -> LogStore {
    let (state, files) = exported(store);
    LogStore::import(state, files, PLENTY).expect("a store")
}

fn running(store: &LogStore, bytes: usize) -> Left<(LogWriter, LogReader)> {
    let (mut writer, reader) = store.create(Arc::default()).expect("a log");
    writer.append(&record_bytes(0, bytes), Stream::Stdout);
    Left::new((writer, reader))
}

fn retired(store: &LogStore, bytes: usize) -> Left<RetiredLog> {
    let (mut writer, _) = store.create(Arc::default()).expect("a log");
    writer.append(&record_bytes(0, bytes), Stream::Stdout);
    Left::new(writer.retire())
}

fn check(reader: &LogReader, mut cursor: u64) -> u64 {
    for page in pages(reader, cursor, 100) {
        if let Some(gap) = page.gap {
            assert_eq!((gap.from, gap.to), (cursor, page.start));
            let newlines = record_newlines(gap.from, gap.to);
            assert!(gap.newlines.is_none_or(|told| told == newlines));
        }
        assert!(page.data[..] == record_bytes(page.start, page.data.len())[..]);
        cursor = page.next_cursor();
    }
    cursor
}

#[test]
fn running_logs_go_on_and_readers_elsewhere_notice_nothing() {
    for bytes in [0, 10, 63, 64, 65, 300, 1000] {
        let store = LogStore::new(TINY, PLENTY);
        let logs = elsewhere(&store);
        let log = running(&store, bytes);
        let there = reader_there(&store, &logs, &log.1);
        let cursor = check(&there, 0);
        assert_eq!(cursor, bytes as u64);

        let next = handed_over(&store);
        let (mut writer, reader) = next
            .resume_running(there.address(), Arc::default())
            .expect("the log");
        next.sweep();
        assert_eq!(reader.address(), there.address());
        assert_eq!((writer.end(), next.used()), (bytes as u64, store.used()));
        for end in [bytes + 50, bytes + 500, bytes + 777] {
            let from = writer.end();
            let length = end - usize::try_from(from).expect("small");
            writer.append(&record_bytes(from, length), Stream::Stdout);
            assert_eq!(check(&there, cursor), end as u64);
            assert_eq!(check(&reader, 0), end as u64);
        }
        // Counts of newlines, too, have gone on.
        let page = reader.page(0, 100).expect("a page");
        let gap = reader.page(page.next_cursor(), 100).expect("a page").gap;
        let gap = gap.expect("a gap");
        let newlines = record_newlines(gap.from, gap.to);
        assert_eq!(gap.newlines, Some(newlines));
        writer.publish_exit();
        drop(writer.retire());
        assert!(gone(&there) && gone(&reader));
        assert_eq!(next.used(), 0);
    }
}

#[test]
fn a_separate_standard_error_and_a_published_end_are_remembered() {
    let store = LogStore::new(TINY, PLENTY);
    let mut both = running(&store, 10);
    both.0.append(b"error", Stream::Stderr);
    let mut ended = running(&store, 10);
    ended.0.publish_exit();
    ended.0.publish_end();
    let next = handed_over(&store);
    let (mut writer, reader) = next
        .resume_running(both.1.address(), Arc::default())
        .expect("the log");
    writer.append(b"out", Stream::Stdout);
    let runs = reader.page(0, 100).expect("a page").runs;
    let lengths: Vec<_> = runs.iter().map(|run| (run.stream, run.length)).collect();
    assert_eq!(
        lengths,
        [
            (Stream::Stdout, 10),
            (Stream::Stderr, 5),
            (Stream::Stdout, 3)
        ]
    );
    let (mut writer, reader) = next
        .resume_running(ended.1.address(), Arc::default())
        .expect("the log");
    writer.append(b"ignored", Stream::Stdout);
    let status = reader.status().expect("a status");
    assert!((status.end, status.exited, status.ended) == (10, true, true));
}

#[test]
fn retired_logs_stay_readable_and_give_memory_up_in_the_order_they_retired() {
    let store = LogStore::new(TINY, PLENTY);
    let logs: Vec<_> = (0..3).map(|_| retired(&store, 320)).collect();
    let (state, files) = exported(&store);
    let pages_taken = store.used();
    let next = LogStore::import(state, files, pages_taken).expect("a store");
    // In whatever order they are found.
    let resumed: Vec<_> = [2, 0, 1]
        .map(|n: usize| {
            let (address, age) = (logs[n].reader().address(), logs[n].age());
            (n, next.resume_retired(address, age).expect("the log"))
        })
        .into();
    next.sweep();
    assert_eq!(next.used(), pages_taken);
    let dropped = || {
        let mut dropped = [0; 3];
        for (n, log) in &resumed {
            dropped[*n] = log.reader().status().expect("a status").dropped;
            assert_eq!(check(&log.reader(), 0), 320);
        }
        dropped
    };
    assert_eq!(dropped(), [0, 0, 0]);
    let mut more = Vec::new();
    for expected in [[256, 0, 0], [320, 0, 0], [320, 256, 0]] {
        let (mut writer, reader) = next.create(Arc::default()).expect("a log");
        writer.append(b"x", Stream::Stdout);
        more.push((writer, reader));
        assert_eq!(dropped(), expected);
    }
    // New ones retire behind them.
    let (writer, _reader) = more.remove(0);
    let youngest = writer.retire();
    assert!(resumed.iter().all(|(_, log)| log.age() < youngest.age()));
}

#[test]
fn what_nobody_resumes_is_swept() {
    let store = LogStore::new(TINY, PLENTY);
    let logs = elsewhere(&store);
    let kept = running(&store, 100);
    let left: Vec<_> = (0..6).map(|_| running(&store, 300)).collect();
    let old = retired(&store, 300);
    let silent = running(&store, 0);
    let readers: Vec<_> = left
        .iter()
        .map(|log| &log.1)
        .chain([&old.reader(), &silent.1])
        .map(|reader| reader_there(&store, &logs, reader))
        .collect();

    let next = handed_over(&store);
    let waits = wait_on_a_thread(&readers[0]);
    let doorbell = passed(&logs.doorbell());
    until(|| doorbell.waits(0) != 0);
    let _resumed = next
        .resume_running(kept.1.address(), Arc::default())
        .expect("the log");
    // A new log takes nothing that may still be resumed.
    let new = next.create(Arc::default()).expect("a log");
    assert!(readers.iter().all(|reader| !gone(reader)));
    next.attach(doorbell);
    let _listener = Listener::start(&logs);
    next.sweep();
    assert_eq!(waits.join().expect("a wake-up"), Err(ReadError::Gone));
    assert!(readers.iter().all(gone));
    assert_eq!(next.used(), store.used() - 7 * left_bytes(&store, &left));
    assert!(
        next.resume_running(left[0].1.address(), Arc::default())
            .is_none()
    );

    // All slots can be used again, and nothing of before is in them.
    let again: Vec<_> = (0..7)
        .map(|_| next.create(Arc::default()).expect("a log"))
        .collect();
    assert!(next.live().len() <= 3);
    for (_, reader) in again.iter().chain([&new]) {
        assert_eq!(reader.status(), Ok(Default::default()));
        assert!(left.iter().all(|log| log.1.address() != reader.address()));
    }
}

/// What one of the logs takes, all of which are alike.
fn left_bytes(store: &LogStore, left: &[Left<(LogWriter, LogReader)>]) -> u64 {
    let one = LogStore::new(TINY, PLENTY);
    let (mut writer, _reader) = one.create(Arc::default()).expect("a log");
    writer.append(&record_bytes(0, 300), Stream::Stdout);
    assert!(!left.is_empty() && store.used() >= one.used());
    one.used()
}

#[test]
fn only_logs_that_were_left_are_resumed_and_once() {
    let store = LogStore::new(TINY, PLENTY);
    let log = running(&store, 10);
    let address = log.1.address();
    let next = handed_over(&store);
    let wrong = [
        LogAddress {
            generation: 1,
            ..address
        },
        LogAddress { slot: 1, ..address },
        LogAddress {
            slot: u32::MAX,
            ..address
        },
        LogAddress {
            segment: 1,
            ..address
        },
    ];
    for address in wrong {
        assert!(next.resume_running(address, Arc::default()).is_none());
        assert!(next.resume_retired(address, 0).is_none());
    }
    let resumed = next.resume_running(address, Arc::default());
    assert!(resumed.is_some());
    assert!(next.resume_running(address, Arc::default()).is_none());
    assert!(next.resume_retired(address, 0).is_none());
}

#[test]
fn segments_keep_their_numbers_and_new_ones_get_others() {
    let store = LogStore::new(Geometry { slots: 1, ..TINY }, PLENTY);
    let logs: Vec<_> = (0..4).map(|_| running(&store, 5)).collect();
    let next = handed_over(&store);
    let resumed: Vec<_> = logs
        .iter()
        .filter_map(|log| next.resume_running(log.1.address(), Arc::default()))
        .collect();
    next.sweep();
    let new = next.create(Arc::default()).expect("a log");
    assert_eq!((resumed.len(), new.1.address().segment), (4, 4));
    let number = |store: &LogStore, id| {
        let segment = store.segment(id).expect("a descriptor");
        segment.map(|segment| (segment.id, segment.number))
    };
    for id in 0..4 {
        assert_eq!(number(&next, id), number(&store, id));
    }
    assert_eq!(number(&next, 4), Some((4, 4)));
}

#[test]
fn an_export_that_comes_to_nothing_changes_nothing() {
    let store = LogStore::new(TINY, PLENTY);
    let (mut writer, reader) = store.create(Arc::default()).expect("a log");
    writer.append(&record_bytes(0, 10), Stream::Stdout);
    let (_, files) = store.export();
    drop(files);
    writer.append(&record_bytes(10, 10), Stream::Stdout);
    assert_eq!(check(&reader, 0), 20);
    drop((writer, reader));
    assert_eq!(store.used(), 0);
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let store = LogStore::new(Geometry { slots: 1, ..TINY }, PLENTY);
    let _logs = [running(&store, 5), running(&store, 5)];
    let (state, _) = store.export();
    let value = serde_json::to_value(&state).expect("a value");
    let with = |pointer: &str, new: u64| {
        let mut value = value.clone();
        *value.pointer_mut(pointer).expect("a field") = new.into();
        serde_json::from_value::<StoreState>(value).expect("a state")
    };
    let refused = [
        with("/format", 2),
        with("/geometry/slots", 65),
        with("/made", 1),
        with("/segments/1/id", 0),
        with("/segments/1/number", 0),
        with("/segments/1/number", 16_384),
        with("/segments/1/file", 0),
        with("/segments/1/file", 2),
        with("/segments/1/geometry/retained", 1 << 20),
    ];
    for state in refused {
        let (_, files) = exported(&store);
        let error = LogStore::import(state.clone(), files, PLENTY).map(drop);
        let error = error.expect_err("refused");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidData, "{state:?}");
    }
    let (_, files) = exported(&store);
    assert!(LogStore::import(state, files, PLENTY).is_ok());
}
