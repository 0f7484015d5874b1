//! From a checked spec to a supervised process.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};

use executor_proto::id::SessionId;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Engine, Shared};
use crate::process::drain::BUSY_PIPE;
use crate::process::error::ProcessError;
use crate::process::exit::SpawnFailure;
use crate::process::flow::LosslessReader;
use crate::process::launch::{Running, launch};
use crate::process::lifecycle::Lifecycle;
use crate::process::log::{Geometry, LogWriter};
use crate::process::login;
use crate::process::record::{Facts, Mutable, Process};
use crate::process::spec::{EnvironmentPolicy, Flow, Io, StartSpec};
use crate::process::stdin::{StdinLimits, StdinQueue};
use crate::process::supervisor::{Deadlines, Supervisor, Work};
use crate::process::table::Admission;
use crate::process::tree::EndMode;

/// How long a start waits for its program to be executed even when it is asked
/// not to wait: its outcome is nearly always known within a millisecond.
const EXECUTED: Duration = Duration::from_secs(5);
/// A launch that takes longer hangs.
const PROMPT: Duration = Duration::from_secs(1);
/// How long a launch waits for its turn: others may hang in execve(2).
const PREPARED: Duration = Duration::from_secs(600);

impl Engine {
    /// Starts a process, or finds it; says which. One that is there is found
    /// without its directory, which may be gone by now. Returns at the exit or
    /// after `wait`.
    pub(crate) async fn start(
        &self,
        session: SessionId,
        spec: Box<StartSpec>,
        cwd: Option<Arc<OwnedFd>>,
        wait: Duration,
    ) -> Result<(Arc<Process>, bool), ProcessError> {
        let begin = Instant::now();
        let (process, created) = self.admit(session, spec, cwd)?;
        process
            .wait_until(begin + wait.max(EXECUTED), |mutable| {
                mutable.state().is_final() || mutable.lifecycle.ran().is_some()
            })
            .await;
        if !wait.is_zero() {
            process
                .wait_until(begin + wait, |mutable| mutable.state().is_final())
                .await;
        }
        Ok((process, created))
    }

    fn admit(
        &self,
        session: SessionId,
        spec: Box<StartSpec>,
        cwd: Option<Arc<OwnedFd>>,
    ) -> Result<(Arc<Process>, bool), ProcessError> {
        self.check_open()?;
        let session = self.sessions().get(session)?;
        let mut table = session.table();
        let missing = || ProcessError::MissingDescriptor(spec.cwd.clone());
        if cwd.is_none() && !table.knows(spec.id) {
            return Err(missing());
        }
        if let Admission::Existing(process) = table.admit(&spec, SystemTime::now())? {
            return Ok((process, false));
        }
        let cwd = cwd.ok_or_else(missing)?;
        let (process, writer) = self.make(session.record.id, &spec)?;
        // The receipt comes before the spawn.
        table.insert(Arc::clone(&process));
        drop(table);
        let engine = self.clone();
        let started = Arc::clone(&process);
        let starting = Starting::new(&self.shared);
        self.shared.supervisors.spawn(async move {
            engine.run(started, spec, cwd, writer).await;
            drop(starting);
        });
        Ok((process, true))
    }

    fn make(
        &self,
        session: SessionId,
        spec: &StartSpec,
    ) -> Result<(Arc<Process>, LogWriter), ProcessError> {
        let wake = Arc::new(Notify::new());
        let (writer, reader) = self
            .shared
            .logs
            .create(Arc::clone(&wake))
            .map_err(|error| ProcessError::OutOfResources {
                errno: error.raw_os_error().unwrap_or(0),
            })?;
        let (stdin, terminal) = match spec.io {
            Io::Pipe { stdin, .. } => (stdin, None),
            Io::Terminal(size) => (true, Some(size)),
        };
        let settings = self.settings();
        let limits = StdinLimits {
            queue: settings.limits.stdin_queue_bytes,
            writers: settings.limits.stdin_writers,
        };
        let facts = Facts {
            id: spec.id,
            session,
            digest: spec.digest,
            label: spec.label.clone(),
            cwd: spec.cwd.clone(),
            created_at: spec.created_at,
            means: self.shared.containment.means(),
        };
        let mutable = Mutable {
            lifecycle: Lifecycle::new(),
            stdin: StdinQueue::new(spec.id, stdin, terminal.is_some(), limits),
            flow: match spec.flow {
                Flow::Drain => None,
                Flow::Lossless => Some(LosslessReader::new(window(spec.io), Instant::now())),
            },
            size: terminal,
            master: None,
            tree: None,
            ending: None,
            retired: None,
            forgotten: false,
        };
        Ok((Arc::new(Process::new(facts, reader, wake, mutable)), writer))
    }

