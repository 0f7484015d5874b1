//! The processes of one session: who is kept, who was forgotten, what may
//! start. Pure but for the processes it holds.
//!
//! ```text
//!            admit                 evict, remove
//! (unknown) ───────► Kept(process) ─────────────► Receipt
//!     │ stop comes first
//!     └────────────► Tombstone
//! ```
//!
//! A receipt is written before the spawn and outlives the process, so that a
//! repeated start is recognised for as long as the session lives.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use executor_proto::id::ProcessId;
use serde::{Deserialize, Serialize};

use super::error::ProcessError;
use super::handover::ProcessState;
use super::record::Process;
use super::spec::{SpecDigest, StartSpec};

/// How long receipts are kept in a session without a lease, and how old a
/// start may be.
pub(crate) const RECEIPT_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// Bounds of one table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableLimits {
    /// Processes kept, running and finished.
    pub(crate) kept: usize,
    /// Receipts and tombstones, kept processes included.
    pub(crate) receipts: usize,
}

#[derive(Debug)]
enum Entry {
    /// With its place among the kept ones.
    Kept(Arc<Process>, u64),
    Receipt(SpecDigest),
    Tombstone,
}

/// What a start meets.
#[derive(Debug)]
pub(crate) enum Admission {
    /// It is there already.
    Existing(Arc<Process>),
    /// It may be made; [`Table::insert`] follows under the same lock.
    New,
}

/// A table as a value.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TableState {
    closed: Option<ProcessError>,
    /// Receipts, with their digest, and tombstones.
    others: Vec<(ProcessId, Option<SpecDigest>)>,
    kept: Vec<ProcessState>,
    written: VecDeque<(SystemTime, ProcessId)>,
    residue: Vec<ProcessState>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Table {
    limits: TableLimits,
    /// Why nothing may start any more.
    closed: Option<ProcessError>,
    /// Receipts of forgotten processes are dropped after [`RECEIPT_AGE`].
    receipts_age: bool,
    entries: HashMap<ProcessId, Entry>,
    /// Kept processes in the order of their start.
    kept: BTreeMap<u64, Arc<Process>>,
    /// Places given so far.
    places: u64,
    /// Those of kept ones that were seen to have finished, for the next that need
    /// room: looking at all of them each time would cost too much.
    finished: VecDeque<u64>,
    /// Receipts and tombstones in the order they were written.
    written: VecDeque<(SystemTime, ProcessId)>,
    /// Forgotten processes whose tree may still live.
    residue: Vec<Arc<Process>>,
}

impl Table {
    pub(crate) fn new(limits: TableLimits, receipts_age: bool) -> Self {
        Self {
            limits,
            closed: None,
            receipts_age,
            entries: HashMap::new(),
            kept: BTreeMap::new(),
            places: 0,
            finished: VecDeque::new(),
            written: VecDeque::new(),
            residue: Vec::new(),
        }
    }

    /// The process with this id.
    pub(crate) fn find(&self, id: ProcessId) -> Result<Arc<Process>, ProcessError> {
        match self.entries.get(&id) {
            Some(Entry::Kept(process, _)) => Ok(Arc::clone(process)),
            Some(Entry::Receipt(_)) => Err(ProcessError::Forgotten(id)),
            Some(Entry::Tombstone) | None => Err(ProcessError::NotFound(id)),
        }
    }

    /// This id was started or stopped before.
    pub(crate) fn knows(&self, id: ProcessId) -> bool {
        self.entries.contains_key(&id)
    }

    /// Kept processes in the order of their start.
    pub(crate) fn kept(&self) -> impl ExactSizeIterator<Item = &Arc<Process>> {
        self.kept.values()
    }

    /// Everything that may have a living tree.
    pub(crate) fn with_trees(&self) -> Vec<Arc<Process>> {
        self.kept().chain(&self.residue).cloned().collect()
    }

