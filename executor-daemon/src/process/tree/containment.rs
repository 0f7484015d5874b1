//! Which means this engine has, and how a program is launched with each.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use executor_proto::id::Epoch;
use rustix::fs::{Mode, OFlags};
use tokio_util::task::TaskTracker;

use super::best_effort::BestEffort;
use super::child_signals::ChildSignals;
use super::guard::Guard;
use super::in_cgroup::InCgroup;
use super::leader::{Child, ChildWait};
use super::means::Means;
use super::reaper::{self, ReaperProgram};
use super::{ChildStdio, LaunchPlan, Launched, Leader, LeaderState, Tree};
use crate::process::exit::{SpawnFailure, SpawnStage};
use crate::process::snapshot::StopMeans;
use crate::sandbox::cgroup::CgroupPool;
use crate::sys::spawn::{Announce, Program, Spawned, Stdio, spawn_announced};

/// Which means to try, strongest first from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub enum Preferred {
    /// The strongest there is.
    #[default]
    Auto,
    /// The same as `Auto`, said aloud.
    Cgroup,
    /// A reaper even where a cgroup could be had.
    Reaper,
    /// Only what `/proc` shows.
    BestEffort,
}

/// How an engine holds its commands.
#[derive(Debug, Clone)]
pub struct ContainmentSettings {
    /// Names the engine's cgroup, and must be new for each engine.
    pub epoch: Epoch,
    /// Where to begin.
    pub preferred: Preferred,
    /// A program of ours whose `main` begins with
    /// [`reaper::run_if_asked`]. `None`: this very program when not embedded,
    /// else an `executor-daemon` beside it or in `PATH`.
    pub reaper: Option<PathBuf>,
    /// We live in a program that is not the daemon: its signals are its own, so
    /// that each command costs a descriptor while it runs, and its end is
    /// watched for. Else `main` should have called
    /// [`block_child_signals`](crate::sys::signal::block_child_signals).
    pub embedded: bool,
}

/// The means of one engine. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Containment {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) force: Force,
    exits: Exits,
    /// Watches of reapers and of SIGCHLD.
    pub(super) tasks: TaskTracker,
    /// A later image of this program goes on with what is on the machine.
    pub(super) handed_over: AtomicBool,
}

/// How the exits of our children are learned.
#[derive(Debug)]
enum Exits {
    Pidfd,
    /// Made with the first child, since that happens inside a runtime. `None`
    /// when it could not be had: then by pidfd.
    Signals(OnceLock<Option<Arc<ChildSignals>>>),
}

#[derive(Debug)]
pub(super) enum Force {
    Cgroup {
        pool: Arc<CgroupPool>,
        guard: Mutex<GuardState>,
    },
    Reaper(ReaperProgram),
    BestEffort,
}

#[derive(Debug)]
pub(super) enum GuardState {
    /// A daemon of its own: its successor cleans up.
    NotNeeded,
    /// Started with the first command.
    Wanted(Option<PathBuf>),
    Running(Guard),
    /// Tried, and told.
    Failed,
}

impl Containment {
    /// Finds the strongest means that works from `preferred` on, by trying it.
    /// Blocks for some milliseconds. Never fails: there is always
    /// [`StopMeans::BestEffort`].
    #[must_use]
    pub fn probe(settings: &ContainmentSettings) -> Self {
        let program = reaper::program(settings.reaper.as_deref(), settings.embedded);
        let force = Self::cgroup(settings, program.clone())
            .or_else(|| Self::reaper(settings, program))
            .unwrap_or(Force::BestEffort);
        let containment = Self::with(force, settings.embedded);
        tracing::debug!(means = ?containment.means(), "means of ending a command's tree");
        containment
    }

    pub(super) fn with(force: Force, embedded: bool) -> Self {
        let exits = if embedded {
            Exits::Pidfd
        } else {
            Exits::Signals(OnceLock::new())
        };
        Self {
            inner: Arc::new(Inner {
                force,
                exits,
                tasks: TaskTracker::new(),
                handed_over: AtomicBool::new(false),
            }),
        }
    }

    fn cgroup(settings: &ContainmentSettings, program: Option<PathBuf>) -> Option<Force> {
        if !matches!(settings.preferred, Preferred::Auto | Preferred::Cgroup) {
            return None;
        }
        let pool = CgroupPool::create(&settings.epoch.to_string())
            .inspect_err(|error| tracing::debug!(%error, "no cgroup v2 for commands"))
            .ok()?;
        Some(Force::Cgroup {
            pool: Arc::new(pool),
            guard: Mutex::new(if settings.embedded {
                GuardState::Wanted(program)
            } else {
                GuardState::NotNeeded
            }),
        })
    }

    fn reaper(settings: &ContainmentSettings, program: Option<PathBuf>) -> Option<Force> {
        if settings.preferred == Preferred::BestEffort {
            return None;
        }
        ReaperProgram::try_out(&program?)
            .inspect_err(|error| tracing::warn!(%error, "no reaper for commands"))
            .ok()
            .map(Force::Reaper)
    }

    /// The means in force.
    #[must_use]
    pub fn means(&self) -> StopMeans {
        match self.inner.force {
            Force::Cgroup { .. } => StopMeans::Cgroup,
            Force::Reaper(_) => StopMeans::Reaper,
            Force::BestEffort => StopMeans::BestEffort,
        }
    }

