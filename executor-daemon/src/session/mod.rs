//! Sessions and their leases.
//!
//! The engine owns the [`record`] of each session; the daemon keeps what it
//! needs to serve one in the [`registry`] and can rebuild all of it.

pub(crate) mod lease;
mod place;
pub mod record;
pub mod registry;
pub mod request;
