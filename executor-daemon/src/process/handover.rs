//! Processes as values, for a later image of this program that goes on with
//! them: what they are, what their supervisors had left to do, and the
//! descriptors beside.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;

use executor_proto::id::ProcessId;
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::sync::Notify;

use super::drain::{Drain, Sink};
use super::ends::{Output, OutputKind};
use super::flow::LosslessReader;
use super::lifecycle::Lifecycle;
use super::log::{LogAddress, LogStore, Stream};
use super::record::{Facts, Mutable, Process};
use super::spec::{SpecDigest, TerminalSize};
use super::stdin::StdinQueue;
use super::supervisor::{Deadlines, Work};
use super::tree::{Containment, EndMode, Tree, TreeState};
use crate::sys::readiness::Watched;

/// Descriptors that go along with a state, which names them by their place.
#[derive(Debug, Default)]
pub(crate) struct Files {
    all: Vec<Arc<OwnedFd>>,
    places: HashMap<RawFd, usize>,
    /// What would end a log if it were dropped before the image is replaced.
    kept: Vec<Sink>,
}

/// The place of a descriptor among [`Files`].
pub(crate) type Place = usize;

impl Files {
    /// Those that an earlier image has put in.
    pub(crate) fn of(all: Vec<OwnedFd>) -> Self {
        Self {
            all: all.into_iter().map(Arc::new).collect(),
            ..Self::default()
        }
    }

    /// Puts one in. The same one has one place.
    pub(crate) fn put(&mut self, file: &Arc<OwnedFd>) -> Place {
        let next = self.all.len();
        let place = *self.places.entry(file.as_raw_fd()).or_insert(next);
        if place == next {
            self.all.push(Arc::clone(file));
        }
        place
    }

    pub(crate) fn put_all(&mut self, files: &[Arc<OwnedFd>]) -> Vec<Place> {
        files.iter().map(|file| self.put(file)).collect()
    }

    /// The one at a place.
    pub(crate) fn get(&self, place: Place) -> io::Result<Arc<OwnedFd>> {
        self.all
            .get(place)
            .cloned()
            .ok_or_else(|| io::Error::other("a descriptor is missing from the handover"))
    }

    pub(crate) fn get_all(&self, places: &[Place]) -> io::Result<Vec<Arc<OwnedFd>>> {
        places.iter().map(|place| self.get(*place)).collect()
    }

    /// One of its own, of the one at a place.
    pub(crate) fn duplicate(&self, place: Place) -> io::Result<OwnedFd> {
        Ok(rustix::io::fcntl_dupfd_cloexec(self.get(place)?, 3)?)
    }

    /// All, in the order of their places.
    pub(crate) fn all(&self) -> &[Arc<OwnedFd>] {
        &self.all
    }
}

/// One process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ProcessState {
    facts: Facts,
    lifecycle: Lifecycle,
    stdin: StdinQueue,
    flow: Option<LosslessReader>,
    size: Option<TerminalSize>,
    master: Option<Place>,
    tree: Option<(TreeState, Vec<Place>)>,
    ending: Option<EndMode>,
    forgotten: bool,
    log: LogAddress,
    /// Of a log that has retired: its age among those.
    retired: Option<u64>,
    /// What its supervisor had left to do.
    work: Option<WorkState>,
}

#[derive(Debug, Serialize, Deserialize)]
struct WorkState {
    /// The leader has not ended, as far as was known.
    leader: bool,
    /// Its tree, where the process itself has let it go.
    tree: Option<(TreeState, Vec<Place>)>,
    outputs: [Option<OutputState>; 2],
    /// Output still goes into the log.
    logged: bool,
    input: Option<Place>,
    deadlines: Deadlines,
    script: Option<Place>,
}

#[derive(Debug, Serialize, Deserialize)]
struct OutputState {
    file: Place,
    kind: OutputKind,
    stream: Stream,
    grown: bool,
}

impl ProcessState {
    /// Of a process whose supervisor, if it had one, is frozen.
    pub(crate) fn of(process: &Process, work: Option<Work>, files: &mut Files) -> Self {
        let mutable = process.lock();
        let tree = mutable.tree.as_ref().map(|tree| tree_state(tree, files));
        let work = work.map(|work| WorkState::of(work, tree.is_none(), files));
        Self {
            facts: process.facts.clone(),
            lifecycle: mutable.lifecycle.clone(),
            stdin: mutable.stdin.clone(),
            flow: mutable.flow.clone(),
            size: mutable.size,
            master: mutable.master.as_ref().map(|master| files.put(master)),
            tree,
            ending: mutable.ending,
            forgotten: mutable.forgotten,
            log: process.log.address(),
            retired: mutable.retired.as_ref().map(super::log::RetiredLog::age),
            work,
        }
    }

