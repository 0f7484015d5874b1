//! Names and what is done with them, each rule with the kernel's means and
//! with the walk.

mod directories;
pub(in crate::files) mod exploring;
mod fence;
mod large_text;
mod lines;
mod listing;
mod model;
mod mutations;
mod plans;
mod race;
mod search;
mod secrets;
mod special;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::fence::Fence;
use super::resolve::{Directory, Means, ResolveError, Resolver, directory};
use super::roots::{Root, Roots};
use super::secret::{DEFAULT, SecretFiles};
use crate::session::record::Access;

pub(super) const BOTH: [Means; 2] = [Means::Kernel, Means::Walk];

/// `w/app` is the root, with `sub/deep`; `w/app-evil` and `w/other` lie beside.
pub(super) struct Tree {
    top: tempfile::TempDir,
}

impl Tree {
    pub(in crate::files) fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        for name in [
            "w/app/sub/deep",
            "w/app/d1/sub",
            "w/app-evil/x",
            "w/other/x",
        ] {
            std::fs::create_dir_all(top.path().join(name)).unwrap();
        }
        Self { top }
    }

    pub(in crate::files) fn at(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    pub(in crate::files) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(name);
        write(&path, content);
        path
    }

    fn roots(&self, names: &[&str]) -> Roots {
        let open = |name: &&str| Root::open(&self.at(name), Access::ReadWrite).unwrap();
        Roots::new(names.iter().map(open).collect())
    }

    fn resolver(&self, means: Means) -> Resolver {
        let roots = self.roots(&["w/app"]);
        let cwd = directory(&roots, Path::new("/"), self.at("w/app").as_os_str(), means).unwrap();
        Resolver::new(roots, cwd, means)
    }

    /// Around `w/app`, with the default list of secret files.
    pub(in crate::files) fn fence(&self, means: Means) -> Fence {
        fence(self.resolver(means))
    }

    /// Around these roots; relative names start at the first.
    fn fence_of(&self, roots: &[(&str, Access)], means: Means) -> Fence {
        let open = |(name, access): &(&str, Access)| Root::open(&self.at(name), *access).unwrap();
        let roots = Roots::new(roots.iter().map(open).collect());
        let first = roots.first().unwrap().path().to_owned();
        let cwd = directory(&roots, Path::new("/"), first.as_os_str(), means).unwrap();
        fence(Resolver::new(roots, cwd, means))
    }
}

fn fence(resolver: Resolver) -> Fence {
    Fence::new(resolver, Arc::new(SecretFiles::new(DEFAULT, []).unwrap()))
}

#[expect(clippy::disallowed_methods, reason = "what a test puts there")]
fn write(path: &Path, content: impl AsRef<[u8]>) {
    std::fs::write(path, content).unwrap();
}

fn is(found: &Directory, expected: &Path) -> bool {
    let found = rustix::fs::fstat(&found.handle).unwrap();
    let expected = rustix::fs::stat(expected).unwrap();
    (found.st_dev, found.st_ino) == (expected.st_dev, expected.st_ino)
}

fn outside(result: Result<Directory, ResolveError>) -> (PathBuf, PathBuf) {
    match result {
        Err(ResolveError::OutsideRoots {
            resolved, nearest, ..
        }) => (resolved, nearest),
        other => panic!("not refused: {other:?}"),
    }
}

/// Waits until the file's last change is old enough that another one would
/// have another timestamp.
fn settle(path: &Path) {
    use std::os::unix::fs::MetadataExt as _;
    let stat = path.symlink_metadata().unwrap();
    let changed = std::time::Duration::new(
        stat.ctime().try_into().unwrap(),
        stat.ctime_nsec().try_into().unwrap(),
    );
    let wanted = std::time::UNIX_EPOCH + changed + std::time::Duration::from_millis(150);
    while let Ok(left) = wanted.duration_since(std::time::SystemTime::now()) {
        std::thread::sleep(left);
    }
}

/// A count of a heavy case: `full` by hand (`EXECUTOR_TEST_SCALE=full`, see
/// `.ci/full`), `short` otherwise.
#[expect(
    clippy::disallowed_methods,
    reason = "how a person asks a test for more"
)]
pub(super) fn scaled(full: usize, short: usize) -> usize {
    match std::env::var("EXECUTOR_TEST_SCALE").as_deref() {
        Ok("full") => full,
        _ => short,
    }
}
