//! Secret files: refused by every name that leads to them.

use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::super::entry::Last;
use super::super::error::FileError;
use super::super::fence::Fence;
use super::super::resolve::ResolveError;
use super::super::secret::{Own, SecretFiles};
use super::fence::{entry, is_outside};
use super::{BOTH, Tree, fence};
use crate::session::record::Access;

fn is_secret<T: std::fmt::Debug>(result: Result<T, FileError>) {
    match result {
        Err(FileError::Secret { .. }) => {}
        other => panic!("not refused as secret: {other:?}"),
    }
}

#[test]
fn secret_files_are_refused_by_every_name_they_have() {
    let tree = Tree::new();
    tree.file("w/app/.env", "k");
    tree.file("w/app/plain", "k");
    std::fs::create_dir_all(tree.at("w/app/.ssh/keys")).unwrap();
    tree.file("w/app/.ssh/keys/a", "k");
    symlink(".env", tree.at("w/app/innocent")).unwrap();
    symlink("plain", tree.at("w/app/link.pem")).unwrap();
    symlink("link.pem", tree.at("w/app/through")).unwrap();
    symlink(".ssh", tree.at("w/app/dots")).unwrap();
    for means in BOTH {
        let fence = tree.fence(means);
        let absolute = tree.at("w/app/.env");
        for given in [
            ".env",
            "sub/../.env",
            ".env/",
            "./.ENV",
            absolute.to_str().unwrap(),
            "innocent",
            "link.pem",
            "through",
            "dots/keys/a",
            ".ssh/keys/a",
            "dots/keys",
            "dots",
            ".ssh/keys/.",
            "sub/new.key",
            ".env.local",
        ] {
            is_secret(fence.place(given.as_ref(), Last::Follow));
            is_secret(fence.object(given.as_ref(), Last::Follow));
        }
        for given in [".env", ".ssh", "link.pem", "dots/keys/a"] {
            is_secret(fence.entry(given.as_ref(), Last::Keep));
        }
        for given in [".ssh", "dots", ".ssh/keys/..", "dots/keys/../keys"] {
            is_secret(fence.directory(given.as_ref()));
        }
        for given in ["plain", ".env.example", "sub"] {
            fence.place(given.as_ref(), Last::Follow).unwrap();
        }
        let root = fence.directory(OsStr::new("")).unwrap();
        is_secret(fence.child(&root, ".env".as_ref(), Path::new(".env")));
        fence
            .child(&root, "plain".as_ref(), Path::new("plain"))
            .unwrap();
        // Outside it is not told whether there is a secret.
        is_outside(fence.place("/root/.ssh/id_rsa".as_ref(), Last::Follow));
    }
}

#[test]
fn a_root_below_a_secret_directory_is_as_secret() {
    let tree = Tree::new();
    for means in BOTH {
        let roots = tree.roots(&["w/app"]);
        let cwd = tree.resolver(means).cwd().clone();
        let resolver = super::super::resolve::Resolver::new(roots, cwd, means);
        let own = [Own::Path(tree.at("w"))];
        let none: [&str; 0] = [];
        let secrets = std::sync::Arc::new(SecretFiles::new(none, own).unwrap());
        is_secret(Fence::new(resolver, secrets).place("sub/f".as_ref(), Last::Follow));
    }
}

#[test]
fn what_shows_a_process_is_secret_in_any_procfs_and_the_rest_is_not() {
    use super::super::roots::{Root, Roots};
    let proc = Path::new("/proc");
    for means in BOTH {
        let roots = Roots::new(vec![Root::open(proc, Access::ReadOnly).unwrap()]);
        let cwd =
            super::super::resolve::directory(&roots, proc, OsStr::new("/proc"), means).unwrap();
        let fence = fence(super::super::resolve::Resolver::new(roots, cwd, means));
        for given in [
            "self/environ",
            "self/mem",
            "self/maps",
            "self/auxv",
            "self/fd",
            "self/fd/0",
            "self/root",
            "self/cwd",
            "self/exe",
            "thread-self/environ",
            "self/fdinfo/1",
            "self/fd/.",
        ] {
            is_secret(fence.object(given.as_ref(), Last::Follow));
            is_secret(fence.object(given.as_ref(), Last::Keep));
        }
        is_secret(fence.directory("self/fd".as_ref()));
        // Links that the kernel makes up are not followed, by any means.
        for given in [
            "self/root/etc",
            "self/cwd/x",
            "self/root/.",
            "self/task/../cwd/a/b",
        ] {
            for last in [Last::Follow, Last::Keep] {
                let error = fence.object(given.as_ref(), last).unwrap_err();
                let magic = matches!(error, FileError::Resolve(ResolveError::MagicLink { .. }));
                assert!(
                    magic || matches!(error, FileError::Secret { .. }),
                    "{given}: {error}"
                );
            }
            let error = fence.object(given.as_ref(), Last::Follow).unwrap_err();
            let text = error.to_string();
            let told = text.contains("the kernel makes up itself") || text.contains("secret");
            assert!(told, "{means:?}: {text}");
        }
        for given in [
            "self/status",
            "meminfo",
            "mounts",
            "self",
            "sys/kernel/ostype",
        ] {
            let object = fence.object(given.as_ref(), Last::Follow);
            assert!(object.is_ok(), "{means:?} {given}: {object:?}");
        }
    }
    // The same names are ordinary anywhere else.
    let tree = Tree::new();
    tree.file("w/app/sub/environ", "x");
    for means in BOTH {
        entry(&tree.fence(means), "sub/environ").unwrap();
    }
}
