//! Our own terminal: its size, and raw mode that is always taken back.

use std::os::fd::{AsFd, OwnedFd};

use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};

/// Rows and columns of our terminal; `None` where we have none or it does not
/// know.
pub(crate) fn size() -> Option<(u32, u32)> {
    [rustix::stdio::stdout(), rustix::stdio::stdin()]
        .into_iter()
        .find_map(|fd| tcgetwinsize(fd).ok())
        .map(|size| (u32::from(size.ws_row), u32::from(size.ws_col)))
        .filter(|(rows, columns)| *rows > 0 && *columns > 0)
        .map(|(rows, columns)| (rows.min(1_000), columns.min(1_000)))
}

/// Our input is a terminal.
pub(crate) fn input_is_terminal() -> bool {
    isatty(rustix::stdio::stdin())
}

/// The terminal of our input is in raw mode while this lives: keys go to the
/// command as they are typed. Dropping it restores what was, also while a
/// panic unwinds.
#[derive(Debug)]
pub(crate) struct RawMode {
    terminal: OwnedFd,
    before: Termios,
}

impl RawMode {
    /// `None` where our input is no terminal, or cannot be set.
    pub(crate) fn enter() -> Option<Self> {
        let terminal = rustix::stdio::stdin().try_clone_to_owned().ok()?;
        let before = tcgetattr(&terminal).ok()?;
        let guard = Self { terminal, before };
        let mut raw = guard.before.clone();
        raw.make_raw();
        set(&guard.terminal, &raw).then_some(guard)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // A terminal that has hung up has nothing to be restored.
        let _ = set(&self.terminal, &self.before);
    }
}

fn set(terminal: impl AsFd, to: &Termios) -> bool {
    loop {
        // At once: to wait until all is printed may be to wait for ever.
        match tcsetattr(&terminal, OptionalActions::Now, to) {
            Ok(()) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}
