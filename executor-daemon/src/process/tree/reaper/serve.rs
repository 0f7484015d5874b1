//! The reaper itself: one thread, one loop over its socket and SIGCHLD.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

use super::message::{BEGUN, LONGEST, LONGEST_PLAN, Order, Plan, Report};
use crate::process::control::SignalTarget;
use crate::process::exit::{SpawnFailure, SpawnStage};
use crate::process::tree::containment::null;
use crate::process::tree::{LeaderExit, proc};
use crate::sys::spawn::{Announce, Program, Stdio, spawn_announced};
use crate::sys::{fdpass, signal, wait};

/// Between two rounds of SIGKILL when nothing has ended in between.
const PAUSE_FIRST: Duration = Duration::from_millis(1);
const PAUSE_LAST: Duration = Duration::from_millis(50);

/// Serves the socket that is descriptor 0. Returns the exit code.
pub(super) fn run() -> i32 {
    // What is sent to everybody of this user must not end the one that keeps
    // their tree together; the leader starts with an empty mask.
    signal::block_all();
    let _ = rustix::thread::set_name(c"executor-reaper");
    match Reaper::begin() {
        Ok(Some(mut reaper)) => {
            reaper.serve();
            0
        }
        Ok(None) => 0,
        Err(_) => 1,
    }
}

struct Reaper {
    /// `None` once the engine is gone.
    socket: Option<OwnedFd>,
    signals: OwnedFd,
    own: u32,
    leader: u32,
    /// The leader was reaped, so its pid is not its own any more.
    reported: bool,
    /// Every round kills all there is.
    killing: bool,
    pause: Duration,
}

