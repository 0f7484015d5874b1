//! Signals that we pass on.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::failure::CliError;

/// Somebody pressed Ctrl-C.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Ends this program by SIGINT where `code` says that Ctrl-C ended the
/// command: a shell gives up its loop or list only when it sees that the
/// program died of the signal. Returns where that was not so.
pub(crate) fn die_of_interrupt(code: u8) {
    if code == 130 && INTERRUPTED.load(Ordering::Relaxed) {
        // Returns when it fails; then the code has to do.
        let _ = signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGINT);
    }
}

/// What somebody wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Ctrl-C.
    Interrupt,
    /// This signal asks us to end.
    Terminate(u8),
    /// Our terminal has another size.
    Resize,
}

/// Listens until it is dropped, and for good: the signals keep from ending us
/// afterwards too.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    hangup: Option<Signal>,
    resize: Option<Signal>,
}

impl Signals {
    /// Begins to listen. What we were started to ignore (nohup(1), `&` in a
    /// script) stays ignored.
    pub(crate) fn listen() -> Result<Self, CliError> {
        let ignored = ignored();
        let listen = |kind: SignalKind| {
            let number = u32::try_from(kind.as_raw_value()).unwrap_or(0);
            if number > 0 && (ignored >> (number - 1)) & 1 == 1 {
                return Ok(None);
            }
            signal(kind)
                .map(Some)
                .map_err(|error| CliError::io("cannot listen for signals", error))
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
            resize: listen(SignalKind::window_change())?,
        })
    }

    /// The next wish. Cancel safe.
    pub(crate) async fn next(&mut self) -> Wish {
        tokio::select! {
            () = heard(&mut self.interrupt) => {
                INTERRUPTED.store(true, Ordering::Relaxed);
                Wish::Interrupt
            }
            () = heard(&mut self.terminate) => Wish::Terminate(15),
            () = heard(&mut self.hangup) => Wish::Terminate(1),
            () = heard(&mut self.resize) => Wish::Resize,
        }
    }

    /// The next wish to end. Cancel safe.
    pub(crate) async fn next_end(&mut self) -> u8 {
        loop {
            match self.next().await {
                Wish::Interrupt => return 2,
                Wish::Terminate(signal) => return signal,
                Wish::Resize => {}
            }
        }
    }
}

async fn heard(signal: &mut Option<Signal>) {
    if let Some(signal) = signal
        && signal.recv().await.is_some()
    {
        return;
    }
    std::future::pending().await
}

/// Signals that are ignored, one bit each (`SigIgn` in proc_pid_status(5)).
fn ignored() -> u64 {
    let mut status = String::new();
    let read = OpenOptions::new()
        .read(true)
        .open("/proc/self/status")
        .and_then(|mut file| file.read_to_string(&mut status));
    // Without /proc none counts as ignored.
    if read.is_err() {
        return 0;
    }
    parse_ignored(&status)
}

fn parse_ignored(status: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_read_from_the_kernel() {
        let status = "Name:\tx\nSigBlk:\t0000000000000004\nSigIgn:\t0000000000001003\n";
        assert_eq!(parse_ignored(status), 0x1003);
        assert_eq!(parse_ignored("Name:\tx\n"), 0);
        // Rust programs ignore SIGPIPE.
        assert_eq!((ignored() >> 12) & 1, 1);
    }
}
