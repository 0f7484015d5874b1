//! A writer at full speed and readers that cannot keep up with it.

use std::thread;

use super::super::segment::Ask;
use super::super::{LogStatus, Stream};
use super::*;

const PRODUCED: u64 = 1 << 20;

/// A sequence of numbers that only look random.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 33).expect("31 bits") % bound
    }
}

fn write(mut writer: LogWriter, separate: bool, shrinks: bool) {
    let mut numbers = Numbers(1);
    let mut end = 0;
    while end < PRODUCED {
        let length = 1 + numbers.below(200);
        // Whose a byte is follows from its offset, too.
        let bytes = record_bytes(end, length);
        let mut done = 0;
        while done < length {
            let at = end + done as u64;
            let step = (7 - at % 7).min((length - done) as u64);
            let step = usize::try_from(step).expect("at most seven");
            writer.append(&bytes[done..done + step], stream_of(at, separate));
            done += step;
        }
        end += length as u64;
        if shrinks && numbers.below(50) == 0 {
            writer.ask([Ask::Tail, Ask::All][numbers.below(2)]);
        }
    }
    writer.publish_exit();
}

fn stream_of(offset: u64, separate: bool) -> Stream {
    if separate && (offset / 7).is_multiple_of(3) {
        Stream::Stderr
    } else {
        Stream::Stdout
    }
}

fn follow(reader: &LogReader, seed: u64, separate: bool) -> u64 {
    let runtime = runtime();
    let mut numbers = Numbers(seed);
    let (mut cursor, mut returned, mut missed) = (0, 0, 0);
    loop {
        let status: LogStatus = reader.status().expect("a status");
        let page = reader.page(cursor, numbers.below(700)).expect("a page");
        if let Some(gap) = page.gap {
            assert_eq!((gap.from, gap.to), (cursor, page.start));
            assert!(gap.from < gap.to);
            let newlines = record_newlines(gap.from, gap.to);
            assert!(
                gap.newlines.is_none_or(|told| told == newlines),
                "{gap:?}, not {newlines}"
            );
            missed += gap.to - gap.from;
        } else {
            assert_eq!(page.start, cursor);
        }
        assert!(page.data[..] == record_bytes(page.start, page.data.len())[..]);
        let mut at = page.start;
        for run in &page.runs {
            for offset in at..at + run.length as u64 {
                assert_eq!(run.stream, stream_of(offset, separate));
            }
            at += run.length as u64;
        }
        if page.runs.is_empty() {
            let mut all = at..page.next_cursor();
            assert!(all.all(|offset| stream_of(offset, separate) == Stream::Stdout));
        }
        returned += page.data.len() as u64;
        cursor = page.next_cursor();
        assert_eq!(returned + missed, cursor);
        if status.ended && cursor == status.end {
            assert!(status.exited);
            return cursor;
        }
        if cursor == status.end {
            runtime.block_on(reader.changed(status));
        }
    }
}

fn race(geometry: Geometry, separate: bool, shrinks: bool) {
    for there in [false, true] {
        let store = LogStore::new(geometry, PLENTY);
        let (writer, mut reader) = store.create(Arc::default()).expect("a log");
        let logs = elsewhere(&store);
        let _listener = there.then(|| Listener::start(&logs));
        // The writer's end of the log must outlive the readers.
        let _kept = reader.clone();
        if there {
            reader = reader_there(&store, &logs, &reader);
        }
        thread::scope(|scope| {
            let readers: Vec<_> = (1..=3)
                .map(|seed| {
                    let reader = reader.clone();
                    scope.spawn(move || follow(&reader, seed, separate))
                })
                .collect();
            scope.spawn(move || write(writer, separate, shrinks));
            for reader in readers {
                assert!(reader.join().expect("a reader") >= PRODUCED);
            }
        });
    }
}

#[test]
fn b101_three_readers_of_a_fast_writer_get_every_byte_right_or_told_as_a_gap() {
    race(TINY, false, false);
    let larger = Geometry {
        head: 100,
        retained: 5000,
        slack: 1000,
        slots: 1,
    };
    race(larger, false, false);
}

#[test]
fn streams_are_right_while_the_writer_overtakes_readers() {
    race(TINY, true, false);
}

#[test]
fn memory_given_up_under_a_reader_is_a_gap_and_never_a_wrong_byte() {
    race(TINY, true, true);
}

#[test]
fn invariant_2_what_was_written_before_the_exit_is_readable_when_the_exit_is_seen() {
    for round in 0..200 {
        let store = LogStore::new(TINY, PLENTY);
        let (mut writer, mut reader) = store.create(Arc::default()).expect("a log");
        let _kept = reader.clone();
        if round % 2 == 1 {
            reader = reader_there(&store, &elsewhere(&store), &reader);
        }
        thread::scope(|scope| {
            scope.spawn(move || {
                writer.append(&record_bytes(0, 10 + round), Stream::Stdout);
                writer.publish_exit();
            });
            loop {
                let status = reader.status().expect("a status");
                if status.exited {
                    assert_eq!(status.end, 10 + round as u64);
                    break;
                }
                std::hint::spin_loop();
            }
        });
    }
}
