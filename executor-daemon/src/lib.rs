//! The daemon: hands on one machine, behind the protocol `executor.v1`.
//!
//! The inside ([`process`], [`files`], [`session`], [`host`]) is a library of
//! plain Rust that knows nothing of the wire. `service` decodes a request into
//! a checked value, calls, encodes; [`server`] brings requests in, each with a
//! checked [`server::auth::Principal`]. The process engine sits behind a
//! message-shaped seam ([`host`]), so that it can be a process of its own.
//!
//! A program embeds all of it with [`embed`]: the same server, over streams in
//! memory instead of a socket. It changes nothing in its host program: no
//! signal handler, no subreaper, no resource limit, no log subscriber.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let machine = executor_daemon::embed(executor_daemon::Config::for_embedding())?;
//! let stream = machine.connector().connect().await?; // speaks executor.v1
//! # drop(stream);
//! machine.shutdown().await; // ends what it started
//! # Ok(())
//! # }
//! ```

pub mod config;
pub mod files;
pub mod host;
pub mod limits;
pub mod machine;
mod path_bytes;
pub mod process;
pub mod sandbox;
pub mod server;
mod service;
pub mod session;
pub mod socket;
pub mod sys;

pub use config::Config;
pub use server::ServeError;
pub use server::embed::{Connector, Embedded, embed};

/// Where our own programs become the small process that watches over one
/// command: call it first in `main`, before any runtime or thread exists. It
/// returns at once in a program that a person started, and does not return in
/// such a process.
pub fn reaper_entry() {
    process::tree::reaper::run_if_asked();
}
