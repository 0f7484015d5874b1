//! `executor edit`

use executor_client::v1;
use rustix::termios::isatty;
use serde_json::{Value, json};

use super::args::EditArgs;
use super::stat::file;
use super::{Place, json as file_json};
use crate::cli::failure::{CliError, notice, print_line};

const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const CYAN: &str = "\x1b[36m";
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

/// Replaces text in a file and prints what changed.
pub(super) async fn run(place: &Place<'_>, args: &EditArgs) -> Result<(), CliError> {
    let request = v1::EditFileRequest {
        path: place.path(&args.path)?,
        edits: vec![v1::Edit {
            old: args.old.clone(),
            new: args.new.clone(),
            replace_all: args.all,
        }],
        dry_run: args.dry_run,
        in_place: args.in_place,
        encoding: args.encoding.clone(),
        ..Default::default()
    };
    let answer = place.session.edit_file(request).await?;
    if place.context.json {
        return print_line(in_json(place, answer)?);
    }
    let no_color = place.context.surroundings.variable("NO_COLOR");
    let colored = isatty(rustix::stdio::stdout()) && no_color.is_none_or(|value| value.is_empty());
    for line in answer.diff.lines() {
        if colored {
            print_line(color(line))?;
        } else {
            print_line(line)?;
        }
    }
    if answer.diff_truncated {
        notice(format_args!(
            "the diff is cut; in all {} lines added, {} removed",
            answer.lines_added, answer.lines_removed
        ));
    }
    if answer.line_endings_adapted {
        notice("line endings of the text were taken as the file's");
    }
    if args.dry_run {
        notice("nothing was changed");
    } else {
        place.tell_undo(&answer.undo_token);
    }
    Ok(())
}

fn color(line: &str) -> String {
    let color = match line.as_bytes().first() {
        _ if line.starts_with("--- ") || line.starts_with("+++ ") => BOLD,
        Some(b'-') => RED,
        Some(b'+') => GREEN,
        Some(b'@') => CYAN,
        _ => return line.to_owned(),
    };
    format!("{color}{line}{PLAIN}")
}

fn in_json(place: &Place<'_>, answer: v1::EditFileResponse) -> Result<Value, CliError> {
    let mut object = file_json::info(&file(answer.file)?);
    let durability = answer.durability.unwrap_or_default();
    let rest = json!({
        "digest_before": answer.digest_before,
        "digest": answer.digest,
        "diff": answer.diff,
        "diff_truncated": answer.diff_truncated,
        "lines_added": answer.lines_added,
        "lines_removed": answer.lines_removed,
        "replacements": answer.replacements,
        "line_endings_adapted": answer.line_endings_adapted,
        "atomic": durability.atomic,
        "checked": durability.checked,
        "undo_token": place.undo_token(&answer.undo_token),
        "replayed": answer.replayed,
    });
    file_json::extend(&mut object, rest);
    Ok(object.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_diff_have_their_colors() {
        for (line, colored) in [
            ("--- a/x", "\x1b[1m--- a/x\x1b[0m"),
            ("-old", "\x1b[31m-old\x1b[0m"),
            ("+new", "\x1b[32m+new\x1b[0m"),
            ("@@ -1 +1 @@", "\x1b[36m@@ -1 +1 @@\x1b[0m"),
            (" same", " same"),
        ] {
            assert_eq!(color(line), colored);
        }
    }
}
