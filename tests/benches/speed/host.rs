//! The process host of a daemon under test. It outlives its daemon, so it is
//! ended, and its end is seen, by a descriptor of its own (pidfd_open(2)).

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Longer than a host takes to end 10,000 commands.
const PATIENCE: Duration = Duration::from_secs(30);

/// A host that was there when this was made.
#[derive(Debug)]
pub(crate) struct Host {
    pid: u32,
    descriptor: OwnedFd,
}

impl Host {
    /// The host of the daemon that listens at `socket`, by the record beside it.
    pub(crate) fn beside(socket: &Path) -> anyhow::Result<Self> {
        let mut record = socket.as_os_str().to_owned();
        record.push(".host.json");
        let text = fs::read(&record).context("the record of the process host")?;
        let record: serde_json::Value = serde_json::from_slice(&text)?;
        let pid = record.get("pid").and_then(serde_json::Value::as_i64);
        let pid = i32::try_from(pid.context("a record without a pid")?)?;
        let named = Pid::from_raw(pid).context("a record without a pid")?;
        Ok(Self {
            pid: u32::try_from(pid)?,
            descriptor: pidfd_open(named, PidfdFlags::empty())?,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits until it has ended by itself. Does not block.
    pub(crate) async fn ended(&self) -> anyhow::Result<()> {
        let begin = Instant::now();
        while !self.ends_within(Duration::ZERO) {
            anyhow::ensure!(begin.elapsed() < PATIENCE, "the process host does not end");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Ends it and all that it holds. Blocks.
    pub(crate) fn end(&self) -> anyhow::Result<()> {
        // The second one means: at once.
        for _ in 0..2 {
            // One that has ended already is what is wanted.
            let _ = pidfd_send_signal(&self.descriptor, Signal::TERM);
            if self.ends_within(PATIENCE) {
                return Ok(());
            }
        }
        anyhow::bail!("the process host {} does not end at SIGTERM", self.pid)
    }

    fn ends_within(&self, time: Duration) -> bool {
        let Ok(time) = Timespec::try_from(time) else {
            return false;
        };
        let mut ended = [PollFd::new(&self.descriptor, PollFlags::IN)];
        poll(&mut ended, Some(&time)).is_ok_and(|ready| ready > 0)
    }
}
