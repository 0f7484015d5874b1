//! Searches over a real daemon.

use std::fs;
use std::time::{Duration, Instant};

use executor_client::{Reason, Session, v1};
use executor_tests::{Daemon, DaemonOptions, PATIENCE, eventually, in_time};

use super::*;

fn for_text(pattern: &str) -> v1::GrepRequest {
    v1::GrepRequest {
        pattern: pattern.into(),
        ..Default::default()
    }
}

fn globs(globs: &[&str]) -> v1::GlobRequest {
    v1::GlobRequest {
        scope: Some(v1::SearchScope {
            globs: globs.iter().map(|glob| (*glob).to_owned()).collect(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

async fn names(session: &Session, request: v1::GlobRequest) -> Vec<String> {
    let found = session.glob_all(request).await.unwrap();
    let name = |entry: v1::GlobEntry| String::from_utf8(entry.path).unwrap();
    found.entries.into_iter().map(name).collect()
}

#[tokio::test]
async fn a_search_tells_what_it_found_and_what_it_passed_over() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let work = daemon.work();
    for name in ["src/deep", "target", ".git", ".hidden"] {
        fs::create_dir_all(work.join(name)).unwrap();
    }
    for (name, content) in [
        ("src/a.rs", "fn needle() {}\r\nlet x = NEEDLE;\n"),
        ("src/deep/b.rs", "// no\nneedle needle\n"),
        ("target/c.rs", "needle\n"),
        (".hidden/d.rs", "needle\n"),
        ("bin", "\0needle"),
        (".gitignore", "target\n"),
        ("server.key", "needle\n"),
    ] {
        fs::write(work.join(name), content).unwrap();
    }
    assert_eq!(
        names(&session, globs(&["*.rs"])).await,
        ["src/a.rs", "src/deep/b.rs"]
    );
    let request = v1::GrepRequest {
        before_context: 1,
        ..for_text("needle")
    };
    let found = session.grep_all(request).await.unwrap();
    let paths: Vec<_> = found.files.iter().map(|file| &*file.path).collect();
    assert_eq!(paths, [b"src/a.rs".as_slice(), b"src/deep/b.rs"]);
    let [context, line] = found.files[1].lines.as_slice() else {
        panic!("{found:?}");
    };
    assert!(context.context && context.column == 0 && context.number == 1);
    assert_eq!((line.number, line.offset, line.column), (2, 6, 1));
    assert_eq!((&*line.text, line.clipped), (&b"needle needle"[..], false));
    let spans: Vec<_> = line
        .spans
        .iter()
        .map(|span| (span.start, span.end))
        .collect();
    assert_eq!(spans, [(0, 6), (7, 13)]);
    let summary = found.summary;
    assert!(summary.complete && !summary.limit_reached);
    assert_eq!((summary.matches, summary.files_matched), (2, 2));
    assert_eq!((summary.ignored, summary.hidden), (2, 2));
    assert_eq!((summary.binary, summary.secret), (1, 1));
}

#[tokio::test]
async fn what_cannot_be_searched_for_is_refused_with_its_place() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    fs::write(daemon.work().join("f"), "x").unwrap();
    let error = refused(
        session.grep_all(for_text("foo(?!bar)")).await,
        Reason::InvalidArgument,
    );
    assert_eq!(error.metadata("field"), Some("pattern"));
    assert_eq!(error.metadata("engine"), Some("rust"));
    assert_eq!(error.metadata("offset"), Some("3"));
    let error = refused(
        session.glob_all(globs(&["{a"])).await,
        Reason::InvalidArgument,
    );
    assert_eq!(error.metadata("field"), Some("globs"));
    assert_eq!(error.metadata("offset"), Some("0"));
    let asked = |change: fn(&mut v1::GrepRequest)| {
        let mut request = for_text("x");
        request.scope = Some(v1::SearchScope::default());
        change(&mut request);
        request
    };
    for (request, reason) in [
        (
            asked(|asked| asked.limit = 1_000_001),
            Reason::InvalidArgument,
        ),
        (
            asked(|asked| asked.byte_limit = 1 << 40),
            Reason::InvalidArgument,
        ),
        (
            asked(|asked| asked.after_context = 101),
            Reason::InvalidArgument,
        ),
        (
            asked(|asked| asked.scope.as_mut().unwrap().types = vec!["no".into()]),
            Reason::InvalidArgument,
        ),
        (
            asked(|asked| asked.scope.as_mut().unwrap().paths = vec![b"none".to_vec()]),
            Reason::PathNotFound,
        ),
        (
            asked(|asked| asked.scope.as_mut().unwrap().paths = vec![b"/dev/null".to_vec()]),
            Reason::NotARegularFile,
        ),
        (
            asked(|asked| asked.scope.as_mut().unwrap().paths = vec![b"x".to_vec(); 65]),
            Reason::InvalidArgument,
        ),
    ] {
        refused(session.grep_all(request).await, reason);
    }
}

/// Answers around the default limit of a message, and far above it, come to a
/// client with the default limit.
#[tokio::test]
async fn b139_large_answers_of_searches_come_in_small_messages() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let line = format!("NEEDLE{}\n", "x".repeat(249));
    for size in [4_194_303, 4_194_304, 4_194_305, 24 << 20] {
        let mut content = line.repeat(size / line.len());
        content.push_str(&"y".repeat(size - content.len()));
        fs::write(daemon.work().join("f"), &content).unwrap();
        let request = v1::GrepRequest {
            limit: 1_000_000,
            byte_limit: 256 << 20,
            ..for_text("NEEDLE")
        };
        let mut found = session.grep(request).await.unwrap();
        let (mut matches, mut bytes) = (0, 0);
        while let Some(files) = in_time("a piece", found.next()).await.unwrap() {
            for file in files {
                matches += file.matches;
                let lines = file.lines.iter().map(|line| line.text.len() + 1);
                bytes += lines.sum::<usize>();
            }
        }
        assert_eq!(matches, (size / line.len()) as u64);
        assert_eq!(bytes, size / line.len() * line.len());
        assert_eq!(found.summary().unwrap().matches, matches);
    }
    let half = "x".repeat(3 << 20);
    fs::write(daemon.work().join("f"), format!("{half}NEEDLE{half}")).unwrap();
    let found = session.grep_all(for_text("NEEDLE")).await.unwrap();
    assert_eq!(found.files[0].lines[0].length, (6 << 20) + 6);
}

/// A client that takes nothing delays nobody, and its search ends with it.
#[tokio::test]
async fn a_slow_client_holds_up_no_other_search_and_one_that_goes_ends_its_own() {
    let options = DaemonOptions {
        configuration: "[limits]\nsearch_threads = 1\nfile_reads = 1\nfile_searches = 4\n".into(),
        ..DaemonOptions::default()
    };
    let daemon = Daemon::start_with(options).await;
    let session = daemon.session().await;
    let line = format!("NEEDLE{}\n", "x".repeat(249));
    for n in 0..8 {
        fs::write(daemon.work().join(n.to_string()), line.repeat(16 << 10)).unwrap();
    }
    let all = || v1::GrepRequest {
        limit: 1_000_000,
        byte_limit: 256 << 20,
        ..for_text("NEEDLE")
    };
    let mut slow = Vec::new();
    for _ in 0..3 {
        // Each on a connection of its own, as its window fills up.
        let session = daemon.session().await;
        slow.push(session.grep(all()).await.unwrap());
    }
    for _ in 0..3 {
        let found = in_time("another search", session.grep_all(for_text("NEEDLE"))).await;
        assert_eq!(found.unwrap().summary.matches, 10_000);
    }
    slow.push(daemon.session().await.grep(all()).await.unwrap());
    let error = refused(session.grep_all(for_text("x")).await, Reason::CallLimit);
    assert_eq!(error.metadata("limit"), Some("file_searches"));
    drop(slow);
    let begin = Instant::now();
    eventually("an end of searches that nobody takes", || async {
        session.grep_all(for_text("NEEDLE")).await.ok()
    })
    .await;
    assert!(begin.elapsed() < PATIENCE);
    // All of one is still there when its client comes back to it.
    let mut found = session.grep(all()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut matches = 0;
    while let Some(files) = in_time("a piece", found.next()).await.unwrap() {
        matches += files.iter().map(|file| file.matches).sum::<u64>();
    }
    assert_eq!(matches, 8 * (16 << 10));
}
