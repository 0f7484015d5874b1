//! The daemon's end of the seam.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::message::{Descriptor, Reply, Request};
use crate::process::error::ProcessError;

/// What the engine answers, with the descriptors beside it.
pub type Answer = Result<(Reply, Vec<Descriptor>), ProcessError>;

/// A request on its way.
#[derive(Debug)]
pub struct Envelope {
    /// What is asked.
    pub request: Request,
    /// What travels beside it.
    pub descriptors: Vec<Descriptor>,
    /// Where the answer goes.
    pub reply: oneshot::Sender<Answer>,
}

/// Requests that may wait before the next one is held up.
const QUEUE: usize = 1024;

/// The daemon's end of the seam. Cheap to clone.
#[derive(Debug, Clone)]
pub struct HostClient {
    requests: Arc<mpsc::Sender<Envelope>>,
}

impl HostClient {
    /// Both ends of a seam inside one process.
    #[must_use]
    pub fn channel() -> (Self, mpsc::Receiver<Envelope>) {
        let (requests, receiver) = mpsc::channel(QUEUE);
        (
            Self {
                requests: Arc::new(requests),
            },
            receiver,
        )
    }

    /// Asks the engine. Cancel safe in that dropping the future abandons the
    /// answer; what was asked may still be done.
    ///
    /// # Errors
    /// What the engine refuses, or [`ProcessError::EngineGone`].
    pub async fn call(&self, request: Request, descriptors: Vec<Descriptor>) -> Answer {
        let (reply, answer) = oneshot::channel();
        self.requests
            .send(Envelope {
                request,
                descriptors,
                reply,
            })
            .await
            .map_err(|_| ProcessError::EngineGone)?;
        answer.await.map_err(|_| ProcessError::EngineGone)?
    }
}
