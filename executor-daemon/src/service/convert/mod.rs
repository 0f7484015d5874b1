//! Between the wire and the inside: one file a family of messages, both
//! directions in it. A request becomes a checked value once; what is behind
//! never looks at a message again.
//!
//! Every refusal is `INVALID_ARGUMENT` with the field in its metadata, unless
//! a family says otherwise.

pub(super) mod check;
pub(super) mod control;
pub(super) mod file;
pub(super) mod output;
pub(super) mod process;
pub(super) mod session;
pub(super) mod start;

#[cfg(test)]
mod tests;
