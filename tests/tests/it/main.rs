//! End-to-end tests: one binary, any order, nothing shared.
//!
//! `cases/` holds one test for each input that shipped systems got wrong,
//! named after its id (docs/cases.md).

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::cast_possible_truncation,
    clippy::large_futures,
    reason = "a test fails by panicking, and prepares its own files and programs"
)]

mod cases;
mod cli;
mod files;
mod host;
mod hostile;
mod layers;
mod python_client;
