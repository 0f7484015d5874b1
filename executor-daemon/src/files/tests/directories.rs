//! Working directories by handle.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use super::super::resolve::{ResolveError, Resolver, directory};
use super::super::roots::{Root, Roots};
use super::{BOTH, Tree, is, outside};
use crate::session::record::Access;

#[test]
fn names_inside_the_root_are_found_and_named_without_links() {
    let tree = Tree::new();
    symlink("sub/deep", tree.at("w/app/short")).unwrap();
    symlink("../sub", tree.at("w/app/d1/up")).unwrap();
    for means in BOTH {
        let resolver = tree.resolver(means);
        let absolute = tree.at("w/app/sub/deep");
        for (given, expected) in [
            ("", "w/app"),
            (".", "w/app"),
            ("sub/deep", "w/app/sub/deep"),
            ("sub//./deep/", "w/app/sub/deep"),
            ("sub/deep/..", "w/app/sub"),
            ("short", "w/app/sub/deep"),
            ("short/..", "w/app/sub"),
            ("d1/up/deep", "w/app/sub/deep"),
            (absolute.to_str().unwrap(), "w/app/sub/deep"),
        ] {
            let found = resolver.directory(given.as_ref()).unwrap();
            assert!(
                is(&found, &tree.at(expected)),
                "{means:?} {given}: {found:?}"
            );
            assert_eq!(found.name, tree.at(expected), "{means:?} {given}");
        }
    }
}

#[test]
fn b070_a_sibling_with_the_roots_name_as_prefix_is_outside() {
    let tree = Tree::new();
    for means in BOTH {
        let resolver = tree.resolver(means);
        let root = tree.at("w/app");
        for given in [
            tree.at("w/app-evil/x"),
            tree.at("w/appx"),
            "../app-evil/x".into(),
            root.join("../app-evil/x"),
            "sub/../../app-evil".into(),
            "..".into(),
            "/".into(),
        ] {
            let (_, nearest) = outside(resolver.directory(given.as_os_str()));
            assert_eq!(nearest, root, "{means:?} {given:?}");
        }
    }
}

#[test]
fn b071_a_linked_parent_that_leads_outside_is_refused_like_any_other() {
    let tree = Tree::new();
    symlink("/etc", tree.at("w/app/e")).unwrap();
    symlink("b", tree.at("w/app/a")).unwrap();
    symlink("/etc", tree.at("w/app/b")).unwrap();
    symlink("../../other", tree.at("w/app/d1/o")).unwrap();
    for means in BOTH {
        let resolver = tree.resolver(means);
        for (given, leads_to) in [
            ("e", "/etc".into()),
            ("e/ssl", "/etc".into()),
            ("a", "/etc".into()),
            ("a/..", "/etc".into()),
            ("d1/o/x", tree.at("w/other")),
        ] {
            let (resolved, _) = outside(resolver.directory(given.as_ref()));
            assert_eq!(resolved, leads_to, "{means:?} {given}");
        }
    }
}

#[test]
fn b074_an_absolute_link_into_a_root_is_followed_to_the_right_place() {
    let tree = Tree::new();
    symlink(tree.at("w/app/sub"), tree.at("w/app/d1/l")).unwrap();
    std::fs::create_dir(tree.at("w/app/sub/f")).unwrap();
    std::fs::create_dir(tree.at("w/app/d1/sub/f")).unwrap();
    symlink(tree.at("w/other"), tree.at("w/app/to-other")).unwrap();
    for means in BOTH {
        let resolver = tree.resolver(means);
        let found = resolver.directory("d1/l/f".as_ref()).unwrap();
        assert!(is(&found, &tree.at("w/app/sub/f")), "{means:?}");
        let found = resolver.directory("d1/l/../sub".as_ref()).unwrap();
        assert!(is(&found, &tree.at("w/app/sub")), "{means:?}");
        let found = resolver.directory("../app/sub".as_ref()).unwrap();
        assert!(is(&found, &tree.at("w/app/sub")), "{means:?}");
        // From one root into another.
        outside(resolver.directory("to-other/x".as_ref()));
        let two = tree.roots(&["w/app", "w/other"]);
        let link = tree.at("w/app/to-other/x");
        let found = directory(&two, Path::new("/"), link.as_os_str(), means).unwrap();
        assert!(is(&found, &tree.at("w/other/x")), "{means:?}");
    }
}

