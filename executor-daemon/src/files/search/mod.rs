//! Finding files by their names ([`request::Glob`]) and by what is in them
//! ([`request::Grep`]), in parallel and in one order.
//!
//! - [`request`]: what can be asked for; `globs` and [`pattern`] are its
//!   languages.
//! - `plan`: a request becomes what is done.
//! - `tree_walk`: what one task does, by `directory` handles; `sorting` decides on
//!   entries, `file` and `sink` search one file, [`clip`] cuts long lines.
//! - `order`: tasks done by many, told in one order; `work`: the threads, of a
//!   [`crew`], that do them.
//! - [`Search`]: a search under way.
//! - [`results`] and [`summary`]: what was found, and what was not searched.
//!
//! Results come by path: the paths in the order given, below each one by name as
//! bytes, a directory where its name stands. docs/search.md says what differs
//! from ripgrep and git.

pub mod clip;
pub mod crew;
mod directory;
mod file;
mod globs;
mod order;
pub mod pattern;
mod plan;
pub mod request;
pub mod results;
mod running;
mod sink;
mod sorting;
pub mod summary;
mod tree_walk;
mod work;

pub use self::globs::{GLOB_BYTES, GLOBS_MAX};
pub use self::running::{Piece, Search, Settings};

#[cfg(test)]
pub(super) mod globs_for_tests {
    pub(in super::super) use super::globs::PathGlobs;
}
