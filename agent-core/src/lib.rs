//! Machines for agents.
//!
//! An agent embeds this crate to use machines: its own one today
//! ([`local`]), any number of others later, with the registry, the tool
//! catalogue, permissions and MCP that will stand here beside it. It speaks to
//! every machine through [`executor_client`] alone; the daemon is taken as a
//! library for the machine `local` and for nothing else.
//!
//! The binary `executor` of this package is the command line for people.
//!
//! ```no_run
//! # #[cfg(feature = "local")]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use agent_core::local::LocalMachine;
//! use executor_client::SessionOptions;
//!
//! let local = LocalMachine::start()?;
//! let session = local.machine().open_session(SessionOptions::default()).await?;
//! let completed = session.run("uname -a").await?;
//! assert!(completed.exit.success());
//! local.shutdown().await;
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "local")]
pub mod local;
