//! What the processes chapter promises beyond the cases: starts and their
//! replies, retention, leases, listing, held readers.

use std::time::{Duration, SystemTime};

use executor_client::{
    ExitCause, ExitStatus, Lease, OutputEvent, OutputOptions, Reason, SessionOptions, State, v1,
};
use executor_tests::{Here, alive_with, eventually, in_time};

use super::{everything, run_in};

#[tokio::test]
async fn a_start_waits_as_long_as_it_was_asked_to_and_no_longer() {
    let here = Here::new().await;
    let other = here.bash("sleep 4").spawn().await.unwrap();
    let waiting = here
        .bash("echo begun; sleep 900")
        .wait(Duration::from_millis(300));
    tokio::select! {
        biased;
        started = waiting.start() => {
            let started = started.unwrap();
            assert_eq!(State::from(started.info.state()), State::Running);
            assert!(started.info.exit.is_none() && started.created);
            assert_eq!(&started.output.data[..], b"begun\n");
        }
        _ = other.wait() => panic!("a wait of 300 ms took longer than four seconds"),
    }
    let ended = here.bash("echo hi; exit 3").wait(Duration::from_secs(60));
    let started = in_time("exit", ended.start()).await.unwrap();
    assert_eq!(&started.output.data[..], b"hi\n");
    assert_eq!(started.info.exit.unwrap().code, Some(3));
    let at_once = here.bash("sleep 900").start().await.unwrap();
    assert_eq!(State::from(at_once.info.state()), State::Running);
    here.end().await;
}

#[tokio::test]
async fn what_is_forgotten_is_told_apart_from_what_never_was() {
    let here = Here::new().await;
    let process = here.bash("read x; echo out").stdin_pipe();
    let process = process.spawn().await.unwrap();
    let running = process.remove().await.unwrap_err();
    assert_eq!(running.reason(), Some(Reason::ProcessRunning));
    assert_eq!(running.code(), executor_client::Code::FailedPrecondition);
    process.stdin().write("x\n").await.unwrap();
    in_time("exit", process.wait()).await.unwrap();
    process.remove().await.unwrap();
    process.remove().await.unwrap();
    for error in [
        process.info().await.unwrap_err(),
        process.read_output(0, 1, Duration::ZERO).await.unwrap_err(),
        process.output().next().await.unwrap_err(),
        process.kill().await.unwrap_err(),
    ] {
        assert_eq!(error.reason(), Some(Reason::ProcessForgotten), "{error}");
        assert_eq!(error.code(), executor_client::Code::NotFound);
    }
    let never = here.session.process(executor_client::ProcessId::random());
    let error = never.info().await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::ProcessNotFound));
    here.end().await;
}

#[tokio::test]
async fn one_more_than_is_kept_forgets_the_oldest_finished_one() {
    let here = Here::with(|config| config.limits.processes_per_session = 3).await;
    let running = here.bash("sleep 900").spawn().await.unwrap();
    let mut finished = Vec::new();
    for _ in 0..4 {
        let process = here.bash("echo x").spawn().await.unwrap();
        assert_eq!(everything(&process).await, b"x\n");
        in_time("exit", process.wait()).await.unwrap();
        finished.push(process);
    }
    let kept: Vec<_> = here.session.list().await.unwrap();
    let kept: Vec<_> = kept.into_iter().map(|one| one.process_id).collect();
    let expected = [&running, &finished[2], &finished[3]];
    assert_eq!(kept, expected.map(|process| process.id().to_string()));
    let gone = finished[0].info().await.unwrap_err();
    assert_eq!(gone.reason(), Some(Reason::ProcessForgotten));
    here.end().await;
}

