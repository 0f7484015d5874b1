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
//! - [`read_lines`], [`read_bytes`], [`stat`], [`list`]: one operation a module.

pub mod cancel;
mod opened;
pub mod entry;
pub mod error;
pub mod fence;
mod in_place;
pub mod instance;
pub mod object;
pub mod receipts;
mod ignore_files;
pub mod line_index;
pub mod list;
pub mod object;
pub mod read_bytes;
pub mod read_lines;
pub mod resolve;
pub mod roots;
pub mod secret;
mod similar_names;
pub mod stat;
pub mod text;
pub mod turn;
pub mod version;
mod walk;

#[cfg(test)]
mod tests;