    /// By what a repeated start is recognised.
    pub(crate) fn identity(&self) -> (ProcessId, SpecDigest) {
        (self.facts.id, self.facts.digest)
    }

    /// The process again, and what there is left to do about it. Must be called
    /// inside a runtime.
    ///
    /// # Errors
    /// A descriptor is missing or cannot be watched, or its log is gone.
    pub(crate) fn resume(
        self,
        containment: &Containment,
        logs: &LogStore,
        files: &Files,
    ) -> io::Result<(Arc<Process>, Option<Work>)> {
        let wake = Arc::new(Notify::new());
        let lost = || io::Error::other("the log of a process is missing from the handover");
        let (mut sink, mut retired) = (Sink::Nowhere, None);
        let log = match (self.retired, &self.work) {
            (Some(age), _) => {
                let log = logs.resume_retired(self.log, age).ok_or_else(lost)?;
                let reader = log.reader();
                retired = Some(log);
                reader
            }
            (None, Some(work)) if work.logged => {
                let resumed = logs.resume_running(self.log, Arc::clone(&wake));
                let (writer, reader) = resumed.ok_or_else(lost)?;
                sink = Sink::Log(writer);
                reader
            }
            // It was forgotten: whoever reads is told so.
            _ => {
                let (writer, reader) = logs.create(Arc::clone(&wake))?;
                drop(writer.retire());
                reader
            }
        };
        let (mut leader, mut tree) = (None, None);
        if let Some((state, places)) = self.tree {
            let (found, held) = containment.resume(state, &files.get_all(&places)?)?;
            (leader, tree) = (Some(found), Some(held));
        }
        let mutable = Mutable {
            lifecycle: self.lifecycle,
            stdin: self.stdin,
            flow: self.flow,
            size: self.size,
            master: self.master.map(|place| files.get(place)).transpose()?,
            tree: tree.clone(),
            ending: self.ending,
            retired,
            forgotten: self.forgotten,
        };
        let process = Arc::new(Process::new(self.facts, log, wake, mutable));
        let Some(work) = self.work else {
            return Ok((process, None));
        };
        if let Some((state, places)) = work.tree {
            let (found, held) = containment.resume(state, &files.get_all(&places)?)?;
            (leader, tree) = (Some(found), Some(held));
        }
        let outputs = work.outputs.map(|output| {
            let output = output?;
            Some(files.get(output.file).and_then(|file| {
                Ok(Output {
                    fd: Watched::new(file, Interest::READABLE)?,
                    kind: output.kind,
                    stream: output.stream,
                    grown: output.grown,
                })
            }))
        });
        let [first, second] = outputs;
        let input = work.input.map(|place| files.get(place)).transpose()?;
        let work = Work {
            process: Arc::clone(&process),
            leader: leader.filter(|_| work.leader),
            tree: tree.ok_or_else(|| io::Error::other("a running process has no tree"))?,
            drain: Drain::new([first.transpose()?, second.transpose()?], sink),
            input: input
                .map(|input| Watched::new(input, Interest::WRITABLE))
                .transpose()?,
            deadlines: work.deadlines,
            script: work.script.map(|place| files.get(place)).transpose()?,
        };
        Ok((process, Some(work)))
    }
}

impl WorkState {
    fn of(work: Work, alone_has_tree: bool, files: &mut Files) -> Self {
        let (outputs, sink) = work.drain.into_parts();
        let logged = matches!(sink, Sink::Log(_));
        files.kept.push(sink);
        Self {
            leader: work.leader.is_some(),
            tree: alone_has_tree.then(|| tree_state(&work.tree, files)),
            outputs: outputs.map(|output| {
                output.map(|output| OutputState {
                    file: files.put(output.fd.file()),
                    kind: output.kind,
                    stream: output.stream,
                    grown: output.grown,
                })
            }),
            logged,
            input: work.input.as_ref().map(|input| files.put(input.file())),
            deadlines: work.deadlines,
            script: work.script.as_ref().map(|script| files.put(script)),
        }
    }
}

fn tree_state(tree: &Tree, files: &mut Files) -> (TreeState, Vec<Place>) {
    let (state, beside) = tree.export();
    (state, files.put_all(&beside))
}