    /// Launches an admitted process and follows it to its end.
    async fn run(
        &self,
        process: Arc<Process>,
        spec: Box<StartSpec>,
        cwd: Arc<OwnedFd>,
        writer: LogWriter,
    ) {
        let (timeout, idle_timeout) = (spec.timeout, spec.idle_timeout);
        // On the heap while it lasts: the task goes on for as long as its process.
        let running = match Box::pin(self.launch(&process, spec, cwd)).await {
            Ok(running) => running,
            Err(failure) => return failed(&process, writer, failure),
        };
        // What the command has not begun with does not count against it.
        let now = Instant::now();
        let deadlines = Deadlines {
            timeout: timeout.map(|after| now + after),
            idle_timeout,
            last_output: now,
            grace: self.grace(),
        };
        let pid = running.launched.pid;
        let late = {
            let mut mutable = process.lock();
            mutable.master.clone_from(&running.ends.master);
            mutable.tree = Some(running.launched.tree.clone());
            mutable.lifecycle.launched(pid, SystemTime::now());
            mutable.lifecycle.is_ending()
        };
        process.notify();
        if late {
            // Whoever ends it may have given up waiting for the launch.
            let process = Arc::clone(&process);
            self.shared
                .tasks
                .spawn(async move { process.end_tree(EndMode::Kill).await });
        }
        let work = Box::new(Work::new(process, running, writer, deadlines));
        // A task of its own: this one is larger than what has to stay.
        let engine = self.clone();
        self.shared
            .supervisors
            .spawn(async move { engine.supervise(work).await });
    }

    /// Follows a process to its end, or until the engine is frozen.
    pub(super) async fn supervise(&self, work: Box<Work>) {
        let shared = &self.shared;
        let supervisor = Supervisor::new(work, shared.tasks.clone());
        if let Some(work) = supervisor.run(&shared.frozen).await {
            let mut left = shared.left.lock().unwrap_or_else(PoisonError::into_inner);
            left.push(*work);
        }
    }

    async fn launch(
        &self,
        process: &Process,
        spec: Box<StartSpec>,
        cwd: Arc<OwnedFd>,
    ) -> Result<Running, SpawnFailure> {
        let policy = spec.environment.policy;
        let prepared = async {
            let login = match policy {
                EnvironmentPolicy::Login => self.login_environment().await,
                EnvironmentPolicy::Core | EnvironmentPolicy::None | EnvironmentPolicy::All => None,
            };
            let permit = Arc::clone(&self.shared.launches).acquire_owned().await;
            Some((login, permit.ok()?))
        };
        let prepared = tokio::select! {
            biased;
            // What is ended before it began is not begun.
            _ = process.wait_until(Instant::now() + PREPARED, |mutable| {
                mutable.lifecycle.is_ending()
            }) => None,
            prepared = prepared => prepared,
        };
        let Some((login, permit)) = prepared else {
            return Err(SpawnFailure::NOT_BEGUN);
        };
        let (shared, settings) = (Arc::clone(&self.shared), self.settings());
        let tag = format!("{}/{}", self.shared.epoch, process.facts.id);
        let attempt = Arc::clone(&process.attempt);
        let mut launched = tokio::task::spawn_blocking(move || {
            launch(
                &shared.containment,
                &settings.sources,
                login.as_ref(),
                &spec,
                cwd,
                &tag,
                attempt,
            )
        });
        let lost = Err(SpawnFailure::NOT_BEGUN);
        if let Ok(launched) = tokio::time::timeout(PROMPT, &mut launched).await {
            return launched.unwrap_or(lost);
        }
        // It hangs, on a file system that does not answer. Others get its place.
        let hanging = Arc::clone(&self.shared.hanging).acquire_owned();
        let _place = tokio::select! {
            biased;
            launched = &mut launched => return launched.unwrap_or(lost),
            place = hanging => place,
        };
        drop(permit);
        launched.await.unwrap_or(lost)
    }

    /// What the login shell sets, captured once.
    async fn login_environment(&self) -> Option<crate::process::env::Variables> {
        let (shared, settings) = (Arc::clone(&self.shared), self.settings());
        self.shared
            .login
            .get_or_init(|| async move {
                login::capture(&shared.containment, &settings.sources, &shared.tasks).await
            })
            .await
            .clone()
    }
}

/// One that is admitted and not launched.
struct Starting(Arc<Shared>);

impl Starting {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.starting.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(shared))
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.0.starting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How far a lossless reader may be behind: what is retained, less what pipes
/// or a terminal can still hold when the leader exits, so that nothing of that
/// pushes out what was not consumed.
fn window(io: Io) -> u64 {
    let pipes = match io {
        Io::Pipe {
            separate_stderr: true,
            ..
        } => 2,
        Io::Pipe { .. } | Io::Terminal(_) => 1,
    };
    (Geometry::PRODUCTION.retained - pipes * BUSY_PIPE) as u64
}

fn failed(process: &Process, mut writer: LogWriter, failure: SpawnFailure) {
    writer.publish_end();
    {
        let mut mutable = process.lock();
        mutable
            .lifecycle
            .spawn_failed(failure, &process.facts.label, SystemTime::now());
        mutable
            .stdin
            .exited(crate::process::error::ExitedAs::Unknown);
        if !mutable.forgotten {
            writer.publish_exit();
            mutable.retired = Some(writer.retire());
        }
    }
    process.notify();
}
