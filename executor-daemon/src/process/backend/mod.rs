//! Where a command's input and output go: pipes or a pseudo-terminal. Each
//! opens both ends; the child's go into a launch plan, ours are non-blocking.

pub mod pipe;
pub mod pty;
