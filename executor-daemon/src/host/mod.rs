//! The process host: the engine behind its seam.
//!
//! The daemon holds a [`client::HostClient`] and speaks in [`message`]s. The
//! engine is in the same process ([`start`]: embedded), or in one of its own
//! ([`process_host`]), which the daemon finds again when it was restarted:
//!
//! ```text
//! service ─► client ─┬─ run (Local) ─────────────────────────────► engine
//!                    └─ link ⇄ connection ⇄ answering ⇄ run (Local) ─► engine
//!                        ▲        frames, descriptors       ▲
//!                       find: connect, or start        serve: accept, greet
//! ```
//!
//! Output does not cross the socket: the daemon maps the memory of the logs.

mod answering;
pub mod client;
mod commands;
mod connection;
mod control;
mod find;
mod frame;
mod front;
mod greeting;
mod link;
pub mod message;
mod process;
mod record;
pub mod run;
mod serve;
#[cfg(test)]
mod tests;
mod trial;
mod upgrade;
mod wire;

pub use self::control::{Control, ControlError, DaemonStatus, HostStatus, Notice};
pub use self::find::{Finder, LinkError, socket_beside};
pub use self::greeting::Predecessor;
pub use self::link::{Linked, link};
pub use self::process::{Begin, HostError, process_host};
pub use self::run::{HostConfig, HostTask, Running, start};
pub use self::trial::answer_trial;
pub use self::upgrade::Handover;
