//! The protocol `executor.v1`.
//!
//! Three things live here, and nothing that decides anything:
//!
//! - [`v1`]: the messages, clients and servers generated from `proto/`. Each
//!   rpc's documentation says whether it may be retried, its order, units and
//!   limits.
//! - [`id`]: identifiers as plain types, free of prost and tonic: all that the
//!   daemon's inside may name of this crate.
//! - [`reason`]: the error reasons, and the only code that builds or reads a
//!   [`tonic::Status`].
//!
//! ```
//! use executor_proto::id::ProcessId;
//!
//! let id = ProcessId::random();
//! assert_eq!(id.to_string().parse::<ProcessId>(), Ok(id));
//! ```

pub mod id;
pub mod reason;

/// Messages, clients and servers of `executor.v1`, generated from `proto/`.
#[allow(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    clippy::large_futures,
    unreachable_pub,
    reason = "generated code; the documentation stands in the .proto files"
)]
pub mod v1 {
    tonic::include_proto!("executor.v1");

    /// The encoded `FileDescriptorSet` of this package, for reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] =
        include_bytes!(concat!(env!("OUT_DIR"), "/executor.v1.bin"));
}

/// Metadata keys of session-bound calls.
pub mod metadata {
    /// The session's id.
    pub const SESSION: &str = "executor-session";
    /// The session's secret: 64 hexadecimal digits, marked sensitive.
    pub const SECRET: &str = "executor-secret";
    /// The epoch that `OpenSession` returned.
    pub const EPOCH: &str = "executor-epoch";
}
