//! The resolver under plans: scripts of steps that make, link, move and remove
//! things and resolve names between, read from any bytes.
//!
//! Each name is resolved by both means and by [`Model`], which does what
//! path_resolution(7) and the rules of the fence say with path strings on a
//! tree that nobody else changes. All three must agree, and what was reached
//! must be what the model names, inside a root.
//!
//! `.ci/run` replays the corpus and some random plans. To look for
//! more: `EXECUTOR_FUZZ_MINUTES=10 cargo test -p executor-daemon --lib
//! look_for_plans -- --ignored`. It changes known plans and keeps those that
//! do something that none did before, in `fuzz/resolver`.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, ResolveFlags};

use super::super::entry::{Last, Place};
use super::super::error::FileError;
use super::super::fence::Fence;
use super::super::object::{Facts, Object};
use super::super::resolve::ResolveError;
use super::exploring::{Random, corpus, explore, replay};
use super::model::{Model, Reached, Refusal};
use super::{BOTH, Tree, scaled};
use crate::session::record::Access;

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/resolver");
/// Steps of one plan.
const STEPS: usize = 48;

/// What one resolution was like: plans that show a new one are kept.
type Sign = (String, usize, bool, bool, usize);

/// Runs the plan that `bytes` say; panics where a promise is broken.
fn plan(bytes: &[u8]) -> HashSet<Sign> {
    let tree = Tree::new();
    let roots = [
        ("w/app", Access::ReadWrite),
        ("w/app/sub", Access::ReadOnly),
        ("w/second", Access::ReadOnly),
    ];
    std::fs::create_dir(tree.at("w/second")).unwrap();
    let fences = BOTH.map(|means| tree.fence_of(&roots, means));
    let model = Model::new(
        roots.iter().map(|(name, _)| tree.at(name)).collect(),
        tree.at("w/app"),
    );
    let top = rustix::fs::open(tree.at(""), OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let mut script = Script { bytes, tree: &tree };
    let top = top.unwrap();
    let mut signs = HashSet::new();
    for _ in 0..STEPS {
        let Some(step) = script.byte() else { break };
        match step % 8 {
            0 => make_directory(&top, &script.slot()),
            1 | 2 => link(&script.path(), &top, &script.slot()),
            3 => make_file(&top, &script.slot()),
            4 => rename(&top, &script.slot(), &script.slot(), step),
            5 => remove(&top, &script.slot()),
            _ => {
                let given = script.path();
                for last in [Last::Follow, Last::Keep] {
                    signs.insert(resolve(&fences, &model, &given, last));
                }
            }
        }
    }
    signs
}

fn resolve(fences: &[Fence; 2], model: &Model, given: &OsStr, last: Last) -> Sign {
    let expected = model.resolve(given, last);
    for (fence, means) in fences.iter().zip(BOTH) {
        let found = fence.place(given, last);
        let told = || format!("{means:?} {last:?} {given:?}: {found:?}, expected {expected:?}");
        match (&found, &expected.result) {
            (Ok(Place::Entry(entry)), Ok(Reached::Entry(path))) => {
                assert_eq!(entry.path(), path, "{}", told());
                assert!(model.is_inside(path), "{}", told());
                assert_eq!(
                    Some(real(entry.parent())),
                    path.parent().map(Path::to_owned)
                );
                let now = Facts::at(CWD, path.as_os_str()).ok();
                let object = Object::look(entry).ok();
                let same = object.as_ref().map(|object| *object.facts());
                assert!(same == now || entry.must_be_directory(), "{}", told());
            }
            (Ok(Place::Directory(directory)), Ok(Reached::Directory(path))) => {
                assert_eq!(&directory.name, path, "{}", told());
                assert!(model.is_inside(path), "{}", told());
                assert_eq!(&real(&directory.handle), path, "{}", told());
            }
            (Err(error), Err(refusal)) => {
                assert!(is(error, *refusal), "{}", told());
            }
            // Both count links, but not from the same place on.
            (Err(FileError::Resolve(ResolveError::Links { .. })), _) if expected.links > 20 => {}
            (_, Err(Refusal::Links)) if expected.links > 20 => {
                assert!(
                    !matches!(found, Ok(Place::Entry(ref entry)) if !model.is_inside(entry.path()))
                );
            }
            _ => panic!("{}", told()),
        }
    }
    let kind = match &expected.result {
        Ok(Reached::Entry(path)) => format!("entry {}", path.symlink_metadata().is_ok()),
        Ok(Reached::Directory(_)) => "directory".to_owned(),
        Err(refusal) => format!("{refusal:?}"),
    };
    let keep = last == Last::Keep;
    (
        kind,
        expected.links.min(4),
        expected.went_above,
        keep,
        expected.steps.min(12),
    )
}

fn is(error: &FileError, refusal: Refusal) -> bool {
    match refusal {
        Refusal::NotFound => matches!(error, FileError::NotFound { .. }),
        Refusal::NotADirectory => {
            matches!(
                error,
                FileError::Resolve(ResolveError::NotADirectory { .. })
            )
        }
        Refusal::Outside => matches!(error, FileError::Resolve(ResolveError::OutsideRoots { .. })),
        Refusal::Links => matches!(error, FileError::Resolve(ResolveError::Links { .. })),
        Refusal::Invalid => matches!(error, FileError::InvalidPath { .. }),
    }
}

/// Where an opened directory is, by the kernel's account.
fn real(handle: impl std::os::fd::AsFd) -> PathBuf {
    let link = format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd());
    std::fs::read_link(link).unwrap()
}

