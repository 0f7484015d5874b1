//! Invariant 6: no operation touches anything outside the roots, whoever races
//! it. One thread exchanges a directory for a link that leads outside, another
//! one a file for such a link, while every operation runs on names below.
//!
//! That nothing was written is shown by the outside itself: names, contents,
//! and the times of last change, which a file that comes and goes changes too.

use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use executor_proto::id::{OperationId, SessionId};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::super::cancel::Cancel;
use super::super::content::Content;
use super::super::edit::EditSpec;
use super::super::entry::Last;
use super::super::error::FileError;
use super::super::fence::Fence;
use super::super::line_index::LineIndexes;
use super::super::list::{Listing, Options};
use super::super::make_directory::MakeDirectorySpec;
use super::super::mutation::Caller;
use super::super::object::Facts;
use super::super::read_bytes::ReadBytes;
use super::super::read_lines::{ReadLines, read_lines};
use super::super::remove::RemoveSpec;
use super::super::rename::RenameSpec;
use super::super::resolve::Means;
use super::super::search::crew::Crew;
use super::super::search::pattern::Pattern;
use super::super::search::request::{Glob, Grep, Scope};
use super::super::search::{Search, Settings};
use super::super::shared::Files;
use super::super::stat::stat;
use super::super::text::edits::Edit;
use super::super::write::WriteSpec;
use super::{BOTH, Tree, scaled};

#[test]
fn invariant_6_no_operation_leaves_the_roots_whoever_races_it() {
    for means in BOTH {
        race(means, scaled(20_000, 800));
    }
}

fn race(means: Means, operations: usize) {
    let tree = Tree::new();
    tree.file("w/app/sub/passwd", "inside\n");
    tree.file("w/app/d1/passwd", "inside\n");
    tree.file("w/other/passwd", "outside\n");
    tree.file("w/other/x/only-outside", "outside\n");
    symlink("../other", tree.at("w/app/sub2")).unwrap();
    let outside = seen(&tree.at("w/other"));
    let files = Files::open(&tree.at("state"));
    let stop = AtomicBool::new(false);
    let (mut done, mut refused) = (0_usize, 0_usize);
    std::thread::scope(|scope| {
        let _stopped = Stopped(&stop);
        scope.spawn(|| {
            let exchange = |a: &str, b: &str| {
                let (a, b) = (tree.at(a), tree.at(b));
                // The one or the other may be gone.
                let _ = renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE);
            };
            while !stop.load(Ordering::Relaxed) {
                exchange("w/app/sub", "w/app/sub2");
                exchange("w/app/d1/passwd", "w/app/d1/link");
                let _ = symlink("../../other/passwd", tree.at("w/app/d1/link"));
            }
        });
        let racer = Racer {
            files: &files,
            fence: Arc::new(tree.fence(means)),
            session: SessionId::random(),
            indexes: LineIndexes::new(16),
            root: tree.at("w/app"),
            crew: super::search::crew(2),
            turn: AtomicUsize::new(0),
        };
        for n in 0..operations {
            let directory = if n % 3 == 0 { "d1" } else { "sub" };
            match racer.operate(n / 3, directory) {
                Ok(()) => done += 1,
                Err(_) => refused += 1,
            }
        }
    });
    assert_eq!(seen(&tree.at("w/other")), outside, "{means:?}");
    assert!(
        done > operations / 20 && refused > operations / 20,
        "{means:?}: no race: {done} done, {refused} refused"
    );
}

/// Ends the other thread also where a promise is broken.
struct Stopped<'a>(&'a AtomicBool);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Racer<'a> {
    files: &'a Files,
    fence: Arc<Fence>,
    session: SessionId,
    indexes: LineIndexes,
    root: PathBuf,
    crew: Arc<Crew>,
    turn: AtomicUsize,
}