    /// Nothing starts any more, for this reason.
    pub(crate) fn close(&mut self, why: ProcessError) {
        self.closed = Some(why);
    }

    /// May this start run? Makes room where it may.
    pub(crate) fn admit(
        &mut self,
        spec: &StartSpec,
        now: SystemTime,
    ) -> Result<Admission, ProcessError> {
        match self.entries.get(&spec.id) {
            Some(Entry::Kept(process, _)) if process.facts.digest == spec.digest => {
                return Ok(Admission::Existing(Arc::clone(process)));
            }
            Some(Entry::Receipt(digest)) if *digest == spec.digest => {
                return Err(ProcessError::Forgotten(spec.id));
            }
            Some(Entry::Kept(..) | Entry::Receipt(_)) => {
                return Err(ProcessError::IdConflict(spec.id));
            }
            Some(Entry::Tombstone) => return Err(ProcessError::StoppedBeforeStart(spec.id)),
            None => {}
        }
        if let Some(why) = &self.closed {
            return Err(why.clone());
        }
        if now
            .duration_since(spec.created_at)
            .is_ok_and(|age| age > RECEIPT_AGE)
        {
            return Err(ProcessError::StartExpired(spec.id));
        }
        self.drop_old_receipts(now);
        self.room_for_a_receipt()?;
        if self.kept.len() >= self.limits.kept {
            let oldest = self.oldest_finished();
            let oldest = oldest.ok_or(ProcessError::ProcessLimit {
                limit: self.limits.kept,
            })?;
            self.forget(&oldest, now);
        }
        Ok(Admission::New)
    }

    /// Keeps a process that was admitted.
    pub(crate) fn insert(&mut self, process: Arc<Process>) {
        let place = self.places;
        self.places += 1;
        let entry = Entry::Kept(Arc::clone(&process), place);
        self.entries.insert(process.facts.id, entry);
        self.kept.insert(place, process);
    }

    /// A stop came for an id that never started: a later start does nothing.
    pub(crate) fn leave_tombstone(
        &mut self,
        id: ProcessId,
        now: SystemTime,
    ) -> Result<(), ProcessError> {
        if !self.entries.contains_key(&id) {
            self.drop_old_receipts(now);
            self.room_for_a_receipt()?;
            self.entries.insert(id, Entry::Tombstone);
            self.written.push_back((now, id));
        }
        Ok(())
    }

    /// Forgets a finished process; its receipt stays.
    pub(crate) fn remove(&mut self, id: ProcessId, now: SystemTime) -> Result<(), ProcessError> {
        match self.entries.get(&id) {
            Some(Entry::Kept(process, _)) => {
                if !process.is_finished() {
                    return Err(ProcessError::StillRunning(id));
                }
                let process = Arc::clone(process);
                self.forget(&process, now);
                Ok(())
            }
            // Removing twice is once.
            Some(Entry::Receipt(_)) => Ok(()),
            Some(Entry::Tombstone) | None => Err(ProcessError::NotFound(id)),
        }
    }

    /// Forgets everything; the session has ended.
    pub(crate) fn clear(&mut self) {
        let kept = std::mem::take(&mut self.kept).into_values();
        for process in kept.chain(self.residue.drain(..)) {
            process.forget();
        }
        self.finished.clear();
        self.entries.clear();
        self.written.clear();
    }

    /// For a later image of this program. `state_of` says what a process is.
    pub(crate) fn export(
        &self,
        mut state_of: impl FnMut(&Arc<Process>) -> ProcessState,
    ) -> TableState {
        let others = self.entries.iter().filter_map(|(id, entry)| match entry {
            Entry::Kept(..) => None,
            Entry::Receipt(digest) => Some((*id, Some(*digest))),
            Entry::Tombstone => Some((*id, None)),
        });
        TableState {
            closed: self.closed.clone(),
            others: others.collect(),
            kept: self.kept().map(&mut state_of).collect(),
            written: self.written.clone(),
            residue: self.residue.iter().map(&mut state_of).collect(),
        }
    }

