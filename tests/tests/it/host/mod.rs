//! Nothing is lost: commands, terminals, output and input across the death and
//! the replacement of the daemon, and of the process host by another image.

mod crowd;
mod grant;
mod handover;
mod lost;
mod restart;
mod reused;
mod upgrade;
