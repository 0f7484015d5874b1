//! Files, by handle. So far: what working directories need.
//!
//! - [`roots`]: what a session may use, as opened directories.
//! - [`resolve`]: a name becomes an opened directory below one of them, or a
//!   typed refusal. Nothing behind the resolver takes a name.

mod in_place;
pub mod instance;
pub mod receipts;
pub mod resolve;
pub mod roots;
pub mod turn;
mod walk;

#[cfg(test)]
mod tests;
