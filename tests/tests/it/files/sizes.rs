//! B139: nothing is one message of more than 4 MiB, whatever its size.

use std::fs;

use executor_client::{Reason, v1};
use executor_tests::{Daemon, in_time, scaled};

use super::*;

#[tokio::test]
async fn b139_files_around_the_default_limit_of_a_message_are_written_and_read() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    for length in [0, 1 << 20, 4_194_303, 4_194_304, 4_194_305, 9_000_000] {
        let content = content(length);
        let name = format!("f{length}");
        let written = session.write_file(open(&name), content.clone());
        let written = in_time("write", written).await.unwrap();
        assert_eq!(written.file.unwrap().size, length as u64);
        assert!(fs::read(daemon.work().join(&name)).unwrap() == content);
        let read = in_time("read", all(session.read_bytes(bytes(&name)))).await;
        assert!(read.unwrap() == content, "{length}");
    }
}

#[tokio::test]
async fn b139_lines_and_diffs_of_large_files_fit_a_message() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    for length in [4_194_303, 4_194_304, 4_194_305] {
        // One line, and very many.
        for text in ["x".repeat(length), "\u{e9}\n".repeat(length / 3)] {
            session.write_file(open("f"), text.clone()).await.unwrap();
            let page = session.read_lines(v1::ReadLinesRequest {
                clip_long_lines: true,
                ..lines("f")
            });
            let page = page.await.unwrap();
            assert!(page.text.len() <= 64 << 10 && !page.text.is_empty());
            let mut request = edit("f", if text.starts_with('x') { "x" } else { "\u{e9}" }, "z");
            request.edits[0].replace_all = true;
            let edited = in_time("edit", session.edit_file(request)).await.unwrap();
            assert!(edited.diff_truncated && edited.diff.len() <= 1 << 20);
        }
    }
}

#[tokio::test]
async fn b139_a_write_has_a_bound_and_is_streamed_up_to_it() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let length = scaled(256 << 20, 24 << 20);
    let content = vec![b'a'; length];
    let written = session.write_file(open("f"), content).await.unwrap();
    assert_eq!(written.file.unwrap().size, length as u64);
    let peak = peak_of(daemon.pid());
    assert!(peak < 120 << 20, "{peak} bytes at most were resident");
    if length == 256 << 20 {
        let content = vec![b'a'; length + 1];
        let answer = session.write_file(open("g"), content).await;
        refused(answer, Reason::FileTooLarge);
        assert!(!daemon.work().join("g").try_exists().unwrap());
    }
}

/// VmHWM of proc(5), in bytes.
fn peak_of(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let kibibytes: u64 = line
        .split_ascii_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    kibibytes << 10
}
