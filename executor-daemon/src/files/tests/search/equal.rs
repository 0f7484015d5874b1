//! Searches find what git and ripgrep find, on trees made by chance.
//!
//! docs/search.md lists what is meant to differ; none of that is in these trees.
//! Wants `git` and `rg` (Debian's package `ripgrep`).

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;
use crate::files::search::pattern::{Case, Engine};
use crate::files::search::request::Ignore;
use crate::files::tests::scaled;

/// Numbers that look random and are the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % most
    }

    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }
}

const NAMES: [&str; 16] = [
    "a",
    "b",
    "src",
    "lib",
    "x.c",
    "y.c",
    "main.rs",
    "n.log",
    "build",
    "out",
    ".hid",
    ".cfg",
    "A",
    "a b",
    "[q]",
    "caf\u{e9}",
];
const RULES: [&str; 26] = [
    "*.log",
    "build",
    "build/",
    "/out",
    "src/*",
    "!src/x.c",
    "**/lib",
    "lib/**",
    "a/**/b",
    "*.c",
    "!x.c",
    "# comment",
    "",
    "a b",
    "\\[q\\]",
    "[ab]",
    "!a",
    "/*",
    "!/src",
    "out/*",
    "!out/a",
    ".hid",
    "?.c",
    "src/lib/",
    "*",
    "!*/",
];
const WORDS: [&str; 10] = [
    "needle",
    "Needle",
    "hay",
    "NEEDLE",
    "needles",
    "a.b",
    "(x)",
    "caf\u{e9}",
    "-e",
    "foo_needle",
];

/// Makes a tree; `rules`: the names of its ignore files.
fn grow(top: &Path, dice: &mut Dice, rules: &[&str], depth: usize) {
    grow_with(top, dice, rules, depth, &[0, 0xFF]);
}

/// As [`grow`]; `odd`: bytes that are found in files now and then.
fn grow_with(top: &Path, dice: &mut Dice, rules: &[&str], depth: usize, odd: &[u8]) {
    for rule_file in rules {
        if dice.below(3) == 0 {
            let lines: Vec<_> = (0..=dice.below(4)).map(|_| dice.one(&RULES)).collect();
            write(&top.join(rule_file), lines.join("\n") + "\n");
        }
    }
    let mut taken = BTreeSet::new();
    for _ in 0..2 + dice.below(7) {
        let name = dice.one(&NAMES);
        if !taken.insert(name) {
            continue;
        }
        let path = top.join(name);
        match dice.below(6) {
            0..=2 if depth < 4 => {
                std::fs::create_dir(&path).unwrap();
                grow_with(&path, dice, rules, depth + 1, odd);
            }
            3 if dice.below(4) == 0 => symlink("..", &path).unwrap(),
            _ => write(&path, content(dice, odd)),
        }
    }
}

fn content(dice: &mut Dice, odd: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    for _ in 0..dice.below(12) {
        for _ in 0..dice.below(4) {
            content.extend_from_slice(dice.one(&WORDS).as_bytes());
            content.push(b' ');
        }
        if let Some(byte) = odd.get(dice.below(40)) {
            content.push(*byte);
        }
        if dice.below(20) > 0 {
            content.push(b'\n');
        }
    }
    content
}

/// What a program prints, or why there is nothing.
#[expect(clippy::disallowed_methods, reason = "to compare with")]
fn output(program: &str, words: &[&str], directory: &Path) -> Vec<u8> {
    let output = std::process::Command::new(program)
        .args(words)
        .current_dir(directory)
        .env("HOME", "/nonexistent")
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("RIPGREP_CONFIG_PATH")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .output();
    let output = output.unwrap_or_else(|error| {
        panic!("{program} does not run ({error}); install it: apt-get install ripgrep git")
    });
    // 1: nothing was found.
    assert!(
        matches!(output.status.code(), Some(0 | 1)) && output.stderr.is_empty(),
        "{program} {words:?}: {output:?}"
    );
    output.stdout
}

fn names(listed: &[u8]) -> BTreeSet<Vec<u8>> {
    let names = listed.split(|byte| *byte == 0);
    names
        .filter(|name| !name.is_empty())
        .map(<[u8]>::to_vec)
        .collect()
}

fn globbed(tree: &Tree, scope: Scope) -> Vec<Entry> {
    let asked = Glob {
        scope,
        limit: Some(1_000_000),
        ..Glob::default()
    };
    let (entries, summary) = glob_by(&fence_of(tree), &asked, &crew(3));
    assert!(summary.is_complete(), "{summary:?}");
    entries
}

