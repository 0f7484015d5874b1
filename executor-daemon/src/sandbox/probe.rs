//! What this machine can enforce, found out by trying. Plain data.

#![expect(
    clippy::disallowed_methods,
    reason = "reads the kernel's own files below /proc and /sys"
)]

use std::os::fd::AsFd;
use std::path::PathBuf;

use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, ResolveFlags, SealFlags};

use super::cgroup;
use crate::sys::kernel;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Probe {
    /// The cgroup v2 that this process is in.
    pub cgroup_v2: Option<PathBuf>,
    /// Cgroups can be made there and ended by `cgroup.kill`.
    pub cgroup_kill: bool,
    /// Programs can be started inside such a cgroup.
    pub clone_into_cgroup: bool,
    /// Controllers of that cgroup.
    pub cgroup_v2_controllers: Vec<String>,
    /// Controllers that are mounted as cgroup v1 hierarchies.
    pub cgroup_v1_controllers: Vec<String>,
    /// pidfd_open(2).
    pub pidfd: bool,
    /// openat2(2).
    pub openat2: bool,
    /// 0 when there is no Landlock.
    pub landlock_abi: u32,
    /// clone3(2).
    pub clone3: bool,
    /// close_range(2).
    pub close_range: bool,
    /// memfd_create(2) with seals.
    pub memfd_sealing: bool,
    /// PR_SET_CHILD_SUBREAPER (only asked for: it is never set here).
    pub subreaper: bool,
}

/// Asks the kernel. Makes a cgroup and starts nothing; leaves nothing behind.
/// Blocks for a millisecond or so.
#[must_use]
pub fn probe() -> Probe {
    let cgroup_v2 = cgroup::own_directory().ok();
    let (cgroup_kill, clone_into_cgroup) = try_cgroup();
    Probe {
        cgroup_v2_controllers: cgroup_v2.as_ref().map_or_else(Vec::new, |directory| {
            let text = std::fs::read_to_string(directory.join("cgroup.controllers"));
            words(&text.unwrap_or_default())
        }),
        cgroup_v2,
        cgroup_kill,
        clone_into_cgroup,
        cgroup_v1_controllers: v1_controllers(
            &std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default(),
        ),
        pidfd: rustix::process::pidfd_open(
            rustix::process::getpid(),
            rustix::process::PidfdFlags::empty(),
        )
        .is_ok(),
        openat2: rustix::fs::openat2(
            CWD,
            "/",
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::NO_MAGICLINKS,
        )
        .is_ok(),
        landlock_abi: kernel::landlock_abi(),
        clone3: kernel::clone3(),
        close_range: kernel::close_range(),
        memfd_sealing: memfd_sealing(),
        subreaper: rustix::process::child_subreaper().is_ok(),
    }
}

fn try_cgroup() -> (bool, bool) {
    let epoch = executor_proto::id::Epoch::random();
    try_cgroup_named(&format!("probe-{epoch}"))
}

fn try_cgroup_named(epoch: &str) -> (bool, bool) {
    let Ok(pool) = cgroup::CgroupPool::create(epoch) else {
        return (false, false);
    };
    let enters = pool.take().is_ok_and(|cgroup| {
        let enters = pool.open(&cgroup).is_ok_and(|directory| {
            kernel::clone3() && super::cgroup::can_start_in(directory.as_fd())
        });
        pool.give_back(cgroup);
        enters
    });
    pool.remove();
    (true, enters)
}

/// Names after the second colon field, without named hierarchies such as
/// systemd's (cgroups(7)).
fn v1_controllers(text: &str) -> Vec<String> {
    let mut names: Vec<_> = text
        .lines()
        .filter_map(|line| line.split(':').nth(1))
        .flat_map(|names| names.split(','))
        .filter(|name| !name.is_empty() && !name.contains('='))
        .map(str::to_owned)
        .collect();
    names.sort();
    names
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn memfd_sealing() -> bool {
    rustix::fs::memfd_create("probe", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .and_then(|file| rustix::fs::fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK))
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_read_without_named_hierarchies() {
        let text = "9:name=systemd:/\n8:pids:/\n2:cpu,cpuacct:/x\n0::/\n";
        assert_eq!(v1_controllers(text), ["cpu", "cpuacct", "pids"]);
    }

    #[test]
    fn probing_leaves_no_cgroup_behind() {
        let found = probe();
        assert!(found.pidfd && found.subreaper, "{found:?}");
        if let Some(directory) = found.cgroup_v2 {
            // A name of its own: others probe at the same time.
            let epoch = format!("probe-{}", executor_proto::id::Epoch::random());
            assert!(try_cgroup_named(&epoch).0);
            let name = directory.join(format!("executor-{epoch}"));
            assert!(rustix::fs::stat(name).is_err());
        }
    }
}
