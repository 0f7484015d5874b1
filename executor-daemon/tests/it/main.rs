//! Integration tests of the daemon's library that need a program of ours.

#![cfg(test)]
#![expect(
    clippy::disallowed_methods,
    reason = "tests look at files and processes as an outsider does"
)]

mod files;
mod tree;
