//! Starting one command: descriptors, environment, program, spawn.
//!
//! All of it may block (an executable can lie on a file system that does not
//! answer), so it runs on one of a bounded number of blocking threads.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::ends::Ends;
use super::env::{Sources, Variables};
use super::exit::{SpawnFailure, SpawnStage};
use super::program::Program;
use super::spec::StartSpec;
use super::tree::{Attempt, Containment, LaunchPlan, Launched};

/// A command that runs.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) launched: Launched,
    pub(crate) ends: Ends,
    /// A long text the shell reads; open as long as the command runs.
    pub(crate) script: Option<OwnedFd>,
}

/// Starts a command. Blocks until its program was executed or could not be.
pub(crate) fn launch(
    containment: &Containment,
    sources: &Sources,
    login: Option<&Variables>,
    spec: &StartSpec,
    cwd: Arc<OwnedFd>,
    tag: &str,
    attempt: Arc<Attempt>,
) -> Result<Running, SpawnFailure> {
    let environment = sources.build(&spec.environment, login, spec.io, &spec.cwd, tag);
    let program = Program::resolve(&spec.command, &environment).map_err(no_resources)?;
    let (stdio, ends) = Ends::open(spec.io).map_err(no_resources)?;
    let launched = containment.launch(LaunchPlan {
        programs: program.candidates,
        argv: program.argv,
        envp: environment.to_envp(),
        cwd,
        stdio,
        attempt,
    })?;
    Ok(Running {
        launched,
        ends,
        script: program.script,
    })
}

fn no_resources(error: io::Error) -> SpawnFailure {
    SpawnFailure {
        stage: SpawnStage::Resources,
        errno: error.raw_os_error().unwrap_or(0),
    }
}
