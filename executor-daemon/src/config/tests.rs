use std::io::Write as _;

use super::*;

fn environment(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    pairs.iter().map(|(k, v)| (k.into(), v.into())).collect()
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn load(
    text: &str,
    variables: &[(&str, &str)],
    flags: &[(&str, &str)],
) -> Result<Config, ConfigError> {
    let file = file(text);
    let sources = Sources {
        file: Some(file.path().to_owned()),
        flags: flags
            .iter()
            .map(|(k, v)| ((*k).into(), (*v).into()))
            .collect(),
    };
    Config::load_from(&sources, environment(variables))
}

#[test]
fn flags_win_over_environment_over_file_over_defaults() {
    let text = "grace = 3\n[limits]\nsessions = 10\nstdin_writers = 10\nprocesses_per_session = 10";
    let variables = [
        ("EXECUTOR_LIMITS_SESSIONS", "20"),
        ("EXECUTOR_LIMITS_STDIN_WRITERS", "20"),
        ("EXECUTOR_MACHINE", "unix:///elsewhere"),
    ];
    let config = load(text, &variables, &[("limits.sessions", "30")]).unwrap();
    assert_eq!(config.limits.sessions, 30, "flag");
    assert_eq!(config.limits.stdin_writers, 20, "environment");
    assert_eq!(config.limits.processes_per_session, 10, "file");
    assert_eq!(config.limits.receipts_per_session, 65_536, "default");
    assert_eq!(config.grace, Duration::from_secs(3));
}

#[test]
fn every_key_is_taken_from_file_environment_and_flag_alike() {
    let values = [
        ("socket", "/a/b.sock"),
        ("state_dir", "/a/state"),
        ("log_level", "warn,executor_daemon=debug"),
        ("log_format", "json"),
        ("roots", "/srv/a:ro,/srv/b"),
        ("secret_files", "*.secret,!public.secret"),
        ("git_excludes", "/etc/git/ignore"),
        ("ignore_above_roots", "yes"),
        ("stop_means", "reaper"),
        ("reaper", "/usr/lib/executor-daemon"),
        ("grace", "500ms"),
    ];
    for (key, value) in values {
        let name = format!("EXECUTOR_{}", key.to_uppercase());
        let by_file = load(&format!("{key} = {value:?}"), &[], &[]).unwrap();
        let by_variable = load("", &[(&name, value)], &[]).unwrap();
        let by_flag = load("", &[], &[(key, value)]).unwrap();
        let unset = load("", &[], &[]).unwrap();
        assert_eq!(by_file.to_toml(), by_variable.to_toml(), "{key}");
        assert_eq!(by_file.to_toml(), by_flag.to_toml(), "{key}");
        assert_ne!(by_file.to_toml(), unset.to_toml(), "{key}");
    }
}

#[test]
fn what_is_printed_can_be_read_again() {
    let config = load(
        "roots = [\"/srv/a:ro\", \"/\"]\ngrace = \"1500ms\"",
        &[],
        &[],
    )
    .unwrap();
    assert_eq!(config.roots[0].access, Access::ReadOnly);
    let again = load(&config.to_toml(), &[], &[]).unwrap();
    assert_eq!(again.to_toml(), config.to_toml());
}

#[test]
fn each_error_names_the_key_the_value_and_what_is_allowed() {
    let cases = [
        (
            "socket = \"daemon.sock\"",
            ["socket", "daemon.sock", "absolute"],
        ),
        ("socket = 7", ["socket", "7", "absolute"]),
        ("log_format = \"xml\"", ["log_format", "xml", "text, json"]),
        (
            "log_level = \"loud=yes\"",
            ["log_level", "loud=yes", "info"],
        ),
        ("stop_means = \"magic\"", ["stop_means", "magic", "cgroup"]),
        ("grace = 61", ["grace", "61", "0 to 60"]),
        ("grace = -1", ["grace", "-1", "0 to 60"]),
        ("roots = []", ["roots", "[]", "absolute"]),
        ("roots = [\"/a/../b\"]", ["roots", "/a/../b", "absolute"]),
        ("roots = [1]", ["roots", "[1]", "absolute"]),
        (
            "[limits]\nsessions = 0",
            ["limits.sessions", "0", "1 to 65536"],
        ),
        (
            "[limits]\nsessions = true",
            ["limits.sessions", "true", "whole number"],
        ),
        (
            "[limits]\nsesions = 1",
            ["limits.sesions", "there is no", "limits.sessions"],
        ),
        ("sokcet = \"/a\"", ["sokcet", "there is no", "socket"]),
        (
            "[log.deep]\nlevel = 1",
            ["log.deep.level", "there is no", "log_level"],
        ),
    ];
    for (text, parts) in cases {
        let error = load(text, &[], &[]).unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "{text}: {error} lacks {part}");
        }
        assert!(error.contains("(in /"), "{text}: {error} names no file");
    }
    let error = load("", &[("EXECUTOR_LIMITS_SESIONS", "1")], &[]).unwrap_err();
    assert!(
        error.to_string().contains("EXECUTOR_LIMITS_SESIONS"),
        "{error}"
    );
}

#[test]
fn a_named_file_must_exist_and_be_toml() {
    let sources = Sources {
        file: Some("/nowhere/daemon.toml".into()),
        flags: Vec::new(),
    };
    let error = Config::load_from(&sources, Vec::new()).unwrap_err();
    assert!(
        error.to_string().contains("/nowhere/daemon.toml"),
        "{error}"
    );
    let error = load("socket =", &[], &[]).unwrap_err();
    assert!(matches!(error, ConfigError::Syntax { .. }), "{error}");
}

#[test]
fn places_follow_the_environment_of_a_user() {
    let at = |variables: &[(&str, &str)]| {
        let variables = environment(variables);
        (default_user_socket(&variables), user_state(&variables))
    };
    let (socket, state) = at(&[("HOME", "/home/u"), ("XDG_RUNTIME_DIR", "/run/user/7")]);
    assert_eq!(socket, Path::new("/run/user/7/executor/daemon.sock"));
    assert_eq!(state, Path::new("/home/u/.local/state/executor"));
    let (socket, state) = at(&[
        ("HOME", "/home/u"),
        ("XDG_STATE_HOME", "/s"),
        ("XDG_RUNTIME_DIR", "relative"),
    ]);
    assert_eq!(socket, Path::new("/s/executor/run/daemon.sock"));
    assert_eq!(state, Path::new("/s/executor"));
}
