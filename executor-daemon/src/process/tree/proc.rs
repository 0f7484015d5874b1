//! What `/proc` shows of processes, and signals to those it shows.
//!
//! A pid read from `/proc` may name another process a moment later. So a
//! signal goes through a pidfd, opened first and compared afterwards: the
//! process it refers to cannot change any more, and its start time and parent
//! tell whether it is the one that was seen.

#![expect(
    clippy::disallowed_methods,
    reason = "reads the kernel's own files below /proc"
)]

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::process::exit::{Member, Usage};
use crate::sys::signal;

/// The most processes that a walk returns; a later walk sees others.
const WALK: usize = 65_536;

/// A line of `/proc/PID/stat` (proc_pid_stat(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) pid: u32,
    pub(super) name: String,
    state: u8,
    pub(super) parent: u32,
    pub(super) group: u32,
    pub(super) session: u32,
    user_ticks: u64,
    system_ticks: u64,
    /// In ticks since the machine's start. With the pid, it identifies.
    pub(super) started: u64,
    resident_pages: u64,
}

impl Stat {
    /// Not a zombie, not dead.
    pub(super) fn alive(&self) -> bool {
        !matches!(self.state, b'Z' | b'X' | b'x')
    }

    pub(super) fn member(&self) -> Member {
        Member {
            pid: self.pid,
            name: self.name.clone(),
        }
    }

    /// CPU time and resident memory so far.
    pub(super) fn usage(&self) -> Usage {
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        let time = |count: u64| {
            Duration::from_secs(count / ticks)
                + Duration::from_nanos((count % ticks) * (1_000_000_000 / ticks))
        };
        Usage {
            user_cpu: time(self.user_ticks),
            system_cpu: time(self.system_ticks),
            max_rss: self
                .resident_pages
                .saturating_mul(rustix::param::page_size() as u64),
            ..Usage::default()
        }
    }
}

/// The state of `pid` now.
///
/// # Errors
/// `NotFound` when there is no such process.
pub(super) fn stat(pid: u32) -> io::Result<Stat> {
    let text = std::fs::read(format!("/proc/{pid}/stat"))?;
    parse(&text).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

fn parse(text: &[u8]) -> Option<Stat> {
    // The name may hold any bytes, parentheses too: the last one ends it.
    let open = text.iter().position(|b| *b == b'(')?;
    let close = text.iter().rposition(|b| *b == b')')?;
    let pid = number(text.get(..open)?)?;
    let name = String::from_utf8_lossy(text.get(open + 1..close)?).into_owned();
    let fields: Vec<&[u8]> = text
        .get(close + 1..)?
        .split(u8::is_ascii_whitespace)
        .filter(|field| !field.is_empty())
        .collect();
    // Field 3 of the manual page is the first here.
    let field = |manual: usize| fields.get(manual.checked_sub(3)?).copied();
    let wide = |manual: usize| number::<u64>(field(manual)?);
    Some(Stat {
        pid,
        name,
        state: *field(3)?.first()?,
        parent: number(field(4)?)?,
        group: number(field(5)?).unwrap_or(0),
        session: number(field(6)?).unwrap_or(0),
        user_ticks: wide(14)?,
        system_ticks: wide(15)?,
        started: wide(22)?,
        resident_pages: wide(24).unwrap_or(0),
    })
}

fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// All that descend from `root` now, without it; zombies too. Each once, a
/// parent before its children. What forks meanwhile may be missing: repeat.
pub(super) fn descendants(root: u32) -> Vec<Stat> {
    let Some(first) = children(root) else {
        return descendants_by_parent(root);
    };
    let mut seen = HashSet::from([root]);
    let mut found = Vec::new();
    let mut pending = first;
    while let Some(pid) = pending.pop() {
        if found.len() == WALK || !seen.insert(pid) {
            continue;
        }
        let Ok(stat) = stat(pid) else { continue };
        pending.extend(children(pid).unwrap_or_default());
        found.push(stat);
    }
    found
}

/// The children of all threads of `pid`. `None` where the kernel does not list
/// them (no CONFIG_PROC_CHILDREN).
fn children(pid: u32) -> Option<Vec<u32>> {
    let threads = match std::fs::read_dir(format!("/proc/{pid}/task")) {
        Ok(threads) => threads,
        Err(_) => return Some(Vec::new()),
    };
    let mut pids = Vec::new();
    for thread in threads.filter_map(Result::ok) {
        match std::fs::read(thread.path().join("children")) {
            Ok(text) => pids.extend(
                text.split(u8::is_ascii_whitespace)
                    .filter_map(number::<u32>),
            ),
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    && rustix::fs::stat("/proc/thread-self/children").is_err() =>
            {
                return None;
            }
            // The thread has ended.
            Err(_) => {}
        }
    }
    Some(pids)
}

fn descendants_by_parent(root: u32) -> Vec<Stat> {
    let mut by_parent: HashMap<u32, Vec<Stat>> = HashMap::new();
    for stat in all() {
        by_parent.entry(stat.parent).or_default().push(stat);
    }
    let mut found = Vec::new();
    let mut pending = vec![root];
    while let Some(parent) = pending.pop() {
        for stat in by_parent.remove(&parent).unwrap_or_default() {
            pending.push(stat.pid);
            found.push(stat);
        }
    }
    found
}

/// Every process that `/proc` shows.
pub(super) fn all() -> Vec<Stat> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(Result::ok)
        .filter_map(|entry| number::<u32>(entry.file_name().as_encoded_bytes()))
        .filter_map(|pid| stat(pid).ok())
        .collect()
}

