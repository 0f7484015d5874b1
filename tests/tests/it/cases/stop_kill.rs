//! Cases of stopping. Each holds for every means this machine has.

use std::time::Duration;

use executor_client::{ExitCause, ExitStatus, Process, ProcessId, Reason, State, v1};
use executor_daemon::config::StopMeansSetting;
use executor_tests::{
    Daemon, DaemonOptions, Here, alive_with, eventually, in_time, is_alive, scaled,
};

/// A machine per means of stopping that must end whole trees.
async fn machines() -> Vec<Here> {
    let mut machines = Vec::new();
    for (setting, means) in [
        (StopMeansSetting::Cgroup, v1::StopMeans::Cgroup),
        (StopMeansSetting::Reaper, v1::StopMeans::Reaper),
    ] {
        let here = Here::with(|config| config.stop_means = setting).await;
        let info = in_time("info", here.machine.info()).await.unwrap();
        let in_force = info.capabilities.unwrap().stop_means();
        assert_eq!(in_force, means, "this machine lacks a means of stopping");
        machines.push(here);
    }
    machines
}

/// Starts a text and waits until it has printed a line.
async fn started(here: &Here, text: &str) -> Process {
    let process = here.bash(text).spawn().await.unwrap();
    let page = in_time(text, process.read_output(0, 100, Duration::from_secs(30)))
        .await
        .unwrap();
    assert!(
        page.page.is_some_and(|page| !page.data.is_empty()),
        "{text}: {:?}",
        page.exit
    );
    process
}

fn tag(process: &Process) -> String {
    process.id().to_string()
}

async fn gone(process: &Process, mark: &str) {
    none_alive(mark).await;
    none_alive(&tag(process)).await;
}

