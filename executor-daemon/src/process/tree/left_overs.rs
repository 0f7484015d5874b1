//! What a lost engine left: found by its cgroup or by the tag that each
//! command has in its environment, and ended. Never anything else.
//!
//! A process is pinned by a pidfd before it is signalled, and what made it ours
//! is looked at again afterwards. What has dropped its tag and is in no cgroup
//! is not found: nothing says that it is ours.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use executor_proto::id::Epoch;

use super::proc::{self, Stat};
use crate::process::env::TAG;
use crate::process::exit::Member;
use crate::sandbox::cgroup;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// An engine that is gone.
#[derive(Debug, Clone)]
pub struct LostEpoch {
    /// Its epoch, by which its commands are tagged and its cgroup is named.
    pub epoch: Epoch,
    /// Where its cgroup is, if it had one: the parent of
    /// [`ContainmentRecord::Cgroup`](super::ContainmentRecord::Cgroup).
    pub cgroup: Option<PathBuf>,
}

/// What it left.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct LeftOvers {
    /// Ended now: all that were seen, by pid.
    pub ended: Vec<Member>,
    /// Pids that are still there after the patience was over.
    pub survivors: Vec<u32>,
}

/// Ends what the lost engine left and returns when nothing of it is found any
/// more, or when `patience` is over. Never ourselves, even if one of its
/// commands has started us. Blocks: for a thread that may. Repeating is safe.
#[must_use]
pub fn left_overs(lost: &LostEpoch, patience: Duration) -> LeftOvers {
    let mut search = Search {
        tag: [TAG, b"=", lost.epoch.to_string().as_bytes(), b"/"].concat(),
        last: Instant::now() + patience,
        seen: HashMap::new(),
    };
    if let Some(parent) = &lost.cgroup {
        search.end_cgroup(parent, &cgroup::engine_name(&lost.epoch.to_string()));
    }
    search.end_tagged();
    search.report()
}

struct Search {
    /// `EXECUTOR_TAG=<epoch>/`
    tag: Vec<u8>,
    last: Instant,
    /// Names by pid and start time.
    seen: HashMap<(u32, u64), String>,
}

impl Search {
    fn note(&mut self, found: &[Stat]) {
        let seen = found
            .iter()
            .map(|stat| ((stat.pid, stat.started), stat.name.clone()));
        self.seen.extend(seen);
    }

    fn pause(&self) -> bool {
        std::thread::sleep(PAUSE);
        Instant::now() < self.last
    }

    fn end_cgroup(&mut self, parent: &Path, name: &str) {
        let own = proc::cgroups(std::process::id()).unwrap_or_default();
        if cgroup::is_below(name, &own) {
            self.end_cgroup_around_us(parent, name);
            return;
        }
        self.note(&members(parent, name));
        cgroup::kill_and_remove(parent, name, || {
            self.note(&members(parent, name));
            self.pause()
        });
    }

    /// A command of the lost engine has started us: `cgroup.kill` would end us
    /// too.
    fn end_cgroup_around_us(&mut self, parent: &Path, name: &str) {
        let others = |search: &mut Self| {
            let mut found = members(parent, name);
            found.retain(|stat| stat.pid != std::process::id() && stat.alive());
            search.note(&found);
            found
        };
        while !others(self).is_empty() {
            proc::stop_and_kill(
                || others(self),
                |seen, signals| proc::send_if(seen.pid, signals, || is_member(seen.pid, name)),
            );
            if !self.pause() {
                return;
            }
        }
    }

    fn tagged(&mut self) -> Vec<Stat> {
        let mut found = proc::all_with(|line| line.starts_with(&self.tag));
        found.retain(Stat::alive);
        self.note(&found);
        found
    }

    fn end_tagged(&mut self) {
        let tag = self.tag.clone();
        // Twice, since a process that forks while it is listed hides its
        // child.
        while !(self.tagged().is_empty() && self.tagged().is_empty()) {
            proc::stop_and_kill(|| self.tagged(), |seen, signals| send(seen, &tag, signals));
            if !self.pause() {
                return;
            }
        }
    }

    fn report(self) -> LeftOvers {
        let mut report = LeftOvers::default();
        for ((pid, started), name) in self.seen {
            let lives = proc::stat(pid).is_ok_and(|now| now.alive() && now.started == started);
            if lives {
                report.survivors.push(pid);
            } else {
                report.ended.push(Member { pid, name });
            }
        }
        report.survivors.sort_unstable();
        report.ended.sort_unstable_by_key(|member| member.pid);
        report
    }
}

fn members(parent: &Path, name: &str) -> Vec<Stat> {
    cgroup::pids_in(parent, name)
        .into_iter()
        .filter_map(|pid| proc::stat(pid).ok())
        // The number may have come to somebody else between the two files.
        .filter(|stat| is_member(stat.pid, name))
        .collect()
}

fn is_member(pid: u32, name: &str) -> bool {
    proc::cgroups(pid).is_ok_and(|groups| cgroup::is_below(name, &groups))
}

/// Start times are as coarse as a tick, in which a number may come around
/// where there are few: the tag is looked at again too.
fn send(seen: &Stat, tag: &[u8], signals: &[i32]) -> bool {
    proc::send_if(seen.pid, signals, || {
        proc::stat(seen.pid).is_ok_and(|now| now.alive() && now.started == seen.started)
            && proc::has(seen.pid, |line| line.starts_with(tag))
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A process that has `tag` in its environment for certain.
    #[expect(
        clippy::disallowed_methods,
        reason = "a process that the engine knows nothing of"
    )]
    fn sleeper(tag: &str) -> (std::process::Child, Stat) {
        let mut command = Command::new("sleep");
        command.arg("900").env("EXECUTOR_TAG", tag);
        // Returns when it is executed.
        let child = command.spawn().unwrap();
        let stat = proc::stat(child.id()).unwrap();
        (child, stat)
    }

    #[test]
    fn who_has_the_number_now_gets_no_signal_without_the_tag_or_the_start_time() {
        let tag = b"EXECUTOR_TAG=epo_lost/";
        let (mut ours, seen) = sleeper("epo_lost/prc_x");
        let (mut stranger, other) = sleeper("epo_other/prc_x");
        // Signal 0 only asks.
        assert!(send(&seen, tag, &[0]));
        // The number came to a stranger, in the same tick even.
        let mut before = seen.clone();
        (before.pid, before.started) = (other.pid, other.started);
        assert!(!send(&before, tag, &[libc::SIGKILL]));
        // Or to a later one of ours, which was not the one looked at.
        let mut before = seen;
        before.started = before.started.wrapping_sub(1);
        assert!(!send(&before, tag, &[libc::SIGKILL]));
        for child in [&mut ours, &mut stranger] {
            assert_eq!(child.try_wait().unwrap(), None);
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