/// Every process but ourselves whose environment, as it was at its execve(2),
/// holds a line (`NAME=value`) that `is_meant` says yes to.
pub(super) fn all_with(is_meant: impl Fn(&[u8]) -> bool) -> Vec<Stat> {
    let own = std::process::id();
    let mut found = all();
    found.retain(|stat| stat.pid != own && has(stat.pid, &is_meant));
    found
}

/// Whether the environment of `pid` holds such a line now.
pub(super) fn has(pid: u32, is_meant: impl Fn(&[u8]) -> bool) -> bool {
    std::fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|lines| lines.split(|byte| *byte == 0).any(is_meant))
}

/// Rounds of stopping before what was found is killed.
const STOP_ROUNDS: usize = 16;

/// Stops all that `look` finds alive, until it finds nothing new, and then
/// kills it: what a process forks between a look and its death would lose its
/// parent unseen. How many were killed.
pub(super) fn stop_and_kill(
    mut look: impl FnMut() -> Vec<Stat>,
    send: impl Fn(&Stat, &[i32]) -> bool,
) -> usize {
    let mut stopped = HashSet::new();
    for _ in 0..STOP_ROUNDS {
        let mut found = look();
        found.retain(|seen| seen.alive() && stopped.insert((seen.pid, seen.started)));
        if found.is_empty() {
            break;
        }
        for seen in &found {
            send(seen, &[libc::SIGSTOP]);
        }
    }
    let mut found = look();
    found.retain(|seen| seen.alive() && send(seen, &[libc::SIGKILL]));
    found.len()
}

/// Whether every thread of ours blocks `signal`.
pub(super) fn threads_block(signal: i32) -> bool {
    let bit = u32::try_from(signal).ok().and_then(|s| s.checked_sub(1));
    let blocks = |status: &[u8]| {
        let mut lines = status.split(|byte| *byte == b'\n');
        let mask = lines.find_map(|line| line.strip_prefix(b"SigBlk:\t"));
        let mask = mask.and_then(|mask| std::str::from_utf8(mask).ok());
        let mask = mask.and_then(|mask| u64::from_str_radix(mask, 16).ok());
        mask.zip(bit)
            .is_some_and(|(mask, bit)| (mask >> bit) & 1 == 1)
    };
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return false;
    };
    threads
        .filter_map(Result::ok)
        // A thread that cannot be read has ended.
        .filter_map(|thread| std::fs::read(thread.path().join("status")).ok())
        .all(|status| blocks(&status))
}

/// The lines of `/proc/PID/cgroup`.
pub(super) fn cgroups(pid: u32) -> io::Result<Vec<u8>> {
    std::fs::read(format!("/proc/{pid}/cgroup"))
}

/// The process that has the pid `pid` now, whoever has it later.
pub(super) fn pin(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Sends `signals` to the process that has the pid `pid` if `is_ours`, asked
/// after the process was pinned, says so. True when the first was sent.
pub(super) fn send_if(pid: u32, signals: &[i32], is_ours: impl FnOnce() -> bool) -> bool {
    let Ok(pidfd) = pin(pid) else {
        return false;
    };
    if !is_ours() {
        return false;
    }
    let mut sent = signals
        .iter()
        .map(|number| signal::send(pidfd.as_fd(), *number).is_ok());
    let first = sent.next().unwrap_or(false);
    sent.for_each(drop);
    first
}

/// [`send_if`] it is alive, the very process seen, and still the child of the
/// parent seen, or of `adopter`.
pub(super) fn send_if_same(seen: &Stat, adopter: u32, signals: &[i32]) -> bool {
    send_if(seen.pid, signals, || {
        stat(seen.pid).is_ok_and(|now| {
            now.alive()
                && now.started == seen.started
                && (now.parent == seen.parent || now.parent == adopter)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_is_read_whole() {
        let line = b"42 (a) (b c) S 7 42 43 0 -1 4194560 1 2 3 4 11 12 0 0 20 0 1 0 99 1000 25 18";
        let stat = parse(line).unwrap();
        assert_eq!(stat.name, "a) (b c");
        assert_eq!(
            (stat.pid, stat.parent, stat.group, stat.session),
            (42, 7, 42, 43)
        );
        assert_eq!((stat.user_ticks, stat.system_ticks), (11, 12));
        assert_eq!((stat.started, stat.resident_pages), (99, 25));
        assert!(stat.alive());
        assert_eq!(parse(b"42 (x"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn a_process_that_is_not_the_one_seen_gets_no_signal() {
        let own = stat(std::process::id()).unwrap();
        let other = Stat {
            started: own.started + 1,
            ..own.clone()
        };
        // Signal 0 only asks.
        assert!(send_if_same(&own, 0, &[0]));
        assert!(!send_if_same(&other, 0, &[0]));
        let orphan = Stat {
            parent: own.parent + 1,
            ..own
        };
        assert!(!send_if_same(&orphan, 0, &[0]));
    }
}