impl Reaper {
    /// Takes the order to launch and carries it out. `None` when there is
    /// nothing to reap: no order came, or the start failed and that was told.
    fn begin() -> io::Result<Option<Self>> {
        // Off descriptor 0, which no program of the tree may share.
        let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        let nothing = null()?;
        rustix::stdio::dup2_stdin(&nothing)?;
        drop(nothing);
        rustix::fs::fcntl_setfl(&socket, OFlags::NONBLOCK)?;
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let signals = signal::child_signals()?;
        report(&socket, Report::Ready)?;

        let Some((order, descriptors)) = receive_blocking(&socket)? else {
            return Ok(None);
        };
        if order != Order::Launch {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        let leader = match launch(&socket, descriptors) {
            Ok(pid) => pid,
            Err(failure) => {
                report(&socket, Report::Failed(failure))?;
                return Ok(None);
            }
        };
        // If it cannot be told, the engine is gone; that shows in the loop.
        let _ = report(&socket, Report::Started(leader));
        Ok(Some(Self {
            socket: Some(socket),
            signals,
            own: std::process::id(),
            leader,
            reported: false,
            killing: false,
            pause: PAUSE_FIRST,
        }))
    }

    /// Returns when no child is left.
    fn serve(&mut self) {
        while self.reap() {
            if self.killing {
                self.send_all(&[libc::SIGKILL]);
            }
            self.wait();
            self.listen();
        }
    }

    /// Reaps what has ended. False when there is no child left.
    fn reap(&mut self) -> bool {
        loop {
            let reaped = match wait::reap_any() {
                Ok(Some(reaped)) => reaped,
                Ok(None) => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return false,
            };
            self.pause = PAUSE_FIRST;
            if reaped.pid == self.leader && !self.reported {
                self.reported = true;
                if let Some(socket) = &self.socket {
                    let _ = report(
                        socket,
                        Report::Exited(LeaderExit {
                            status: reaped.status,
                            usage: reaped.usage,
                            ended_at: SystemTime::now(),
                        }),
                    );
                }
            }
        }
    }

    fn wait(&mut self) {
        let timeout = self.killing.then_some(self.pause);
        if self.killing {
            self.pause = (self.pause * 2).min(PAUSE_LAST);
        }
        let timeout = timeout.and_then(|pause| Timespec::try_from(pause).ok());
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        if let Some(socket) = &self.socket {
            fds.push(PollFd::new(socket, PollFlags::IN));
        }
        let _ = poll(&mut fds, timeout.as_ref());
        let mut pending = [0; 1024];
        while rustix::io::read(&self.signals, &mut pending).is_ok_and(|length| length > 0) {}
    }

    /// Carries out the orders that have come.
    fn listen(&mut self) {
        while let Some(socket) = &self.socket {
            match receive(socket) {
                Ok(Some((order, _))) => self.obey(order),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
                Ok(None) | Err(_) => {
                    self.socket = None;
                    self.killing = true;
                }
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Launch => {}
            Order::Terminate => self.send_all(&[libc::SIGTERM, libc::SIGCONT]),
            Order::Kill => {
                self.killing = true;
                self.pause = PAUSE_FIRST;
            }
            // Unreaped, and nobody else can reap it: its pid and its group's
            // number are its own.
            Order::Signal(..) if self.reported => {}
            Order::Signal(SignalTarget::Leader, number) => {
                proc::send_if(self.leader, &[number], || true);
            }
            Order::Signal(SignalTarget::Group, number) => {
                let _ = signal::send_to_group(self.leader, number);
            }
        }
    }

    fn send_all(&self, signals: &[i32]) {
        for seen in proc::descendants(self.own) {
            if seen.alive() {
                proc::send_if_same(&seen, self.own, signals);
            }
        }
    }
}

fn report(socket: &OwnedFd, report: Report) -> io::Result<()> {
    fdpass::send(socket.as_fd(), &report.encode(), &[])
}

/// `InvalidData` for what is no order.
fn receive(socket: &OwnedFd) -> io::Result<Option<(Order, Vec<OwnedFd>)>> {
    let mut buffer = [0; LONGEST];
    let Some((length, descriptors)) = fdpass::receive(socket.as_fd(), &mut buffer)? else {
        return Ok(None);
    };
    match Order::decode(buffer.get(..length).unwrap_or_default()) {
        Some(order) => Ok(Some((order, descriptors))),
        None => Err(io::Error::from(io::ErrorKind::InvalidData)),
    }
}

fn receive_blocking(socket: &OwnedFd) -> io::Result<Option<(Order, Vec<OwnedFd>)>> {
    loop {
        let _ = poll(&mut [PollFd::new(socket, PollFlags::IN)], None);
        match receive(socket) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            answer => return answer,
        }
    }
}

/// Starts the leader. Everything of the plan is closed and freed again.
fn launch(socket: &OwnedFd, descriptors: Vec<OwnedFd>) -> Result<u32, SpawnFailure> {
    let broken = SpawnFailure {
        stage: SpawnStage::Reaper,
        errno: libc::EPROTO,
    };
    let mut descriptors = descriptors.into_iter();
    let file = descriptors.next().ok_or(broken)?;
    let cwd = descriptors.next().ok_or(broken)?;
    let plan = read_plan(file).map_err(|error| SpawnFailure {
        errno: error.raw_os_error().unwrap_or(libc::EPROTO),
        ..broken
    })?;
    let stdio: Vec<OwnedFd> = descriptors.collect();
    let stdio = match (plan.terminal.first(), stdio.as_slice()) {
        (Some(path), []) => Stdio::Terminal(path),
        (None, [stdin, stdout, stderr]) => {
            Stdio::Descriptors([stdin.as_fd(), stdout.as_fd(), stderr.as_fd()])
        }
        _ => return Err(broken),
    };
    let program = Program {
        paths: &plan.programs,
        argv: &plan.argv,
        envp: &plan.envp,
        cwd: cwd.as_fd(),
        stdio,
        cgroup: None,
    };
    let spawned = spawn_announced(&program, Announce::Datagram(socket.as_fd(), BEGUN))?;
    Ok(spawned.pid)
}

fn read_plan(file: OwnedFd) -> io::Result<Plan> {
    let mut bytes = Vec::new();
    File::from(file)
        .take(LONGEST_PLAN)
        .read_to_end(&mut bytes)?;
    Plan::decode(&bytes).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}
