//! What a person's command asks of this host: status, upgrade, stop.

use std::sync::Arc;
use std::time::Duration;

use super::connection::{Connection, Flow};
use super::control::{ControlReply, ControlRequest, DaemonStatus, HostStatus, Notice};
use super::frame::{FrameReader, Kind, decode, encode};
use super::greeting::{Answer, RELEASE};
use super::serve::{Host, locked};
use super::upgrade::Asked;

/// How long a daemon that is told to stop may take to begin with it.
const BEGINS_TO_STOP: Duration = Duration::from_secs(5);
/// How long a command may take to ask something.
const ASKS: Duration = Duration::from_secs(30);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// How long a daemon may take to come as the new program.
const DAEMON: Duration = Duration::from_secs(30);

impl Host {
    /// Serves a person's command.
    pub(super) async fn serve_control(&self, connection: Arc<Connection>, mut reader: FrameReader) {
        let Ok(welcome) = encode(Kind::Welcome, 0, &Answer::Control, 0) else {
            return;
        };
        connection.send(welcome, Vec::new());
        loop {
            let mut asked = None;
            let next = connection.run(&mut reader, |frame| {
                // Others are of a later release.
                if frame.kind != Some(Kind::Request) {
                    return Flow::More;
                }
                asked = Some(frame);
                Flow::Enough
            });
            tokio::select! {
                () = next => {}
                () = self.closing.cancelled() => return,
                // It has a place that others may want.
                () = tokio::time::sleep(ASKS) => return,
            }
            let Some(frame) = asked else { return };
            let request = decode::<ControlRequest>(&frame.body);
            let reply = match request {
                Ok(ControlRequest::Status) => ControlReply::Status(self.status()),
                Ok(ControlRequest::Stop) => {
                    say(&connection, frame.id, &ControlReply::Stopping);
                    // Open until this process ends: that is what is waited for.
                    locked(&self.stopping).push(Arc::clone(&connection));
                    self.stop().await;
                    return;
                }
                Ok(ControlRequest::Upgrade { program }) => {
                    let asked = Asked {
                        connection: Arc::clone(&connection),
                        id: frame.id,
                        program,
                        refused: None,
                    };
                    ControlReply::Failed(self.upgrade(asked).await)
                }
                Err(error) => ControlReply::Failed(format!(
                    "this process host is release {RELEASE} and does not know the request: {error}"
                )),
            };
            say(&connection, frame.id, &reply);
        }
    }

    fn status(&self) -> HostStatus {
        let daemon = locked(&self.daemon);
        HostStatus {
            pid: std::process::id(),
            release: RELEASE.to_owned(),
            daemon: daemon.as_ref().map(|(who, _)| DaemonStatus {
                pid: who.pid,
                release: who.release.clone(),
                turn: who.turn,
            }),
        }
    }

    /// Ends daemon and engine.
    async fn stop(&self) {
        // Not in the middle of an upgrade.
        let _quiet = self.upgrading.lock().await;
        let Some(started) = self.started() else {
            self.over.send_replace(true);
            return;
        };
        let begin = tokio::time::Instant::now();
        let mut told = false;
        while begin.elapsed() < BEGINS_TO_STOP
            && !started.engine.engine.is_closing()
            && locked(&self.daemon).is_some()
        {
            // One that is being greeted hears it as soon as it can.
            told = told || self.tell(&Notice::Stop);
            tokio::time::sleep(LOOK).await;
        }
        if !started.engine.engine.is_closing() {
            tracing::warn!("the daemon does not begin to stop; ending without it");
            self.end(&started.engine).await;
        }
    }

    /// Tells the daemon; false where there is none that can hear.
    fn tell(&self, notice: &Notice) -> bool {
        let daemon = locked(&self.daemon);
        let welcomed = *locked(&self.welcomed);
        let Some((_, connection)) = daemon.as_ref().filter(|(who, _)| who.turn == welcomed) else {
            return false;
        };
        match encode(Kind::Notice, 0, notice, 0) {
            Ok(frame) => connection.send(frame, Vec::new()),
            Err(error) => tracing::error!(%error, "a notice cannot be sent"),
        }
        true
    }

    /// Answers who asked for this image, once the daemon has come as the same
    /// program.
    pub(super) async fn answer_upgrade(&self, asked: Asked) {
        let program = asked.program.clone();
        let turn = self.status().daemon.map(|daemon| daemon.turn);
        let reply = match (asked.refused, turn) {
            (Some(why), _) => ControlReply::Failed(why),
            (None, Some(turn)) if self.tell(&Notice::Upgrade { program }) => {
                let came = tokio::time::timeout(DAEMON, self.daemon_after(turn));
                let came = tokio::select! {
                    came = came => came.is_ok(),
                    () = self.closing.cancelled() => false,
                };
                if came {
                    ControlReply::Status(self.status())
                } else {
                    ControlReply::Failed(format!(
                        "the process host goes on as {}, but the daemon has not come back as \
                         that within {} s; see its log, and start it again",
                        asked.program.display(),
                        DAEMON.as_secs()
                    ))
                }
            }
            (None, _) => ControlReply::Status(self.status()),
        };
        say(&asked.connection, asked.id, &reply);
        // Whoever asked may have gone.
        let _ = asked.connection.flushed().await;
    }

    async fn daemon_after(&self, turn: u64) {
        loop {
            let changed = self.changed.notified();
            if self
                .status()
                .daemon
                .is_some_and(|daemon| daemon.turn > turn)
            {
                return;
            }
            changed.await;
        }
    }
}

fn say(connection: &Connection, id: u64, reply: &ControlReply) {
    match encode(Kind::Reply, id, reply, 0) {
        Ok(frame) => connection.send(frame, Vec::new()),
        Err(error) => tracing::error!(%error, "an answer cannot be sent"),
    }
}
