//! From what a person writes to one process: a whole id, its beginning, or the
//! label that it was given.

use executor_client::id::ProcessId;
use executor_client::{Process, Session, State, v1};

use super::failure::CliError;

/// Most candidates that an error lists.
const LISTED: usize = 10;

/// The process that `text` names. A whole id is taken as it is; a beginning is
/// looked up among all processes.
pub(crate) async fn select(session: &Session, text: &str) -> Result<Process, CliError> {
    if let Ok(id) = text.parse::<ProcessId>() {
        return Ok(session.process(id));
    }
    let processes = session.list().await?;
    Ok(session.process(unique(&processes, text)?))
}

/// The one process whose id begins with `text`, with or without `prc_`; where
/// there is none, the one with this label.
fn unique(processes: &[v1::Process], text: &str) -> Result<ProcessId, CliError> {
    let beginning = text.strip_prefix(ProcessId::PREFIX).unwrap_or(text);
    let found: Vec<_> = processes
        .iter()
        .filter(|process| body(&process.process_id).starts_with(beginning))
        .collect();
    let found = if found.is_empty() {
        let labelled = processes.iter().filter(|process| process.label == text);
        labelled.collect()
    } else {
        found
    };
    match found.as_slice() {
        [] => Err(CliError::Selection(format!(
            "no process has an id that begins with {text:?}, or this label; executor ps lists them"
        ))),
        [one] => one.process_id.parse().map_err(|error| {
            CliError::Selection(format!("the machine listed an odd process: {error}"))
        }),
        several => Err(CliError::Selection(ambiguous(text, several))),
    }
}

fn ambiguous(text: &str, several: &[&v1::Process]) -> String {
    let mut message = format!(
        "{} processes have an id that begins with {text:?}, or this label; write more of the id:",
        several.len()
    );
    for process in several.iter().take(LISTED) {
        let state = State::from(process.state()).name();
        message.push_str(&format!(
            "\n  {}  {state}  {}",
            process.process_id,
            super::table::one_line(&process.label, 50)
        ));
    }
    if several.len() > LISTED {
        message.push_str(&format!("\n  and {} more", several.len() - LISTED));
    }
    message
}

/// How many characters after the prefix tell all these apart, at least 8.
pub(crate) fn telling_length(processes: &[v1::Process]) -> usize {
    let mut ids: Vec<&str> = processes.iter().map(|p| body(&p.process_id)).collect();
    ids.sort_unstable();
    let shared = ids
        .windows(2)
        .map(|pair| match pair {
            [a, b] => a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count(),
            _ => 0,
        })
        .max()
        .unwrap_or(0);
    (shared + 1).max(8)
}

fn body(id: &str) -> &str {
    id.strip_prefix(ProcessId::PREFIX).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(body: &str) -> v1::Process {
        v1::Process {
            process_id: format!("prc_{body:a<26}"),
            label: "sleep 100".into(),
            state: v1::ProcessState::Running.into(),
            ..Default::default()
        }
    }

    #[test]
    fn a_beginning_is_enough_where_it_is_unique() {
        let processes = [process("bcd"), process("bce"), process("x")];
        for text in ["bcd", "prc_bcd", "prc_bcda"] {
            let id = unique(&processes, text).unwrap();
            assert_eq!(id.to_string(), processes[0].process_id, "{text}");
        }
    }

    #[test]
    fn an_ambiguous_beginning_lists_the_candidates() {
        let processes = [process("bcd"), process("bce"), process("x")];
        let error = unique(&processes, "prc_bc").unwrap_err().to_string();
        assert!(error.contains("2 processes"), "{error}");
        assert!(error.contains(&processes[0].process_id), "{error}");
        assert!(error.contains(&processes[1].process_id), "{error}");
        assert!(!error.contains(&processes[2].process_id), "{error}");
        assert!(error.contains("running  sleep 100"), "{error}");
    }

    #[test]
    fn a_beginning_of_nothing_is_an_error() {
        let error = unique(&[process("b")], "zz").unwrap_err().to_string();
        assert!(error.contains("zz"), "{error}");
        unique(&[], "").unwrap_err();
    }

    #[test]
    fn ids_are_shortened_to_what_tells_them_apart() {
        assert_eq!(telling_length(&[]), 8);
        assert_eq!(telling_length(&[process("b"), process("c")]), 8);
        let twins = [
            process("bcdefghijkl2"),
            process("bcdefghijkl3"),
            process("c"),
        ];
        assert_eq!(telling_length(&twins), 12);
    }
}
