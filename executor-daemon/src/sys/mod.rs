//! The system calls that no safe wrapper offers: the only `unsafe` of the
//! daemon.
//!
//! Each function here keeps its contract to itself: a caller can pass nothing
//! that makes it unsound. Nothing is decided here; `process::tree` says who is
//! started, signalled and reaped.

#![expect(
    unsafe_code,
    reason = "raw system calls live here and nowhere else; each block says why it is sound"
)]

pub mod fdpass;
pub mod inherit;
pub mod kernel;
pub mod memory;
pub mod readiness;
pub(crate) mod shm;
pub mod signal;
pub mod spawn;
pub mod terminal;
pub mod wait;
