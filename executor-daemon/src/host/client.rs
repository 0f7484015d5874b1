//! The daemon's end of the seam: the engine in this process, or the process
//! host behind its socket.

use executor_proto::id::Epoch;

use super::link::Link;
use super::message::{Descriptor, Reply, Request};
use super::run::Local;
use crate::process::error::ProcessError;
use crate::process::snapshot::StopMeans;

/// What the engine answers, with the descriptors beside it.
pub type Answer = Result<(Reply, Vec<Descriptor>), ProcessError>;

/// One life of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    /// Its name. What belonged to another one is gone.
    pub epoch: Epoch,
    /// How it stops trees.
    pub means: StopMeans,
}

/// The daemon's end of the seam. Cheap to clone.
#[derive(Debug, Clone)]
pub struct HostClient {
    way: Way,
}

#[derive(Debug, Clone)]
enum Way {
    /// In this process.
    Local(Local),
    /// In a process of its own.
    Linked(Link),
    /// Whatever a test puts in its place.
    #[cfg(test)]
    Played(tests::Played),
}

impl HostClient {
    pub(super) fn local(local: Local) -> Self {
        Self {
            way: Way::Local(local),
        }
    }

    pub(super) fn linked(link: Link) -> Self {
        Self {
            way: Way::Linked(link),
        }
    }

    /// The engine's present life. Waits, some seconds at most, where one was
    /// lost and the next has not begun. Cancel safe.
    ///
    /// # Errors
    /// [`ProcessError::EngineGone`].
    pub async fn life(&self) -> Result<Life, ProcessError> {
        match &self.way {
            Way::Local(local) => Ok(local.life()),
            Way::Linked(link) => link.life().await,
            #[cfg(test)]
            Way::Played(played) => Ok(played.life),
        }
    }

    /// Whether this is still the life of the engine that is meant. Cancel safe.
    ///
    /// # Errors
    /// [`ProcessError::EpochOver`], [`ProcessError::EngineGone`].
    pub async fn check(&self, epoch: Epoch) -> Result<(), ProcessError> {
        match &self.way {
            Way::Local(local) => same(epoch, local.life()),
            Way::Linked(link) => link.check(epoch).await,
            #[cfg(test)]
            Way::Played(played) => same(epoch, played.life),
        }
    }

    /// Asks the engine, whichever life it is in. Cancel safe in that dropping
    /// the future abandons the answer; what was asked may still be done.
    ///
    /// # Errors
    /// What the engine refuses, or [`ProcessError::EngineGone`] when it went
    /// away before it answered.
    pub async fn call(&self, request: Request, descriptors: Vec<Descriptor>) -> Answer {
        match &self.way {
            Way::Local(local) => local.call(request, descriptors).await,
            Way::Linked(link) => link.call(None, request, descriptors).await,
            #[cfg(test)]
            Way::Played(played) => played.call(request, descriptors).await,
        }
    }

    /// As [`HostClient::call`], for what belongs to one life of the engine.
    ///
    /// # Errors
    /// Also [`ProcessError::EpochOver`]; then nothing was done.
    pub async fn call_in(
        &self,
        epoch: Epoch,
        request: Request,
        descriptors: Vec<Descriptor>,
    ) -> Answer {
        match &self.way {
            Way::Local(local) => {
                same(epoch, local.life())?;
                local.call(request, descriptors).await
            }
            Way::Linked(link) => link.call(Some(epoch), request, descriptors).await,
            #[cfg(test)]
            Way::Played(played) => played.call(request, descriptors).await,
        }
    }
}

fn same(asked: Epoch, life: Life) -> Result<(), ProcessError> {
    if asked == life.epoch {
        return Ok(());
    }
    Err(ProcessError::EpochOver {
        asked,
        current: life.epoch,
        left: None,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use tokio::sync::{mpsc, oneshot};

    use super::{Answer, HostClient, Life, Way};
    use crate::host::message::{Descriptor, Request};
    use crate::process::error::ProcessError;

    /// A request to an engine that a test plays.
    #[derive(Debug)]
    pub(crate) struct Envelope {
        pub(crate) request: Request,
        pub(crate) descriptors: Vec<Descriptor>,
        pub(crate) reply: oneshot::Sender<Answer>,
    }

    #[derive(Debug, Clone)]
    pub(super) struct Played {
        pub(super) life: Life,
        requests: mpsc::Sender<Envelope>,
    }

    impl Played {
        pub(super) async fn call(&self, request: Request, descriptors: Vec<Descriptor>) -> Answer {
            let (reply, answer) = oneshot::channel();
            let envelope = Envelope {
                request,
                descriptors,
                reply,
            };
            let gone = |_| ProcessError::EngineGone;
            self.requests.send(envelope).await.map_err(gone)?;
            answer.await.map_err(|_| ProcessError::EngineGone)?
        }
    }

    impl HostClient {
        /// Both ends of a seam with nothing behind it.
        pub(crate) fn played(life: Life) -> (Self, mpsc::Receiver<Envelope>) {
            let (requests, receiver) = mpsc::channel(1024);
            let way = Way::Played(Played { life, requests });
            (Self { way }, receiver)
        }
    }
}