#[tokio::test]
async fn a_list_tells_what_there_is_to_know() {
    let here = Here::new().await;
    std::fs::create_dir(here.path().join("sub")).unwrap();
    let begin = SystemTime::now();
    let text = "head -c 2000000 /dev/zero; read x; while :; do :; done";
    let busy = here.bash(text).cwd("sub").stdin_pipe();
    let busy = busy.spawn().await.unwrap();
    busy.stdin().write("x\n").await.unwrap();
    let named = here.bash("exit 3").label("a name").spawn().await.unwrap();
    in_time("exit", named.wait()).await.unwrap();
    let spent = |usage: &v1::ResourceUsage| {
        let time = |part: Option<prost_types::Duration>| {
            part.map_or(0, |d| d.seconds * 1000 + i64::from(d.nanos) / 1_000_000)
        };
        time(usage.user_cpu) + time(usage.system_cpu)
    };
    let list = eventually("CPU time of the busy one", || async {
        let list = here.session.list().await.unwrap();
        let used = list[0].usage.as_ref().map_or(0, spent);
        (used > 0 && list[0].output_end == 2_000_000).then_some(list)
    })
    .await;
    let [first, second] = &list[..] else {
        panic!("{list:?}")
    };
    assert_eq!(first.process_id, busy.id().to_string());
    assert_eq!(first.label, text, "the label is the text");
    let sub = here.path().join("sub").display().to_string();
    assert_eq!(String::from_utf8_lossy(&first.working_directory), sub);
    assert_eq!(State::from(first.state()), State::Running);
    assert!(first.pid.is_some() && first.exit.is_none() && !first.output_ended);
    let kept = (1 << 20) + (64 << 10);
    assert_eq!(first.output_dropped, 2_000_000 - kept, "the retained range");
    assert!(first.usage.as_ref().unwrap().max_rss_bytes > 0);
    for (at, what) in [(first.started_at, "started"), (first.created_at, "made")] {
        let at = SystemTime::try_from(at.unwrap()).unwrap();
        let near = begin - Duration::from_secs(5)..SystemTime::now() + Duration::from_secs(5);
        assert!(near.contains(&at), "{what}: {at:?}");
    }
    assert_eq!(second.label, "a name");
    let exit = second.exit.as_ref().unwrap();
    assert_eq!((exit.code, exit.cause()), (Some(3), v1::ExitCause::Exited));
    assert!(exit.ended_at.is_some());
    here.end().await;
}

