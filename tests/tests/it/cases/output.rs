//! Cases of output.

use std::time::Duration;

use executor_client::{ExitStatus, OutputEvent, Reason, Session, v1};
use executor_tests::{Daemon, Here, eventually, in_time, scaled};

use super::{everything, run_in};

#[tokio::test]
async fn b091_the_exit_does_not_wait_for_a_pipe_that_a_descendant_holds() {
    let here = Here::new().await;
    for (text, printed) in [
        ("sleep 60 & echo done", "done\n"),
        ("(while :; do echo x; sleep .1; done) & echo done", "done\n"),
        ("sleep 60 2>&1 >/dev/null & echo done", "done\n"),
        ("sleep 60 2>&1 >/dev/null &", ""),
        ("exec > >(tee log) 2>&1; echo hi; sleep 60 &", ""),
        ("nohup sleep 60 & echo done", "done\n"),
    ] {
        let process = here.bash(text).spawn().await.unwrap();
        let exit = in_time(text, process.wait()).await.unwrap();
        assert_eq!(exit.status, ExitStatus::Code(0), "{text}");
        let info = process.info().await.unwrap();
        assert!(!info.output_ended, "{text}: the stream is still open");
        assert!(!info.held_open_by.is_empty(), "{text}: somebody holds it");
        assert!(!exit.residue.is_empty(), "{text}");
        let page = process
            .read_output(0, 8192, Duration::ZERO)
            .await
            .unwrap()
            .page
            .unwrap();
        let text_so_far =
            String::from_utf8_lossy(&page.data[..exit.output_end as usize]).into_owned();
        assert!(text_so_far.contains(printed), "{text}: {text_so_far:?}");

        let stopped = process.stop(Duration::from_secs(1)).await.unwrap();
        assert!(
            stopped.already_ended && stopped.survivors.is_empty(),
            "{stopped:?}"
        );
        let info = eventually("the end of output", || async {
            Some(process.info().await.unwrap()).filter(|info| info.output_ended)
        })
        .await;
        assert_eq!(
            info.exit.unwrap().code,
            Some(0),
            "{text}: the exit stays what it was"
        );
    }
    here.end().await;
}

#[tokio::test]
async fn b091_what_a_process_substitution_prints_is_all_there() {
    let here = Here::new().await;
    let process = here
        .bash("exec > >(tee log) 2>&1; echo hi")
        .spawn()
        .await
        .unwrap();
    let exit = in_time("exit", process.wait()).await.unwrap();
    assert_eq!(exit.status, ExitStatus::Code(0));
    assert_eq!(everything(&process).await, b"hi\n");
    assert_eq!(std::fs::read(here.path().join("log")).unwrap(), b"hi\n");
    here.end().await;
}

#[tokio::test]
async fn b091_later_output_of_a_lingering_child_stays_readable() {
    let here = Here::new().await;
    let text = "mkfifo go; (read x < go; echo later) & echo done";
    let process = here.bash(text).spawn().await.unwrap();
    let exit = in_time("exit", process.wait()).await.unwrap();
    here.run("echo go > go").await;
    // After the exit a read does not wait.
    let page = eventually("later", || async {
        let read = process.read_output(exit.output_end, 100, Duration::ZERO);
        let page = read.await.unwrap().page.unwrap();
        (!page.data.is_empty()).then_some(page)
    })
    .await;
    assert_eq!(&page.data[..], b"later\n");
    assert_eq!(everything(&process).await, b"done\nlater\n");
    here.end().await;
}

