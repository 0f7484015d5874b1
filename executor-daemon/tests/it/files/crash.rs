//! Killed at any moment of a write or an edit, on a small disk that fills up:
//! a file is what it was or what was asked for, the next start leaves no
//! temporary, what was written in place is finished, what was begun is decided,
//! and a program beside it notices nothing.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use executor_daemon::files::error::FileError;
use executor_proto::id::{OperationId, SessionId};

use super::program::{COUNT, LINKED, REPLACED, STEADY};
use super::{Dice, Mutator, whole, word_of};
use crate::tree::embedding::again;

const DEADLINE: Duration = Duration::from_secs(30);
const FULL: usize = 200;
const SHORT: usize = 15;

/// Runs `work` with a small disk of its own; not at all where mounts of one's
/// own cannot be had. Programs that `work` starts see it too.
fn on_a_small_disk(size: &str, work: impl FnOnce(&Path) + Send) {
    use nix::mount::{MsFlags, mount};
    let top = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        let run = || {
            if let Err(errno) = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS) {
                eprintln!("no mounts of our own ({errno}): skipped");
                return;
            }
            let none: Option<&str> = None;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
            let options = format!("size={size}");
            let options = Some(options.as_str());
            mount(
                Some("tmpfs"),
                top.path(),
                Some("tmpfs"),
                MsFlags::empty(),
                options,
            )
            .unwrap();
            work(top.path());
        };
        scope.spawn(run).join().unwrap();
    });
}

struct Ground<'a> {
    root: &'a Path,
    state: &'a Path,
    session: SessionId,
}

