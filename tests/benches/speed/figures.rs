//! What the kernel says of processes: memory, CPU time, descriptors (proc(5)).

use std::fs;
use std::iter::Sum;
use std::time::Duration;

use anyhow::Context as _;

/// A figure of several processes together.
pub(crate) fn total<T: Sum>(
    pids: &[u32],
    figure: impl Fn(u32) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    pids.iter().map(|pid| figure(*pid)).sum()
}

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

/// The part of [`proportional`] that is the process's own, in bytes.
pub(crate) fn private(pid: u32) -> anyhow::Result<u64> {
    kilobytes(&format!("/proc/{pid}/smaps_rollup"), "Pss_Anon:")
}

/// The part of [`proportional`] that is shared memory, as the logs are.
pub(crate) fn shared_memory(pid: u32) -> anyhow::Result<u64> {
    kilobytes(&format!("/proc/{pid}/smaps_rollup"), "Pss_Shmem:")
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

/// CPU time of all threads as the scheduler has it: not in steps.
pub(crate) fn runtime(pid: u32) -> anyhow::Result<Duration> {
    let mut nanoseconds = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end meanwhile.
        let text = fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        let first = text.split_whitespace().next();
        nanoseconds += first
            .and_then(|first| first.parse::<u64>().ok())
            .unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanoseconds))
}

/// Open descriptors.
pub(crate) fn descriptors(pid: u32) -> anyhow::Result<usize> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// Its children that nobody has waited for.
pub(crate) fn children(pid: u32) -> anyhow::Result<Vec<u32>> {
    let mut children = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(thread?.path().join("children")).unwrap_or_default();
        children.extend(
            text.split_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
    }
    Ok(children)
}

/// Its arguments, each with a NUL behind it; empty when it has ended.
pub(crate) fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// All processes whose arguments hold this.
pub(crate) fn pids_with(text: &str) -> anyhow::Result<Vec<u32>> {
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let pid = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        pids.extend(pid.filter(|pid| command_line(*pid).contains(text)));
    }
    Ok(pids)
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
