//! Lossless readers: each is a task that attaches, passes on what the client
//! consumed, and detaches when its stream is gone, whatever way it went.
//!
//! The same reader id may come back on a new connection before the old one was
//! seen to end. The newer one has the place, and the older one's stream ends.
//! The engine counts connections: each that attached detaches, once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use executor_proto::reason::{Failure, Reason};
use executor_proto::v1;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Streaming;

use super::{Caller, Core};
use crate::host::message::{Request, Target};

/// Process ids are made by clients, so the session is part of the place: one
/// session's reader never takes another's.
type Key = (Target, String);

/// Who holds which place. One entry an open lossless stream.
#[derive(Debug, Default)]
pub(super) struct Readers {
    /// Std: held for one look-up or change, never across an await.
    places: Mutex<Places>,
}

#[derive(Debug, Default)]
struct Places {
    held: HashMap<Key, (u64, CancellationToken)>,
    next: u64,
}

impl Readers {
    /// Takes a place; whoever had it is told.
    fn take(&self, key: Key, superseded: CancellationToken) -> u64 {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.next += 1;
        let turn = places.next;
        if let Some((_, before)) = places.held.insert(key, (turn, superseded)) {
            before.cancel();
        }
        turn
    }

    /// Gives a place up, unless somebody else has it by now.
    fn give_up(&self, key: &Key, turn: u64) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if places.held.get(key).is_some_and(|(held, _)| *held == turn) {
            places.held.remove(key);
        }
    }
}

/// What a stream keeps of its reader.
#[derive(Debug)]
pub(super) struct Attached {
    /// Another stream took the place.
    pub(super) superseded: CancellationToken,
    /// Detaches when dropped.
    _gone: DropGuard,
}

impl Core {
    /// Attaches a reader and begins to pass on what the client consumed.
    /// Cancel safe: dropping the future detaches.
    pub(super) async fn attach(
        self: &Arc<Self>,
        caller: &Caller,
        target: Target,
        reader: String,
        cursor: u64,
        inbound: Streaming<v1::StreamOutputRequest>,
    ) -> Result<Attached, Failure> {
        let gone = CancellationToken::new();
        let attached = Attached {
            superseded: CancellationToken::new(),
            _gone: gone.clone().drop_guard(),
        };
        let (tell, told) = oneshot::channel();
        let task = Reader {
            core: Arc::clone(self),
            caller: caller.clone(),
            target,
            reader,
        };
        let superseded = attached.superseded.clone();
        self.tasks
            .spawn(task.run(cursor, inbound, superseded, gone, tell));
        told.await
            .unwrap_or_else(|_| Err(Failure::new(Reason::Internal, "the reader's task is gone")))?;
        Ok(attached)
    }
}

struct Reader {
    core: Arc<Core>,
    caller: Caller,
    target: Target,
    reader: String,
}

impl Reader {
    async fn run(
        self,
        cursor: u64,
        mut inbound: Streaming<v1::StreamOutputRequest>,
        superseded: CancellationToken,
        gone: CancellationToken,
        tell: oneshot::Sender<Result<(), Failure>>,
    ) {
        let attach = Request::AttachReader {
            target: self.target,
            reader: self.reader.clone(),
            consumed: cursor,
        };
        let key = (self.target, self.reader.clone());
        let turn = self.core.readers.take(key.clone(), superseded.clone());
        let attached = self.core.ask(&self.caller, attach, Vec::new()).await;
        let refused = attached.is_err();
        // A receiver that is gone is seen by `gone`.
        let _ = tell.send(attached.map(|_| ()));
        if refused {
            self.core.readers.give_up(&key, turn);
            return;
        }
        tokio::select! {
            () = gone.cancelled() => {}
            () = superseded.cancelled() => {}
            () = self.pass_on(&mut inbound) => {
                // The client will acknowledge no more, and may still read.
                gone.cancelled().await;
            }
        }
        self.core.readers.give_up(&key, turn);
        let detach = Request::DetachReader {
            target: self.target,
            reader: self.reader.clone(),
        };
        if let Err(error) = self.core.ask(&self.caller, detach, Vec::new()).await {
            tracing::debug!(process = %self.target.process, reason = error.reason.name(), "detach was refused");
        }
    }

    /// Returns when the client's half has ended.
    async fn pass_on(&self, inbound: &mut Streaming<v1::StreamOutputRequest>) {
        use v1::stream_output_request::Message;
        while let Ok(Some(request)) = inbound.message().await {
            let Some(Message::Consumed(offset)) = request.message else {
                continue;
            };
            let consumed = Request::Consumed {
                target: self.target,
                reader: self.reader.clone(),
                offset,
            };
            if self
                .core
                .ask(&self.caller, consumed, Vec::new())
                .await
                .is_err()
            {
                return;
            }
        }
    }
}