#[tokio::test]
async fn invariant_2_b092_no_last_chunk_is_lost() {
    let here = Here::new().await;
    for terminal in [false, true] {
        for _ in 0..scaled(500, 25) {
            let (_, output) = run_in(
                &here.session,
                terminal,
                "head -c 20480 /dev/zero | tr '\\0' h",
            )
            .await;
            assert_eq!(output, vec![b'h'; 20_480], "terminal: {terminal}");
            let (status, output) = run_in(&here.session, terminal, "echo E >&2; exit 1").await;
            assert_eq!(status, ExitStatus::Code(1));
            assert_eq!(String::from_utf8_lossy(&output).trim_end(), "E");
            let (_, output) = run_in(
                &here.session,
                terminal,
                "head -c 300000 /dev/zero | tr '\\0' h",
            )
            .await;
            assert_eq!(output.len(), 300_000, "terminal: {terminal}");
            // While nobody polls.
            let text = "head -c 300000 /dev/zero | tr '\\0' h; printf end";
            let command = here.bash(text);
            let command = match terminal {
                true => command.terminal(24, 80),
                false => command,
            };
            let process = command.spawn().await.unwrap();
            let exit = in_time("exit", process.wait()).await.unwrap();
            assert_eq!(exit.output_end, 300_003, "terminal: {terminal}");
            let output = everything(&process).await;
            assert!(output.ends_with(b"hend") && output.len() == 300_003);
        }
    }
    here.end().await;
}

#[tokio::test]
async fn b094_a_cursor_is_never_clamped() {
    let here = Here::new().await;
    let size: u64 = 3 << 20;
    let text = format!("head -c {size} /dev/zero | tr '\\0' h");
    let process = here.bash(text).spawn().await.unwrap();
    in_time("exit", process.wait()).await.unwrap();
    let read = |cursor: u64| {
        let process = process.clone();
        async move { process.read_output(cursor, 65_536, Duration::ZERO).await }
    };
    for begin in [0, size / 6, size / 2] {
        let (mut cursor, mut bytes, mut gaps) = (begin, 0, 0);
        while cursor < size {
            let page = read(cursor).await.unwrap().page.unwrap();
            if let Some(gap) = &page.gap {
                assert_eq!(gap.from, cursor);
                assert_eq!(gap.to, page.start);
                gaps += gap.to - gap.from;
            }
            assert!(page.data.iter().all(|byte| *byte == b'h'));
            bytes += page.data.len() as u64;
            cursor = page.next_cursor;
        }
        assert_eq!(bytes + gaps, size - begin);
        assert_eq!(gaps > 0, begin < size - (1 << 20));
    }
    let live = here.bash("echo x; sleep 900").spawn().await.unwrap();
    in_time("x", live.read_output(0, 10, Duration::from_secs(30)))
        .await
        .unwrap();
    let waited = live
        .read_output(2, 10, Duration::from_millis(50))
        .await
        .unwrap();
    let page = waited.page.unwrap();
    assert_eq!((page.start, page.next_cursor, page.data.len()), (2, 2, 0));
    assert!(page.gap.is_none() && !waited.output_ended && waited.exit.is_none());
    let at_end = read(size).await.unwrap();
    assert_eq!(at_end.page.as_ref().unwrap().next_cursor, size);
    assert!(at_end.page.unwrap().data.is_empty() && at_end.output_ended);
    for ahead in [size + 1, 1 << 63, u64::MAX] {
        let error = read(ahead).await.unwrap_err();
        assert_eq!(
            error.reason(),
            Some(Reason::CursorAhead),
            "{ahead}: {error}"
        );
        assert_eq!(error.metadata("end"), Some(size.to_string().as_str()));
    }
    here.end().await;
}

