//! Ending a tree: all of it, only it, and the truth about it.

use std::time::Duration;

use executor_daemon::process::control::SignalTarget;
use executor_daemon::process::exit::WaitStatus;
use executor_daemon::process::tree::{EndMode, EndReport, Preferred};

use super::{NOBODY, eventually, lives, with, with_each};

const PROMPT: EndMode = EndMode::Terminate {
    grace: Duration::from_millis(200),
};
const PATIENT: EndMode = EndMode::Terminate {
    grace: Duration::from_secs(30),
};
/// The means that find what has left its session and its parent.
const SURE: [Preferred; 2] = [Preferred::Cgroup, Preferred::Reaper];

#[test]
fn a_tree_ends_at_sigterm_without_force() {
    with_each(async |fixture| {
        let mut run = fixture
            .sh("sleep 900 & (sleep 900; :) & echo $$ $! | tr ' ' '\\n' >pids; wait")
            .await;
        let pids = fixture.pids("pids", 2).await;
        assert!(pids.iter().all(|pid| lives(*pid)));
        let report = run.launched.tree.end(PATIENT).await;
        assert!(report.signalled >= 3 && !report.forced, "{report:?}");
        assert_eq!(report.survivors, NOBODY);
        assert_eq!(
            run.launched.leader.wait().await.status,
            WaitStatus::Signal(15)
        );
        assert!(pids.iter().all(|pid| !lives(*pid)));
        assert_eq!(run.launched.tree.members(), []);
    });
}

#[test]
fn what_left_the_group_and_its_parent_ends_too() {
    with(&SURE, async |fixture| {
        for script in [
            "setsid sh -c 'echo $$ >>pids; exec sleep 900' & sleep 900",
            "(setsid sh -c 'echo $$ >>pids; exec sleep 900' & ) ; exit 0",
            "env -i /usr/bin/setsid /bin/sh -c 'echo $$ >>pids; /bin/sleep 900 & wait' & wait",
            "nohup setsid sh -c 'setsid sh -c \"echo \\$\\$ >>pids; exec sleep 900\" &' >/dev/null & wait",
            "exec python3 -c \"\nimport os, time\nif os.fork(): os._exit(0)\nos.setsid()\n\
             if os.fork(): os._exit(0)\nopen('pids','a').write(f'{os.getpid()}\\n')\ntime.sleep(900)\"",
        ] {
            let _ = std::fs::remove_file(fixture.path("pids"));
            let run = fixture.sh(script).await;
            let pids = fixture.pids("pids", 1).await;
            let members = run.launched.tree.members();
            assert!(
                members.iter().any(|m| m.pid == pids[0]),
                "{script}: {members:?}"
            );
            let report = run.launched.tree.end(PROMPT).await;
            assert_eq!(report.survivors, NOBODY, "{script}");
            assert!(!lives(pids[0]), "{script}");
        }
    });
}

#[test]
fn what_ignores_sigterm_is_killed_after_the_grace_and_that_is_told() {
    with_each(async |fixture| {
        let mut run = fixture
            .sh(
                "trap '' TERM HUP INT; (while :; do sleep 1; done) & echo $! >pids; \
                 while :; do sleep 1; done",
            )
            .await;
        let child = fixture.pids("pids", 1).await[0];
        let report = run.launched.tree.end(PROMPT).await;
        assert!(report.forced && report.survivors.is_empty(), "{report:?}");
        assert_eq!(
            run.launched.leader.wait().await.status,
            WaitStatus::Signal(9)
        );
        assert!(!lives(child));
    });
}

#[test]
fn a_grandchild_that_ignores_sigterm_ends_although_the_leader_went_politely() {
    with_each(async |fixture| {
        let mut run = fixture
            .sh("sh -c 'trap \"\" TERM; echo $$ >pids; while :; do sleep 1; done' & wait")
            .await;
        let child = fixture.pids("pids", 1).await[0];
        let report = run.launched.tree.end(PROMPT).await;
        assert!(report.forced && report.survivors.is_empty(), "{report:?}");
        assert_eq!(
            run.launched.leader.wait().await.status,
            WaitStatus::Signal(15)
        );
        assert!(!lives(child));
    });
}

