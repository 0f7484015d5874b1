//! What `--json` prints: one object per line, names as in the protocol.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use executor_client::{Exit, ExitCause, ExitStatus, State, v1};
use serde_json::{Map, Value, json};

/// A process.
pub(crate) fn process(process: &v1::Process) -> Value {
    json!({
        "id": process.process_id,
        "session": process.session_id,
        "label": process.label,
        "cwd": String::from_utf8_lossy(&process.working_directory),
        "state": State::from(process.state()).name(),
        "pid": process.pid,
        "terminal": process.terminal.map(|size| json!({
            "rows": size.rows,
            "columns": size.columns,
        })),
        "created_at": process.created_at.map(|at| at.to_string()),
        "started_at": process.started_at.map(|at| at.to_string()),
        "output_end": process.output_end,
        "output_dropped": process.output_dropped,
        "output_ended": process.output_ended,
        "held_open_by": process.held_open_by,
        "stdin_open": process.stdin_open,
        "exit": Exit::of(process).map(|told| exit(&told)),
    })
}

/// An exit.
pub(crate) fn exit(exit: &Exit) -> Value {
    let (code, signal) = match exit.status {
        ExitStatus::Code(code) => (Some(code), None),
        ExitStatus::Signal(signal) => (None, Some(signal)),
        ExitStatus::None => (None, None),
    };
    let mut object = Map::new();
    object.insert("code".into(), json!(code));
    object.insert("signal".into(), json!(signal));
    object.insert("shell_code".into(), json!(exit.shell_code));
    object.insert("cause".into(), json!(exit.cause.name()));
    match &exit.cause {
        ExitCause::Stopped { by } => {
            object.insert("stopped_by".into(), json!(by));
        }
        ExitCause::SpawnFailed(failure) => {
            object.insert(
                "spawn_failure".into(),
                json!({
                    "kind": failure.kind,
                    "errno": failure.errno,
                    "stage": failure.stage,
                    "message": failure.message,
                }),
            );
        }
        _ => {}
    }
    object.insert("forced".into(), json!(exit.forced));
    object.insert("output_end".into(), json!(exit.output_end));
    let residue: Vec<_> = exit
        .residue
        .iter()
        .map(|left| json!({"pid": left.pid, "name": left.name}))
        .collect();
    object.insert("residue".into(), json!(residue));
    object.insert("max_rss_bytes".into(), json!(exit.usage.max_rss_bytes));
    Value::Object(object)
}

/// Bytes of output at an offset: as `text` where they are UTF-8, else as
/// `base64`.
pub(crate) fn output(stream: v1::OutputStream, offset: u64, data: &[u8]) -> Value {
    let stream = match stream {
        v1::OutputStream::Stderr => "stderr",
        _ => "stdout",
    };
    match std::str::from_utf8(data) {
        Ok(text) => json!({"event": "output", "stream": stream, "offset": offset, "text": text}),
        Err(_) => json!({
            "event": "output",
            "stream": stream,
            "offset": offset,
            "base64": STANDARD.encode(data),
        }),
    }
}

/// Bytes that are no longer there.
pub(crate) fn gap(gap: &v1::OutputGap) -> Value {
    json!({"event": "gap", "from": gap.from, "to": gap.to, "newlines": gap.newlines})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_bytes() {
        let text = output(v1::OutputStream::Stdout, 3, "é\n".as_bytes());
        assert_eq!(text["text"], "é\n");
        let bytes = output(v1::OutputStream::Stderr, 3, &[0xff, 0x00]);
        assert_eq!(bytes["base64"], "/wA=");
        assert_eq!(bytes["stream"], "stderr");
        assert_eq!(bytes.get("text"), None);
    }

    #[test]
    fn a_process_says_how_it_ended() {
        let value = process(&v1::Process {
            process_id: "prc_x".into(),
            state: v1::ProcessState::Killed.into(),
            working_directory: b"/tmp/\xff".to_vec(),
            exit: Some(v1::Exit {
                signal: Some(9),
                cause: v1::ExitCause::Stopped.into(),
                stopped_by: "ses_y".into(),
                shell_code: 137,
                ..Default::default()
            }),
            ..Default::default()
        });
        assert_eq!(value["state"], "killed");
        assert_eq!(value["exit"]["signal"], 9);
        assert_eq!(value["exit"]["code"], Value::Null);
        assert_eq!(value["exit"]["stopped_by"], "ses_y");
        assert_eq!(value["exit"]["shell_code"], 137);
    }
}