#[tokio::test]
async fn b095_a_character_split_between_reads_arrives_whole() {
    let here = Here::new().await;
    let text =
        "printf '\\344\\270'; read x; printf '\\255\\n\\360\\237'; read x; printf '\\230\\200'";
    let process = here.bash(text).stdin_pipe().spawn().await.unwrap();
    let mut stdin = process.stdin();
    let mut bytes = Vec::new();
    while bytes.len() < 2 {
        bytes.extend(next_page(&process, bytes.len(), 1).await);
    }
    stdin.write("\n").await.unwrap();
    while bytes.len() < 6 {
        bytes.extend(next_page(&process, bytes.len(), 1).await);
    }
    stdin.write("\n").await.unwrap();
    while bytes.len() < 8 {
        bytes.extend(next_page(&process, bytes.len(), 1).await);
    }
    assert_eq!(String::from_utf8(bytes).unwrap(), "\u{4e2d}\n\u{1f600}");
    in_time("exit", process.wait()).await.unwrap();
    // A page does not cut a character that is there, unless it would be empty.
    let whole = process
        .read_output(0, 4, Duration::ZERO)
        .await
        .unwrap()
        .page
        .unwrap();
    assert_eq!(&whole.data[..], "\u{4e2d}\n".as_bytes());
    let cut = process
        .read_output(0, 5, Duration::ZERO)
        .await
        .unwrap()
        .page
        .unwrap();
    assert_eq!(&cut.data[..], "\u{4e2d}\n".as_bytes());
    let one = process
        .read_output(0, 1, Duration::ZERO)
        .await
        .unwrap()
        .page
        .unwrap();
    assert_eq!(&one.data[..], b"\xe4");
    // An emoji split at each of its inner offsets.
    for (first, rest) in [
        ("\\360", "\\237\\230\\200"),
        ("\\360\\237", "\\230\\200"),
        ("\\360\\237\\230", "\\200"),
    ] {
        let text = format!("printf '{first}'; read x; printf '{rest}'");
        let process = here.bash(text).stdin_pipe().spawn().await.unwrap();
        let mut bytes = Vec::new();
        while bytes.len() < first.len() / 4 {
            bytes.extend(next_page(&process, bytes.len(), 8192).await);
        }
        process.stdin().write("\n").await.unwrap();
        while bytes.len() < 4 {
            bytes.extend(next_page(&process, bytes.len(), 8192).await);
        }
        assert_eq!(bytes, "\u{1f600}".as_bytes());
        in_time("exit", process.wait()).await.unwrap();
        for max in 1..4 {
            let cut = next_page(&process, 0, max).await;
            assert_eq!(cut.len(), max as usize, "an empty page is no progress");
        }
    }
    let dangling = here.run("printf 'a\\344\\270'").await;
    assert_eq!(dangling.output, b"a\xe4\xb8");
    here.end().await;
}

async fn next_page(process: &executor_client::Process, from: usize, max: u32) -> Vec<u8> {
    let read = process.read_output(from as u64, max, Duration::from_secs(30));
    in_time("a page", read)
        .await
        .unwrap()
        .page
        .unwrap()
        .data
        .to_vec()
}

#[tokio::test]
async fn invariant_1_b097_a_child_runs_to_its_end_without_a_reader() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let lines = scaled(20_000_000, 1_000_000);
    let text = format!("seq 1 {lines} > /dev/stdout; echo END >&2");
    let process = session.command(text).spawn().await.unwrap();
    let mut stream = process.output();
    in_time("a first page", stream.next()).await.unwrap();
    // The connection is dropped with all that uses it.
    let (id, credentials) = (process.id(), session.credentials().clone());
    drop((stream, process, session));

    let machine = daemon.machine().await;
    let session = in_time("session", Session::resume(&machine, credentials))
        .await
        .unwrap();
    let process = session.process(id);
    let exit = in_time("exit", process.wait()).await.unwrap();
    let expected: u64 = (1..=lines as u64)
        .map(|n| n.to_string().len() as u64 + 1)
        .sum::<u64>()
        + 4;
    assert_eq!(exit.output_end, expected);
    let last = format!("{lines}\nEND\n");
    let tail = process
        .read_output(expected - last.len() as u64, 100, Duration::ZERO)
        .await
        .unwrap();
    assert_eq!(&tail.page.unwrap().data[..], last.as_bytes());
    assert!(tail.output_ended);

    // Nothing goes on afterwards: no CPU time between two looks.
    let spent = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", daemon.pid())).unwrap();
        let rest = stat.rsplit(") ").next().unwrap().to_owned();
        let times: Vec<u64> = rest
            .split(' ')
            .skip(11)
            .take(2)
            .map(|time| time.parse().unwrap())
            .collect();
        times
    };
    eventually("the daemon to be idle", || async {
        let before = spent();
        tokio::time::sleep(Duration::from_millis(500)).await;
        (spent() == before).then_some(())
    })
    .await;
}