impl Ground<'_> {
    fn program(&self, test: &str, session: SessionId, seed: u64) -> Command {
        let mut command = again(test);
        command
            .env("FILES_TEST_ROOT", self.root)
            .env("FILES_TEST_STATE", self.state)
            .env("FILES_TEST_SESSION", session.to_string())
            .env("FILES_TEST_SEED", seed.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command
    }

    fn prepare(&self) {
        for name in REPLACED {
            fs::write(self.root.join(name), whole(1, 100)).unwrap();
        }
        fs::write(self.root.join(LINKED[0]), whole(1, 100)).unwrap();
        fs::hard_link(self.root.join(LINKED[0]), self.root.join(LINKED[1])).unwrap();
        fs::write(self.root.join(COUNT), "0!\n").unwrap();
        fs::write(self.root.join(STEADY), whole(1, 1)).unwrap();
    }

    fn word(&self, name: &str) -> Option<u32> {
        word_of(&fs::read_to_string(self.root.join(name)).unwrap())
    }

    fn names(&self) -> Vec<String> {
        let all = fs::read_dir(self.root).unwrap();
        let mut names: Vec<_> = all
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Until the file is about to be written in place: reserving its space
    /// changes its times. Not for ever, as the disk may be full.
    fn until_touched(&self, name: &str) {
        use std::os::unix::fs::MetadataExt as _;
        let time = || {
            let now = fs::metadata(self.root.join(name)).unwrap();
            (now.ctime(), now.ctime_nsec())
        };
        let (before, deadline) = (time(), Instant::now() + Duration::from_secs(1));
        while time() == before && Instant::now() < deadline {
            std::thread::yield_now();
        }
    }

    /// Starts the program, kills it at some moment; the last count that it told
    /// it would make.
    /// With `aimed`, soon after a write in place was begun.
    fn run_and_kill(&self, dice: &mut Dice, aimed: bool) -> Option<(OperationId, u64)> {
        let seed = dice.below(u64::MAX) | 1;
        let mut child = self
            .program("files::program::mutating_program", self.session, seed)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        wait_for(&mut lines, "ready");
        let (begun, in_place) = std::sync::mpsc::sync_channel(1);
        let reader = std::thread::spawn(move || {
            let told = lines.map_while(Result::ok);
            let told = told.inspect(|line| {
                if line == "in place" {
                    // Nobody waits for the second one.
                    let _ = begun.try_send(());
                }
            });
            told.filter_map(|line| {
                let (operation, number) = line.strip_prefix("count ")?.split_once(' ')?;
                Some((operation.parse().unwrap(), number.parse().unwrap()))
            })
            .last()
        });
        let mut within = 25_000;
        if aimed && in_place.recv_timeout(DEADLINE).is_ok() {
            self.until_touched(LINKED[0]);
            within = 2_000;
        }
        // Any moment will do; nothing is waited for.
        std::thread::sleep(Duration::from_micros(dice.below(within)));
        end(&mut child);
        reader.join().unwrap()
    }
}

fn wait_for(lines: &mut impl Iterator<Item = std::io::Result<String>>, wanted: &str) {
    for line in lines {
        if line.unwrap().ends_with(wanted) {
            return;
        }
    }
    panic!("the program ended before it said {wanted:?}");
}

fn end(child: &mut Child) {
    child.kill().unwrap();
    let status = child.wait().unwrap();
    let killed = std::os::unix::process::ExitStatusExt::signal(&status) == Some(9);
    assert!(killed || status.success(), "it failed before it was killed");
}

fn killed_at_random_points(separate: bool) {
    on_a_small_disk("8m", |disk| {
        let elsewhere = tempfile::tempdir().unwrap();
        let root = disk.join("root");
        fs::create_dir(&root).unwrap();
        let state = if separate { elsewhere.path() } else { disk };
        let state = state.join("state");
        fs::create_dir(&state).unwrap();
        let ground = Ground {
            root: &root,
            state: &state,
            session: SessionId::random(),
        };
        ground.prepare();
        let mut steady = ground
            .program("files::program::steady_program", SessionId::random(), 7)
            .spawn()
            .unwrap();
        let mut told = BufReader::new(steady.stdout.take().unwrap()).lines();
        wait_for(&mut told, "ready");
        let rounds = match std::env::var("EXECUTOR_TEST_SCALE").as_deref() {
            Ok("full") => FULL,
            _ => SHORT,
        };
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
        let mut interrupted = 0;
        for round in 0..rounds {
            let last = ground.run_and_kill(&mut dice, round % 2 == 1);
            for name in REPLACED.iter().chain([&STEADY]) {
                assert!(
                    ground.word(name).is_some(),
                    "round {round}: {name} is neither"
                );
            }
            interrupted += usize::from(ground.word(LINKED[0]).is_none());
            check_after_a_start(&ground, round, last);
        }
        eprintln!("{rounds} kills, {interrupted} amid a write in place");
        drop(steady.stdin.take());
        // To the end, or it could not say it.
        let told: Vec<_> = told.map_while(Result::ok).collect();
        let done = told.iter().find_map(|line| {
            let count: u64 = line.strip_prefix("done ")?.parse().ok()?;
            Some(count)
        });
        assert!(
            steady.wait().unwrap().success(),
            "the program beside it failed"
        );
        assert!(done.unwrap() > 0, "the program beside it did nothing");
        drop(Mutator::new(&root, &state, ground.session));
        let instances = fs::read_dir(state.join("instances")).unwrap().count();
        assert_eq!(instances, 0);
    });
}

fn check_after_a_start(ground: &Ground<'_>, round: usize, last: Option<(OperationId, u64)>) {
    let mutator = Mutator::new(ground.root, ground.state, ground.session);
    for name in LINKED {
        assert!(
            ground.word(name).is_some(),
            "round {round}: {name} is not finished"
        );
    }
    let mut expected = [&REPLACED[..], &LINKED[..], &[COUNT, STEADY]].concat();
    expected.sort_unstable();
    // The program beside it may have one of its own at this moment.
    let names = ground.names();
    let surplus = names
        .iter()
        .filter(|name| !expected.contains(&name.as_str()));
    assert!(surplus.count() <= 1, "round {round}: {names:?}");
    let Some((operation, number)) = last.filter(|_| mutator.files.problem().is_none()) else {
        return;
    };
    let (old, new) = (format!("{number}!"), format!("{}!", number + 1));
    match mutator.edit(operation, COUNT, &old, &new, false) {
        Ok(_) => {
            let now = fs::read_to_string(ground.root.join(COUNT)).unwrap();
            assert_eq!(now, format!("{new}\n"), "round {round}: not done, or twice");
        }
        Err(FileError::NoSpace { .. }) => {}
        Err(error) => panic!("round {round}: {error}"),
    }
}

#[test]
fn invariant_7_b044_killed_at_any_moment_with_the_state_elsewhere() {
    killed_at_random_points(true);
}

#[test]
fn invariant_7_b044_killed_at_any_moment_with_the_state_on_the_same_small_disk() {
    killed_at_random_points(false);
}

#[test]
fn two_instances_edit_one_file_and_every_success_is_on_disk() {
    let top = tempfile::tempdir().unwrap();
    let (root, state) = (top.path().join("root"), top.path().join("state"));
    fs::create_dir(&root).unwrap();
    fs::create_dir(&state).unwrap();
    fs::write(root.join("f"), "END\n").unwrap();
    let two = [(); 2].map(|()| Mutator::new(&root, &state, SessionId::random()));
    std::thread::scope(|scope| {
        for n in 0..20 {
            let (mutator, root) = (&two[n % 2], &root);
            scope.spawn(move || {
                let line = format!("line {n}\nEND");
                loop {
                    match mutator.edit(OperationId::random(), "f", "END", &line, false) {
                        Ok(_) => break,
                        Err(FileError::Changed { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                let mut now = String::new();
                let mut file = fs::File::open(root.join("f")).unwrap();
                file.read_to_string(&mut now).unwrap();
                assert!(now.contains(&format!("line {n}\n")), "{n} is lost");
            });
        }
    });
    let now = fs::read_to_string(root.join("f")).unwrap();
    assert_eq!(now.lines().count(), 21, "{now}");
    assert_eq!(fs::read_dir(&root).unwrap().count(), 1);
}
