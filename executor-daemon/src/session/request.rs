//! What is said to open or use a session, and why it is refused.

use std::path::PathBuf;
use std::time::Duration;

use executor_proto::id::{Epoch, SessionId, SessionSecret};

use super::record::Access;
use crate::files::resolve::ResolveError;
use crate::process::error::ProcessError;

/// Why a session cannot be opened or used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The engine refuses.
    #[error(transparent)]
    Engine(#[from] ProcessError),
    /// A root cannot be used.
    #[error("root {path:?} cannot be used: {error}")]
    Root {
        /// As it was asked for.
        path: PathBuf,
        /// Why.
        error: ResolveError,
    },
    /// More is asked for than the operator grants.
    #[error("root {path:?} is read-only on this machine; ask for it read-only")]
    RootReadOnly {
        /// As it was asked for.
        path: PathBuf,
    },
    /// The first directory cannot be used.
    #[error("working directory {path:?} cannot be used: {error}")]
    WorkingDirectory {
        /// As it was asked for.
        path: PathBuf,
        /// Why.
        error: ResolveError,
    },
}

/// What a call says of its session.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// Which.
    pub session: SessionId,
    /// Its secret.
    pub secret: SessionSecret,
    /// The life of the engine that it was opened in.
    pub epoch: Epoch,
}

/// A session to be opened.
#[derive(Debug, Clone)]
pub struct OpenSpec {
    /// The client's id.
    pub id: SessionId,
    /// The client's secret.
    pub secret: SessionSecret,
    /// Empty: the operator's. `None` for the access: as the operator grants.
    pub roots: Vec<(PathBuf, Option<Access>)>,
    /// `None`: the home directory, or the first root.
    pub cwd: Option<PathBuf>,
    /// `None`: for ever.
    pub lease: Option<Duration>,
    /// For people.
    pub label: String,
}
