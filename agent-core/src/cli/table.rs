//! Tables for people.

use std::time::SystemTime;

use executor_client::{Exit, ExitCause, ExitStatus, State, v1};

use super::duration::short;
use super::select::telling_length;

/// Longest command and directory shown.
const LABEL: usize = 48;
const CWD: usize = 40;

/// The processes as lines, the heading first.
pub(crate) fn processes(processes: &[v1::Process], now: SystemTime) -> Vec<String> {
    let id_length = "prc_".len() + telling_length(processes);
    let heading = ["ID", "STATE", "EXIT", "AGE", "COMMAND", "CWD"].map(str::to_owned);
    let rows: Vec<[String; 6]> = std::iter::once(heading)
        .chain(processes.iter().map(|process| {
            [
                process.process_id.chars().take(id_length).collect(),
                State::from(process.state()).name().to_owned(),
                Exit::of(process).map_or_else(|| "-".into(), |exit| how(&exit)),
                age(process, now),
                one_line(&process.label, LABEL),
                one_line(&String::from_utf8_lossy(&process.working_directory), CWD),
            ]
        }))
        .collect();
    align(&rows)
}

/// An exit in one word or two.
pub(crate) fn how(exit: &Exit) -> String {
    let status = match exit.status {
        ExitStatus::Code(code) => code.to_string(),
        ExitStatus::Signal(signal) => format!("signal {signal}"),
        ExitStatus::None => "-".into(),
    };
    match &exit.cause {
        ExitCause::Exited | ExitCause::Signaled | ExitCause::Unknown => status,
        ExitCause::SpawnFailed(failure) => failure.kind.clone(),
        cause => format!("{status} ({})", cause.name()),
    }
}

fn age(process: &v1::Process, now: SystemTime) -> String {
    process
        .started_at
        .or(process.created_at)
        .and_then(|at| SystemTime::try_from(at).ok())
        // A clock that was set back makes no age.
        .and_then(|at| now.duration_since(at).ok())
        .map_or_else(|| "-".into(), short)
}

/// Text without line breaks and other control characters, shortened at a
/// character.
pub(crate) fn one_line(text: &str, longest: usize) -> String {
    let mut line: String = text
        .chars()
        .take(longest)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if text.chars().count() > longest {
        line.pop();
        line.push('…');
    }
    line
}

fn align<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    rows.iter()
        .map(|row| {
            let cells: Vec<_> = row
                .iter()
                .zip(widths)
                .map(|(cell, width)| format!("{cell:width$}"))
                .collect();
            cells.join("  ").trim_end().to_owned()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn columns_stand_under_their_headings() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let began = SystemTime::UNIX_EPOCH + Duration::from_secs(910);
        let running = v1::Process {
            process_id: "prc_abcdefghijklmnopqrstuvwxyz".into(),
            label: "cargo build\n--release".into(),
            working_directory: b"/src".to_vec(),
            state: v1::ProcessState::Running.into(),
            started_at: Some(began.into()),
            ..Default::default()
        };
        let ended = v1::Process {
            process_id: "prc_bbcdefghijklmnopqrstuvwxyz".into(),
            label: "é".repeat(60),
            working_directory: b"/".to_vec(),
            state: v1::ProcessState::Killed.into(),
            started_at: Some(began.into()),
            exit: Some(v1::Exit {
                signal: Some(15),
                cause: v1::ExitCause::Timeout.into(),
                ..Default::default()
            }),
            ..Default::default()
        };
        let lines = processes(&[running, ended], now);
        assert_eq!(
            lines[0],
            format!(
                "ID            STATE    EXIT                 AGE    COMMAND{}CWD",
                " ".repeat(43)
            )
        );
        assert_eq!(
            lines[1],
            format!(
                "prc_abcdefgh  running  -                    1m30s  cargo build --release{}/src",
                " ".repeat(29)
            )
        );
        let label = "é".repeat(47);
        assert_eq!(
            lines[2],
            format!("prc_bbcdefgh  killed   signal 15 (timeout)  1m30s  {label}…  /")
        );
    }

    #[test]
    fn an_empty_table_is_its_heading() {
        let lines = processes(&[], SystemTime::UNIX_EPOCH);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("ID"));
    }
}
