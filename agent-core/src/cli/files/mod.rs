//! Commands that read and change files.
//!
//! With the user's daemon, or one named with `--machine`, they act in the
//! persistent session, so that a later `undo` finds what it takes back. Where no
//! daemon runs they act in a machine inside this process, and there is nothing to
//! undo afterwards.

pub(super) mod args;
mod cat;
mod change;
mod edit;
mod json;
mod list;
mod search;
pub(super) mod search_args;
mod shown;
mod stat;
mod terminal_image;
mod view;
mod write;

use std::path::Path;

#[cfg(feature = "local")]
use agent_core::local::LocalMachine;
use executor_client::{Session, path_bytes};

use self::args::FileCommand;
use super::failure::{CliError, OWN_FAILURE, notice};
use super::session_file::persistent_session;
use super::{Context, daemon};

/// Runs one of them.
pub(crate) async fn run(context: &Context, command: FileCommand) -> Result<u8, CliError> {
    let place = Place::open(context, matches!(command, FileCommand::Undo(_))).await?;
    let done = match &command {
        FileCommand::Ls(args) => list::ls(&place, args).await.map(code),
        FileCommand::Cat(args) => cat::run(&place, args).await.map(code),
        FileCommand::Glob(args) => search::glob(&place, args).await,
        FileCommand::Grep(args) => search::grep(&place, args).await,
        FileCommand::Tree(args) => list::tree(&place, args).await.map(|()| 0),
        FileCommand::Stat(args) => stat::run(&place, args).await.map(|()| 0),
        FileCommand::Edit(args) => edit::run(&place, args).await.map(|()| 0),
        FileCommand::Write(args) => write::run(&place, args).await.map(|()| 0),
        FileCommand::Rm(args) => change::rm(&place, args).await.map(|()| 0),
        FileCommand::Mv(args) => change::mv(&place, args).await.map(|()| 0),
        FileCommand::Mkdir(args) => change::mkdir(&place, args).await.map(|()| 0),
        FileCommand::Undo(args) => change::undo(&place, args).await.map(|()| 0),
        FileCommand::View(args) => view::run(&place, args).await.map(|()| 0),
    };
    place.close().await;
    done
}

/// Of a command that goes on after a path that failed.
fn code(failed: usize) -> u8 {
    if failed == 0 { 0 } else { OWN_FAILURE }
}

/// Where files are read and changed.
struct Place<'a> {
    context: &'a Context,
    session: Session,
    #[cfg(feature = "local")]
    local: Option<LocalMachine>,
}

impl<'a> Place<'a> {
    /// `lasting`: a machine of our own is of no use.
    async fn open(context: &'a Context, lasting: bool) -> Result<Self, CliError> {
        match daemon::find(context).await? {
            Some(machine) => Ok(Self {
                context,
                session: persistent_session(context, &machine).await?,
                #[cfg(feature = "local")]
                local: None,
            }),
            None if lasting => Err(CliError::Usage(
                "no daemon is running, so nothing can be undone: what was changed is kept for \
                 undo by the daemon that changed it, for as long as that one lives"
                    .into(),
            )),
            None => Self::without_daemon(context).await,
        }
    }

    #[cfg(feature = "local")]
    async fn without_daemon(context: &'a Context) -> Result<Self, CliError> {
        let local = LocalMachine::start().map_err(|error| CliError::Embed(error.to_string()))?;
        let machine = daemon::prepare(local.machine().clone());
        let options = executor_client::SessionOptions {
            label: "executor (command line)".into(),
            ..Default::default()
        };
        Ok(Self {
            context,
            session: machine.open_session(options).await?,
            local: Some(local),
        })
    }

    #[cfg(not(feature = "local"))]
    async fn without_daemon(context: &'a Context) -> Result<Self, CliError> {
        let machine = daemon::find_or_start(context).await?;
        Ok(Self {
            context,
            session: persistent_session(context, &machine).await?,
        })
    }

    /// A path as the machine is to see it: on our own one, from the current
    /// directory.
    fn path(&self, path: &Path) -> Result<Vec<u8>, CliError> {
        let own = daemon::is_own_machine(self.context.address.as_deref());
        if !own || path.as_os_str().is_empty() {
            return Ok(path_bytes(path));
        }
        Ok(path_bytes(self.context.surroundings.absolute(path)?))
    }

    /// Tells how a change is taken back, where it can be.
    fn tell_undo(&self, token: &str) {
        if self.can_undo(token) {
            notice(format_args!("take it back with: executor undo {token}"));
        }
    }

    /// Tells that a removal cannot be taken back, where others can.
    fn tell_no_undo(&self, token: &str) {
        #[cfg(feature = "local")]
        if self.local.is_some() {
            return;
        }
        if token.is_empty() {
            notice("removed for good: nothing of it is kept for undo");
        }
    }

    /// The token as `--json` tells it.
    fn undo_token<'t>(&self, token: &'t str) -> Option<&'t str> {
        self.can_undo(token).then_some(token)
    }

    fn can_undo(&self, token: &str) -> bool {
        #[cfg(feature = "local")]
        if self.local.is_some() {
            return false;
        }
        !token.is_empty()
    }

    async fn close(self) {
        #[cfg(feature = "local")]
        if let Some(local) = self.local {
            local.shutdown().await;
        }
    }
}