struct Script<'a> {
    bytes: &'a [u8],
    tree: &'a Tree,
}

impl Script<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    fn number(&mut self) -> usize {
        self.byte().unwrap_or(0).into()
    }

    /// Where a thing is made or taken away.
    fn slot(&mut self) -> PathBuf {
        let bases = [
            "w/app",
            "w/app/sub",
            "w/app/a",
            "w/app/a/b",
            "w/second",
            "w/other",
        ];
        let base = bases[self.number() % bases.len()];
        let names = ["a", "b", "c", "sub", "passwd"];
        Path::new(base).join(names[self.number() % names.len()])
    }

    /// What is resolved, or what a link says.
    fn path(&mut self) -> OsString {
        let starts = [
            "",
            "",
            "",
            "/",
            "w/app",
            "w/app/sub",
            "w/second",
            "w/other",
            "w",
        ];
        let start = self.number() % starts.len();
        let mut path = match starts[start] {
            "" => OsString::new(),
            "/" => "/".into(),
            inside => {
                let mut path = self.tree.at(inside).into_os_string();
                path.push("/");
                path
            }
        };
        let names = [
            "a", "b", "c", "..", "..", "sub", "app", ".", "", "other", "passwd", "second", "w", "x",
        ];
        let count = self.number() % 8;
        for n in 0..count {
            let separator = if n == 0 { "" } else { "/" };
            path.push(separator);
            path.push(names[self.number() % names.len()]);
        }
        path
    }
}

/// The directory above a slot, and the name in it; never through a link, so
/// that a plan changes nothing but its own tree.
fn place<'a>(top: &OwnedFd, slot: &'a Path) -> Option<(OwnedFd, &'a OsStr)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fence = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let parent = rustix::fs::openat2(top, slot.parent()?, flags, Mode::empty(), fence);
    Some((parent.ok()?, slot.file_name()?))
}

// A step that is not possible changes nothing.

fn make_directory(top: &OwnedFd, slot: &Path) {
    if let Some((parent, name)) = place(top, slot) {
        let _ = rustix::fs::mkdirat(parent, name, Mode::RWXU);
    }
}

fn make_file(top: &OwnedFd, slot: &Path) {
    if let Some((parent, name)) = place(top, slot) {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let _ = rustix::fs::openat(parent, name, flags, Mode::RUSR);
    }
}

fn link(text: &OsStr, top: &OwnedFd, slot: &Path) {
    if let Some((parent, name)) = place(top, slot) {
        let _ = rustix::fs::symlinkat(text, parent, name);
    }
}

fn rename(top: &OwnedFd, from: &Path, to: &Path, step: u8) {
    // The roots stay where they are: that they do not is another promise.
    let root = Path::new("w/app/sub");
    if root.starts_with(from) || root.starts_with(to) {
        return;
    }
    if let (Some((a, old)), Some((b, new))) = (place(top, from), place(top, to)) {
        let flags = if step & 8 == 0 {
            RenameFlags::EXCHANGE
        } else {
            RenameFlags::NOREPLACE
        };
        let _ = rustix::fs::renameat_with(a, old, b, new, flags);
    }
}

fn remove(top: &OwnedFd, slot: &Path) {
    if slot == Path::new("w/app/sub") {
        return;
    }
    if let Some((parent, name)) = place(top, slot) {
        let removed = rustix::fs::unlinkat(&parent, name, AtFlags::empty());
        if removed.is_err() {
            let _ = rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR);
        }
    }
}

fn new_plan(random: &mut Random) -> Vec<u8> {
    let length = 20 + random.below(300);
    (0..length).map(|_| random.byte()).collect()
}

/// A plan changed a little, or two of them put together.
fn changed(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    if corpus.is_empty() || random.below(20) == 0 {
        return new_plan(random);
    }
    let mut bytes = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(6) {
        let at = random.below(bytes.len() + 1);
        match random.below(4) {
            0 if at < bytes.len() => bytes[at] = random.byte(),
            1 => bytes.insert(at, random.byte()),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            _ => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend(&other[from..]);
            }
        }
    }
    bytes.truncate(400);
    bytes
}

#[test]
fn known_plans_and_some_random_ones_keep_every_promise() {
    replay(&corpus(&[CORPUS]), scaled(2_000, 60), changed, plan);
}

#[test]
#[ignore = "looks for new plans, for as many minutes as EXECUTOR_FUZZ_MINUTES says"]
fn look_for_plans() {
    explore(CORPUS, corpus(&[CORPUS]), changed, plan);
}
