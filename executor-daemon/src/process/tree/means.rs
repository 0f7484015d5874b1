//! What every means of holding a tree together can do, and how a tree is
//! ended with it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::handover::MeansState;
use crate::process::control::SignalTarget;
use crate::process::exit::{Member, Usage};

/// One command's tree, held by one means. Nothing here blocks.
pub(super) trait Means: std::fmt::Debug + Send + Sync {
    /// The leader's pid.
    fn leader(&self) -> u32;
    /// All that is alive, as one look shows it. What forks and ends meanwhile
    /// may be missing: [`Means::members`] looks again.
    fn look(&self) -> Vec<Member>;
    /// Nothing is alive: certain for a cgroup and a reaper.
    fn is_empty(&self) -> bool;
    /// SIGTERM and SIGCONT to every member, once. How many.
    fn terminate(&self) -> usize;
    /// SIGKILL to every member. Repeated until the tree is empty.
    fn kill(&self);
    /// One signal; false when it cannot have reached the process meant.
    fn signal(&self, to: SignalTarget, number: i32) -> bool;
    /// Of the leader, so far or in all.
    fn usage(&self) -> Usage;

    /// All that is alive. A tree that is not empty shows somebody, however
    /// fast its processes take turns: else it would pass for an empty one.
    fn members(&self) -> Vec<Member> {
        for _ in 0..LOOKS {
            let found = self.look();
            if !found.is_empty() || self.is_empty() {
                return found;
            }
        }
        Vec::new()
    }

    /// What outlives the leader. Asked once, when the leader has ended.
    fn residue(&self) -> Vec<Member> {
        self.members()
    }

    /// Most memory the tree had, in bytes, where somebody counts it.
    fn peak(&self) -> Option<u64> {
        None
    }
    /// The leader has ended, and its pid is still its own.
    fn leader_ended(&self);
    /// The tree is empty and is not asked any more.
    fn release(&self);
    /// What a later image of this program needs to go on with it, and the
    /// descriptors. From now on nothing is reaped, received or released here.
    fn export(&self) -> (MeansState, Vec<Arc<OwnedFd>>);
}

/// How a tree is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum EndMode {
    /// SIGTERM, and SIGKILL to what is left after `grace`.
    Terminate {
        /// Between the two.
        grace: Duration,
    },
    /// SIGKILL.
    Kill,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EndReport {
    /// Members that were signalled first.
    pub signalled: usize,
    /// SIGKILL was needed after the grace had passed.
    pub forced: bool,
    /// Pids that are still there; empty when the tree is verified empty.
    pub survivors: Vec<u32>,
}

/// Looks in which at least one of the processes that take turns is met. Each
/// takes less time than a process needs to fork, run and end, and hardly two of
/// them in a row miss all.
const LOOKS: usize = 8;
/// How long SIGKILL is repeated before the survivors are told.
const KILL_PATIENCE: Duration = Duration::from_secs(5);
/// Between two SIGKILLs to the same tree.
const KILL_INTERVAL: Duration = Duration::from_millis(50);
/// Between two looks at a tree that is ending: first and longest.
const LOOK_FIRST: Duration = Duration::from_millis(1);
const LOOK_LAST: Duration = Duration::from_millis(20);

/// `asked`: SIGTERM was sent already.
pub(super) async fn end(means: &dyn Means, mode: EndMode, asked: bool) -> EndReport {
    let mut report = EndReport::default();
    match mode {
        EndMode::Terminate { grace } => {
            report.signalled = if asked {
                means.members().len()
            } else {
                means.terminate()
            };
            if emptied_within(means, grace).await {
                return report;
            }
            report.forced = true;
        }
        EndMode::Kill => {
            report.signalled = means.members().len();
            if report.signalled == 0 && means.is_empty() {
                return report;
            }
        }
    }
    let last = Instant::now() + KILL_PATIENCE;
    loop {
        means.kill();
        if emptied_within(means, KILL_INTERVAL).await {
            return report;
        }
        if Instant::now() >= last {
            report.survivors = means.members().into_iter().map(|m| m.pid).collect();
            if report.survivors.is_empty() {
                // Not even a list is to be had, for want of descriptors say.
                report.survivors.push(means.leader());
            }
            return report;
        }
    }
}

async fn emptied_within(means: &dyn Means, time: Duration) -> bool {
    let last = Instant::now() + time;
    let mut pause = LOOK_FIRST;
    loop {
        if means.is_empty() {
            return true;
        }
        let now = Instant::now();
        if now >= last {
            return false;
        }
        tokio::time::sleep(pause.min(last - now)).await;
        pause = (pause * 2).min(LOOK_LAST);
    }
}