/// A process that is dying is seen for a moment after it has left its cgroup.
async fn none_alive(mark: &str) {
    eventually(&format!("{mark:?} to be gone"), || async {
        alive_with(mark).is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn b115_a_stop_ends_the_whole_tree_and_says_how_many() {
    for here in machines().await {
        let process = started(
            &here,
            "yes >/dev/null & (sleep 900 | cat) & python3 -c 'import time;print(1,flush=True);time.sleep(900)'",
        )
        .await;
        assert!(alive_with(&tag(&process)).len() >= 5);
        let stopped = in_time("stop", process.stop(Duration::from_secs(2)))
            .await
            .unwrap();
        assert!(stopped.survivors.is_empty(), "{stopped:?}");
        assert!(stopped.signalled >= 5, "{stopped:?}");
        gone(&process, &tag(&process)).await;
        assert_eq!(State::from(stopped.process.unwrap().state()), State::Killed);
        here.end().await;
    }
}

#[tokio::test]
async fn invariant_5_b116_no_descendant_gets_away() {
    let storm = "python3 -c '\nimport os,time\nprint(1,flush=True)\nwhile True:\n if os.fork(): os._exit(0)\n os.setsid(); time.sleep(0.005)' & wait; sleep 900";
    for here in machines().await {
        for (text, mark) in [
            ("echo 1; setsid sleep 917 & sleep 917", "sleep\0917"),
            ("echo 1; setsid -f sleep 918; sleep 918", "sleep\0918"),
            ("echo 1; (sleep 919 & exit) & wait; sleep 919", "sleep\0919"),
            (
                "nohup setsid sleep 920 >/dev/null & disown; echo 1; exit",
                "sleep\0920",
            ),
            ("echo 1; env -i setsid sleep 921 & sleep 921", "sleep\0921"),
            (storm, "os.setsid(); time.sleep(0.005)"),
        ] {
            let process = started(&here, text).await;
            eventually(text, || async {
                (!alive_with(mark).is_empty()).then_some(())
            })
            .await;
            let stopped = in_time(text, process.stop(Duration::from_millis(300)))
                .await
                .unwrap();
            assert!(stopped.survivors.is_empty(), "{text}: {stopped:?}");
            gone(&process, mark).await;
        }
        here.end().await;
    }
}

#[tokio::test]
async fn b118_a_program_that_ignores_sigterm_is_killed_after_the_grace() {
    for here in machines().await {
        let process = started(
            &here,
            "trap '' TERM HUP INT; echo 1; while :; do sleep 1; done",
        )
        .await;
        let stopped = in_time("stop", process.stop(Duration::from_millis(300)))
            .await
            .unwrap();
        assert!(stopped.survivors.is_empty());
        let exit = process.wait().await.unwrap();
        assert_eq!((exit.status, exit.forced), (ExitStatus::Signal(9), true));
        assert!(matches!(exit.cause, ExitCause::Stopped { .. }));

        let text = "(trap '' TERM HUP INT; echo 1; while :; do sleep 1; done) & sleep 0.1; trap 'exit 0' TERM; wait";
        let process = started(&here, text).await;
        let stopped = in_time("stop", process.stop(Duration::from_millis(300)))
            .await
            .unwrap();
        assert!(stopped.survivors.is_empty());
        gone(&process, &tag(&process)).await;
        assert_eq!(State::from(stopped.process.unwrap().state()), State::Killed);

        let process = started(&here, "echo 1; kill -STOP $$; sleep 900").await;
        let stopped = in_time("a stopped child", process.stop(Duration::from_millis(300)))
            .await
            .unwrap();
        assert!(stopped.survivors.is_empty());
        here.end().await;
    }
}

#[tokio::test]
async fn b119_stops_that_race_the_exit_hit_nobody_else() {
    // The strangers: processes of ours that no stop may touch.
    let strangers: Vec<_> = (0..20)
        .map(|_| {
            std::process::Command::new("sleep")
                .arg("900")
                .spawn()
                .unwrap()
        })
        .collect();
    for here in machines().await {
        for round in 0..scaled(2_000, 100) {
            let process = here
                .bash(format!("exit {}", round % 7))
                .spawn()
                .await
                .unwrap();
            let stopped = in_time("stop", process.kill()).await.unwrap();
            assert!(stopped.survivors.is_empty());
            let again = process.kill().await.unwrap();
            assert!(again.already_ended);
            assert_eq!(again.process.unwrap().exit, stopped.process.unwrap().exit);
            process.remove().await.unwrap();
        }
        here.end().await;
    }
    for mut stranger in strangers {
        assert!(is_alive(stranger.id()), "a stranger was hit");
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }
}

#[tokio::test]
async fn b122_a_daemon_and_what_holds_its_commands_show_no_text_of_them() {
    for means in ["cgroup", "reaper"] {
        let daemon = Daemon::start_with(DaemonOptions {
            configuration: format!("stop_means = {means:?}\n"),
            ..DaemonOptions::default()
        })
        .await;
        let session = daemon.session().await;
        let mark = format!("needle-{means}-77");
        let first = session.command(format!("echo 1; sleep 900; true # {mark}"));
        let first = first.spawn().await.unwrap();
        in_time("1", first.read_output(0, 9, Duration::from_secs(30)))
            .await
            .unwrap();
        let leader = first.info().await.unwrap().pid.unwrap();
        assert_eq!(alive_with(&mark), [leader]);
        let second = in_time("pkill", session.run(format!("pkill -f {mark}")))
            .await
            .unwrap();
        assert_eq!(second.exit.status, ExitStatus::Code(0), "{second:?}");
        let exit = in_time("the first", first.wait()).await.unwrap();
        assert_eq!(exit.status, ExitStatus::Signal(15));
        let after = session.run("echo alive").await.unwrap();
        assert_eq!(after.output, b"alive\n", "{means}");
    }
}

#[tokio::test]
async fn b122_pkill_of_a_commands_text_hits_only_the_command() {
    for here in machines().await {
        let first = started(&here, "echo 1; sleep 900; true # needle-42").await;
        let second = here.run("pkill -f needle-4[2]").await;
        let exit = in_time("the first", first.wait()).await.unwrap();
        assert_eq!(exit.status, ExitStatus::Signal(15));
        let info = first.info().await.unwrap();
        assert_eq!(
            State::from(info.state()),
            State::Exited,
            "nobody here sent it"
        );
        assert_eq!(exit.shell_code, 143);
        assert_eq!(second.exit.status, ExitStatus::Code(0));
        assert_eq!(here.run("echo alive").await.output, b"alive\n");
        here.end().await;
    }
}

#[tokio::test]
async fn b124_stopping_again_or_too_late_or_too_early_is_safe() {
    for here in machines().await {
        let process = started(&here, "echo 1; sleep 900").await;
        let mut stops = tokio::task::JoinSet::new();
        for _ in 0..5 {
            let process = process.clone();
            stops.spawn(async move { process.stop(Duration::from_secs(1)).await.unwrap() });
        }
        let mut exits = Vec::new();
        while let Some(stopped) = in_time("stops", stops.join_next()).await {
            exits.push(stopped.unwrap().process.unwrap().exit.unwrap());
        }
        assert_eq!(exits.len(), 5);
        assert!(exits.iter().all(|exit| *exit == exits[0]));

        let seven = here.bash("exit 7").spawn().await.unwrap();
        seven.wait().await.unwrap();
        let stopped = seven.stop(Duration::ZERO).await.unwrap();
        assert!(stopped.already_ended);
        let exit = stopped.process.unwrap().exit.unwrap();
        assert_eq!((exit.code, exit.stopped_by.as_str()), (Some(7), ""));

        let unknown = ProcessId::random();
        for _ in 0..2 {
            let error = here.session.process(unknown).kill().await.unwrap_err();
            assert_eq!(error.code(), executor_client::Code::NotFound);
            assert_eq!(error.metadata("tombstone"), Some("true"));
        }
        let refused = here.bash("true").id(unknown).spawn().await.unwrap_err();
        assert_eq!(refused.reason(), Some(Reason::ProcessStoppedBeforeStart));

        for _ in 0..scaled(200, 20) {
            let id = ProcessId::random();
            let start = here.bash("sleep 900").id(id).spawn();
            let early = here.session.process(id);
            let stop = early.kill();
            let (started, stopped) = tokio::join!(start, stop);
            match stopped {
                // The stop came second: nothing is left.
                Ok(stopped) => assert!(stopped.survivors.is_empty() && started.is_ok()),
                // It came first: the start does nothing.
                Err(error) => {
                    assert_eq!(error.reason(), Some(Reason::ProcessNotFound));
                    assert_eq!(error.metadata("tombstone"), Some("true"));
                    let refused = started.unwrap_err();
                    assert_eq!(refused.reason(), Some(Reason::ProcessStoppedBeforeStart));
                }
            }
            none_alive(&id.to_string()).await;
        }
        here.end().await;
    }
}

#[tokio::test]
async fn ending_a_session_ends_its_processes_and_what_they_left() {
    for here in machines().await {
        let session = here.another_session().await;
        let left = session
            .command("sleep 923 & echo left")
            .run()
            .await
            .unwrap();
        assert!(!left.exit.residue.is_empty());
        let running = session.command("sleep 923").spawn().await.unwrap();
        eventually("both", || async {
            (alive_with("sleep\0923").len() == 2).then_some(())
        })
        .await;
        let other = started(&here, "echo 1; sleep 924").await;
        let ended = in_time("end", session.end(Duration::from_millis(300)))
            .await
            .unwrap();
        assert_eq!(ended.ended_processes, 2);
        assert!(ended.survivors.is_empty());
        none_alive("sleep\0923").await;
        assert!(
            !alive_with("sleep\0924").is_empty(),
            "another session's process goes on"
        );
        let refused = running.info().await.unwrap_err();
        assert_eq!(refused.reason(), Some(Reason::SessionEnded));
        other.kill().await.unwrap();
        here.end().await;
    }
}
