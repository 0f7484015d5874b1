//! An answer in pieces, each made on a thread that may block and only while
//! the client takes them: a slow client holds a few pieces, and no thread.
//!
//! ```text
//! making ──made──► waiting for room ──taken──► making ──no more──► ended
//!    └──────┬────────────┘
//!           └── client gone, daemon ending, failure ──► ended
//! ```

use std::sync::Arc;

use executor_proto::reason::Failure;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::super::failure::{self, Call, file as refusal};
use super::super::output::count_as_contact;
use super::super::{Caller, Core};
use super::places::{Places, Pool};
use super::read::GivenUp;
use crate::files::cancel::Cancel;
use crate::files::error::FileError;
use crate::process::error::ProcessError;

/// Pieces that wait to be sent.
const WAITING: usize = 2;

/// The messages of one stream.
pub(in crate::service) type Messages<T> = ReceiverStream<Result<T, Status>>;

/// What is given out piece by piece.
pub(super) trait Pieces: Send + 'static {
    /// One piece.
    type Message: Send + 'static;

    /// Where they are made.
    fn pool(places: &Places) -> &Pool {
        &places.reads
    }

    /// The next one; `None` after the last. Blocks.
    fn next(&mut self, cancel: &Cancel) -> Result<Option<Self::Message>, FileError>;
}

/// All pieces, until the client goes. While it takes them it counts as there.
pub(super) fn stream<P: Pieces>(
    core: &Arc<Core>,
    caller: &Caller,
    pieces: P,
) -> Messages<P::Message> {
    let (messages, stream) = mpsc::channel(WAITING);
    let contact = count_as_contact(core, caller);
    let working = Arc::clone(core);
    core.tasks.spawn(async move {
        let ending = tokio::select! {
            biased;
            () = messages.closed() => return,
            ended = make(&working, pieces, &messages) => ended,
            () = working.closing.cancelled() => {
                Err(failure::engine(&ProcessError::ShuttingDown, Call::Other))
            }
        };
        if let Err(failure) = ending {
            // Where there is no room any more the client sees the stream end
            // without its last message.
            let _ = messages.try_send(Err(failure.into()));
        }
        drop(contact);
    });
    ReceiverStream::new(stream)
}

async fn make<P: Pieces>(
    core: &Core,
    mut pieces: P,
    messages: &mpsc::Sender<Result<P::Message, Status>>,
) -> Result<(), Failure> {
    let cancel = Cancel::new();
    let _given_up = GivenUp(cancel.clone());
    loop {
        // Room first: what is made is then sent at once.
        let Ok(room) = messages.reserve().await else {
            return Ok(());
        };
        let cancel = cancel.clone();
        let made = P::pool(&core.files).run(&core.tasks, move || {
            let made = pieces.next(&cancel);
            (pieces, made)
        });
        let (back, made) = made.await?;
        pieces = back;
        match made.map_err(|error| refusal::file(&error))? {
            Some(message) => room.send(Ok(message)),
            None => return Ok(()),
        }
    }
}
