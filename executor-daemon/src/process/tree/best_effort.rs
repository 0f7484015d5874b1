//! A tree as `/proc` shows it: the leader's descendants and all of its session
//! and group. For machines without cgroups where no reaper can be started.
//!
//! What has left the session *and* lost its parent before anybody looked is
//! not found: that is the limit of this means. What was found once is
//! remembered by pid and start time.

use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::handover::MeansState;
use super::leader::Child;
use super::means::Means;
use super::proc::{self, Stat};
use crate::process::control::SignalTarget;
use crate::process::exit::{Member, Usage};

/// The known members of one tree.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Known {
    /// `None` while nobody has told who it is.
    leader: Option<u32>,
    /// Start times by pid.
    members: HashMap<u32, u64>,
}

impl Known {
    /// `leader` must be unreaped now.
    pub(super) fn new(leader: u32) -> Self {
        let started = proc::stat(leader).map(|stat| (leader, stat.started));
        Self {
            leader: Some(leader),
            members: started.into_iter().collect(),
        }
    }

    /// Looks, remembers and returns what is alive.
    pub(super) fn look(&mut self) -> Vec<Stat> {
        let all = proc::all();
        let mut ours: HashMap<u32, u64> = all
            .iter()
            .filter(|stat| self.members.get(&stat.pid) == Some(&stat.started))
            .map(|stat| (stat.pid, stat.started))
            .collect();
        // The number of the leader's session and group is certainly its own
        // while the leader is unreaped or a known member is still in it.
        let leads = |number: u32| self.leader == Some(number);
        let holds = |stat: &Stat| leads(stat.pid) || leads(stat.session);
        let session = all
            .iter()
            .any(|stat| ours.contains_key(&stat.pid) && holds(stat));
        loop {
            let before = ours.len();
            for stat in &all {
                let related = ours.contains_key(&stat.parent)
                    || (session && (leads(stat.session) || leads(stat.group)));
                if related {
                    ours.insert(stat.pid, stat.started);
                }
            }
            if ours.len() == before {
                break;
            }
        }
        let mut found = all;
        found.retain(|stat| ours.contains_key(&stat.pid));
        self.members = ours;
        found.retain(Stat::alive);
        found
    }

    /// These are of the tree, as was seen elsewhere.
    pub(super) fn remember<'a>(&mut self, seen: impl IntoIterator<Item = &'a Stat>) {
        let seen = seen.into_iter().map(|stat| (stat.pid, stat.started));
        self.members.extend(seen);
    }

    /// Sends `signals` to all that is alive. How many.
    pub(super) fn send(&mut self, signals: &[i32]) -> usize {
        let found = self.look();
        found.iter().filter(|seen| send(seen, signals)).count()
    }

    /// Kills all that is alive. How many.
    pub(super) fn kill(&mut self) -> usize {
        proc::stop_and_kill(|| self.look(), send)
    }

    /// The same after what holds `tag` in its environment was remembered too.
    /// Repeated until it is 0, this ends what nobody holds any more.
    pub(super) fn kill_remains(&mut self, tag: Option<&CStr>) -> usize {
        if let Some(tag) = tag {
            self.remember(&proc::all_with(|line| line == tag.to_bytes()));
        }
        self.kill()
    }
}

fn send(seen: &Stat, signals: &[i32]) -> bool {
    proc::send_if(seen.pid, signals, || {
        proc::stat(seen.pid).is_ok_and(|now| now.alive() && now.started == seen.started)
    })
}

/// The tree of one command.
#[derive(Debug)]
pub(super) struct BestEffort {
    child: Arc<Child>,
    /// Held while `/proc` is read: two looks at once would each forget what
    /// the other found.
    known: Mutex<Known>,
}

impl BestEffort {
    pub(super) fn new(child: Arc<Child>) -> Self {
        let known = Mutex::new(Known::new(child.pid));
        Self { child, known }
    }

    /// As an earlier image of this program knew it.
    pub(super) fn resume(child: Arc<Child>, known: Known) -> Self {
        let known = Mutex::new(known);
        Self { child, known }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Means for BestEffort {
    fn leader(&self) -> u32 {
        self.child.pid
    }

    fn look(&self) -> Vec<Member> {
        self.known().look().iter().map(Stat::member).collect()
    }

    fn is_empty(&self) -> bool {
        let mut known = self.known();
        // Twice, since a process that forks while it is listed hides its child.
        known.look().is_empty() && known.look().is_empty()
    }

    fn terminate(&self) -> usize {
        self.known().send(&[libc::SIGTERM, libc::SIGCONT])
    }

    fn kill(&self) {
        self.known().kill();
    }

    fn signal(&self, to: SignalTarget, number: i32) -> bool {
        self.child.signal(to, number)
    }

    fn usage(&self) -> Usage {
        self.child.usage()
    }

    fn leader_ended(&self) {
        // The last moment at which the session's number is certainly ours.
        self.known().look();
    }

    fn release(&self) {}

    fn export(&self) -> (MeansState, Vec<Arc<OwnedFd>>) {
        let state = MeansState::BestEffort {
            leader: self.child.export(),
            known: self.known().clone(),
        };
        (state, Vec::new())
    }
}
