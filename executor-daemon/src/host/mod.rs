//! The process host: the engine behind its seam.
//!
//! The daemon holds a [`client::HostClient`] and speaks in [`message`]s; [`run`]
//! takes them and asks the engine. Today both ends live in one process and the
//! messages cross a channel. Nothing on either side may know that.

pub mod client;
pub mod message;
pub mod run;

pub use self::run::{HostConfig, HostTask, Running, start};