impl Racer<'_> {
    fn operate(&self, kind: usize, directory: &str) -> Result<(), FileError> {
        let at = |name: &str| format!("{directory}/{name}");
        let passwd = at("passwd");
        match kind % 16 {
            0 => self.reads_lines(passwd.as_ref()),
            1 => self.reads_bytes(passwd.as_ref()),
            2 => self.stats(passwd.as_ref()),
            3 => self.lists(directory),
            4 => self.writes(&WriteSpec::new(at("new"))),
            5 | 6 => self.writes(&WriteSpec::new(passwd)),
            7 => self.writes(&WriteSpec {
                in_place: true,
                ..WriteSpec::new(passwd)
            }),
            8 => self.removes(&RemoveSpec::new(at("new"))),
            9 => self.renames(&RenameSpec::new(at("new"), at("other"))),
            10 => self.renames(&RenameSpec {
                replace: true,
                ..RenameSpec::new(passwd, at("moved"))
            }),
            11 => self.makes_directory(at("dir/below")),
            12 => self.removes(&RemoveSpec {
                recursive: true,
                ..RemoveSpec::new(at("dir"))
            }),
            13 => self.edits(passwd),
            14 => self.globs(directory),
            _ => self.greps(directory),
        }
    }

    fn caller(&self) -> Caller<'_> {
        Caller {
            session: self.session,
            fence: &self.fence,
            operation: OperationId::random(),
            cancel: Cancel::never(),
        }
    }

    fn inside(&self, path: &Path) {
        assert!(path.starts_with(&self.root), "{path:?} was reached");
    }

    fn reads_lines(&self, given: &OsStr) -> Result<(), FileError> {
        let request = ReadLines::default();
        let page = read_lines(&self.fence, given, &request, &self.indexes, &Cancel::new())?;
        assert!(!page.text.contains("outside"));
        self.inside(&page.path);
        Ok(())
    }

    fn reads_bytes(&self, given: &OsStr) -> Result<(), FileError> {
        let mut reader = ReadBytes::open(&self.fence, given, 0, None, None)?;
        while let Some(piece) = reader.next_piece(&Cancel::new())? {
            assert!(!piece.starts_with(b"outside"));
        }
        Ok(())
    }

    fn stats(&self, given: &OsStr) -> Result<(), FileError> {
        let cancel = Cancel::new();
        let found = stat(
            &self.fence,
            given,
            Last::Follow,
            true,
            &self.indexes,
            &cancel,
        )?;
        self.inside(&found.path);
        Ok(())
    }

    fn lists(&self, given: &str) -> Result<(), FileError> {
        let cancel = Cancel::new();
        let options = Options {
            depth: 3,
            gitignore: true,
            ..Options::default()
        };
        let mut listing = Listing::open(Arc::clone(&self.fence), given.as_ref(), options, &cancel)?;
        while let Some(entry) = listing.next_entry(&cancel)? {
            assert!(!entry.path.ends_with("only-outside"));
        }
        Ok(())
    }

    fn globs(&self, given: &str) -> Result<(), FileError> {
        let asked = Glob {
            scope: self.scope(given),
            ..Glob::default()
        };
        let fence = Arc::clone(&self.fence);
        let mut search = Search::glob(fence, &asked, &Settings::default(), &self.crew)?;
        while let Some(piece) = search.next_piece(&Cancel::new())? {
            for entry in piece.entries {
                assert!(!entry.path.ends_with(b"only-outside"));
            }
        }
        Ok(())
    }

    fn greps(&self, given: &str) -> Result<(), FileError> {
        let asked = Grep {
            scope: self.scope(given),
            pattern: Pattern {
                text: "outside".to_owned(),
                ..Pattern::default()
            },
            ..Grep::default()
        };
        let fence = Arc::clone(&self.fence);
        let mut search = Search::grep(fence, &asked, &Settings::default(), &self.crew)?;
        let found = search.next_piece(&Cancel::new())?;
        assert!(found.is_none(), "{found:?}");
        Ok(())
    }

    /// The directory, or all, in which it is come by on the way; or the file.
    fn scope(&self, given: &str) -> Scope {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let path = match turn % 3 {
            0 => given.to_owned(),
            1 => ".".to_owned(),
            _ => format!("{given}/passwd"),
        };
        Scope {
            paths: vec![path.into()],
            hidden: true,
            ..Scope::default()
        }
    }

    fn writes(&self, spec: &WriteSpec) -> Result<(), FileError> {
        let content = Content::of(b"inside\n".to_vec());
        let reply = self.files.write(self.caller(), spec, &content)?;
        self.inside(&reply.value.file.path);
        Ok(())
    }

    fn edits(&self, path: String) -> Result<(), FileError> {
        let edits = vec![Edit {
            old: "inside".to_owned(),
            new: "inside too".to_owned(),
            replace_all: true,
        }];
        let spec = EditSpec::new(path, edits);
        let reply = self.files.edit(self.caller(), &spec)?;
        self.inside(&reply.value.file.path);
        Ok(())
    }

    fn removes(&self, spec: &RemoveSpec) -> Result<(), FileError> {
        let reply = self.files.remove(self.caller(), spec)?;
        self.inside(&reply.value.path);
        Ok(())
    }

    fn renames(&self, spec: &RenameSpec) -> Result<(), FileError> {
        let reply = self.files.rename(self.caller(), spec)?;
        self.inside(&reply.value.file.path);
        Ok(())
    }

    fn makes_directory(&self, path: String) -> Result<(), FileError> {
        let spec = MakeDirectorySpec {
            path: path.into(),
            parents: true,
            mode: None,
        };
        let reply = self.files.make_directory(self.caller(), &spec)?;
        self.inside(&reply.value.file.path);
        Ok(())
    }
}

/// Everything below a directory, itself included, as it can be seen to have
/// changed.
fn seen(directory: &Path) -> Vec<(PathBuf, Facts)> {
    let mut all = vec![directory.to_owned()];
    let mut found = Vec::new();
    while let Some(path) = all.pop() {
        let facts = Facts::at(CWD, path.as_os_str()).unwrap();
        if path.symlink_metadata().unwrap().is_dir() {
            let below = std::fs::read_dir(&path).unwrap();
            all.extend(below.map(|entry| entry.unwrap().path()));
        }
        found.push((path, facts));
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    found
}
