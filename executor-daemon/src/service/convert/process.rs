//! Snapshots, exits and sizes: what is told of a process.

use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use executor_proto::reason::Failure;
use executor_proto::v1;

use super::check::invalid;
use crate::process::exit::{Cause, Exit, SpawnFailure, SpawnStage, State, Usage, WaitStatus};
use crate::process::snapshot::{Snapshot, StopMeans};
use crate::process::spec::TerminalSize;

/// A terminal's size; 0 on a side means its default.
pub(in crate::service) fn terminal_size(
    field: &str,
    size: Option<v1::TerminalSize>,
) -> Result<TerminalSize, Failure> {
    let v1::TerminalSize { rows, columns } = size.unwrap_or_default();
    let or = |value: u32, default: u16| {
        if value == 0 {
            u32::from(default)
        } else {
            value
        }
    };
    let rows = or(rows, TerminalSize::DEFAULT.rows());
    let columns = or(columns, TerminalSize::DEFAULT.columns());
    TerminalSize::new(rows, columns).ok_or_else(|| {
        let (side, value) = if (1..=1000).contains(&rows) {
            ("columns", columns)
        } else {
            ("rows", rows)
        };
        invalid(
            &format!("{field}.{side}"),
            format_args!("{value} is out of range; a terminal has 1 to 1000 (0: the default)"),
        )
    })
}

/// The other way.
pub(in crate::service) fn terminal_size_to_wire(size: TerminalSize) -> v1::TerminalSize {
    v1::TerminalSize {
        rows: size.rows().into(),
        columns: size.columns().into(),
    }
}

/// A process as it is.
pub(in crate::service) fn process(snapshot: Snapshot) -> v1::Process {
    v1::Process {
        process_id: snapshot.id.to_string(),
        session_id: snapshot.session.to_string(),
        label: snapshot.label,
        working_directory: snapshot.cwd.as_os_str().as_bytes().to_vec(),
        state: state(snapshot.state).into(),
        exit: snapshot.exit.map(exit),
        pid: snapshot.pid,
        started_at: snapshot.started_at.map(Into::into),
        terminal: snapshot.terminal.map(terminal_size_to_wire),
        output_end: snapshot.output_end,
        output_dropped: snapshot.output_dropped,
        output_ended: snapshot.output_ended,
        held_open_by: snapshot.held_open_by,
        stdin_writers: snapshot
            .stdin_writers
            .into_iter()
            .map(|(writer_id, offset)| v1::StdinWriter { writer_id, offset })
            .collect(),
        stdin_open: snapshot.stdin_open,
        stop_means: means(snapshot.means).into(),
        usage: Some(usage(snapshot.usage)),
        created_at: Some(snapshot.created_at.into()),
    }
}

/// Where a process stands.
pub(in crate::service) fn state(state: State) -> v1::ProcessState {
    match state {
        State::Starting => v1::ProcessState::Starting,
        State::Running => v1::ProcessState::Running,
        State::Exited => v1::ProcessState::Exited,
        State::Failed => v1::ProcessState::Failed,
        State::Killed => v1::ProcessState::Killed,
    }
}

/// How a tree is stopped.
pub(in crate::service) fn means(means: StopMeans) -> v1::StopMeans {
    match means {
        StopMeans::Cgroup => v1::StopMeans::Cgroup,
        StopMeans::Reaper => v1::StopMeans::Reaper,
        StopMeans::BestEffort => v1::StopMeans::BestEffort,
    }
}

/// An exit.
pub(in crate::service) fn exit(exit: Exit) -> v1::Exit {
    let (code, signal) = match exit.status {
        Some(WaitStatus::Code(code)) => (Some(code), None),
        Some(WaitStatus::Signal(signal)) => (None, Some(signal)),
        Some(WaitStatus::Lost) | None => (None, None),
    };
    let shell_code = exit.shell_code();
    let stopped_by = match &exit.cause {
        Cause::Stopped { by } => by.clone(),
        _ => String::new(),
    };
    let failure = match &exit.cause {
        Cause::SpawnFailed { failure, label } => Some(spawn_failure(*failure, label)),
        _ => None,
    };
    v1::Exit {
        code,
        signal,
        cause: cause(&exit.cause).into(),
        stopped_by,
        forced: exit.forced,
        ended_at: Some(exit.ended_at.into()),
        usage: Some(usage(exit.usage)),
        spawn_failure: failure,
        residue: exit
            .residue
            .into_iter()
            .map(|member| v1::ResidueProcess {
                pid: member.pid,
                name: member.name,
            })
            .collect(),
        output_end: exit.output_end,
        shell_code,
    }
}

fn cause(cause: &Cause) -> v1::ExitCause {
    match cause {
        Cause::Exited => v1::ExitCause::Exited,
        Cause::Signaled => v1::ExitCause::Signaled,
        Cause::Timeout => v1::ExitCause::Timeout,
        Cause::IdleTimeout => v1::ExitCause::IdleTimeout,
        Cause::Stopped { .. } => v1::ExitCause::Stopped,
        Cause::SessionEnded => v1::ExitCause::SessionEnded,
        Cause::HostShutdown => v1::ExitCause::HostShutdown,
        Cause::SpawnFailed { .. } => v1::ExitCause::SpawnFailed,
    }
}

/// Why a program could not be started.
pub(in crate::service) fn spawn_failure(failure: SpawnFailure, label: &str) -> v1::SpawnFailure {
    v1::SpawnFailure {
        kind: failure.kind().to_owned(),
        errno: failure.errno,
        stage: failure.stage.name().to_owned(),
        message: format!("{label}: {}", advice(&failure)),
    }
}

/// What happened and what to do, for the model or person that reads it.
fn advice(failure: &SpawnFailure) -> String {
    let system = std::io::Error::from_raw_os_error(failure.errno);
    let advice = match (failure.stage, failure.kind()) {
        (SpawnStage::Exec, "not_found") => {
            "the program was not found, or the interpreter its first line names; \
             check the name and the PATH of its environment"
        }
        (SpawnStage::Exec, "permission_denied") => {
            "the program may not be executed; check its mode and that it is a file"
        }
        (SpawnStage::Exec, "not_executable") => {
            "the file is no program for this machine; a script needs a first line such as #!/bin/sh"
        }
        (_, "argument_list_too_long") => {
            "arguments and environment are larger than the system takes; pass the data in a file"
        }
        (SpawnStage::WorkingDirectory, _) => "the working directory could not be entered",
        (_, "out_of_resources") if failure.is_process_limit() => {
            "the limit of processes is reached (ulimit -u, pids.max or kernel.pid_max); \
             end some and try again"
        }
        (_, "out_of_resources") => {
            "the system is short of processes, memory or descriptors; end something and try again"
        }
        _ => "the system refused to start it",
    };
    format!("{advice} ({} failed: {system})", failure.stage.name())
}

fn usage(usage: Usage) -> v1::ResourceUsage {
    v1::ResourceUsage {
        user_cpu: Some(duration(usage.user_cpu)),
        system_cpu: Some(duration(usage.system_cpu)),
        max_rss_bytes: usage.max_rss,
        block_inputs: usage.block_inputs,
        block_outputs: usage.block_outputs,
        cgroup_peak_bytes: usage.cgroup_peak,
    }
}

/// A duration of ours, which is never above what the wire can say.
pub(in crate::service) fn duration(duration: Duration) -> prost_types::Duration {
    duration.try_into().unwrap_or(prost_types::Duration {
        seconds: 315_576_000_000,
        nanos: 0,
    })
}
