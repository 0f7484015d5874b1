//! What fences a command in, and what of it this machine can do.

pub mod cgroup;
pub mod probe;
