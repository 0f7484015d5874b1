//! The daemon in front of a host: served until it goes, or until the host is
//! to be replaced by another image, which serves it on.
//!
//! ```text
//! served ──park──► parked ──resume──► served
//!    │                └──image replaced──► served by the next image
//!    └──end of stream──► gone
//! ```

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::answering::Answering;
use super::connection::{Connection, File};
use super::frame::FrameReader;
use super::run::Local;
use super::serve::{Host, locked};
use crate::process::handover::{Files, Place};
use crate::process::log::Doorbell;

/// A daemon that is served.
#[derive(Debug)]
pub(super) struct Front {
    pub(super) who: Who,
    pub(super) connection: Arc<Connection>,
    pub(super) reader: FrameReader,
    pub(super) answering: Answering,
    pub(super) doorbell: [File; 2],
}

/// What is known of a daemon.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Who {
    pub(super) schema: u32,
    pub(super) release: String,
    pub(super) pid: u32,
    /// Counts daemons.
    pub(super) turn: u64,
}

/// A daemon for a later image.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FrontState {
    who: Who,
    connection: Place,
    doorbell: [Place; 2],
    /// What it had sent and nobody had taken, with its descriptors.
    unread: Bytes,
    batches: Vec<Vec<Place>>,
    /// What it was sent and is not written yet.
    #[serde(default)]
    unwritten: Vec<(Bytes, Vec<Place>)>,
    waiting: Vec<(u64, Bytes)>,
    met: Vec<u64>,
}

impl Host {
    /// Serves a daemon until it is gone. Returns without having said so when
    /// somebody else goes on with it.
    pub(super) async fn serve_front(&self, engine: &Local, mut front: Front) {
        let mut parking = self.parking.subscribe();
        loop {
            let answering = front.answering.clone();
            tokio::select! {
                biased;
                () = self.closing.cancelled() => break,
                // Before anything is taken that nobody would go on with.
                _ = parking.wait_for(|park| *park) => {}
                () = front.connection.run(&mut front.reader, |frame| answering.take(frame)) => break,
            }
            *locked(&self.parked) = Some(front);
            self.changed.notify_waiters();
            // An error means that the host ends.
            let _ = parking.wait_for(|park| !park).await;
            match locked(&self.parked).take() {
                Some(back) => front = back,
                None => return,
            }
        }
        front.connection.close();
        front.answering.abandon();
        engine.engine.logs().detach();
        engine.engine.daemon_gone();
        self.daemon_left(front.who.turn);
        tracing::info!("the daemon is gone; commands go on");
    }

    /// The daemon, once it is not served any more; `None` where there is none.
    pub(super) async fn parked_front(&self) -> Option<Front> {
        loop {
            let changed = self.changed.notified();
            let parked = locked(&self.parked).take();
            if parked.is_some() || locked(&self.daemon).is_none() {
                return parked;
            }
            changed.await;
        }
    }
}

impl FrontState {
    pub(super) fn of(front: Front, files: &mut Files) -> Self {
        let (waiting, met) = front.answering.hand_over();
        let unwritten = front.connection.take_unwritten().into_iter();
        let unwritten = unwritten
            .map(|(bytes, beside)| (bytes, files.put_all(&beside)))
            .collect();
        let (unread, batches) = front.reader.rest();
        let batches = batches
            .into_iter()
            .map(|batch| {
                batch
                    .into_iter()
                    .map(|file| files.put(&Arc::new(file)))
                    .collect()
            })
            .collect();
        let [memory, event] = &front.doorbell;
        Self {
            who: front.who,
            connection: files.put(front.connection.file()),
            doorbell: [files.put(memory), files.put(event)],
            unread: unread.freeze(),
            batches,
            unwritten,
            waiting,
            met,
        }
    }

    /// Goes on with the daemon.
    ///
    /// # Errors
    /// A descriptor is missing or is not what it should be.
    pub(super) fn resume(self, engine: &Local, files: &Files) -> std::io::Result<Front> {
        let connection = Connection::new(files.get(self.connection)?)?;
        for (bytes, beside) in self.unwritten {
            connection.send(bytes, files.get_all(&beside)?);
        }
        let answering = Answering::new(engine.clone(), Arc::clone(&connection));
        let mut reader = FrameReader::default();
        reader.push(&self.unread, None);
        for batch in self.batches {
            let batch = batch.into_iter().map(|place| files.duplicate(place));
            reader.push(&[], Some(batch.collect::<std::io::Result<_>>()?));
        }
        let [memory, event] = self.doorbell;
        let doorbell =
            Doorbell::from_descriptors(files.duplicate(memory)?, files.duplicate(event)?)?;
        engine.engine.logs().attach(doorbell);
        answering.resume(self.waiting, self.met);
        Ok(Front {
            who: self.who,
            connection,
            reader,
            answering,
            doorbell: [files.get(memory)?, files.get(event)?],
        })
    }
}
