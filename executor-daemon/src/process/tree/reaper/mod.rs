//! A small subreaper of its own for each command, where no cgroup can be had.
//!
//! ```text
//! engine ──socket──→ reaper ──→ leader ──→ …
//!                      ↑ orphans of the tree come here (PR_SET_CHILD_SUBREAPER)
//! ```
//!
//! It is a hidden mode of our own programs. Its arguments and environment hold
//! nothing of the command, so that no `pkill -f` meant for the command finds
//! it: the plan comes in a sealed memory file over the socket.
//!
//! 1. Every descendant of the command is a descendant of the reaper, whatever
//!    it does. The reaper ends when it has no child left: that is how the
//!    engine knows that the tree is empty.
//! 2. When the socket closes, because the engine let go or died, everything is
//!    killed.
//! 3. It has one thread, and only it reaps: a child's pid is the child's own
//!    until the reaper's next wait.
//! 4. It holds neither pipes nor terminal of the command.

mod held;
mod launch;
mod message;
mod serve;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::guard;
pub(super) use held::{HeldState, resume};
pub(super) use launch::ReaperProgram;
pub use message::VERSION;

/// What asks a program of ours to be a reaper.
const ARGUMENT: &str = "__reaper";

/// This very program's `main` begins with [`run_if_asked`].
static CAN_BE_ASKED: AtomicBool = AtomicBool::new(false);

/// Becomes a reaper or a guard when the arguments say so, and then does not
/// return. The `main` of a program that embeds the engine calls it before
/// anything else: before a runtime, a thread or a log is made.
pub fn run_if_asked() {
    CAN_BE_ASKED.store(true, Ordering::Relaxed);
    let mut arguments = std::env::args_os().skip(1);
    let Some(first) = arguments.next() else {
        return;
    };
    if first == ARGUMENT {
        std::process::exit(serve::run());
    }
    if first == guard::ARGUMENT {
        guard::run(&arguments.next().unwrap_or_default());
        std::process::exit(0);
    }
}

/// The program that can be asked: the one given; this very program where its
/// `main` knows the mode; else `executor-daemon` beside it or in `PATH`.
pub(super) fn program(given: Option<&Path>, embedded: bool) -> Option<PathBuf> {
    const NAME: &str = "executor-daemon";
    if let Some(given) = given {
        return Some(given.to_owned());
    }
    if !embedded || CAN_BE_ASKED.load(Ordering::Relaxed) {
        return Some(PathBuf::from("/proc/self/exe"));
    }
    let beside = std::env::current_exe()
        .ok()
        .and_then(|own| Some(own.parent()?.join(NAME)));
    #[expect(
        clippy::disallowed_methods,
        reason = "asked once per engine, for a program of our own, as execvp(3) would"
    )]
    let path = std::env::var_os("PATH").unwrap_or_default();
    beside
        .into_iter()
        .chain(std::env::split_paths(&path).map(|directory| directory.join(NAME)))
        .find(|candidate| rustix::fs::access(candidate, rustix::fs::Access::EXEC_OK).is_ok())
}
