//! The process engine: starts commands, follows them, ends them.
//!
//! It knows nothing of the wire. What is asked of it comes as values
//! ([`spec`], [`control`]) through the seam (`crate::host`), what it tells are
//! values too ([`snapshot`], [`exit`], [`error`]), and output is read from the
//! shared memory of a [`log`].
//!
//! ```text
//! engine ── sessions ── table ── record (facts, small state under a mutex)
//!    │                             ▲
//!    └─ start ─► launch ─► supervisor (one task a process)
//!                  │           │ drains into log, feeds from stdin,
//!                  │           │ sees the exit, keeps the deadlines
//!                  └─ tree ◄───┘ spawn, members, signal, end
//! ```
//!
//! Pure state machines, without I/O, clock or lock: `lifecycle`, `stdin`,
//! `flow`, `table`.

pub mod backend;
pub mod control;
pub(crate) mod drain;
pub(crate) mod ends;
pub(crate) mod engine;
pub mod env;
pub mod error;
pub mod exit;
pub(crate) mod flow;
pub(crate) mod handover;
pub(crate) mod launch;
pub(crate) mod lifecycle;
pub mod log;
pub(crate) mod login;
pub(crate) mod moment;
pub(crate) mod program;
pub(crate) mod record;
pub mod snapshot;
pub mod spec;
pub(crate) mod stdin;
pub(crate) mod supervisor;
pub(crate) mod table;
pub mod tree;