    /// Starts a program. Blocks until execve(2) has succeeded or failed: call
    /// it on a thread that may block, inside the context of the runtime that
    /// the [`Launched`] is used in.
    ///
    /// # Errors
    /// Where and why it failed; nothing is left of it then.
    pub fn launch(&self, plan: LaunchPlan) -> Result<Launched, SpawnFailure> {
        match &self.inner.force {
            Force::Cgroup { pool, guard } => {
                ensure_guard(guard, pool);
                launch_in_cgroup(&plan, pool, self.inner.signals())
            }
            Force::Reaper(program) => program.launch(plan, &self.inner.tasks),
            Force::BestEffort => {
                let spawned = start(&plan, None)?;
                direct(spawned, self.inner.signals(), |child| {
                    Arc::new(BestEffort::new(child))
                })
            }
        }
    }

    /// Removes what the engine has made on the machine. Its trees must have
    /// been ended before; what still lives is left alone, or ended by the
    /// guard where there is one. Repeating is safe. Blocks for some
    /// milliseconds.
    pub fn close(&self) {
        self.inner.close();
    }
}

impl Inner {
    /// Must be called inside a runtime.
    pub(super) fn signals(&self) -> Option<&Arc<ChildSignals>> {
        let Exits::Signals(signals) = &self.exits else {
            return None;
        };
        let claim = || {
            ChildSignals::claim(&self.tasks)
                .inspect_err(
                    |error| tracing::warn!(%error, "by pidfd, one for each command that runs"),
                )
                .ok()
        };
        signals.get_or_init(claim).as_ref()
    }

    fn close(&self) {
        self.tasks.close();
        if self.handed_over.load(Ordering::Acquire) {
            return;
        }
        if let Force::Cgroup { pool, guard } = &self.force {
            pool.remove();
            let mut guard = guard.lock().unwrap_or_else(PoisonError::into_inner);
            if let GuardState::Running(guard) = std::mem::replace(&mut *guard, GuardState::Failed) {
                guard.finish();
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

/// Starts the guard with the first command. The lock is held meanwhile, so
/// that no command runs before it; only launching threads wait for it, once.
fn ensure_guard(state: &Mutex<GuardState>, pool: &CgroupPool) {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let GuardState::Wanted(program) = &*state else {
        return;
    };
    let started = match program {
        Some(program) => Guard::start(program, pool.parent(), pool.name()),
        None => Err(io::Error::new(
            io::ErrorKind::NotFound,
            "executor-daemon is neither beside this program nor in PATH",
        )),
    };
    *state = match started {
        Ok(guard) => GuardState::Running(guard),
        Err(error) => {
            tracing::warn!(%error, "no guard: commands will outlive this program if it is killed");
            GuardState::Failed
        }
    };
}

fn launch_in_cgroup(
    plan: &LaunchPlan,
    pool: &Arc<CgroupPool>,
    signals: Option<&Arc<ChildSignals>>,
) -> Result<Launched, SpawnFailure> {
    let at_cgroup = |error: io::Error| failure(SpawnStage::Cgroup, &error);
    let cgroup = pool.take().map_err(at_cgroup)?;
    let started = pool
        .open(&cgroup)
        .map_err(at_cgroup)
        .and_then(|directory| start(plan, Some(directory)));
    match started {
        Ok(spawned) => direct(spawned, signals, |child| {
            Arc::new(InCgroup::new(child, Arc::clone(pool), cgroup))
        }),
        Err(failure) => {
            pool.give_back(cgroup);
            Err(failure)
        }
    }
}

fn start(plan: &LaunchPlan, cgroup: Option<OwnedFd>) -> Result<Spawned, SpawnFailure> {
    let program = Program {
        paths: &plan.programs,
        argv: &plan.argv,
        envp: &plan.envp,
        cwd: plan.cwd.as_fd(),
        stdio: stdio(&plan.stdio),
        cgroup: cgroup.as_ref().map(AsFd::as_fd),
    };
    spawn_announced(&program, Announce::Memory(&plan.attempt.child))
}

pub(super) fn stdio(stdio: &ChildStdio) -> Stdio<'_> {
    match stdio {
        ChildStdio::Pipe {
            stdin,
            stdout,
            stderr,
        } => Stdio::Descriptors([stdin.as_fd(), stdout.as_fd(), stderr.as_fd()]),
        ChildStdio::Terminal { path } => Stdio::Terminal(path),
    }
}

/// A leader that is our own child.
fn direct(
    spawned: Spawned,
    signals: Option<&Arc<ChildSignals>>,
    hold: impl FnOnce(Arc<Child>) -> Arc<dyn Means>,
) -> Result<Launched, SpawnFailure> {
    let Spawned { pid, pidfd } = spawned;
    let (child, wait) = ChildWait::new(pid, pidfd, signals);
    let means = hold(Arc::clone(&child));
    match wait {
        Ok(wait) => Ok(Launched {
            pid,
            leader: Leader {
                state: LeaderState::Child(wait),
                means: Arc::clone(&means),
            },
            tree: Tree { means },
        }),
        Err(error) => {
            // It cannot be watched, so it must not run.
            means.kill();
            child.kill_and_reap();
            Err(failure(SpawnStage::Resources, &error))
        }
    }
}

pub(super) fn failure(stage: SpawnStage, error: &io::Error) -> SpawnFailure {
    SpawnFailure {
        stage,
        errno: error.raw_os_error().unwrap_or(0),
    }
}

/// Opens a directory to start one of our own programs in.
pub(super) fn directory(path: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// The null device, to read and write.
pub(super) fn null() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(
        "/dev/null",
        OFlags::RDWR | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}
