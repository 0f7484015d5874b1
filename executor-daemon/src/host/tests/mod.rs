//! What crosses the socket between daemon and process host: read as it was
//! recorded, and answered where it is not understood.

mod end;
mod garbage;
mod handover;
mod link;
mod process;
mod recorded;
mod requests;
mod samples;
mod talk;
mod tree;