#[test]
fn b079_names_start_at_the_session_and_a_replaced_root_is_told() {
    let tree = Tree::new();
    for means in BOTH {
        let resolver = tree.resolver(means);
        let found = resolver.directory("sub".as_ref()).unwrap();
        assert!(
            is(&found, &tree.at("w/app/sub")),
            "{means:?}: not the daemon's own directory"
        );
        let aside = tree.at("w/aside");
        std::fs::rename(tree.at("w/app"), &aside).unwrap();
        for given in ["", "sub"] {
            let error = resolver.directory(given.as_ref()).unwrap_err();
            assert!(
                matches!(error, ResolveError::RootReplaced { .. }),
                "removed: {error}"
            );
        }
        std::fs::create_dir_all(tree.at("w/app/sub")).unwrap();
        let error = resolver.directory("sub".as_ref()).unwrap_err();
        assert!(error.to_string().contains("removed or replaced"), "{error}");
        std::fs::remove_dir_all(tree.at("w/app")).unwrap();
        std::fs::rename(&aside, tree.at("w/app")).unwrap();
        resolver.directory("sub".as_ref()).unwrap();
    }
}

#[test]
fn b080_missing_not_a_directory_and_vanished_are_told_apart() {
    let tree = Tree::new();
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(tree.at("w/app/file.txt"))
        .unwrap();
    for means in BOTH {
        let roots = tree.roots(&["w/app"]);
        let inner = tree.at("w/app/inner");
        std::fs::create_dir(&inner).unwrap();
        let cwd = directory(&roots, Path::new("/"), inner.as_os_str(), means).unwrap();
        let resolver = Resolver::new(roots, cwd, means);
        let refused = |given: &str| resolver.directory(given.as_ref()).unwrap_err();
        assert!(matches!(refused("nope"), ResolveError::NotFound { .. }));
        assert!(matches!(
            refused("../file.txt"),
            ResolveError::NotADirectory { .. }
        ));
        assert!(matches!(
            refused("../file.txt/x"),
            ResolveError::NotADirectory { .. }
        ));
        std::fs::remove_dir(&inner).unwrap();
        assert!(
            matches!(refused(""), ResolveError::NotFound { .. }),
            "{means:?}"
        );
        std::fs::create_dir(&inner).unwrap();
        resolver.directory("".as_ref()).unwrap();
        std::fs::remove_dir(&inner).unwrap();
    }
}

#[test]
fn b080_a_directory_without_search_permission_is_told() {
    let tree = Tree::new();
    for name in ["", "w", "w/app"] {
        open_to_all(&tree.at(name), 0o755);
    }
    open_to_all(&tree.at("w/app/sub"), 0o000);
    let resolvers = BOTH.map(|means| tree.resolver(means));
    // The rights of this thread alone are taken away, where it has any.
    let refused = std::thread::scope(|scope| {
        let look = || {
            if rustix::process::geteuid().is_root() {
                let nobody = rustix::process::Uid::from_raw(65_534);
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            }
            let look = |resolver: &Resolver, given: &str| resolver.directory(given.as_ref());
            let both = resolvers
                .iter()
                .flat_map(|one| [look(one, "sub"), look(one, "sub/deep")]);
            both.collect::<Vec<_>>()
        };
        scope.spawn(look).join().unwrap()
    });
    assert_eq!(refused.len(), 4);
    for result in refused {
        assert!(
            matches!(result, Err(ResolveError::PermissionDenied { .. })),
            "{result:?}"
        );
    }
    open_to_all(&tree.at("w/app/sub"), 0o755);
}

