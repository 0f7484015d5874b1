//! What is promised of mutations, looked at from outside.

#![expect(
    clippy::disallowed_methods,
    reason = "tests look at files as an outsider does"
)]

mod edit;
mod given_up;
mod in_place;
mod once;
mod parents;
mod races;
mod refused;
mod remove;
mod rename;
mod undo;
mod windows;
mod write;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use executor_proto::id::{OperationId, SessionId};

use super::fence;
use crate::files::Files;
use crate::files::cancel::Cancel;
use crate::files::content::Content;
use crate::files::edit::{EditSpec, Edited};
use crate::files::error::FileError;
use crate::files::fence::Fence;
use crate::files::mutation::Caller;
use crate::files::remove::{RemoveSpec, Removed};
use crate::files::rename::{RenameSpec, Renamed};
use crate::files::resolve::{Means, Resolver, directory};
use crate::files::roots::{Root, Roots};
use crate::files::text::edits::Edit;
use crate::files::undo_mutation::Undone;
use crate::files::write::{WriteSpec, Written};
use crate::session::record::Access;

/// A root `app` with its fence, and what a daemon shares.
struct World {
    _top: tempfile::TempDir,
    app: PathBuf,
    state: PathBuf,
    files: Arc<Files>,
    fence: Fence,
    session: SessionId,
}

impl World {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        let app = top.path().join("app");
        fs::create_dir(&app).unwrap();
        Self::around(top, app)
    }

    /// With a root that is there already; the state is elsewhere.
    fn around(top: tempfile::TempDir, app: PathBuf) -> Self {
        let state = top.path().join("state");
        fs::create_dir(&state).unwrap();
        let files = Arc::new(Files::open(&state));
        assert_eq!(files.problem(), None);
        let fence = around(&[&app]);
        Self {
            _top: top,
            app,
            state,
            files,
            fence,
            session: SessionId::random(),
        }
    }

    fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.app.join(name)
    }

    fn put(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(name);
        fs::write(&path, content).unwrap();
        path
    }

    fn caller(&self) -> Caller<'_> {
        Caller {
            session: self.session,
            fence: &self.fence,
            operation: OperationId::random(),
            cancel: Cancel::never(),
        }
    }

    fn write(&self, name: impl AsRef<Path>, content: &str) -> Result<Written, FileError> {
        self.write_as(&WriteSpec::new(name.as_ref()), content)
    }

    fn write_as(&self, spec: &WriteSpec, content: &str) -> Result<Written, FileError> {
        let content = Content::of(content.as_bytes().to_vec());
        let reply = self.files.write(self.caller(), spec, &content)?;
        assert!(!reply.replayed);
        Ok(reply.value)
    }

    fn edit(&self, name: impl AsRef<Path>, old: &str, new: &str) -> Result<Edited, FileError> {
        self.edit_as(&EditSpec::new(name.as_ref(), vec![edit(old, new)]))
    }

    fn edit_as(&self, spec: &EditSpec) -> Result<Edited, FileError> {
        Ok(self.files.edit(self.caller(), spec)?.value)
    }

    fn remove(&self, name: impl AsRef<OsStr>) -> Result<Removed, FileError> {
        self.remove_as(&RemoveSpec::new(Path::new(name.as_ref())))
    }

    fn remove_as(&self, spec: &RemoveSpec) -> Result<Removed, FileError> {
        Ok(self.files.remove(self.caller(), spec)?.value)
    }

    fn rename(&self, from: &str, to: &str) -> Result<Renamed, FileError> {
        self.rename_as(&RenameSpec::new(from, to))
    }

    fn rename_as(&self, spec: &RenameSpec) -> Result<Renamed, FileError> {
        Ok(self.files.rename(self.caller(), spec)?.value)
    }

    fn undo(&self, token: Option<&String>) -> Result<Undone, FileError> {
        Ok(self.files.undo(self.caller(), token.unwrap())?.value)
    }

    /// The names in the root, in order.
    fn names(&self) -> Vec<String> {
        names(&self.app)
    }
}

fn around(roots: &[&Path]) -> Fence {
    let open = |path: &&Path| Root::open(path, Access::ReadWrite).unwrap();
    let roots = Roots::new(roots.iter().map(open).collect());
    let first = roots.first().unwrap().path().to_owned();
    let cwd = directory(&roots, Path::new("/"), first.as_os_str(), Means::Kernel).unwrap();
    fence(Resolver::new(roots, cwd, Means::Kernel))
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn edit(old: &str, new: &str) -> Edit {
    Edit {
        old: old.to_owned(),
        new: new.to_owned(),
        replace_all: false,
    }
}

fn text(path: impl AsRef<Path>) -> String {
    String::from_utf8(fs::read(path).unwrap()).unwrap()
}

fn mode(path: impl AsRef<Path>) -> u32 {
    use std::os::unix::fs::MetadataExt as _;
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn chmod(path: impl AsRef<Path>, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Runs `work` on a thread that has no rights of its own; not at all where
/// that cannot be had.
pub(super) fn as_nobody(work: impl FnOnce() + Send) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not as root: skipped");
        return;
    }
    std::thread::scope(|scope| {
        let run = || {
            let nobody = rustix::process::Uid::from_raw(65_534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            work();
        };
        scope.spawn(run).join().unwrap();
    });
}

/// Runs `work` on a thread with mounts of its own, with a tmpfs of `size` at
/// the path that it gets; not at all where that cannot be had.
fn with_tmpfs(size: &str, work: impl FnOnce(&Path) + Send) {
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
