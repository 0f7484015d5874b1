//! `executor glob` and `executor grep`

use std::borrow::Cow;
use std::io::{self, Write as _};

use executor_client::{path_bytes, v1};
use rustix::termios::isatty;
use serde_json::{Value, json};

use super::search_args::{GlobArgs, GrepArgs, ScopeArgs};
use super::{Place, json as file_json, shown};
use crate::cli::failure::{CliError, notice, print_line};

/// Nothing was found.
const NOTHING: u8 = 1;
/// Bytes of all lines that are told.
const BYTES: u64 = 256 << 20;

const MAGENTA: &str = "\x1b[35m";
const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[1;31m";
const PLAIN: &str = "\x1b[0m";

/// Finds paths.
pub(super) async fn glob(place: &Place<'_>, args: &GlobArgs) -> Result<u8, CliError> {
    let mut scope = scope(place, &args.scope)?;
    scope.globs.push(args.pattern.clone());
    let request = v1::GlobRequest {
        scope: Some(scope),
        directories: args.directories,
        limit: args.limit,
    };
    let base = Base::of(place, &args.scope)?;
    let mut found = place.session.glob(request).await?;
    let mut some = false;
    while let Some(entries) = found.next().await? {
        some = true;
        let mut text = Vec::new();
        for entry in entries {
            let path = base.shown(&entry.path);
            if place.context.json {
                let mut object = file_json::at(path);
                let rest = json!({"kind": shown::kind(entry.kind())});
                file_json::extend(&mut object, rest);
                text.extend_from_slice(Value::from(object).to_string().as_bytes());
            } else {
                text.extend_from_slice(shown::name(path).as_bytes());
                text.extend_from_slice(shown::mark(entry.kind()).as_bytes());
            }
            text.push(b'\n');
        }
        print(&text)?;
    }
    end(place, &base, found.summary(), "paths", some)
}

/// Finds text.
pub(super) async fn grep(place: &Place<'_>, args: &GrepArgs) -> Result<u8, CliError> {
    let request = request(place, args)?;
    let tell = request.tell();
    let base = Base::of(place, &args.scope)?;
    let context = request.before_context + request.after_context > 0;
    let mut found = place.session.grep(request).await?;
    let mut printer = Printer {
        json: place.context.json,
        colored: colored(place),
        terminal: isatty(rustix::stdio::stdout()),
        context,
        last: None,
    };
    let mut some = false;
    while let Some(files) = found.next().await? {
        some = true;
        let mut text = Vec::new();
        for file in &files {
            let path = base.shown(&file.path);
            match tell {
                v1::GrepTell::Lines | v1::GrepTell::Unspecified => {
                    printer.lines(&mut text, path, file);
                }
                v1::GrepTell::Files => printer.file(&mut text, path, None),
                v1::GrepTell::Counts => printer.file(&mut text, path, Some(file.matches)),
            }
        }
        print(&text)?;
    }
    let what = if tell == v1::GrepTell::Lines {
        "lines"
    } else {
        "files"
    };
    end(place, &base, found.summary(), what, some)
}

fn request(place: &Place<'_>, args: &GrepArgs) -> Result<v1::GrepRequest, CliError> {
    let case = match (args.ignore_case, args.smart_case) {
        (true, _) => v1::GrepCase::Ignore,
        (_, true) => v1::GrepCase::Smart,
        _ => v1::GrepCase::Sensitive,
    };
    let tell = match (args.files_with_matches, args.count) {
        (true, _) => v1::GrepTell::Files,
        (_, true) => v1::GrepTell::Counts,
        _ => v1::GrepTell::Lines,
    };
    let engine = if args.pcre2 {
        v1::GrepEngine::Pcre2
    } else {
        v1::GrepEngine::Rust
    };
    Ok(v1::GrepRequest {
        scope: Some(scope(place, &args.scope)?),
        pattern: args.pattern.clone(),
        engine: engine.into(),
        fixed: args.fixed_strings,
        case: case.into(),
        word: args.word_regexp,
        whole_line: args.line_regexp,
        invert: args.invert_match,
        multi_line: args.multiline,
        dot_all: args.multiline_dotall,
        tell: tell.into(),
        before_context: args.before_context.unwrap_or(args.context),
        after_context: args.after_context.unwrap_or(args.context),
        binary: args.text,
        file_limit: args.max_count.unwrap_or(0),
        limit: args.limit,
        byte_limit: BYTES,
        max_file_bytes: args.max_filesize.unwrap_or(0),
    })
}

fn scope(place: &Place<'_>, args: &ScopeArgs) -> Result<v1::SearchScope, CliError> {
    let mut paths = Vec::new();
    for path in &args.paths {
        paths.push(place.path(path)?);
    }
    if paths.is_empty() {
        paths.push(place.path(".".as_ref())?);
    }
    Ok(v1::SearchScope {
        paths,
        globs: args.glob.clone(),
        globs_ignore_case: args.glob_case_insensitive,
        types: args.types.clone(),
        types_not: args.types_not.clone(),
        hidden: args.hidden,
        no_ignore: args.no_ignore,
        no_ignore_vcs: args.no_ignore_vcs,
        no_ignore_parent: args.no_ignore_parent,
        no_require_git: args.no_require_git,
        max_depth: args.max_depth.unwrap_or(0),
        ..Default::default()
    })
}

/// What the machine's paths begin with and the user's do not.
struct Base(Vec<u8>);

impl Base {
    fn of(place: &Place<'_>, args: &ScopeArgs) -> Result<Self, CliError> {
        if args.paths.iter().any(|path| path.is_absolute()) {
            return Ok(Self(Vec::new()));
        }
        let here = place.path(".".as_ref())?;
        let mut base = match here.strip_suffix(b"/.") {
            Some(b"") => path_bytes("/"),
            Some(here) => here.to_vec(),
            // Not our own machine: paths are as they were given.
            None => return Ok(Self(Vec::new())),
        };
        if !base.ends_with(b"/") {
            base.push(b'/');
        }
        Ok(Self(base))
    }

    fn shown<'a>(&self, path: &'a [u8]) -> &'a [u8] {
        let path = path.strip_prefix(self.0.as_slice()).unwrap_or(path);
        path.strip_prefix(b"./").unwrap_or(path)
    }
}

