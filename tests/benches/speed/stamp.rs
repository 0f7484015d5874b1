//! The child of P3: writes the time, and the reader takes the difference.

use std::io::Write as _;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// One record: nanoseconds in 16 hexadecimal digits. No line ends, which a
/// terminal would change.
const RECORD: usize = 16;
/// Between two records: longer than any reader needs for one.
const PAUSE: Duration = Duration::from_millis(2);
/// Before the first record, so that the reader is there.
const START: Duration = Duration::from_millis(50);

/// Writes so many records to stdout.
pub(crate) fn write(count: usize) -> anyhow::Result<()> {
    std::thread::sleep(START);
    let mut stdout = std::io::stdout();
    for _ in 0..count {
        std::thread::sleep(PAUSE);
        write!(stdout, "{:016x}", now())?;
        stdout.flush()?;
    }
    Ok(())
}

/// CLOCK_MONOTONIC in nanoseconds: the same clock in every process.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    seconds * 1_000_000_000 + nanos
}

/// Takes the records in and keeps how old each was when it came.
#[derive(Debug, Default)]
pub(crate) struct Ages {
    rest: Vec<u8>,
    ages: Vec<Duration>,
}

impl Ages {
    /// Bytes that have just come.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        let now = now();
        self.rest.extend_from_slice(bytes);
        while let Some(record) = self.rest.get(..RECORD) {
            let written = std::str::from_utf8(record).ok();
            let written = written.and_then(|text| u64::from_str_radix(text, 16).ok());
            if let Some(written) = written {
                self.ages
                    .push(Duration::from_nanos(now.saturating_sub(written)));
            }
            self.rest.drain(..RECORD);
        }
    }

    /// All but the first few, in which everything warms up.
    ///
    /// # Errors
    /// When another number of records came than was written.
    pub(crate) fn after_warm_up(
        self,
        written: usize,
        warm_up: usize,
    ) -> anyhow::Result<impl Iterator<Item = Duration>> {
        let came = self.ages.len();
        anyhow::ensure!(came == written, "{came} records came of {written}");
        Ok(self.ages.into_iter().skip(warm_up))
    }
}
