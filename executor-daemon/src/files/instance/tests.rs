//! Recovery, state by state: a record and a directory as a death leaves them.

#![expect(
    clippy::disallowed_methods,
    reason = "tests look at files as an outsider does"
)]

mod aside;
mod in_place;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::*;
use crate::files::roots::{Root, Roots};
use crate::session::record::Access;

struct World {
    top: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        for name in ["state", "work", "work/sub"] {
            fs::create_dir(top.path().join(name)).unwrap();
        }
        Self { top }
    }

    fn state(&self) -> PathBuf {
        self.top.path().join("state")
    }

    fn work(&self, name: &str) -> PathBuf {
        self.top.path().join("work/sub").join(name)
    }

    fn instance(&self) -> Instance {
        Instance::open(&self.state()).unwrap()
    }

    fn location(&self, name: &str) -> Location {
        let root = Root::open(&self.top.path().join("work"), Access::ReadWrite).unwrap();
        let roots = Roots::new(vec![root]);
        let path = self.top.path().join("work/sub");
        let directory = fs::File::open(&path).unwrap().into();
        Location::new(&roots, &directory, &path, OsStr::new(name)).unwrap()
    }

    fn temporary(&self, displaces: Option<&Path>) -> Record {
        Record::Temporary(Temporary {
            place: self.location("t"),
            owner: rustix::process::geteuid().as_raw(),
            at: millis_now(),
            target: b"target".to_vec(),
            displaces: displaces.map(|path| Seen::from(&rustix::fs::stat(path).unwrap())),
        })
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.top.path().join("work/sub")).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn instances(&self) -> usize {
        fs::read_dir(self.state().join("instances"))
            .unwrap()
            .count()
    }
}

fn id(path: &Path) -> FileId {
    FileId::from(&rustix::fs::stat(path).unwrap())
}

impl Slot<'_> {
    /// As a death leaves it: the record stays where it is.
    fn instance_outlives(mut self) {
        self.forget_file();
    }
}

#[test]
fn an_orderly_end_leaves_nothing() {
    let world = World::new();
    let instance = world.instance();
    drop(instance.record(&world.temporary(None)).unwrap());
    let (name, _file) = instance.file("undo-").unwrap();
    assert!(instance.path().join(name).metadata().is_ok());
    let mode = instance.path().metadata().unwrap().mode();
    assert_eq!(mode & 0o777, 0o700);
    drop(instance);
    assert_eq!(world.instances(), 0);
}

#[test]
fn a_living_instance_is_left_alone_and_a_dead_one_is_recovered() {
    let world = World::new();
    let one = world.instance();
    let slot = one.record(&world.temporary(None)).unwrap();
    fs::write(world.work("t"), "half").unwrap();
    slot.made(id(&world.work("t"))).unwrap();
    let two = world.instance();
    let three = world.instance();
    assert_eq!(world.instances(), 3);
    assert_eq!(world.names(), ["t"], "a living instance's temporary went");
    slot.instance_outlives();
    one.slots().kept = 1;
    drop(one);
    drop(two);
    let four = world.instance();
    assert_eq!(world.names(), [""; 0]);
    drop((three, four));
    assert_eq!(world.instances(), 0);
}