struct Printer {
    json: bool,
    colored: bool,
    terminal: bool,
    /// Lines beside matches are told.
    context: bool,
    /// The path and line told last.
    last: Option<(Vec<u8>, u64)>,
}

impl Printer {
    fn lines(&mut self, text: &mut Vec<u8>, path: &[u8], file: &v1::GrepFile) {
        let name = shown::name(path);
        for line in &file.lines {
            if self.json {
                let object = line_in_json(path, line);
                text.extend_from_slice(object.to_string().as_bytes());
                text.push(b'\n');
                continue;
            }
            if self.context {
                let follows = |(last, number): &(Vec<u8>, u64)| {
                    last.as_slice() == path && number + 1 == line.number
                };
                if self.last.as_ref().is_some_and(|last| !follows(last)) {
                    text.extend_from_slice(b"--\n");
                }
                self.last = Some((path.to_vec(), line.number));
            }
            self.line(text, &name, line);
        }
        if file.cut && !self.json {
            notice(format_args!("{name}: more lines match"));
        }
    }

    fn line(&self, text: &mut Vec<u8>, name: &str, line: &v1::GrepLine) {
        let sign = if line.context { '-' } else { ':' };
        let head = if self.colored {
            format!(
                "{MAGENTA}{name}{PLAIN}{sign}{GREEN}{}{PLAIN}{sign}",
                line.number
            )
        } else {
            format!("{name}{sign}{}{sign}", line.number)
        };
        text.extend_from_slice(head.as_bytes());
        if line.text_start > 0 {
            let before = format!("[\u{2026} {} bytes]", line.text_start);
            text.extend_from_slice(before.as_bytes());
        }
        let mut told = 0;
        if self.colored {
            for span in &line.spans {
                let place = |at: u32| usize::try_from(at).unwrap_or(usize::MAX);
                let (start, end) = (place(span.start), place(span.end));
                let (Some(before), Some(within)) =
                    (line.text.get(told..start), line.text.get(start..end))
                else {
                    break;
                };
                text.extend_from_slice(&self.seen(before));
                text.extend_from_slice(RED.as_bytes());
                text.extend_from_slice(&self.seen(within));
                text.extend_from_slice(PLAIN.as_bytes());
                told = end;
            }
        }
        text.extend_from_slice(&self.seen(line.text.get(told..).unwrap_or_default()));
        let behind = line.length - line.text_start - line.text.len() as u64;
        if line.clipped && behind > 0 {
            text.extend_from_slice(format!("[\u{2026} {behind} bytes]").as_bytes());
        }
        text.push(b'\n');
    }