#[tokio::test]
async fn a_lease_ends_a_session_that_nobody_uses_and_no_other() {
    let here = Here::new().await;
    let open = async |lease: u64| {
        let options = SessionOptions {
            working_directory: Some(here.path().to_owned()),
            lease: Lease::After(Duration::from_millis(lease)),
            ..SessionOptions::default()
        };
        here.machine.open_session(options).await.unwrap()
    };
    let (streaming, calling, silent) = (open(600).await, open(600).await, open(600).await);
    let followed = streaming.command("sleep 900").spawn().await.unwrap();
    let called = calling.command("sleep 900").spawn().await.unwrap();
    let left = silent.command("sleep 900 & sleep 900");
    let left = left.spawn().await.unwrap().id().to_string();
    let (alive, also) = (followed.id().to_string(), called.id().to_string());
    let mut stream = followed.output();
    let others = async {
        eventually("the silent session's end", || async {
            // A call more often than the lease; each counts.
            calling.list().await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
            alive_with(&left).is_empty().then_some(())
        })
        .await;
        // As long again.
        let until = tokio::time::Instant::now() + Duration::from_millis(1_500);
        while tokio::time::Instant::now() < until {
            calling.list().await.unwrap();
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    tokio::select! {
        event = stream.next() => panic!("a session with an open stream ended: {event:?}"),
        () = others => {}
    }
    let over = silent.list().await.unwrap_err();
    assert_eq!(over.reason(), Some(Reason::SessionEnded));
    assert_eq!(alive_with(&alive).len(), 1);
    assert_eq!(alive_with(&also).len(), 1);
    drop(stream);
    eventually("the end of the others, now silent", || async {
        (alive_with(&alive).is_empty() && alive_with(&also).is_empty()).then_some(())
    })
    .await;
    here.end().await;
}

#[tokio::test]
async fn a_lossless_process_without_a_reader_goes_on_after_a_while() {
    let here = Here::new().await;
    let process = here.bash("head -c 3145728 /dev/zero").lossless();
    let process = process.spawn().await.unwrap();
    let held = eventually("the pipe to be full", || async {
        let info = process.info().await.unwrap();
        (info.output_end > 512 << 10).then_some(info)
    })
    .await;
    assert!(held.exit.is_none(), "it waits for its reader");
    assert!(held.output_end <= 1 << 20, "{}", held.output_end);
    let exit = in_time("exit", process.wait()).await.unwrap();
    assert_eq!(
        (exit.status, exit.output_end),
        (ExitStatus::Code(0), 3 << 20)
    );
    here.end().await;
}

#[tokio::test]
async fn a_process_that_its_reader_holds_up_is_not_idle() {
    let here = Here::new().await;
    let text = "head -c 3145728 /dev/zero | tr '\\0' h";
    let process = here
        .bash(text)
        .lossless()
        .idle_timeout(Duration::from_millis(700))
        .spawn()
        .await
        .unwrap();
    let mut stream = process.stream_output(OutputOptions {
        cursor: 0,
        reader_id: Some("slow".into()),
    });
    let (mut total, mut paused, mut cause) = (0, false, None);
    while let Some(event) = in_time("output", stream.next()).await.unwrap() {
        match event {
            OutputEvent::Page(page) => {
                assert_eq!(page.gap, None);
                total += page.data.len();
            }
            OutputEvent::Exit(exit) => cause = Some(exit.cause),
            OutputEvent::End => {}
        }
        if !paused {
            paused = true;
            tokio::time::sleep(Duration::from_millis(2_000)).await;
        }
    }
    assert_eq!((total, cause), (3 << 20, Some(ExitCause::Exited)));
    // One that is silent by itself is.
    let idle = here
        .bash("echo x; sleep 900")
        .idle_timeout(Duration::from_millis(200));
    let done = in_time("idle", idle.run()).await.unwrap();
    assert_eq!(done.exit.cause, ExitCause::IdleTimeout);
    here.end().await;
}

#[tokio::test]
async fn input_is_taken_whole_or_not_at_all_and_never_twice() {
    let here = Here::new().await;
    let process = here.bash("sleep 900").stdin_pipe().spawn().await.unwrap();
    let piece = vec![b'x'; 128 << 10];
    let patience = Duration::from_millis(50);
    let mut writer = process.stdin_as("w", 0).with_patience(patience);
    // The pipe takes 64 KiB, the queue 256 KiB.
    let full = loop {
        if let Err(error) = writer.write(piece.clone()).await {
            break error;
        }
        assert!(writer.offset() < 1 << 20, "a queue without bound");
    };
    let accepted = writer.offset();
    assert_eq!(full.reason(), Some(Reason::StdinQueueFull), "{full}");
    let queued: u64 = full.metadata("queued").unwrap().parse().unwrap();
    assert!(queued > 128 << 10 && queued <= 256 << 10, "{queued}");
    let info = process.info().await.unwrap();
    let told: Vec<_> = info
        .stdin_writers
        .iter()
        .map(|w| (w.writer_id.as_str(), w.offset))
        .collect();
    assert_eq!(told, [("w", accepted)]);
    let hole = process
        .stdin_as("w", accepted + 1)
        .write("y")
        .await
        .unwrap_err();
    assert_eq!(hole.reason(), Some(Reason::StdinOffsetGap));
    assert_eq!(
        hole.metadata("accepted"),
        Some(accepted.to_string().as_str())
    );
    process.stdin_as("w", 0).write(piece).await.unwrap();
    let info = process.info().await.unwrap();
    assert_eq!(
        info.stdin_writers[0].offset, accepted,
        "a repeat adds nothing"
    );
    here.end().await;
}

#[tokio::test]
async fn what_a_terminals_leader_leaves_is_not_a_stop_by_us() {
    let here = Here::new().await;
    let text = "trap '' HUP; sleep 900 & exit 4";
    let process = here.bash(text).terminal(1, 1000).spawn().await.unwrap();
    let exit = in_time("exit", process.wait()).await.unwrap();
    assert_eq!(
        (exit.status, exit.cause),
        (ExitStatus::Code(4), ExitCause::Exited)
    );
    assert_eq!(exit.residue.len(), 1, "left alone, and told");
    let info = process.info().await.unwrap();
    assert_eq!(State::from(info.state()), State::Exited);
    assert_eq!(alive_with(&process.id().to_string()).len(), 1);
    process.kill().await.unwrap();
    let (_, output) = run_in(&here.session, true, "stty size; echo $TERM").await;
    assert_eq!(output, b"24 80\r\nxterm-256color\r\n");
    here.end().await;
}

#[tokio::test]
async fn an_interrupt_that_is_survived_colours_nothing() {
    let here = Here::new().await;
    let text = "trap 'echo caught' INT; echo ready; read x; read x; exit 5";
    let process = here.bash(text).stdin_pipe().spawn().await.unwrap();
    in_time("ready", process.read_output(0, 9, Duration::from_secs(30)))
        .await
        .unwrap();
    process.interrupt().await.unwrap();
    let caught = process.read_output(6, 9, Duration::from_secs(30));
    assert_eq!(
        &in_time("caught", caught).await.unwrap().page.unwrap().data[..],
        b"caught\n"
    );
    process.stdin().write("a\nb\n").await.unwrap();
    let exit = in_time("exit", process.wait()).await.unwrap();
    assert_eq!(
        (exit.status, exit.cause),
        (ExitStatus::Code(5), ExitCause::Exited)
    );
    let info = process.info().await.unwrap();
    assert_eq!(State::from(info.state()), State::Exited);

    let dies = here
        .session
        .program(["sleep", "900"])
        .spawn()
        .await
        .unwrap();
    dies.interrupt().await.unwrap();
    in_time("exit", dies.wait()).await.unwrap();
    let info = dies.info().await.unwrap();
    assert_eq!(State::from(info.state()), State::Killed);
    here.end().await;
}
