//! The program by itself, without a machine: what it says of itself, and how it
//! refuses. Everything with a machine is in the workspace's `tests`, which find
//! the program where cargo builds it for this one.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test, and the program that it is about"
)]

use std::process::{Command, Output, Stdio};

fn executor(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_executor"))
        .args(arguments)
        .env_remove("EXECUTOR_MACHINE")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn every_command_is_listed_and_explains_itself() {
    let top = executor(&["--help"]);
    assert!(top.status.success(), "{top:?}");
    let listed = String::from_utf8(top.stdout).unwrap();
    let commands: Vec<&str> = listed
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(commands.contains(&"run"), "{listed}");
    for command in commands {
        let help = executor(&[command, "--help"]);
        assert!(help.status.success(), "{command}: {help:?}");
        let help = String::from_utf8(help.stdout).unwrap();
        assert!(help.contains("Usage: executor"), "{command}: {help}");
    }
}

#[test]
fn a_mistyped_option_or_command_is_our_own_failure() {
    for arguments in [&["run", "--detatch", "true"][..], &["rnu", "true"]] {
        let refused = executor(arguments);
        assert_eq!(refused.status.code(), Some(125), "{refused:?}");
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(said.contains(arguments[arguments.len() - 2]), "{said}");
    }
}