    /// On a terminal nothing that a file holds moves the cursor.
    fn seen<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let moves = |byte: &u8| (*byte < 0x20 && *byte != b'\t') || *byte == 0x7f;
        if !self.terminal || !bytes.iter().any(moves) {
            return Cow::Borrowed(bytes);
        }
        let seen = |byte: &u8| if moves(byte) { b'?' } else { *byte };
        Cow::Owned(bytes.iter().map(seen).collect())
    }

    fn file(&self, text: &mut Vec<u8>, path: &[u8], count: Option<u64>) {
        if self.json {
            let mut object = file_json::at(path);
            if let Some(count) = count {
                file_json::extend(&mut object, json!({"matches": count}));
            }
            text.extend_from_slice(Value::from(object).to_string().as_bytes());
        } else {
            text.extend_from_slice(shown::name(path).as_bytes());
            if let Some(count) = count {
                text.extend_from_slice(format!(":{count}").as_bytes());
            }
        }
        text.push(b'\n');
    }
}

fn line_in_json(path: &[u8], line: &v1::GrepLine) -> Value {
    let mut object = file_json::at(path);
    let spans = line.spans.iter().map(|span| json!([span.start, span.end]));
    let rest = json!({
        "line": line.number,
        "column": (line.column > 0).then_some(line.column),
        "offset": line.offset,
        "context": line.context,
        "clipped": line.clipped,
        "length": line.length,
        "text_start": line.text_start,
        "spans": spans.collect::<Vec<_>>(),
    });
    file_json::extend(&mut object, rest);
    file_json::put_name(&mut object, "text", &line.text);
    object.into()
}

fn colored(place: &Place<'_>) -> bool {
    let no_color = place.context.surroundings.variable("NO_COLOR");
    isatty(rustix::stdio::stdout()) && no_color.is_none_or(|value| value.is_empty())
}

fn print(text: &[u8]) -> Result<(), CliError> {
    io::stdout()
        .write_all(text)
        .map_err(|error| CliError::io("cannot write to stdout", error))
}

/// Silence would say that all was searched.
fn end(
    place: &Place<'_>,
    base: &Base,
    summary: Option<&v1::SearchSummary>,
    what: &str,
    some: bool,
) -> Result<u8, CliError> {
    let default = v1::SearchSummary::default();
    let summary = summary.unwrap_or(&default);
    if place.context.json {
        print_line(file_json::search_summary(summary, |path| {
            base.shown(path).to_vec()
        }))?;
    } else {
        for problem in &summary.problems {
            let name = shown::name(base.shown(&problem.path));
            notice(format_args!("not searched: {name}: {}", problem.message));
        }
        if summary.limit_reached {
            notice(format_args!(
                "only the first {what} are told; raise --limit to see more"
            ));
        }
        let passed = passed_over(summary);
        if !passed.is_empty() {
            notice(format_args!("passed over: {passed}"));
        }
    }
    Ok(if some { 0 } else { NOTHING })
}

/// What was not searched, in words.
fn passed_over(summary: &v1::SearchSummary) -> String {
    let counts = [
        (summary.ignored, "ignored"),
        (summary.hidden, "hidden"),
        (summary.binary, "binary"),
        (summary.too_large, "too large"),
        (summary.unreadable, "unreadable"),
        (summary.secret, "secret"),
        (summary.special, "special"),
    ];
    let words = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"));
    words.collect::<Vec<_>>().join(", ")
}
