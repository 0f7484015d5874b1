//! What engine and reaper say to each other: one message is one datagram of a
//! `SOCK_SEQPACKET` socket, in a fixed layout with little-endian numbers.
//!
//! Both ends may be different builds of our programs. The reaper speaks first
//! and names its version; another version is not used.

use std::ffi::CString;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::process::control::SignalTarget;
use crate::process::exit::{SpawnFailure, SpawnStage, Usage, WaitStatus};
use crate::process::tree::LeaderExit;

/// Changes with the layout.
pub const VERSION: u8 = 2;
/// From this version on, what is said once the command runs is the same.
pub(super) const SINCE: u8 = 1;
/// No message is longer.
pub(super) const LONGEST: usize = 128;
/// A plan is not longer: arguments and environment together have the kernel's
/// limit anyway (execve(2)).
pub(super) const LONGEST_PLAN: u64 = 64 << 20;

/// The first byte of [`Report::Begun`].
pub(super) const BEGUN: u8 = b'B';

/// To the reaper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Beside it: the plan, the working directory, and descriptors 0 to 2
    /// unless the plan names a terminal.
    Launch,
    Signal(SignalTarget, i32),
    /// SIGTERM and SIGCONT to all.
    Terminate,
    /// SIGKILL to all until none is left.
    Kill,
}

/// From the reaper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Report {
    /// It is a reaper of our version.
    Ready,
    /// Its child has this pid and is about to execute the program. Sent by the
    /// child itself: from here on the command may run, whatever becomes of the
    /// reaper.
    Begun(u32),
    /// The program was executed.
    Started(u32),
    Failed(SpawnFailure),
    Exited(LeaderExit),
}

impl Order {
    pub(super) fn encode(self) -> Vec<u8> {
        match self {
            Self::Launch => vec![b'L'],
            Self::Terminate => vec![b'T'],
            Self::Kill => vec![b'K'],
            Self::Signal(to, number) => {
                let to = match to {
                    SignalTarget::Leader => 0,
                    SignalTarget::Group => 1,
                };
                [&[b'S', to], &number.to_le_bytes()[..]].concat()
            }
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        match reader.byte()? {
            b'L' => Some(Self::Launch),
            b'T' => Some(Self::Terminate),
            b'K' => Some(Self::Kill),
            b'S' => {
                let to = match reader.byte()? {
                    0 => SignalTarget::Leader,
                    1 => SignalTarget::Group,
                    _ => return None,
                };
                Some(Self::Signal(to, reader.i32()?))
            }
            _ => None,
        }
    }
}

impl Report {
    pub(super) fn encode(self) -> Vec<u8> {
        match self {
            Self::Ready => vec![b'R', VERSION],
            Self::Begun(pid) => [&[BEGUN][..], &pid.to_le_bytes()].concat(),
            Self::Started(pid) => [&b"S"[..], &pid.to_le_bytes()].concat(),
            Self::Failed(failure) => {
                let stage = STAGES.iter().position(|stage| *stage == failure.stage);
                let stage = stage
                    .and_then(|stage| u8::try_from(stage).ok())
                    .unwrap_or(0);
                [&[b'F', stage], &failure.errno.to_le_bytes()[..]].concat()
            }
            Self::Exited(exit) => encode_exit(&exit),
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        match reader.byte()? {
            b'R' => (reader.byte()? == VERSION).then_some(Self::Ready),
            BEGUN => Some(Self::Begun(reader.i32()?.cast_unsigned())),
            b'S' => Some(Self::Started(reader.i32()?.cast_unsigned())),
            b'F' => Some(Self::Failed(SpawnFailure {
                stage: *STAGES.get(usize::from(reader.byte()?))?,
                errno: reader.i32()?,
            })),
            b'E' => decode_exit(&mut reader).map(Self::Exited),
            _ => None,
        }
    }
}

const STAGES: [SpawnStage; 9] = [
    SpawnStage::Reaper,
    SpawnStage::Resources,
    SpawnStage::Clone,
    SpawnStage::Cgroup,
    SpawnStage::Session,
    SpawnStage::Terminal,
    SpawnStage::Stdio,
    SpawnStage::WorkingDirectory,
    SpawnStage::Exec,
];

fn encode_exit(exit: &LeaderExit) -> Vec<u8> {
    let (kind, value) = match exit.status {
        WaitStatus::Code(code) => (0, code),
        WaitStatus::Signal(signal) => (1, signal),
        WaitStatus::Lost => (2, 0),
    };
    let mut bytes = vec![b'E', kind];
    bytes.extend(value.to_le_bytes());
    let ended = exit.ended_at.duration_since(UNIX_EPOCH).unwrap_or_default();
    for time in [exit.usage.user_cpu, exit.usage.system_cpu, ended] {
        bytes.extend(time.as_secs().to_le_bytes());
        bytes.extend(time.subsec_nanos().to_le_bytes());
    }
    let usage = &exit.usage;
    for number in [usage.max_rss, usage.block_inputs, usage.block_outputs] {
        bytes.extend(number.to_le_bytes());
    }
    bytes
}

fn decode_exit(reader: &mut Reader<'_>) -> Option<LeaderExit> {
    let kind = reader.byte()?;
    let value = reader.i32()?;
    let status = match kind {
        0 => WaitStatus::Code(value),
        1 => WaitStatus::Signal(value),
        2 => WaitStatus::Lost,
        _ => return None,
    };
    let (user_cpu, system_cpu) = (reader.time()?, reader.time()?);
    let ended_at = SystemTime::checked_add(&UNIX_EPOCH, reader.time()?)?;
    Some(LeaderExit {
        status,
        usage: Usage {
            user_cpu,
            system_cpu,
            max_rss: reader.u64()?,
            block_inputs: reader.u64()?,
            block_outputs: reader.u64()?,
            cgroup_peak: None,
        },
        ended_at,
    })
}

/// What the memory file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) programs: Vec<CString>,
    pub(super) argv: Vec<CString>,
    pub(super) envp: Vec<CString>,
    /// At most one.
    pub(super) terminal: Vec<CString>,
}

impl Plan {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for list in [&self.programs, &self.argv, &self.envp, &self.terminal] {
            bytes.extend((list.len() as u64).to_le_bytes());
            for text in list {
                bytes.extend_from_slice(text.as_bytes_with_nul());
            }
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        Some(Self {
            programs: reader.strings()?,
            argv: reader.strings()?,
            envp: reader.strings()?,
            terminal: reader.strings()?,
        })
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn time(&mut self) -> Option<Duration> {
        let seconds = self.u64()?;
        let nanoseconds = self.array().map(u32::from_le_bytes)?;
        (nanoseconds < 1_000_000_000).then(|| Duration::new(seconds, nanoseconds))
    }

    fn strings(&mut self) -> Option<Vec<CString>> {
        let count = self.u64()?;
        // Each has at least its NUL, so that a count cannot claim more memory
        // than there are bytes.
        let mut list = Vec::new();
        for _ in 0..count {
            let end = self.0.iter().position(|byte| *byte == 0)?;
            let (text, rest) = self.0.split_at_checked(end + 1)?;
            list.push(CString::from_vec_with_nul(text.to_vec()).ok()?);
            self.0 = rest;
        }
        Some(list)
    }
}