/// What there is after a death, and what the recovery makes of it.
#[test]
fn of_a_temporary_only_what_is_ours_goes() {
    type Prepare = fn(&World) -> Option<FileId>;
    let cases: [(&str, Prepare, &[&str]); 7] = [
        ("it was not made", |_| None, &["target"]),
        (
            "made, inode not recorded",
            |world| {
                fs::write(world.work("t"), "").unwrap();
                None
            },
            &["target"],
        ),
        (
            "somebody's file has its name",
            |world| {
                fs::write(world.work("t"), "not empty").unwrap();
                None
            },
            &["t", "target"],
        ),
        (
            "written, not committed",
            |world| {
                fs::write(world.work("t"), "new").unwrap();
                Some(id(&world.work("t")))
            },
            &["target"],
        ),
        (
            "exchanged, the displaced one not removed",
            |world| {
                fs::rename(world.work("target"), world.work("t")).unwrap();
                fs::write(world.work("target"), "new").unwrap();
                Some(id(&world.work("target")))
            },
            &["target"],
        ),
        (
            "another file has its name now",
            |world| {
                fs::write(world.work("x"), "new").unwrap();
                let made = id(&world.work("x"));
                fs::rename(world.work("x"), world.work("y")).unwrap();
                fs::write(world.work("t"), "").unwrap();
                Some(made)
            },
            &["t", "target", "y"],
        ),
        (
            "removed by its own",
            |world| {
                fs::write(world.work("t"), "new").unwrap();
                let made = id(&world.work("t"));
                fs::remove_file(world.work("t")).unwrap();
                Some(made)
            },
            &["target"],
        ),
    ];
    for (what, prepare, left) in cases {
        let world = World::new();
        fs::write(world.work("target"), "old").unwrap();
        let instance = world.instance();
        let record = world.temporary(Some(&world.work("target")));
        let slot = instance.record(&record).unwrap();
        if let Some(made) = prepare(&world) {
            slot.made(made).unwrap();
        }
        slot.instance_outlives();
        instance.slots().kept = 1;
        drop(instance);
        drop(world.instance());
        assert_eq!(world.names(), left, "{what}");
        assert_eq!(world.instances(), 0, "{what}");
    }
}

#[test]
fn a_foreign_file_that_was_displaced_gets_its_name_back() {
    let world = World::new();
    fs::write(world.work("target"), "old").unwrap();
    let instance = world.instance();
    let record = world.temporary(Some(&world.work("target")));
    let slot = instance.record(&record).unwrap();
    // Ours is at the name, and what was there is not what we had read.
    fs::remove_file(world.work("target")).unwrap();
    fs::write(world.work("target"), "ours").unwrap();
    fs::write(world.work("t"), "theirs").unwrap();
    slot.made(id(&world.work("target"))).unwrap();
    slot.instance_outlives();
    instance.slots().kept = 1;
    drop(instance);
    drop(world.instance());
    assert_eq!(world.names(), ["target"]);
    assert_eq!(fs::read(world.work("target")).unwrap(), b"theirs");
}

#[test]
fn a_directory_that_is_another_one_now_is_not_touched() {
    let world = World::new();
    let instance = world.instance();
    let slot = instance.record(&world.temporary(None)).unwrap();
    let sub = world.top.path().join("work/sub");
    fs::rename(&sub, world.top.path().join("work/moved")).unwrap();
    fs::create_dir(&sub).unwrap();
    fs::write(world.work("t"), "").unwrap();
    slot.instance_outlives();
    instance.slots().kept = 1;
    drop(instance);
    drop(world.instance());
    assert_eq!(world.names(), ["t"]);
}

#[test]
fn a_record_that_was_cut_short_takes_nothing_back() {
    let world = World::new();
    let instance = world.instance();
    let slot = instance.record(&world.temporary(None)).unwrap();
    fs::write(world.work("t"), "new").unwrap();
    slot.made(id(&world.work("t"))).unwrap();
    slot.instance_outlives();
    let whole = fs::read(instance.path().join("slot-1")).unwrap();
    instance.slots().kept = 1;
    drop(instance);
    let dead = fs::read_dir(world.state().join("instances")).unwrap();
    let dead = dead.map(|entry| entry.unwrap().path()).next().unwrap();
    // Bytes of the record's beginning are missing: it is none.
    fs::write(dead.join("slot-1"), &whole[..100]).unwrap();
    fs::write(dead.join("slot-2"), b"").unwrap();
    drop(world.instance());
    assert_eq!(world.names(), ["t"]);
    assert_eq!(world.instances(), 0);
}

#[test]
fn slots_are_used_again() {
    let world = World::new();
    let instance = world.instance();
    for _ in 0..20 {
        let one = instance.record(&world.temporary(None)).unwrap();
        let two = instance.record(&world.temporary(None)).unwrap();
        drop((one, two));
    }
    assert_eq!(fs::read_dir(instance.path()).unwrap().count(), 2);
}
