//! Commands that turn on what holds them, readers that leave, calls that wait.

use std::io::Write as _;
use std::time::Duration;

use executor_client::{ExitCause, ExitStatus, StdinWriter, v1};
use executor_daemon::config::StopMeansSetting;
use executor_proto::v1::stream_output_request::Message;
use executor_tests::{Daemon, Here, alive_with, eventually, in_time, is_alive, scaled};

use super::{Raw, start};

/// A stream of a lossless reader; dropping the sender ends its half.
async fn attach(
    raw: &Raw,
    process: &str,
) -> (
    tokio::sync::mpsc::Sender<v1::StreamOutputRequest>,
    tonic::Streaming<v1::StreamOutputResponse>,
) {
    let (send, requests) = tokio::sync::mpsc::channel(4);
    let open = v1::StreamOutputOpen {
        process_id: process.to_owned(),
        reader_id: "reader".to_owned(),
        ..Default::default()
    };
    let message = Some(Message::Open(open));
    send.send(v1::StreamOutputRequest { message })
        .await
        .unwrap();
    let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
    let stream = raw.processes().stream_output(raw.with(requests)).await;
    (send, stream.unwrap().into_inner())
}

fn flood() -> v1::StartProcessRequest {
    v1::StartProcessRequest {
        flow: v1::Flow::Lossless.into(),
        ..start("head -c 4000000 /dev/zero")
    }
}

#[tokio::test]
async fn invariant_1_a_reader_that_came_twice_and_left_holds_nobody_up() {
    let daemon = Daemon::start().await;
    let raw = Raw::new(&daemon).await;
    let request = flood();
    let id = request.process_id.clone();
    raw.processes()
        .start_process(raw.with(request))
        .await
        .unwrap();
    let first = attach(&raw, &id).await;
    let mut second = attach(&raw, &id).await;
    second.1.message().await.unwrap().unwrap();
    drop((first, second));
    let get = v1::GetProcessRequest {
        process_id: id,
        wait: Some(prost_types::Duration {
            seconds: 15,
            nanos: 0,
        }),
        all_sessions: false,
    };
    let process = raw.processes().get_process(raw.with(get)).await.unwrap();
    let process = process.into_inner().process.unwrap();
    assert_eq!(process.state(), v1::ProcessState::Exited);
}

#[tokio::test]
async fn a_reader_of_one_session_does_not_take_the_place_of_anothers() {
    let daemon = Daemon::start().await;
    let (one, other) = (Raw::new(&daemon).await, Raw::new(&daemon).await);
    let request = flood();
    let id = request.process_id.clone();
    for raw in [&one, &other] {
        let start = raw.with(request.clone());
        raw.processes().start_process(start).await.unwrap();
    }
    let (consumed, mut reading) = attach(&one, &id).await;
    let mut before = reading.message().await.unwrap().unwrap();
    let _other = attach(&other, &id).await;
    let mut read = 0;
    loop {
        if let Some(page) = &before.page {
            assert_eq!((page.start, page.gap), (read, None));
            read = page.next_cursor;
            let message = Some(Message::Consumed(read));
            let _ = consumed.send(v1::StreamOutputRequest { message }).await;
        }
        if before.output_ended {
            break;
        }
        before = in_time("output", reading.message()).await.unwrap().unwrap();
    }
    assert_eq!(read, 4_000_000);
}

#[tokio::test]
async fn invariant_5_what_waits_for_its_launch_does_not_outlive_its_session() {
    let daemon = Daemon::start().await;
    let (gate, ran) = (daemon.work().join("gate"), daemon.work().join("ran"));
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &gate, kind, mode, 0).unwrap();
    // The login shell's own files hold up whatever waits for its environment.
    let profile = format!("read line < {}\n", gate.display());
    for name in [".profile", ".bash_profile"] {
        std::fs::write(daemon.work().join(name), &profile).unwrap();
    }
    let raw = Raw::new(&daemon).await;
    let mut request = start(&format!("touch {}", ran.display()));
    request.environment = Some(v1::Environment {
        policy: v1::EnvironmentPolicy::Login.into(),
        ..Default::default()
    });
    let id = request.process_id.clone();
    let (mut processes, request) = (raw.processes(), raw.with(request));
    let starting = tokio::spawn(async move { processes.start_process(request).await });
    eventually("the process", || async {
        let get = v1::GetProcessRequest {
            process_id: id.clone(),
            ..Default::default()
        };
        raw.processes().get_process(raw.with(get)).await.ok()
    })
    .await;
    let end = v1::EndSessionRequest {
        grace: Some(prost_types::Duration::default()),
    };
    raw.sessions().end_session(raw.with(end)).await.unwrap();
    // Whoever still reads the gate goes on now.
    let mut gate = std::fs::File::options()
        .read(true)
        .write(true)
        .open(gate)
        .unwrap();
    gate.write_all(b"go\n").unwrap();
    drop(starting);
    // Waits for all that the engine still does.
    assert!(daemon.stop().await.success());
    assert!(!ran.exists(), "it ran after its session had ended");
}