#[test]
fn a_stopped_process_acts_on_sigterm() {
    with_each(async |fixture| {
        let run = fixture
            .sh("sleep 900 & kill -STOP $!; echo $! >pids; kill -STOP $$; sleep 900")
            .await;
        let child = fixture.pids("pids", 1).await[0];
        let report = run.launched.tree.end(PATIENT).await;
        assert_eq!((report.forced, report.survivors.len()), (false, 0));
        assert!(!lives(child));
    });
}

#[test]
fn a_storm_of_new_sessions_ends() {
    with(&SURE, async |fixture| {
        // Each life forks its successor into a new session and is gone 5 ms
        // later; eight at once, none minds SIGTERM.
        let storm = "exec python3 -c \"\nimport os, signal, time\n\
            signal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
            for _ in range(8):\n  if os.fork() == 0: break\n\
            else: print('storm', flush=True); os._exit(0)\n\
            while True:\n  if os.fork(): time.sleep(0.005); os._exit(0)\n  os.setsid()\"";
        for mode in [EndMode::Kill, PROMPT] {
            let mut run = fixture.sh(storm).await;
            assert_eq!(run.some_output().await, "storm\n");
            run.launched.leader.wait().await;
            assert!(!run.launched.tree.members().is_empty());
            let report = run.launched.tree.end(mode).await;
            assert_eq!(report.survivors, NOBODY);
            // The pipe was theirs: its end shows that nobody is left.
            run.all_output().await;
        }
    });
}

#[test]
fn residue_is_told_and_left_alone_until_it_is_ended() {
    with_each(async |fixture| {
        let mut run = fixture.sh("sleep 900 & echo $! >pids").await;
        let exit = run.launched.leader.wait().await;
        assert_eq!(exit.status, WaitStatus::Code(0));
        let pid = fixture.pids("pids", 1).await[0];
        // It may not have executed its program yet.
        eventually("sleep is told", || {
            let members = run.launched.tree.members();
            assert_eq!(members.iter().map(|m| m.pid).collect::<Vec<_>>(), [pid]);
            members.iter().all(|member| member.name == "sleep")
        });
        assert!(lives(pid));
        assert_eq!(run.launched.tree.end(PATIENT).await.signalled, 1);
        assert!(!lives(pid));
    });
}

#[test]
fn ending_an_ended_tree_changes_nothing() {
    with_each(async |fixture| {
        let mut run = fixture.sh("exit 7").await;
        assert_eq!(run.launched.leader.wait().await.status, WaitStatus::Code(7));
        for mode in [PATIENT, EndMode::Kill, PATIENT] {
            assert_eq!(run.launched.tree.end(mode).await, EndReport::default());
        }
        assert_eq!(run.launched.leader.wait().await.status, WaitStatus::Code(7));
    });
}

#[test]
fn a_kill_ends_a_tree_that_a_terminate_waits_for() {
    with_each(async |fixture| {
        let mut run = fixture
            .sh("trap '' TERM; echo ready; while :; do sleep 1; done")
            .await;
        assert_eq!(run.some_output().await, "ready\n");
        let (patient, killed) = tokio::join!(
            run.launched.tree.end(PATIENT),
            run.launched.tree.end(EndMode::Kill)
        );
        assert_eq!((patient.forced, patient.survivors), (false, vec![]));
        assert_eq!(killed.survivors, NOBODY);
        assert_eq!(
            run.launched.leader.wait().await.status,
            WaitStatus::Signal(9)
        );
    });
}

