#![expect(
    clippy::disallowed_methods,
    reason = "tests look at files as an outsider does"
)]

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use super::super::signal;
use super::*;
use crate::process::exit::WaitStatus;

const METHODS: [Method; 2] = [Method::Clone3, Method::Clone];

fn strings(texts: &[&str]) -> Vec<CString> {
    texts.iter().map(|t| CString::new(*t).unwrap()).collect()
}

fn open(path: &str) -> OwnedFd {
    File::open(path).unwrap().into()
}

/// Runs `sh -c script` and returns its output and status.
fn run(method: Method, script: &str) -> (String, WaitStatus) {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let null = open("/dev/null");
    let root = open("/");
    let spawned = spawn_by(
        &Program {
            paths: &strings(&["/bin/sh"]),
            argv: &strings(&["sh", "-c", script]),
            envp: &strings(&["PATH=/usr/bin:/bin", "A=b"]),
            cwd: root.as_fd(),
            stdio: Stdio::Descriptors([null.as_fd(), writer.as_fd(), writer.as_fd()]),
            cgroup: None,
        },
        Announce::Nobody,
        method,
    )
    .unwrap();
    drop(writer);
    let mut output = String::new();
    reader.read_to_string(&mut output).unwrap();
    let reaped = wait::reap_blocking(spawned.pidfd.as_fd()).unwrap().unwrap();
    assert_eq!(reaped.pid, spawned.pid);
    (output, reaped.status)
}

fn fail(method: Method, paths: &[&str], argv: &[CString], cwd: &str) -> SpawnFailure {
    let null = open("/dev/null");
    let cwd = open(cwd);
    spawn_by(
        &Program {
            paths: &strings(paths),
            argv,
            envp: &[],
            cwd: cwd.as_fd(),
            stdio: Stdio::Descriptors([null.as_fd(); 3]),
            cgroup: None,
        },
        Announce::Nobody,
        method,
    )
    .unwrap_err()
}

#[test]
fn codes_and_signals_arrive_as_they_are() {
    for method in METHODS {
        assert_eq!(run(method, "exit 7").1, WaitStatus::Code(7));
        assert_eq!(run(method, "exit 300").1, WaitStatus::Code(44));
        assert_eq!(run(method, "kill -9 $$").1, WaitStatus::Signal(9));
    }
}

#[test]
fn a_program_begins_with_an_empty_mask_and_default_dispositions() {
    // SIGPIPE is ignored in every Rust program already.
    for method in METHODS {
        let _blocked = BlockAll::new();
        let (output, _) = run(method, "exec cat /proc/self/status");
        let masks = ["SigBlk:\t", "SigIgn:\t", "SigCgt:\t"];
        for mask in masks {
            let line = output.lines().find_map(|line| line.strip_prefix(mask));
            assert_eq!(line, Some("0000000000000000"), "{mask}");
        }
    }
}

#[test]
fn a_program_gets_three_descriptors_and_a_session_of_its_own() {
    // Held open without close-on-exec, to be inherited if anything were.
    let leak = rustix::io::fcntl_dupfd_cloexec(open("/dev/null"), 200).unwrap();
    rustix::io::fcntl_setfd(&leak, rustix::io::FdFlags::empty()).unwrap();
    for method in METHODS {
        // The fourth is the directory that ls reads.
        let (output, _) = run(method, "exec ls /proc/self/fd");
        assert_eq!(
            output.split_whitespace().collect::<Vec<_>>(),
            ["0", "1", "2", "3"]
        );
        let (output, _) = run(method, "cut -d' ' -f5,6,7 /proc/$$/stat; echo $$");
        let lines: Vec<_> = output.lines().collect();
        assert_eq!(lines[0], format!("{0} {0} 0", lines[1]));
    }
}

#[test]
fn each_failure_tells_its_stage() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("plain"), "x").unwrap();
    std::fs::write(path("garbage"), "\u{1}\u{2}").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(path("garbage"), mode).unwrap();
    let (plain, garbage, missing) = (path("plain"), path("garbage"), path("missing"));
    let argv = strings(&["x"]);
    let long = vec![CString::new(vec![b'x'; 200_000]).unwrap()];

    for method in METHODS {
        for (paths, argv, cwd, stage, errno) in [
            (vec![&*missing], &argv, "/", SpawnStage::Exec, libc::ENOENT),
            (vec![], &argv, "/", SpawnStage::Exec, libc::ENOENT),
            (
                vec![&*plain, &*missing],
                &argv,
                "/",
                SpawnStage::Exec,
                libc::EACCES,
            ),
            (vec![&*garbage], &argv, "/", SpawnStage::Exec, libc::ENOEXEC),
            (vec!["/bin/true"], &long, "/", SpawnStage::Exec, libc::E2BIG),
            (
                vec!["/bin/true"],
                &argv,
                "/dev/null",
                SpawnStage::WorkingDirectory,
                libc::ENOTDIR,
            ),
        ] {
            let failure = fail(method, &paths, argv, cwd);
            assert_eq!(failure, SpawnFailure { stage, errno }, "{paths:?}");
        }
    }
}

