//! The shape of the workspace (ARCHITECTURE.md): dependencies point one way,
//! the inside knows nothing of the wire, `unsafe` has one place.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty(), "no sources below {}", folder.display());
    found
}

/// Code without comments; strings stay, which can only make the test stricter.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

fn dependencies(package: &str) -> Vec<String> {
    let manifest = fs::read_to_string(root().join(package).join("Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    let table = manifest.get("dependencies").and_then(toml::Value::as_table);
    table
        .into_iter()
        .flat_map(|table| table.keys().cloned())
        .collect()
}

#[test]
fn dependencies_between_packages_point_one_way() {
    let ours = [
        "executor-proto",
        "executor-client",
        "executor-daemon",
        "agent-core",
    ];
    let allowed: [(&str, &[&str]); 4] = [
        ("executor-proto", &[]),
        ("executor-client", &["executor-proto"]),
        ("executor-daemon", &["executor-proto"]),
        (
            "agent-core",
            &["executor-proto", "executor-client", "executor-daemon"],
        ),
    ];
    for (package, allowed) in allowed {
        for dependency in dependencies(package) {
            let fine = !ours.contains(&dependency.as_str()) || allowed.contains(&&*dependency);
            assert!(fine, "{package} must not depend on {dependency}");
        }
    }
}

#[test]
fn agent_core_takes_the_daemon_only_with_the_feature_local() {
    let manifest = fs::read_to_string(root().join("agent-core/Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    let daemon = &manifest["dependencies"]["executor-daemon"];
    assert_eq!(
        daemon.get("optional").and_then(toml::Value::as_bool),
        Some(true)
    );
    let local = manifest["features"]["local"].as_array().unwrap();
    assert!(
        local
            .iter()
            .any(|entry| entry.as_str() == Some("dep:executor-daemon"))
    );
}

/// Crates and modules that a layer of the daemon must not name.
const WIRE: &[&str] = &[
    "tonic",
    "prost",
    "clap",
    "http",
    "hyper",
    "tower",
    "executor_proto::v1",
    "executor_proto::reason",
    "crate::service",
    "crate::server",
    "crate::config",
];

#[test]
fn the_inside_knows_nothing_of_the_wire() {
    let inside: [(&str, &[&str]); 8] = [
        (
            "sys",
            &[
                "crate::host",
                "crate::files",
                "crate::session",
                "crate::sandbox",
            ],
        ),
        (
            "sandbox",
            &["crate::host", "crate::files", "crate::session"],
        ),
        ("process", &["crate::host", "crate::files"]),
        ("files", &["crate::host", "crate::process"]),
        ("host", &["crate::files", "crate::sandbox"]),
        (
            "socket",
            &["crate::host", "crate::process", "crate::session"],
        ),
        ("patch", &["crate::host", "crate::process"]),
        ("session", &[]),
    ];
    for (layer, more) in inside {
        let folder = root().join("executor-daemon/src").join(layer);
        if !folder.is_dir() {
            assert_eq!(layer, "patch", "the layer {layer} is gone");
            continue;
        }
        // The daemon's own side of sessions reads metadata of calls.
        for path in sources(&folder) {
            let code = code(&path);
            for name in WIRE.iter().chain(more) {
                let named = code.match_indices(name).any(|(at, _)| {
                    let before = code[..at].chars().next_back();
                    let after = code[at + name.len()..].chars().next();
                    let word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
                    let path_like = name.ends_with("::") || after == Some(':') || !word(after);
                    !word(before) && path_like && (name.contains("::") || after == Some(':'))
                });
                assert!(!named, "{} must not name {name}", path.display());
            }
        }
    }
}

#[test]
fn unsafe_code_has_one_place() {
    for package in [
        "executor-proto",
        "executor-client",
        "executor-daemon",
        "agent-core",
    ] {
        for path in sources(&root().join(package).join("src")) {
            if path.starts_with(root().join("executor-daemon/src/sys")) {
                continue;
            }
            let opened = code(&path).contains("unsafe_code");
            assert!(!opened, "{} opens unsafe_code", path.display());
        }
    }
}

#[test]
fn no_source_file_is_longer_than_five_hundred_lines() {
    for package in [
        "executor-proto",
        "executor-client",
        "executor-daemon",
        "agent-core",
        "tests",
    ] {
        for path in sources(&root().join(package)) {
            let lines = fs::read_to_string(&path).unwrap().lines().count();
            assert!(lines <= 500, "{} has {lines} lines", path.display());
        }
    }
}