#[tokio::test]
async fn b100_streams_keep_their_order() {
    let here = Here::new().await;
    let text = "for i in $(seq 50); do echo o$i; echo e$i >&2; done";
    let expected: String = (1..=50).map(|i| format!("o{i}\ne{i}\n")).collect();
    let (_, output) = run_in(&here.session, true, text).await;
    assert_eq!(
        String::from_utf8(output).unwrap().replace('\r', ""),
        expected
    );
    let (_, output) = run_in(&here.session, false, text).await;
    assert_eq!(
        String::from_utf8(output).unwrap(),
        expected,
        "one pipe keeps the order"
    );

    let process = here.bash(text).separate_stderr().spawn().await.unwrap();
    let mut stream = process.output();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    while let Some(event) = in_time("output", stream.next()).await.unwrap() {
        let OutputEvent::Page(page) = event else {
            continue;
        };
        for (stream, bytes) in executor_client::runs(&page) {
            match stream {
                v1::OutputStream::Stderr => err.extend_from_slice(&bytes),
                _ => out.extend_from_slice(&bytes),
            }
        }
    }
    let lines = |letter: char| {
        (1..=50)
            .map(|i| format!("{letter}{i}\n"))
            .collect::<String>()
    };
    assert_eq!(String::from_utf8(out).unwrap(), lines('o'));
    assert_eq!(String::from_utf8(err).unwrap(), lines('e'));
    here.end().await;
}

#[tokio::test]
async fn b101_readers_do_not_disturb_each_other_or_the_writer() {
    let here = Here::new().await;
    let records = scaled(2_000_000, 100_000);
    let text = format!(
        "seq -f '%06.0f' 0 {} | head -n {records}",
        999_999.min(records)
    );
    let process = here.bash(text).lossless().spawn().await.unwrap();
    let mut expected = Vec::new();
    for n in 0..records.min(1_000_000) {
        expected.extend_from_slice(format!("{n:06}\n").as_bytes());
    }
    let slow = {
        let process = process.clone();
        async move {
            let mut stream = process.stream_output(executor_client::OutputOptions {
                cursor: 0,
                reader_id: Some("paces".into()),
            });
            let mut all = Vec::new();
            while let Some(event) = in_time("output", stream.next()).await.unwrap() {
                if let OutputEvent::Page(page) = event {
                    assert_eq!(page.gap, None);
                    all.extend_from_slice(&page.data);
                }
            }
            all
        }
    };
    let polls = |max: u32| {
        let process = process.clone();
        async move {
            // May be overtaken; whatever is returned must be right.
            let (mut cursor, mut told) = (0u64, 0u64);
            let mut pieces = Vec::new();
            loop {
                let reply = process
                    .read_output(cursor, max, Duration::from_secs(5))
                    .await
                    .unwrap();
                let page = reply.page.unwrap();
                told += page.gap.as_ref().map_or(0, |gap| gap.to - gap.from);
                told += page.data.len() as u64;
                pieces.push((page.start, page.data));
                cursor = page.next_cursor;
                if reply.output_ended && cursor == page.end {
                    assert_eq!(told, page.end, "bytes + gaps = produced");
                    return pieces;
                }
            }
        }
    };
    let (all, a, b) = tokio::join!(slow, polls(1_777), polls(65_536));
    assert!(all == expected, "{} of {} bytes", all.len(), expected.len());
    for (start, data) in a.into_iter().chain(b) {
        let start = usize::try_from(start).unwrap();
        assert!(
            data[..] == expected[start..start + data.len()],
            "at {start}"
        );
    }
    here.end().await;
}

#[tokio::test]
async fn a_stream_from_the_middle_goes_on_to_the_end() {
    let here = Here::new().await;
    let process = here.bash("echo one; echo two").spawn().await.unwrap();
    assert_eq!(everything(&process).await, b"one\ntwo\n");
    let mut stream = process.stream_output(executor_client::OutputOptions {
        cursor: 4,
        reader_id: None,
    });
    let mut rest = Vec::new();
    let mut exits = 0;
    while let Some(event) = in_time("output", stream.next()).await.unwrap() {
        match event {
            OutputEvent::Page(page) => rest.extend_from_slice(&page.data),
            OutputEvent::Exit(exit) => {
                exits += 1;
                assert!(exit.success());
            }
            OutputEvent::End => {}
        }
    }
    assert_eq!((rest.as_slice(), exits), (b"two\n".as_slice(), 1));
    here.end().await;
}