#[test]
fn a_later_candidate_runs_when_earlier_ones_are_missing() {
    let null = open("/dev/null");
    let root = open("/");
    let spawned = spawn(&Program {
        paths: &strings(&["/nowhere/true", "/dev/null/true", "/bin/true"]),
        argv: &strings(&["true"]),
        envp: &[],
        cwd: root.as_fd(),
        stdio: Stdio::Descriptors([null.as_fd(); 3]),
        cgroup: None,
    })
    .unwrap();
    let reaped = wait::reap_blocking(spawned.pidfd.as_fd()).unwrap().unwrap();
    assert_eq!(reaped.status, WaitStatus::Code(0));
}

#[test]
fn descriptors_arrive_in_their_place_also_when_they_overlap_with_it() {
    let link = |pid: &str, number: u32| std::fs::read_link(format!("/proc/{pid}/fd/{number}"));
    let own: Vec<_> = (0..3).map(|number| link("self", number).unwrap()).collect();
    let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let standard = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    let root = open("/");
    for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0], [2, 2, 0], [1, 1, 1]] {
        let spawned = spawn(&Program {
            paths: &strings(&["/bin/sleep"]),
            argv: &strings(&["sleep", "900"]),
            envp: &[],
            cwd: root.as_fd(),
            stdio: Stdio::Descriptors(order.map(|index: usize| standard[index])),
            cgroup: None,
        })
        .unwrap();
        for (number, index) in (0..3).zip(order) {
            let theirs = link(&spawned.pid.to_string(), number).unwrap();
            assert_eq!(theirs, own[index], "{order:?}");
        }
        signal::send(spawned.pidfd.as_fd(), libc::SIGKILL).unwrap();
        wait::reap_blocking(spawned.pidfd.as_fd()).unwrap();
    }
}

#[test]
fn a_program_written_a_moment_ago_runs_although_others_start_beside_it() {
    // A start that begins while the file is open for writing holds a copy of
    // that descriptor until it executes.
    let directory = tempfile::tempdir().unwrap();
    let program = std::fs::read("/bin/true").unwrap();
    let null = open("/dev/null");
    let root = open("/");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (directory, program, null, root) = (&directory, &program, &null, &root);
            scope.spawn(move || {
                for round in 0..25 {
                    let path = directory.path().join(format!("{thread}-{round}"));
                    std::fs::write(&path, program).unwrap();
                    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
                    std::fs::set_permissions(&path, mode).unwrap();
                    let spawned = spawn(&Program {
                        paths: &strings(&[path.to_str().unwrap()]),
                        argv: &strings(&["true"]),
                        envp: &[],
                        cwd: root.as_fd(),
                        stdio: Stdio::Descriptors([null.as_fd(); 3]),
                        cgroup: None,
                    })
                    .unwrap();
                    wait::reap_blocking(spawned.pidfd.as_fd()).unwrap();
                }
            });
        }
    });
}

#[test]
fn a_program_that_stays_open_for_writing_is_told_as_busy() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("busy");
    std::fs::copy("/bin/true", &path).unwrap();
    let _writer = File::options().append(true).open(&path).unwrap();
    let failure = fail(
        Method::Clone3,
        &[path.to_str().unwrap()],
        &strings(&["busy"]),
        "/",
    );
    assert_eq!(
        (failure.stage, failure.errno),
        (SpawnStage::Exec, libc::ETXTBSY)
    );
}

#[test]
fn kept_descriptors_serve_again_and_again_and_hold_nothing_open() {
    super::reserve_descriptors().unwrap();
    for method in METHODS {
        // More starts than there are places. Each reads to the end of its pipe,
        // which a copy that stayed somewhere would hold open.
        for _ in 0..40 {
            let (output, status) = run(method, "ls /proc/self/fd; echo to-stderr >&2");
            assert_eq!(output, "0\n1\n2\n3\nto-stderr\n");
            assert_eq!(status, WaitStatus::Code(0));
        }
        let failure = fail(method, &["/nowhere"], &strings(&["x"]), "/");
        assert_eq!(failure.stage, SpawnStage::Exec);
    }
}
