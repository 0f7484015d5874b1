//! Memory: taken as output arrives, bounded for all logs together, given back.

use std::collections::VecDeque;

use super::super::{RetiredLog, Stream};
use super::*;

const PAGE_BYTES: usize = 4096;
const PAGE: u64 = PAGE_BYTES as u64;

/// Pages of a head, and of a tail that is longer.
const PAGED: Geometry = Geometry {
    head: 2 * PAGE_BYTES,
    retained: 8 * PAGE_BYTES,
    slack: PAGE_BYTES,
    // Their control blocks fill one page, which is taken with the first log.
    slots: 8,
};

fn store(pages: u64) -> LogStore {
    assert_eq!(rustix::param::page_size(), PAGE_BYTES);
    LogStore::new(PAGED, pages * PAGE)
}

/// Memory that is really taken, without the control blocks.
fn taken(store: &LogStore) -> u64 {
    let segments = store.segments();
    segments
        .iter()
        .map(|segment| segment.allocated() - PAGE)
        .sum()
}

fn running(store: &LogStore, pages: u64) -> (LogWriter, LogReader, Arc<Notify>) {
    let wake = Arc::new(Notify::new());
    let (mut writer, reader) = store.create(Arc::clone(&wake)).expect("a log");
    write(&mut writer, pages);
    (writer, reader, wake)
}

fn write(writer: &mut LogWriter, pages: u64) {
    for _ in 0..pages {
        let bytes = record_bytes(writer.end(), PAGE_BYTES);
        writer.append(&bytes, Stream::Stdout);
    }
}

fn woken(wake: &Notify) -> bool {
    std::pin::pin!(wake.notified()).as_mut().enable()
}

/// What is still retained, in pages.
fn kept(reader: &LogReader) -> u64 {
    let status = reader.status().expect("a status");
    (status.end - status.dropped) / PAGE
}

#[test]
fn an_idle_log_takes_its_control_block_only() {
    let store = store(100);
    let logs: Vec<_> = (0..8)
        .map(|_| store.create(Arc::default()).expect("a log"))
        .collect();
    assert_eq!((store.used(), taken(&store)), (0, 0));
    assert!(
        logs.iter()
            .all(|(_, reader)| reader.page(0, 100).expect("a page").data.is_empty())
    );
    assert_eq!((store.used(), taken(&store)), (0, 0));
}

#[test]
fn memory_is_counted_as_it_is_taken() {
    let store = store(100);
    let (mut writer, reader, _) = running(&store, 0);
    for pages in [1, 2, 3, 5, 9, 11, 12, 30] {
        while writer.end() < pages * PAGE {
            let bytes = record_bytes(writer.end(), 1000);
            writer.append(&bytes, Stream::Stdout);
        }
        assert_eq!(store.used(), taken(&store));
    }
    writer.append(b"error", Stream::Stderr);
    assert!(store.used() >= taken(&store), "bits are counted");
    drop(writer);
    drop(reader);
    assert_eq!((store.used(), taken(&store)), (0, 0));
}

#[test]
fn retired_logs_shrink_first_oldest_first_the_tail_before_the_head() {
    let store = store(30);
    let (oldest, oldest_reader, _) = running(&store, 10);
    let (older, older_reader, _) = running(&store, 10);
    let (mut writer, reader, wake) = running(&store, 10);
    // Not in the order of their start.
    let older = older.retire();
    let oldest = oldest.retire();
    assert_eq!((kept(&older_reader), kept(&oldest_reader)), (10, 10));

    // A round of the ring, so that nothing is left to take without asking.
    write(&mut writer, 1);
    assert_eq!(
        (kept(&older_reader), kept(&oldest_reader), kept(&reader)),
        (2, 10, 10)
    );
    let (_second, second_reader, _) = running(&store, 8);
    assert_eq!((kept(&older_reader), kept(&oldest_reader)), (0, 10));
    let (_third, third_reader, _) = running(&store, 2);
    assert_eq!(
        (
            kept(&oldest_reader),
            kept(&second_reader),
            kept(&third_reader)
        ),
        (2, 8, 2)
    );
    assert!(!woken(&wake));
    assert!(store.used() <= 30 * PAGE);
    let page = older_reader.page(0, 100).expect("a page");
    assert_eq!(page.gap.map(|gap| (gap.from, gap.to)), Some((0, 10 * PAGE)));
    drop((older, oldest));
}

#[test]
fn then_the_largest_running_tail_is_asked_for_by_its_wake() {
    let store = store(20);
    let (mut large, large_reader, large_wake) = running(&store, 12);
    let (mut small, small_reader, small_wake) = running(&store, 9);
    assert_eq!(store.used(), 20 * PAGE);
    write(&mut small, 1);
    assert!(woken(&large_wake) && !woken(&small_wake));
    assert_eq!((kept(&large_reader), kept(&small_reader)), (10, 10));
    // What was asked for is not asked for again.
    small.append(b"x", Stream::Stdout);
    assert!(!woken(&large_wake) && !woken(&small_wake));

    large.shrink_if_asked();
    assert_eq!((kept(&large_reader), kept(&small_reader)), (2, 10));
    assert_eq!(store.used(), 13 * PAGE);
    assert_eq!(store.used(), taken(&store));
}

