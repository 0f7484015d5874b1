//! What the kernel says of a process: memory and CPU time (proc(5)).

use std::fs;
use std::time::Duration;

use anyhow::Context as _;

/// `VmRSS`, in bytes.
pub(crate) fn resident(pid: u32) -> anyhow::Result<u64> {
    kilobytes(&format!("/proc/{pid}/status"), "VmRSS:")
}

/// `VmHWM`, in bytes: the most since [`reset_peak`].
pub(crate) fn peak(pid: u32) -> anyhow::Result<u64> {
    kilobytes(&format!("/proc/{pid}/status"), "VmHWM:")
}

/// `Pss`, in bytes: shared pages count by their share.
pub(crate) fn proportional(pid: u32) -> anyhow::Result<u64> {
    kilobytes(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
}

/// Lets [`peak`] begin anew.
pub(crate) fn reset_peak(pid: u32) -> anyhow::Result<()> {
    Ok(fs::write(format!("/proc/{pid}/clear_refs"), "5")?)
}

/// CPU time of the process itself, without its children; in steps of 10 ms.
pub(crate) fn cpu(pid: u32) -> anyhow::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name may hold blanks; it ends with the last bracket.
    let (_, fields) = stat.rsplit_once(')').context("stat without a name")?;
    let fields = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = fields.map_while(|field| field.parse::<u64>().ok()).sum();
    let per_second = rustix::param::clock_ticks_per_second();
    Ok(Duration::from_millis(ticks * 1000 / per_second))
}

fn kilobytes(file: &str, key: &str) -> anyhow::Result<u64> {
    let text = fs::read_to_string(file).with_context(|| file.to_owned())?;
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|line| line.split_whitespace().next());
    let number: u64 = number
        .with_context(|| format!("{file} has no {key}"))?
        .parse()?;
    Ok(number * 1024)
}
