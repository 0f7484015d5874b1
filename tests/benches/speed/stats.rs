//! Samples, and the table they end in.

use std::fmt;
use std::time::Duration;

/// What a sample counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Microseconds,
    Milliseconds,
    Seconds,
    /// 10^6 bytes.
    Megabytes,
    /// 10^6 bytes a second. More is better.
    MegabytesPerSecond,
    /// Open files of a process.
    Descriptors,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Microseconds => "µs",
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
            Self::Megabytes => "MB",
            Self::MegabytesPerSecond => "MB/s",
            Self::Descriptors => "fds",
        }
    }

    /// Decimals that mean something.
    fn decimals(self) -> usize {
        match self {
            Self::Milliseconds | Self::Seconds => 3,
            Self::Megabytes => 1,
            Self::Microseconds | Self::MegabytesPerSecond | Self::Descriptors => 0,
        }
    }
}

/// One subject's figures for one row.
#[derive(Debug, Clone)]
pub(crate) struct Samples {
    unit: Unit,
    values: Vec<f64>,
}

impl Samples {
    pub(crate) fn new(unit: Unit) -> Self {
        Self {
            unit,
            values: Vec::new(),
        }
    }

    /// A time, in the unit of the samples.
    pub(crate) fn time(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.value(match self.unit {
            Unit::Microseconds => seconds * 1e6,
            Unit::Milliseconds => seconds * 1e3,
            _ => seconds,
        });
    }

    /// So many bytes in this time, as a rate.
    pub(crate) fn rate(&mut self, bytes: u64, time: Duration) {
        self.value(megabytes(bytes) / time.as_secs_f64());
    }

    pub(crate) fn value(&mut self, value: f64) {
        self.values.push(value);
    }

    /// What is not better than `part` of all samples (nearest rank).
    fn quantile(&self, part: f64) -> f64 {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        if self.unit == Unit::MegabytesPerSecond {
            sorted.reverse();
        }
        let rank = sorted
            .iter()
            .enumerate()
            .find(|(rank, _)| fraction(rank + 1, sorted.len()) >= part);
        rank.map_or(f64::NAN, |(_, value)| *value)
    }

    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }
}

impl fmt::Display for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (decimals, unit) = (self.unit.decimals(), self.unit.name());
        let (median, p99) = (self.quantile(0.5), self.quantile(0.99));
        write!(f, "{median:.decimals$} / {p99:.decimals$} {unit}")
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn fraction(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}

/// 10^6 bytes.
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub(crate) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// What a row aims at.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    /// At most so many times the floor.
    Floor(f64),
    /// At most so many times the relay.
    Relay(f64),
    /// At least so many times the floor's rate.
    FloorRate(f64),
    /// At least so many times the relay's rate.
    RelayRate(f64),
    /// At most this, in the row's unit.
    AtMost(f64),
}

/// One line of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) what: String,
    pub(crate) goal: Goal,
    pub(crate) floor: Option<Samples>,
    pub(crate) relay: Option<Samples>,
    pub(crate) daemon: Samples,
}

impl Row {
    fn to(&self, base: Option<&Samples>) -> Option<f64> {
        base.map(|base| self.daemon.median() / base.median())
    }

    fn goal(&self) -> (String, bool) {
        let to_floor = self.to(self.floor.as_ref()).unwrap_or(f64::NAN);
        let to_relay = self.to(self.relay.as_ref()).unwrap_or(f64::NAN);
        match self.goal {
            Goal::Floor(most) => (format!("≤ {most} × floor"), to_floor <= most),
            Goal::Relay(most) => (format!("≤ {most} × relay"), to_relay <= most),
            Goal::FloorRate(least) => (format!("≥ {least} × floor"), to_floor >= least),
            Goal::RelayRate(least) => (format!("≥ {least} × relay"), to_relay >= least),
            Goal::AtMost(most) => {
                let unit = self.daemon.unit.name();
                (format!("≤ {most} {unit}"), self.daemon.median() <= most)
            }
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let samples = |samples: &Option<Samples>| {
            let text = samples.as_ref().map(ToString::to_string);
            text.unwrap_or_else(|| "–".into())
        };
        let ratio = |base: Option<&Samples>| match self.to(base) {
            Some(ratio) => format!("{ratio:.2} ×"),
            None => "–".into(),
        };
        let (goal, met) = self.goal();
        write!(
            f,
            "| {} | {} | {} | {} | {} | {} | {} | {goal} | {} |",
            self.name,
            self.what,
            samples(&self.floor),
            samples(&self.relay),
            self.daemon,
            ratio(self.floor.as_ref()),
            ratio(self.relay.as_ref()),
            if met { "yes" } else { "**no**" },
        )
    }
}

/// All rows, and what belongs beside them.
#[derive(Debug)]
pub(crate) struct Report {
    means: String,
    rows: Vec<Row>,
    notes: Vec<String>,
}

impl Report {
    /// `means`: how commands' trees were stopped in this run.
    pub(crate) fn new(means: String) -> Self {
        Self {
            means,
            rows: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, row: Row) {
        self.rows.push(row);
    }

    pub(crate) fn note(&mut self, note: String) {
        self.notes.push(note);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Means of stopping in force, in every row: {}.\n",
            self.means
        )?;
        writeln!(
            f,
            "| row | what | floor: median / p99 | bare relay | daemon | to the floor | \
             to the relay | goal | met |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|---|---|")?;
        for row in &self.rows {
            writeln!(f, "{row}")?;
        }
        for note in &self.notes {
            write!(f, "\n- {note}")?;
        }
        Ok(())
    }
}
