//! `executor ls` and `executor tree`

use executor_client::{Listing, v1};

use super::args::{LsArgs, TreeArgs};
use super::{Place, json, shown};
use crate::cli::failure::{CliError, notice, print_line};

/// Lists a directory.
pub(super) async fn ls(place: &Place<'_>, args: &LsArgs) -> Result<(), CliError> {
    let request = v1::ListDirectoryRequest {
        path: place.path(&args.path)?,
        depth: 1,
        skip_hidden: !args.all,
        ..Default::default()
    };
    let listing = place.session.list_directory(request).await?;
    if place.context.json {
        return in_json(&listing);
    }
    let sizes = listing
        .entries
        .iter()
        .map(|entry| entry.size.to_string().len());
    let width = sizes.max().unwrap_or(1);
    for entry in &listing.entries {
        let name = named(entry, &entry.path);
        if args.long {
            let mode = shown::mode(entry.kind(), entry.mode);
            let time = shown::time(shown::seconds(entry));
            print_line(format_args!("{mode} {:>width$} {time} {name}", entry.size))?;
        } else {
            print_line(name)?;
        }
    }
    tell_what_is_missing(&listing.summary, false);
    Ok(())
}

/// Lists a directory and those below.
pub(super) async fn tree(place: &Place<'_>, args: &TreeArgs) -> Result<(), CliError> {
    let request = v1::ListDirectoryRequest {
        path: place.path(&args.path)?,
        depth: args.depth,
        gitignore: !args.no_ignore,
        skip_hidden: !args.all,
        limit: args.limit,
    };
    let listing = place.session.list_directory(request).await?;
    if place.context.json {
        return in_json(&listing);
    }
    print_line(shown::name(&listing.summary.path))?;
    for entry in &listing.entries {
        let depth = entry.path.iter().filter(|byte| **byte == b'/').count();
        let own = entry.path.rsplit(|byte| *byte == b'/').next();
        let name = named(entry, own.unwrap_or_default());
        print_line(format_args!("{}{name}", "  ".repeat(depth + 1)))?;
    }
    let summary = &listing.summary;
    print_line(format_args!(
        "{} entries, {} left out",
        summary.entries, summary.ignored
    ))?;
    tell_what_is_missing(summary, true);
    Ok(())
}

fn named(entry: &v1::DirectoryEntry, name: &[u8]) -> String {
    let (name, mark) = (shown::name(name), shown::mark(entry.kind()));
    if entry.kind() == v1::FileKind::Link {
        return format!("{name}{mark} -> {}", shown::name(&entry.link_target));
    }
    format!("{name}{mark}")
}

fn in_json(listing: &Listing) -> Result<(), CliError> {
    for entry in &listing.entries {
        print_line(json::entry(entry))?;
    }
    print_line(json::summary(&listing.summary))
}

/// Silence would say that this is all.
fn tell_what_is_missing(summary: &v1::ListSummary, has_limit: bool) {
    if summary.limit_reached {
        let hint = if has_limit {
            "; raise --limit to see more"
        } else {
            ""
        };
        notice(format_args!(
            "only the first {} entries are listed{hint}",
            summary.entries
        ));
    }
    for problem in &summary.problems {
        let name = shown::name(&problem.path);
        notice(format_args!("not listed: {name}: {}", problem.message));
    }
    let more = summary
        .unreadable
        .saturating_sub(summary.problems.len() as u64);
    if more > 0 {
        notice(format_args!("not listed: {more} more directories"));
    }
}