#[test]
fn a_log_that_retires_before_it_gave_what_was_asked_for_gives_it_then() {
    let store = store(20);
    let (large, large_reader, large_wake) = running(&store, 12);
    let (_small, _, _) = running(&store, 10);
    assert!(woken(&large_wake) && store.used() > 20 * PAGE);
    let retired = large.retire();
    assert!(store.used() <= 20 * PAGE);
    assert_eq!(kept(&large_reader), 2);
    drop(retired);
}

#[test]
fn a_running_log_that_gave_its_tail_up_goes_on() {
    let store = store(9);
    let (mut writer, reader, _) = running(&store, 0);
    let mut cursor = 0;
    let mut seen = 0;
    for _ in 0..50 {
        write(&mut writer, 1);
        assert!(store.used() <= 9 * PAGE);
        assert_eq!(store.used(), taken(&store));
        for page in pages(&reader, cursor, 3000) {
            assert!(page.data[..] == record_bytes(page.start, page.data.len())[..]);
            seen += page.data.len() as u64 + page.gap.map_or(0, |gap| gap.to - gap.from);
            cursor = page.next_cursor();
        }
        assert_eq!(seen, end(&reader));
    }
}

#[test]
fn two_thousand_logs_keep_within_a_small_budget() {
    let store = store(500);
    let mut writers: VecDeque<(LogWriter, LogReader, Arc<Notify>)> = VecDeque::new();
    let mut retired: VecDeque<(RetiredLog, LogReader)> = VecDeque::new();
    for number in 0..2000_u64 {
        let (mut writer, reader, wake) = running(&store, 0);
        writer.append(
            &record_bytes(0, 100),
            [Stream::Stdout, Stream::Stderr][(number % 2) as usize],
        );
        write(&mut writer, number % 7);
        writers.push_back((writer, reader, wake));
        if number % 3 == 0
            && let Some((writer, reader, _)) = writers.pop_front()
        {
            retired.push_back((writer.retire(), reader));
        }
        // As their tasks would.
        for (writer, _, wake) in &mut writers {
            if woken(wake) {
                writer.shrink_if_asked();
            }
        }
        assert!(
            store.used() <= 500 * PAGE,
            "{number}: {} pages",
            store.used() / PAGE
        );
        if number % 100 == 0 {
            assert!(taken(&store) <= 500 * PAGE);
        }
    }
    let readers = writers.iter().map(|(_, reader, _)| reader);
    for reader in readers.chain(retired.iter().map(|(_, reader)| reader)) {
        let seen: u64 = pages(reader, 0, 65_536)
            .iter()
            .map(|page| page.data.len() as u64 + page.gap.map_or(0, |gap| gap.to - gap.from))
            .sum();
        assert_eq!(seen, end(reader));
    }
    writers.clear();
    retired.clear();
    assert_eq!((store.used(), taken(&store)), (0, 0));
    assert_eq!(store.segments().len(), 1);
}

#[test]
fn a_slot_is_used_again_and_a_reader_from_before_finds_its_log_gone() {
    let store = LogStore::new(Geometry { slots: 1, ..TINY }, PLENTY);
    let (mut writer, stale) = store.create(Arc::default()).expect("a log");
    writer.append(&[b'x'; 300], Stream::Stderr);
    let retired = writer.retire();
    assert_eq!(stale.page(0, 10).expect("a page").data.len(), 10);
    let other = retired.reader();
    drop(retired);
    assert!(gone(&stale) && gone(&other));
    assert_eq!(store.used(), 0);

    let (mut writer, reader) = store.create(Arc::default()).expect("a log");
    assert_eq!(store.segments().len(), 1, "the slot was free again");
    assert_eq!(reader.status(), Ok(Default::default()));
    writer.append(&record_bytes(0, 200), Stream::Stdout);
    writer.append(b"error", Stream::Stderr);
    let page = reader.page(0, 300).expect("a page");
    assert!(page.data[..200] == record_bytes(0, 200)[..]);
    assert_eq!(page.runs.len(), 2, "nothing of the streams before is left");
    assert!(gone(&stale) && gone(&other));
}

#[test]
fn a_log_whose_writer_was_dropped_is_readable_until_its_last_reader_is() {
    let store = LogStore::new(TINY, PLENTY);
    let (mut writer, reader) = store.create(Arc::default()).expect("a log");
    writer.append(b"last words", Stream::Stdout);
    drop(writer);
    let other = reader.clone();
    drop(reader);
    let status = other.status().expect("a status");
    assert!(status.ended && !status.exited);
    assert_eq!(
        other.page(0, 100).expect("a page").data[..],
        b"last words"[..]
    );
    assert!(store.used() > 0);
    drop(other);
    assert_eq!(store.used(), 0);
}

#[test]
fn empty_segments_beyond_one_are_given_back() {
    let store = LogStore::new(TINY, PLENTY);
    assert_eq!(store.segments().len(), 0);
    let mut logs: Vec<_> = (0..40)
        .map(|_| store.create(Arc::default()).expect("a log"))
        .collect();
    assert_eq!(store.segments().len(), 10);
    logs.truncate(5);
    assert_eq!(
        store.segments().len(),
        3,
        "two in use and one that is empty"
    );
    logs.clear();
    assert_eq!(store.segments().len(), 1);
}