fn found(tree: &Tree, scope: Scope) -> BTreeSet<Vec<u8>> {
    globbed(tree, scope)
        .into_iter()
        .map(|entry| entry.path)
        .collect()
}

/// What is only in one of both.
#[track_caller]
fn same(ours: &BTreeSet<Vec<u8>>, theirs: &BTreeSet<Vec<u8>>, what: impl std::fmt::Display) {
    let only = |a: &BTreeSet<Vec<u8>>, b: &BTreeSet<Vec<u8>>| -> Vec<String> {
        a.difference(b).map(|name| text(name)).collect()
    };
    let (only_ours, only_theirs) = (only(ours, theirs), only(theirs, ours));
    assert!(
        only_ours.is_empty() && only_theirs.is_empty(),
        "{what}: only ours {only_ours:?}, only theirs {only_theirs:?}"
    );
}

#[test]
fn what_is_ignored_is_what_git_ignores() {
    for seed in 0..scaled(400, 25) {
        let tree = empty();
        let app = tree.at("w/app");
        grow(&app, &mut Dice(seed as u64), &[".gitignore"], 0);
        output("git", &["init", "-q"], &app);
        if seed % 3 == 0 {
            write(&app.join(".git/info/exclude"), "*.rs\n!main.rs\n/lib\n");
        }
        let git = output("git", &["ls-files", "-z", "-o", "--exclude-standard"], &app);
        let scope = Scope {
            hidden: true,
            ..Scope::default()
        };
        let (ours, git) = (found(&tree, scope), names(&git));
        same(&ours, &git, format!("seed {seed} in {app:?}"));
    }
}

#[test]
fn what_is_looked_at_is_what_ripgrep_looks_at() {
    let all = Ignore::default();
    let switches: [(&[&str], Ignore, bool); 5] = [
        (&[], all, false),
        (&["--hidden", "-g", "!.git"], all, true),
        (
            &["--no-ignore"],
            Ignore {
                dot: false,
                git: false,
                exclude: false,
                global: false,
                above: false,
                ..all
            },
            false,
        ),
        (
            &["--no-ignore-vcs"],
            Ignore {
                git: false,
                exclude: false,
                global: false,
                ..all
            },
            false,
        ),
        // ripgrep 13 still reads `.rgignore` then.
        (&["--no-ignore-dot"], Ignore { dot: false, ..all }, false),
    ];
    for seed in 0..scaled(400, 20) {
        let tree = empty();
        let app = tree.at("w/app");
        let rules = [".gitignore", ".ignore", ".rgignore"];
        let rules = if seed % 2 == 0 { &rules } else { &rules[..2] };
        grow(&app, &mut Dice(1_000 + seed as u64), rules, 0);
        if seed % 4 > 0 {
            std::fs::create_dir(app.join(".git")).unwrap();
        }
        for (words, ignore, hidden) in &switches {
            if words == &["--no-ignore-dot"] && seed % 2 == 0 {
                continue;
            }
            let mut with: Vec<&str> = vec!["--no-config", "--files", "--null"];
            with.extend(*words);
            let rg = names(&output("rg", &with, &app));
            let scope = Scope {
                hidden: *hidden,
                ignore: *ignore,
                ..Scope::default()
            };
            // ripgrep does not tell links.
            let entries = globbed(&tree, scope).into_iter();
            let files = entries.filter(|entry| entry.kind == FileKind::Regular);
            let ours: BTreeSet<_> = files.map(|entry| entry.path).collect();
            same(&ours, &rg, format!("seed {seed}, {words:?} in {app:?}"));
        }
    }
}

/// The same for us.
type Change = fn(&mut Grep);