async fn with_reapers() -> Here {
    Here::with(|config| config.stop_means = StopMeansSetting::Reaper).await
}

#[tokio::test]
async fn invariant_5_a_command_that_stops_its_reaper_is_still_ended() {
    let here = with_reapers().await;
    // Also before it could tell that its command runs.
    let process = here.bash("kill -STOP $PPID; exec sleep 1000").spawn();
    let process = in_time("the start", process).await.unwrap();
    let pid = process.info().await.unwrap().pid.unwrap();
    eventually("the sleep", || async {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        (name.trim() == "sleep").then_some(())
    })
    .await;
    let stopped = in_time("the stop", process.kill()).await.unwrap();
    assert_eq!(stopped.survivors, Vec::<u32>::new());
    assert!(!is_alive(pid));
    here.end().await;
}

#[tokio::test]
async fn invariant_5_what_a_killed_reaper_held_is_ended() {
    let here = with_reapers().await;
    // It leaves its session and its parent, and keeps its environment.
    let orphan = "(setsid sleep 1000 > /dev/null 2>&1 < /dev/null &)";
    for text in [
        format!("{orphan}; echo $PPID"),
        format!("{orphan}; sleep 0.1; kill -9 $PPID; exec sleep 1000"),
        format!("kill -9 $PPID; {orphan}; exec sleep 1000"),
    ] {
        let mark = executor_client::random_name();
        let command = here.bash(text).env("MARK", &mark);
        let done = in_time("the command", command.run()).await.unwrap();
        if let Ok(reaper) = String::from_utf8_lossy(&done.output).trim().parse() {
            let reaper = rustix::process::Pid::from_raw(reaper).unwrap();
            rustix::process::kill_process(reaper, rustix::process::Signal::KILL).unwrap();
        }
        eventually("the end of its tree", || async {
            alive_with(&mark).is_empty().then_some(())
        })
        .await;
    }
    here.end().await;
}

#[tokio::test]
async fn invariant_5_a_command_that_kills_its_reaper_is_told_as_killed() {
    let here = with_reapers().await;
    // At every moment: before the reaper could tell that it runs, and after.
    for round in 0..scaled(20, 200) {
        let pause = if round % 2 == 0 { "" } else { "sleep 0.05; " };
        let text = format!("{pause}kill -9 $PPID; exec sleep 1000");
        let done = in_time("the command", here.bash(text).run()).await.unwrap();
        assert_eq!(done.exit.status, ExitStatus::Signal(9), "{:?}", done.exit);
        assert_eq!(done.exit.cause, ExitCause::Signaled);
    }
    here.end().await;
}

#[tokio::test]
async fn invariant_8_calls_that_wait_delay_no_other() {
    let here = Here::new().await;
    let stubborn = here.bash("trap '' TERM; while :; do sleep 1; done");
    let stubborn = stubborn.stdin_pipe().spawn().await.unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let process = stubborn.clone();
        waiting.spawn(async move { drop(process.wait_for(Duration::from_secs(300)).await) });
        let mut output = stubborn.output();
        waiting.spawn(async move { drop(output.next().await) });
    }
    let process = stubborn.clone();
    waiting.spawn(async move { drop(process.stop(Duration::from_secs(60)).await) });
    let mut writer: StdinWriter = stubborn.stdin();
    waiting.spawn(async move {
        // The queue and the pipe are full long before.
        for _ in 0..64 {
            if writer.write(vec![b'x'; 64 << 10]).await.is_err() {
                return;
            }
        }
    });
    for _ in 0..20 {
        assert_eq!(&here.run("echo quick").await.output[..], b"quick\n");
    }
    assert!(waiting.try_join_next().is_none(), "they should still wait");
    waiting.shutdown().await;
    in_time("the kill", stubborn.kill()).await.unwrap();
    here.end().await;
}
