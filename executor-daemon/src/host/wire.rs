//! Requests and replies as they cross the socket.
//!
//! A log crosses as the address of its slot. The memory that it lies in comes
//! along the first time a daemon meets it, and stays mapped.

use serde::{Deserialize, Serialize};

use super::message::{Reply, Request};
use crate::process::error::ProcessError;
use crate::process::log::{Geometry, LogAddress};

/// A request; beside it its directories.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WireRequest<R> {
    /// What is asked.
    pub(super) request: R,
    /// Segments that were sent and could not be mapped: to be sent again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) missing: Vec<u64>,
}

/// The request as it is read.
pub(super) type AskedRequest = WireRequest<Request>;

/// An answer; beside it its directories, then the memory of new segments.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WireReply {
    /// What is answered.
    pub(super) result: Result<Reply, ProcessError>,
    /// How many directories come beside it.
    #[serde(default)]
    pub(super) directories: usize,
    /// Logs that come with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) logs: Vec<LogAddress>,
    /// Memory that the daemon has not met yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) segments: Vec<WireSegment>,
    /// With a new segment: all that there are. Others are gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) live: Vec<u64>,
}

/// One segment of logs.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct WireSegment {
    /// Never given twice.
    pub(super) id: u64,
    /// Its place in the doorbell.
    pub(super) number: u32,
    /// Its layout.
    pub(super) geometry: Geometry,
}