    /// Goes on as an earlier image has said. `resume` makes a process of what
    /// it was; one of which that fails is forgotten, and does not run again.
    pub(crate) fn import(
        limits: TableLimits,
        receipts_age: bool,
        state: TableState,
        mut resume: impl FnMut(ProcessState) -> Option<Arc<Process>>,
    ) -> Self {
        let mut table = Self::new(limits, receipts_age);
        table.closed = state.closed;
        table.written = state.written;
        for (id, digest) in state.others {
            let entry = digest.map_or(Entry::Tombstone, Entry::Receipt);
            table.entries.insert(id, entry);
        }
        for process in state.kept {
            let (id, digest) = process.identity();
            match resume(process) {
                Some(process) => table.insert(process),
                None => {
                    table.entries.insert(id, Entry::Receipt(digest));
                }
            }
        }
        table.residue = state.residue.into_iter().filter_map(resume).collect();
        table
    }

    fn room_for_a_receipt(&self) -> Result<(), ProcessError> {
        if self.entries.len() >= self.limits.receipts {
            return Err(ProcessError::ReceiptLimit {
                limit: self.limits.receipts,
            });
        }
        Ok(())
    }

    /// The one that was started first of those that have finished; one whose
    /// output has ended before one whose output is still held open. One that
    /// finishes while others are known to have comes after those.
    fn oldest_finished(&mut self) -> Option<Arc<Process>> {
        while let Some(place) = self.finished.pop_front() {
            if let Some(process) = self.kept.get(&place) {
                return Some(Arc::clone(process));
            }
        }
        let is_done = |process: &Process| process.log.status().is_ok_and(|log| log.ended);
        let mut held_open = None;
        for (place, process) in self.kept.iter().filter(|(_, one)| one.is_finished()) {
            if is_done(process) {
                self.finished.push_back(*place);
            } else {
                held_open = held_open.or(Some(process));
            }
        }
        match self.finished.pop_front() {
            Some(place) => self.kept.get(&place).cloned(),
            None => held_open.cloned(),
        }
    }

    fn forget(&mut self, process: &Arc<Process>, now: SystemTime) {
        let id = process.facts.id;
        let receipt = Entry::Receipt(process.facts.digest);
        if let Some(Entry::Kept(_, place)) = self.entries.insert(id, receipt) {
            self.kept.remove(&place);
        }
        self.written.push_back((now, id));
        if process.forget() {
            self.residue.retain(|left| left.has_tree());
            self.residue.push(Arc::clone(process));
        }
    }

    fn drop_old_receipts(&mut self, now: SystemTime) {
        if !self.receipts_age {
            return;
        }
        while let Some((at, id)) = self.written.front().copied() {
            if now
                .duration_since(at)
                .map_or(true, |age| age <= RECEIPT_AGE)
            {
                return;
            }
            self.written.pop_front();
            self.entries.remove(&id);
        }
    }
}

impl Process {
    /// Nobody can ask for it any more. Says whether its tree may still live.
    pub(crate) fn forget(&self) -> bool {
        let retired = {
            let mut mutable = self.lock();
            mutable.forgotten = true;
            mutable.retired.take()
        };
        // Gives the log back, outside of the lock.
        drop(retired);
        self.wake.notify_one();
        self.has_tree()
    }

    /// Looks whether something of the tree is alive, and lets go of it if not.
    pub(crate) fn has_tree(&self) -> bool {
        let (tree, finished) = {
            let mutable = self.lock();
            (mutable.tree.clone(), mutable.lifecycle.state().is_final())
        };
        match tree {
            None => false,
            Some(tree) if finished && tree.is_empty() => {
                if let Some(tree) = self.lock().tree.take() {
                    tree.release();
                }
                false
            }
            Some(_) => true,
        }
    }
}
