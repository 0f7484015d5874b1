//! What the log promises, shown on small rings.

mod budget;
mod model;
mod pages;
mod race;
mod waking;

use std::sync::Arc;

use tokio::sync::Notify;

use super::{Geometry, LogReader, LogStore, LogWriter, Page, ReadError};

/// A ring that a few bytes fill.
const TINY: Geometry = Geometry {
    head: 64,
    retained: 256,
    slack: 64,
    slots: 4,
};

/// More than any test takes.
const PLENTY: u64 = 1 << 40;

fn log(geometry: Geometry) -> (LogWriter, LogReader) {
    LogStore::new(geometry, PLENTY)
        .create(Arc::new(Notify::new()))
        .expect("a log")
}

/// All pages from `cursor` to the end as it is now.
fn pages(reader: &LogReader, mut cursor: u64, max: usize) -> Vec<Page> {
    let mut pages = Vec::new();
    loop {
        let page = reader.page(cursor, max).expect("a page");
        if page.gap.is_none() && page.data.is_empty() {
            assert_eq!(page.start, page.end);
            return pages;
        }
        cursor = page.next_cursor();
        pages.push(page);
    }
}

fn end(reader: &LogReader) -> u64 {
    reader.status().expect("a status").end
}

fn gone(reader: &LogReader) -> bool {
    reader.status() == Err(ReadError::Gone) && reader.page(0, 1) == Err(ReadError::Gone)
}

/// The byte at an offset of an endless list of numbered lines of seven bytes.
fn record_byte(offset: u64) -> u8 {
    let (number, at) = (
        offset / 7 % 1_000_000,
        u32::try_from(offset % 7).expect("small"),
    );
    match at {
        6 => b'\n',
        _ => b'0' + u8::try_from(number / 10_u64.pow(5 - at) % 10).expect("a digit"),
    }
}

fn record_bytes(from: u64, length: usize) -> Vec<u8> {
    (from..from + length as u64).map(record_byte).collect()
}

/// Newlines of that list from `from` to `to`.
fn record_newlines(from: u64, to: u64) -> u64 {
    to / 7 - from / 7
}