fn open_to_all(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn loops_and_long_names_end() {
    let tree = Tree::new();
    symlink("round", tree.at("w/app/round")).unwrap();
    for means in BOTH {
        let resolver = tree.resolver(means);
        let error = resolver.directory("round".as_ref()).unwrap_err();
        assert!(
            matches!(error, ResolveError::Links { .. }),
            "{means:?} {error}"
        );
        for length in [256, 5000] {
            let error = resolver.directory("n".repeat(length).as_ref()).unwrap_err();
            assert!(
                matches!(error, ResolveError::TooLong { .. }),
                "{means:?} {error}"
            );
        }
        let home = resolver.directory("~".as_ref()).unwrap_err();
        assert!(
            matches!(home, ResolveError::NotFound { .. }),
            "an ordinary name"
        );
    }
}

#[test]
fn names_are_bytes() {
    let tree = Tree::new();
    let name = std::ffi::OsStr::from_bytes(b"no \xff text\n");
    std::fs::create_dir(tree.at("w/app").join(name)).unwrap();
    for means in BOTH {
        let found = tree.resolver(means).directory(name).unwrap();
        assert_eq!(found.name, tree.at("w/app").join(name));
    }
}

#[test]
fn where_the_whole_file_system_is_a_root_nothing_is_outside() {
    let tree = Tree::new();
    symlink(tree.at("w/other"), tree.at("w/app/l")).unwrap();
    for means in BOTH {
        let roots = Roots::new(vec![Root::open(Path::new("/"), Access::ReadWrite).unwrap()]);
        let app = tree.at("w/app");
        let cwd = directory(&roots, Path::new("/"), app.as_os_str(), means).unwrap();
        let resolver = Resolver::new(roots, cwd, means);
        assert!(is(&resolver.cwd_at_once().unwrap(), &app));
        for (given, expected) in [
            ("l/x", tree.at("w/other/x")),
            ("..", tree.at("w")),
            ("/", "/".into()),
            ("/..", "/".into()),
            ("/etc", "/etc".into()),
        ] {
            let found = resolver.directory(given.as_ref()).unwrap();
            assert!(is(&found, &expected), "{means:?} {given}: {found:?}");
            assert_eq!(found.name, expected, "{means:?} {given}");
        }
        std::fs::rename(&app, tree.at("w/kept")).unwrap();
        assert!(
            resolver.cwd_at_once().is_some(),
            "a moved directory is still one"
        );
        std::fs::rename(tree.at("w/kept"), &app).unwrap();
        let gone = tree.at("w/gone");
        std::fs::create_dir(&gone).unwrap();
        let cwd = directory(resolver.roots(), Path::new("/"), gone.as_os_str(), means).unwrap();
        let resolver = Resolver::new(resolver.roots().clone(), cwd, means);
        std::fs::remove_dir(&gone).unwrap();
        assert!(resolver.cwd_at_once().is_none());
        let error = resolver.directory("".as_ref()).unwrap_err();
        assert!(matches!(error, ResolveError::NotFound { .. }), "{error}");
    }
}

#[test]
fn a_root_reached_through_a_link_is_entered_by_both_its_names() {
    let tree = Tree::new();
    symlink(tree.at("w/app"), tree.at("alias")).unwrap();
    for means in BOTH {
        let roots = tree.roots(&["alias"]);
        for name in ["alias/sub", "w/app/sub"] {
            let given = tree.at(name);
            let found = directory(&roots, Path::new("/"), given.as_os_str(), means).unwrap();
            assert_eq!(found.name, tree.at("w/app/sub"), "{means:?} {name}");
        }
    }
}

#[test]
fn swapping_a_directory_for_a_link_to_outside_never_leads_outside() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use std::sync::atomic::{AtomicBool, Ordering};
    let tree = Tree::new();
    symlink(tree.at("w/other"), tree.at("w/app/sub2")).unwrap();
    std::fs::create_dir(tree.at("w/app/sub/x")).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (a, b) = (tree.at("w/app/sub"), tree.at("w/app/sub2"));
            while !stop.load(Ordering::Relaxed) {
                renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).unwrap();
            }
        });
        for means in BOTH {
            let resolver = tree.resolver(means);
            for _ in 0..2_000 {
                if let Ok(found) = resolver.directory("sub/x".as_ref()) {
                    assert!(!is(&found, &tree.at("w/other/x")), "{means:?}");
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}
