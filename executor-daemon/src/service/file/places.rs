//! Threads for operations on files: a bounded number for those that read, and
//! for those that change, so that neither keeps out the other nor the start of a
//! command.
//!
//! 1. A place is held exactly as long as a thread works, also when nobody waits
//!    for it any more.
//! 2. Who gets no place within `limits.file_wait_seconds` is told so, with the limit's name.

use std::sync::Arc;
use std::time::Duration;

use executor_proto::reason::{Failure, Reason};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;

use crate::limits::Limits;

/// What all calls on files share.
#[derive(Debug)]
pub(in crate::service) struct Places {
    /// For operations that only read.
    pub(super) reads: Pool,
    /// For operations that change something.
    pub(in crate::service) changes: Pool,
    /// For images: each takes much memory.
    pub(super) images: Pool,
    /// For writes whose content is on its way.
    pub(super) writes: Pool,
    /// For searches that are open.
    pub(super) searches: Pool,
    /// For their pieces: one for each.
    pub(super) search_pieces: Pool,
}

impl Places {
    /// As many as `limits` say.
    pub(in crate::service) fn new(limits: &Limits) -> Self {
        Self {
            reads: Pool::new("file_reads", limits.file_reads, limits),
            changes: Pool::new("file_changes", limits.file_changes, limits),
            images: Pool::new("image_reads", limits.image_reads, limits),
            writes: Pool::new("file_writes", limits.file_writes, limits),
            searches: Pool::new("file_searches", limits.file_searches, limits),
            search_pieces: Pool::new("file_searches", limits.file_searches, limits),
        }
    }
}

/// Places of one kind.
#[derive(Debug)]
pub(in crate::service) struct Pool {
    /// Of the limit.
    name: &'static str,
    size: usize,
    free: Arc<Semaphore>,
    patience: Duration,
}

impl Pool {
    fn new(name: &'static str, size: usize, limits: &Limits) -> Self {
        Self {
            name,
            size,
            free: Arc::new(Semaphore::new(size)),
            patience: Duration::from_secs(limits.file_wait_seconds as u64),
        }
    }

    /// A place, or a refusal at once.
    pub(super) fn take(&self) -> Result<OwnedSemaphorePermit, Failure> {
        let place = Arc::clone(&self.free).try_acquire_owned();
        place.map_err(|_| self.refused())
    }

    /// Runs `work` on a thread that may block, once there is a place. Dropping
    /// the future gives up the wait; work that has begun goes on.
    pub(in crate::service) async fn run<T: Send + 'static>(
        &self,
        tasks: &TaskTracker,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let free = Arc::clone(&self.free).acquire_owned();
        let place = match tokio::time::timeout(self.patience, free).await {
            Ok(Ok(place)) => place,
            _ => return Err(self.refused()),
        };
        let done = tasks.spawn_blocking(move || {
            let done = work();
            drop(place);
            done
        });
        done.await.map_err(|error| {
            tracing::error!(%error, "an operation on files ended without a result");
            Failure::new(
                Reason::Internal,
                "the operation ended without a result; this is a bug, and the daemon's log \
                 says more",
            )
        })
    }

    fn refused(&self) -> Failure {
        let Self { name, size, .. } = self;
        Failure::new(
            Reason::CallLimit,
            format!(
                "all {size} places for operations on files of this kind are taken \
                 (limits.{name}); nothing was done; try again, or raise it"
            ),
        )
        .with("limit", name)
        .with("value", size)
        .retry_after(Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_place_is_held_while_the_thread_works_and_the_next_waits_in_vain_only_so_long() {
        let mut pool = Pool::new("file_reads", 1, &Limits::default());
        pool.patience = Duration::from_millis(5);
        let tasks = TaskTracker::new();
        let (go, wait) = std::sync::mpsc::sync_channel::<()>(0);
        let (begun, begins) = tokio::sync::oneshot::channel();
        let first = pool.run(&tasks, move || {
            begun.send(()).unwrap();
            wait.recv().unwrap();
        });
        // Nobody waits for it any more; its place is taken all the same.
        tokio::select! {
            _ = first => panic!("it waits"),
            begins = begins => begins.unwrap(),
        }
        let failure = pool.run(&tasks, || ()).await.unwrap_err();
        assert_eq!(failure.reason, Reason::CallLimit);
        assert_eq!(failure.metadata["limit"], "file_reads");
        assert!(pool.take().is_err());
        go.send(()).unwrap();
        tasks.close();
        tasks.wait().await;
        pool.run(&tasks, || ()).await.unwrap();
    }
}