#[test]
fn a_signal_goes_to_the_leader_or_to_its_group() {
    with_each(async |fixture| {
        // The leader's trap first: the child tells that both are ready.
        let script = "trap 'echo leader; wait; exit 5' USR1; \
             sh -c 'trap \"echo child; exit\" USR1; echo ready; while :; do sleep 0.01; done' & \
             while :; do sleep 0.01; done";
        let mut run = fixture.sh(script).await;
        assert_eq!(run.some_output().await, "ready\n");
        assert!(
            run.launched
                .tree
                .signal(SignalTarget::Leader, libc::SIGUSR1)
        );
        assert_eq!(run.some_output().await, "leader\n");
        assert_eq!(run.launched.tree.end(EndMode::Kill).await.survivors, NOBODY);

        let mut run = fixture.sh(script).await;
        assert_eq!(run.some_output().await, "ready\n");
        assert!(run.launched.tree.signal(SignalTarget::Group, libc::SIGUSR1));
        assert_eq!(run.launched.leader.wait().await.status, WaitStatus::Code(5));
        // The shells may tell of a sleep that got it too.
        let output = run.all_output().await;
        for told in ["child", "leader"] {
            assert_eq!(
                output.lines().filter(|line| *line == told).count(),
                1,
                "{output}"
            );
        }
    });
}

#[test]
fn a_reaped_pid_is_never_signalled() {
    with_each(async |fixture| {
        // The group lives on, and its number with it; still it is not ours to
        // use once the leader is gone.
        let mut run = fixture
            .sh("trap '' TERM; sh -c 'trap \"echo hit\" USR1; echo $$ >pids; while :; do sleep 0.01; done' &")
            .await;
        fixture.pids("pids", 1).await;
        run.launched.leader.wait().await;
        for to in [SignalTarget::Leader, SignalTarget::Group] {
            assert!(!run.launched.tree.signal(to, libc::SIGUSR1));
        }
        assert_eq!(run.launched.tree.end(EndMode::Kill).await.survivors, NOBODY);
        assert_eq!(run.all_output().await, "");
    });
}

#[test]
fn only_the_tree_itself_is_ended() {
    with_each(async |fixture| {
        let mut bystander = fixture.sh("echo up; exec sleep 900").await;
        assert_eq!(bystander.some_output().await, "up\n");
        for _ in 0..10 {
            let mut run = fixture.sh("setsid sleep 900 & sleep 900").await;
            assert_eq!(run.launched.tree.end(EndMode::Kill).await.survivors, NOBODY);
            // The pipe was theirs: its end shows that nobody is left, although
            // the stop came in the middle of their start.
            run.all_output().await;
        }
        assert!(lives(bystander.launched.pid));
        bystander.launched.tree.end(EndMode::Kill).await;
        assert_eq!(
            bystander.launched.leader.wait().await.status,
            WaitStatus::Signal(9)
        );
    });
}

#[test]
fn a_released_tree_reaches_nothing_any_more() {
    with(&SURE, async |fixture| {
        let mut first = fixture.sh("exit 0").await;
        first.launched.leader.wait().await;
        first.launched.tree.end(EndMode::Kill).await;
        let late = first.launched.tree.clone();
        first.launched.tree.release();
        // Takes the cgroup over, where there is one.
        let mut second = fixture.sh("echo up; exec sleep 900").await;
        assert_eq!(second.some_output().await, "up\n");
        assert_eq!(late.end(EndMode::Kill).await, EndReport::default());
        assert_eq!(late.end(PATIENT).await, EndReport::default());
        assert!(lives(second.launched.pid));
        second.launched.tree.end(EndMode::Kill).await;
    });
}

#[test]
fn no_command_text_is_shown_by_what_holds_the_command() {
    with_each(async |fixture| {
        // B122: pkill -f finds the command and nothing of ours.
        let mut run = fixture.sh("echo up; sleep 900 # needle-42").await;
        assert_eq!(run.some_output().await, "up\n");
        let (found, _) = fixture.run("pgrep -f needle-4[2]").await;
        assert_eq!(found, format!("{}\n", run.launched.pid));
        run.launched.tree.end(EndMode::Kill).await;
    });
}
