//! Files, by handle: everything that a session does with a name goes through
//! its fence, and nothing behind the fence takes a name.
//!
//! Plain, blocking Rust; the service calls it on threads that may block.
//!
//! - [`roots`]: what a session may use, as opened directories.
//! - [`resolve`]: a name becomes an opened directory below one of them, or a
//!   typed refusal.
//! - [`fence`]: a name becomes an [`entry`], a name in an opened directory;
//!   [`secret`] files have none.
//! - [`object`]: what an entry is; [`version`]: which content it has; [`text`]:
//!   what its bytes say.
//! - [`read_lines`], [`read_bytes`], [`stat`], [`list`], [`mod@image`]: one
//!   operation a module.
//! - [`search`]: what is found by name or content, in a whole tree.
//! - [`shared::Files`]: what is changed, for all sessions: [`mutation`]s in
//!   [`turn`], recorded by an [`instance`], told again by [`receipts`]; one
//!   operation a file ([`mod@write`], [`edit`], [`remove`], [`rename`],
//!   [`make_directory`], [`undo_mutation`]).

mod aside;
mod attributes;
pub mod cancel;
pub mod content;
pub mod edit;
pub mod entry;
pub mod error;
pub mod fence;
mod ignore_files;
pub mod image;
mod in_place;
pub mod instance;
pub mod line_index;
pub mod list;
pub mod make_directory;
pub mod mutation;
pub mod object;
mod opened;
mod outcome;
pub mod read_bytes;
pub mod read_lines;
pub mod receipts;
pub mod remove;
mod remove_tree;
pub mod rename;
mod replace;
pub mod resolve;
pub mod roots;
pub mod search;
pub mod secret;
pub mod shared;
mod similar_names;
pub mod stat;
pub mod text;
pub mod turn;
mod undo;
pub mod undo_mutation;
pub mod version;
mod walk;
pub mod write;

#[cfg(test)]
mod hooks;
#[cfg(test)]
mod tests;

pub use shared::Files;
