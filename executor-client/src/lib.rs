//! The client of `executor.v1`: run commands on a machine, read and change its
//! files.
//!
//! ```no_run
//! # async fn example() -> Result<(), executor_client::ClientError> {
//! use executor_client::{Machine, OutputEvent, SessionOptions};
//!
//! let machine = Machine::connect("unix:///run/executor/daemon.sock").await?;
//! let session = machine.open_session(SessionOptions::default()).await?;
//! let build = session.command("cargo build").cwd("/src/app").spawn().await?;
//! let mut output = build.output();
//! while let Some(event) = output.next().await? {
//!     if let OutputEvent::Page(page) = event {
//!         eprint!("{}", String::from_utf8_lossy(&page.data));
//!     }
//! }
//! println!("exit: {}", build.wait().await?.shell_code);
//! # Ok(())
//! # }
//! ```
//!
//! The crate is thin. It makes ids, offsets and cursors so that every call may
//! be repeated, repeats calls by the table in [`retry`], and goes on with
//! output and input where a lost connection broke off. It must not know what a
//! machine is made of: it names nothing of the daemon, and a daemon embedded
//! in the same process is one more stream factory
//! ([`Machine::from_connector`]).
//!
//! Futures may be dropped at any time; each method says what is true then.
//! Messages that need no Rust type of their own are those of
//! [`executor_proto::v1`], re-exported as [`v1`].

mod command;
mod error;
mod exit;
mod file_bytes;
mod files;
mod machine;
mod output;
mod process;
pub mod retry;
mod search;
mod session;
mod stdin;

pub use command::{COLLECTED_BYTES, Command, Completed};
pub use error::{AddressError, ClientError};
pub use executor_proto::id::{Epoch, MachineId, OperationId, ProcessId, SessionId, SessionSecret};
pub use executor_proto::reason::Reason;
pub use executor_proto::{id, v1};
pub use exit::{Exit, ExitCause, ExitStatus, State};
pub use file_bytes::FileBytes;
pub use files::{Listing, path_bytes};
pub use machine::Machine;
pub use output::{OutputEvent, OutputOptions, OutputStream, runs};
pub use process::{Process, Started};
pub use retry::CallOptions;
pub use search::{GlobStream, Globbed, GrepStream, Grepped};
pub use session::{KeepAlive, Lease, Session, SessionCredentials, SessionOptions};
pub use stdin::StdinWriter;
pub use tonic::Code;

/// A name that nobody else has: for readers and writers, which need no more
/// than to differ.
#[must_use]
pub fn random_name() -> String {
    id::ProcessId::random()
        .to_string()
        .split_off(id::ProcessId::PREFIX.len())
}
