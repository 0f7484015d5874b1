//! One end of a connection, played by a test.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rmpv::Value;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::tree::bytes;
use crate::host::connection::{Connection, Flow};
use crate::host::frame::{Frame, FrameReader, Kind, decode, encode};
use crate::host::message::Reply;
use crate::host::run::HostConfig;
use crate::host::wire::WireReply;
use crate::limits::Limits;
use crate::process::error::ProcessError;
use crate::process::tree::Preferred;

pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// See the module's documentation.
pub(super) struct End {
    pub(super) connection: Arc<Connection>,
    pub(super) reader: FrameReader,
}

impl End {
    /// Takes it over.
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self {
            connection: Connection::new(socket).unwrap(),
            reader: FrameReader::default(),
        }
    }

    /// One end, and the socket of the other.
    pub(super) fn pair() -> (Self, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let (ours, theirs) = pair.unwrap();
        (Self::new(ours), theirs)
    }

    pub(super) fn say(&self, kind: Kind, id: u64, body: &impl serde::Serialize) {
        let frame = encode(kind, id, body, 0).unwrap();
        self.connection.send(frame, Vec::new());
    }

    /// A frame with a body of no type that we have.
    pub(super) fn say_tree(&self, kind: Kind, id: u64, body: &Value) {
        let body = bytes(body);
        let mut frame = encode(kind, id, &(), 0).unwrap().to_vec();
        frame.truncate(16);
        frame[..4].copy_from_slice(&u32::try_from(body.len()).unwrap().to_le_bytes());
        frame.extend_from_slice(&body);
        self.connection.send(frame.into(), Vec::new());
    }

    /// A frame of a kind that there is not yet, with a body that is nothing.
    pub(super) fn say_something_new(&self, id: u64) {
        let mut frame = encode(Kind::Request, id, &(), 0).unwrap().to_vec();
        frame[4] = 99;
        *frame.last_mut().unwrap() = 0xc1;
        self.connection.send(frame.into(), Vec::new());
    }

    /// The next frame; `None` at the end of the stream.
    pub(super) async fn hear(&mut self) -> Option<Frame> {
        let mut heard = None;
        let hear = self.connection.run(&mut self.reader, |frame| {
            heard = Some(frame);
            Flow::Enough
        });
        tokio::time::timeout(PATIENCE, hear).await.unwrap();
        heard
    }

    pub(super) async fn hear_reply(&mut self) -> (u64, Result<Reply, ProcessError>) {
        let frame = self.hear().await.unwrap();
        assert_eq!(frame.kind, Some(Kind::Reply));
        (frame.id, decode::<WireReply>(&frame.body).unwrap().result)
    }
}

/// Of an engine that changes nothing in this program.
pub(super) fn config() -> HostConfig {
    HostConfig {
        limits: Limits::default(),
        environment: Vec::new(),
        means: Preferred::BestEffort,
        reaper: None,
        embedded: true,
        grace: Duration::from_millis(10),
    }
}
