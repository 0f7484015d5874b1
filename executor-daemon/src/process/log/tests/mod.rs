//! What the log promises, shown on small rings.

mod budget;
mod doorbell;
mod handover;
mod model;
mod pages;
mod race;
mod remote;
mod waking;

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::{
    Doorbell, Geometry, LogReader, LogStatus, LogStore, LogWriter, Page, ReadError, RemoteLogs,
};

/// A ring that a few bytes fill.
const TINY: Geometry = Geometry {
    head: 64,
    retained: 256,
    slack: 64,
    slots: 4,
};

/// Until then everything has happened.
const DEADLINE: Duration = Duration::from_secs(60);

/// More than any test takes.
const PLENTY: u64 = 1 << 40;

fn log(geometry: Geometry) -> (LogWriter, LogReader) {
    LogStore::new(geometry, PLENTY)
        .create(Arc::new(Notify::new()))
        .expect("a log")
}

/// The same doorbell from its descriptors, as the other process has it.
fn passed(doorbell: &Doorbell) -> Doorbell {
    let [memory, event] = doorbell
        .descriptors()
        .map(|descriptor| descriptor.try_clone_to_owned().expect("a descriptor"));
    Doorbell::from_descriptors(memory, event).expect("a doorbell")
}

/// Another process, which maps the memory again; nobody listens to its doorbell.
fn elsewhere(store: &LogStore) -> RemoteLogs {
    let doorbell = Doorbell::new().expect("a doorbell");
    store.attach(passed(&doorbell));
    RemoteLogs::new(doorbell)
}

/// A reader of the same log in the other process.
fn reader_there(store: &LogStore, logs: &RemoteLogs, reader: &LogReader) -> LogReader {
    let address = reader.address();
    let segment = store.segment(address.segment).expect("a descriptor");
    logs.add(&segment.expect("a segment")).expect("a mapping");
    logs.reader(address).expect("a reader")
}

/// Listens on a thread of its own until dropped; then the logs are closed.
struct Listener {
    logs: RemoteLogs,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    fn start(logs: &RemoteLogs) -> Self {
        let listening = logs.clone();
        let thread = thread::spawn(move || {
            runtime()
                .block_on(listening.listen())
                .expect("a listener that ends by itself");
        });
        Self {
            logs: logs.clone(),
            thread: Some(thread),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.logs.close();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || ended.is_some_and(|ended| ended.is_ok()));
    }
}

async fn deadline<T>(future: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(DEADLINE, future).await;
    done.expect("what was waited for")
}

fn until(happened: impl Fn() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < DEADLINE, "what was waited for");
        thread::yield_now();
    }
}

/// Waits on a thread of its own until the status is another.
fn wait_on_a_thread(reader: &LogReader) -> JoinHandle<Result<LogStatus, ReadError>> {
    let reader = reader.clone();
    let seen = reader.status().expect("a status");
    thread::spawn(move || {
        runtime().block_on(deadline(reader.changed(seen)));
        assert_ne!(reader.status(), Ok(seen));
        reader.status()
    })
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
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
