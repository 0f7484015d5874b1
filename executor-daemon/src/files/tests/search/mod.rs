//! Searches below `w/app`, without the wire.

mod bounds;
mod cases;
mod equal;
mod fuzz;
mod lines;

use std::path::PathBuf;
use std::sync::Arc;

use super::super::cancel::Cancel;
use super::super::error::FileError;
use super::super::fence::Fence;
use super::super::object::FileKind;
use super::super::resolve::Means;
use super::super::search::crew::Crew;
use super::super::search::pattern::Pattern;
use super::super::search::request::{Glob, Grep, Scope, Tell};
use super::super::search::results::{Entry, FileMatches};
use super::super::search::summary::Summary;
use super::super::search::{Search, Settings};
use super::{Tree, write};

/// Threads of a test's own.
pub(super) fn crew(threads: usize) -> Arc<Crew> {
    Crew::new(threads, threads, |work| drop(std::thread::spawn(work)))
}

/// A tree without anything in `w/app`.
fn empty() -> Tree {
    let tree = Tree::new();
    std::fs::remove_dir_all(tree.at("w/app")).unwrap();
    std::fs::create_dir(tree.at("w/app")).unwrap();
    tree
}

/// A tree with these files in `w/app`; a name that ends in `/` is a directory's.
fn tree_of(files: &[(&str, &str)]) -> Tree {
    let tree = empty();
    for (name, content) in files {
        let path = tree.at("w/app").join(name);
        if name.ends_with('/') {
            std::fs::create_dir_all(path).unwrap();
            continue;
        }
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        write(&path, content);
    }
    tree
}

fn fence_of(tree: &Tree) -> Arc<Fence> {
    Arc::new(tree.fence(Means::Kernel))
}

fn globs(texts: &[&str]) -> Scope {
    Scope {
        globs: texts.iter().map(|text| (*text).to_owned()).collect(),
        ..Scope::default()
    }
}

fn paths(names: &[&str]) -> Scope {
    Scope {
        paths: names.iter().map(PathBuf::from).collect(),
        ..Scope::default()
    }
}

fn for_text(text: &str) -> Grep {
    Grep {
        pattern: Pattern {
            text: text.to_owned(),
            ..Pattern::default()
        },
        ..Grep::default()
    }
}

fn glob_by(fence: &Arc<Fence>, asked: &Glob, crew: &Arc<Crew>) -> (Vec<Entry>, Summary) {
    let (fence, settings) = (Arc::clone(fence), Settings::default());
    let mut search = Search::glob(fence, asked, &settings, crew).unwrap();
    let mut entries = Vec::new();
    while let Some(piece) = search.next_piece(&Cancel::new()).unwrap() {
        entries.extend(piece.entries);
    }
    (entries, search.summary().clone())
}

fn grep_by(fence: &Arc<Fence>, asked: &Grep, crew: &Arc<Crew>) -> (Vec<FileMatches>, Summary) {
    let (fence, settings) = (Arc::clone(fence), Settings::default());
    let mut search = Search::grep(fence, asked, &settings, crew).unwrap();
    let mut files = Vec::new();
    while let Some(piece) = search.next_piece(&Cancel::new()).unwrap() {
        files.extend(piece.files);
    }
    (files, search.summary().clone())
}

/// The names found, and what was not looked at.
fn glob(tree: &Tree, scope: Scope) -> (Vec<String>, Summary) {
    let asked = Glob {
        scope,
        ..Glob::default()
    };
    let (entries, summary) = glob_by(&fence_of(tree), &asked, &crew(2));
    (
        entries.iter().map(|entry| text(&entry.path)).collect(),
        summary,
    )
}

/// As `path:number:line`, where lines are told.
fn grep(tree: &Tree, asked: &Grep) -> (Vec<String>, Summary) {
    let (files, summary) = grep_by(&fence_of(tree), asked, &crew(2));
    (
        files
            .iter()
            .flat_map(|file| told(file, asked.tell))
            .collect(),
        summary,
    )
}

fn told(file: &FileMatches, tell: Tell) -> Vec<String> {
    let path = text(&file.path);
    match tell {
        Tell::Files => vec![path],
        Tell::Counts => vec![format!("{path}:{}", file.matches)],
        Tell::Lines => {
            let line = |line: &super::super::search::results::Line| {
                let sign = if line.context { '-' } else { ':' };
                format!("{path}{sign}{}{sign}{}", line.number, text(&line.text))
            };
            file.lines.iter().map(line).collect()
        }
    }
}

fn refused(tree: &Tree, asked: &Grep) -> FileError {
    let crew = crew(1);
    Search::grep(fence_of(tree), asked, &Settings::default(), &crew).unwrap_err()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