#[test]
fn the_lines_found_are_those_that_ripgrep_finds() {
    let switches: [(&[&str], Change); 13] = [
        (&[], |_| ()),
        (&["-i"], |asked| asked.pattern.case = Case::Ignore),
        (&["-S"], |asked| asked.pattern.case = Case::Smart),
        (&["-w"], |asked| asked.pattern.word = true),
        (&["-x"], |asked| asked.pattern.whole_line = true),
        (&["-F"], |asked| asked.pattern.fixed = true),
        (&["-v"], |asked| asked.invert = true),
        (&["-c"], |asked| asked.tell = Tell::Counts),
        (&["-l"], |asked| asked.tell = Tell::Files),
        (&["-m", "1"], |asked| asked.file_limit = Some(1)),
        (&["-A", "1", "-B", "2"], |asked| {
            (asked.after, asked.before) = (1, 2)
        }),
        (&["-a"], |asked| asked.binary = true),
        (&["-t", "rust"], |asked| {
            asked.scope.types = vec!["rust".into()]
        }),
    ];
    let patterns = [
        "needle",
        "ne+dle",
        r"\bhay\b",
        "^need",
        "x\\)",
        "a.b",
        "\u{e9}",
        "(hay|Needle) ",
        "^$",
        ".",
    ];
    for seed in 0..scaled(200, 4) {
        let tree = empty();
        let app = tree.at("w/app");
        let mut dice = Dice(5_000 + seed as u64);
        grow(&app, &mut dice, &[".gitignore"], 0);
        for (words, change) in &switches {
            let pattern = dice.one(&patterns);
            if words == &["-F"] && pattern.contains('\\') {
                continue;
            }
            let mut with = vec![
                "--no-config",
                "--no-heading",
                "--with-filename",
                "--color=never",
                "-n",
                "-0",
                "--no-messages",
            ];
            with.extend(*words);
            with.extend(["-e", pattern, "."]);
            let rg = output("rg", &with, &app);
            let mut asked = for_text(pattern);
            change(&mut asked);
            let (files, _) = grep_by(&fence_of(&tree), &asked, &crew(3));
            let ours = files.iter().flat_map(|file| printed(file, asked.tell));
            let ours: BTreeSet<Vec<u8>> = ours.collect();
            let mut rg = lines_of(&rg, asked.tell);
            // ripgrep looks for a NUL after three bytes and then after 64 KiB, and
            // tells of a binary file what it found in those three.
            rg.retain(|line| asked.binary || !is_binary(&app, line));
            same(
                &ours,
                &rg,
                format!("seed {seed}, {words:?} {pattern:?} in {app:?}"),
            );
        }
    }
}

#[test]
fn the_engine_pcre2_finds_what_ripgreps_finds() {
    let seeds = scaled(100, 3);
    for (seed, text) in (0..seeds)
        .flat_map(|seed| [r"need(?=le\b)", r"(\w)\1", r"(?<!foo_)needle"].map(|text| (seed, text)))
    {
        let tree = empty();
        let app = tree.at("w/app");
        // What is not UTF-8 ripgrep 13 changes before it tells it.
        grow_with(&app, &mut Dice(9_000 + seed as u64), &[], 0, &[0]);
        let mut asked = for_text(text);
        asked.pattern.engine = Engine::Pcre2;
        let (files, _) = grep_by(&fence_of(&tree), &asked, &crew(2));
        let ours: BTreeSet<_> = files
            .iter()
            .flat_map(|file| printed(file, Tell::Lines))
            .collect();
        let words = [
            "--no-config",
            "--no-heading",
            "--with-filename",
            "--color=never",
            "-n",
            "-0",
            "-P",
            text,
            ".",
        ];
        let rg = lines_of(&output("rg", &words, &app), Tell::Lines);
        same(&ours, &rg, format!("seed {seed}, {text:?} in {app:?}"));
    }
}

#[expect(clippy::disallowed_methods, reason = "what a test put there")]
fn is_binary(top: &Path, line: &[u8]) -> bool {
    let path = line.split(|byte| *byte == 0).next().unwrap_or_default();
    std::fs::read(top.join(text(path))).unwrap().contains(&0)
}

/// As ripgrep prints it with `-0`, without its `./`.
fn printed(file: &FileMatches, tell: Tell) -> Vec<Vec<u8>> {
    let path = |rest: &[u8]| [&file.path, b"\0".as_slice(), rest].concat();
    match tell {
        Tell::Files => vec![file.path.clone()],
        Tell::Counts => vec![path(file.matches.to_string().as_bytes())],
        Tell::Lines => {
            let line = |line: &crate::files::search::results::Line| {
                let sign = if line.context { '-' } else { ':' };
                path(&[format!("{}{sign}", line.number).as_bytes(), &line.text].concat())
            };
            file.lines.iter().map(line).collect()
        }
    }
}

fn lines_of(printed: &[u8], tell: Tell) -> BTreeSet<Vec<u8>> {
    let end = if tell == Tell::Files { 0 } else { b'\n' };
    let lines = printed.split(|byte| *byte == end);
    let lines = lines.filter(|line| !line.is_empty() && *line != b"--");
    // Of a binary file in which it found something before, ripgrep says so in a
    // line of its own; we say it in the summary.
    let lines = lines.filter(|line| !text(line).contains("WARNING: stopped searching binary"));
    lines
        .map(|line| line.strip_prefix(b"./").unwrap_or(line).to_vec())
        .collect()
}
