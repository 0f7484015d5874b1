//! `executor-daemon check`: what this machine can enforce.

use std::fmt::Write as _;

use executor_daemon::machine::Facts;
use executor_daemon::process::snapshot::StopMeans;
use executor_daemon::process::tree::{Containment, ContainmentSettings, Preferred};
use executor_proto::id::Epoch;
use serde::Serialize;

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    found: String,
    works: bool,
    /// What it is good for.
    about: &'static str,
}

/// The whole report, as a table or as JSON.
pub(crate) fn report(json: bool) -> anyhow::Result<String> {
    let rows = rows(&Facts::collect());
    if json {
        return Ok(serde_json::to_string_pretty(&rows)? + "\n");
    }
    let width = |cell: fn(&Row) -> usize| rows.iter().map(cell).max().unwrap_or(0);
    let (names, values) = (width(|row| row.name.len()), width(|row| row.found.len()));
    let mut text = String::new();
    for row in &rows {
        let mark = if row.works { "yes" } else { "no" };
        writeln!(
            text,
            "{:names$}  {mark:3}  {:values$}  {}",
            row.name, row.found, row.about
        )?;
    }
    Ok(text)
}

fn rows(facts: &Facts) -> Vec<Row> {
    let probe = &facts.probe;
    let row = |name, works, found: String, about| Row {
        name,
        found,
        works,
        about,
    };
    let plain = |name, works, about| row(name, works, String::new(), about);
    let list = |name, words: &[String], about| row(name, !words.is_empty(), words.join(" "), about);
    let kernel = format!(
        "{} {} {}",
        facts.os, facts.kernel_release, facts.architecture
    );
    let (means, whole) = stop_means();
    let cgroup = probe.cgroup_v2.as_deref();
    let cgroup = cgroup.map(|path| path.display().to_string());
    vec![
        row("kernel", true, kernel, "what runs here"),
        row(
            "stop means",
            whole,
            means.to_owned(),
            "every process of a command is ended with it, also one that hides",
        ),
        row(
            "cgroup v2",
            cgroup.is_some(),
            cgroup.unwrap_or_default(),
            "where this program is",
        ),
        plain(
            "cgroup.kill",
            probe.cgroup_kill,
            "a command's whole tree can be killed at once",
        ),
        plain(
            "clone into cgroup",
            probe.clone_into_cgroup,
            "no process is ever outside its cgroup",
        ),
        list(
            "v2 controllers",
            &probe.cgroup_v2_controllers,
            "limits of memory, CPU and processes",
        ),
        list(
            "v1 controllers",
            &probe.cgroup_v1_controllers,
            "the same, where v2 lacks the controller",
        ),
        plain("subreaper", probe.subreaper, "orphans stay attributable"),
        plain(
            "pidfd",
            probe.pidfd,
            "signals reach the process that was meant",
        ),
        plain(
            "openat2",
            probe.openat2,
            "paths are kept inside the roots by the kernel",
        ),
        row(
            "landlock",
            probe.landlock_abi > 0,
            format!("ABI {}", probe.landlock_abi),
            "commands can be kept out of files",
        ),
        plain(
            "clone3",
            probe.clone3,
            "programs are started without a fork",
        ),
        plain(
            "close_range",
            probe.close_range,
            "no descriptor leaks into a command",
        ),
        plain(
            "memfd seals",
            probe.memfd_sealing,
            "output is kept in memory that can be shared",
        ),
    ]
}

/// How a daemon started now would end trees, and whether nothing escapes it.
fn stop_means() -> (&'static str, bool) {
    let containment = Containment::probe(&ContainmentSettings {
        epoch: Epoch::random(),
        preferred: Preferred::Auto,
        reaper: None,
        embedded: false,
    });
    let means = containment.means();
    containment.close();
    match means {
        StopMeans::Cgroup => ("cgroup", true),
        StopMeans::Reaper => ("reaper", true),
        StopMeans::BestEffort => ("best_effort", false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_a_table_for_people_and_json_for_programs() {
        let table = report(false).unwrap();
        assert!(
            table.lines().any(|line| line.starts_with("pidfd")),
            "{table}"
        );
        let json: serde_json::Value = serde_json::from_str(&report(true).unwrap()).unwrap();
        let names: Vec<_> = json
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["name"].as_str().unwrap())
            .collect();
        assert_eq!(names.len(), table.lines().count());
        assert!(names.contains(&"openat2"), "{names:?}");
    }
}
