//! `executor ls` and `executor tree`

use executor_client::{ClientError, Listing, Reason, path_bytes, v1};

use super::args::{LsArgs, TreeArgs};
use super::{Place, json, shown};
use crate::cli::failure::{CliError, notice, print_line, report};

/// Lists directories and files, one after the other. Says how many could not
/// be listed, which has been told.
pub(super) async fn ls(place: &Place<'_>, args: &LsArgs) -> Result<usize, CliError> {
    let mut failed = 0;
    for (index, given) in args.paths.iter().enumerate() {
        let (path, given) = (place.path(given)?, path_bytes(given));
        let (listing, of_directory) = match listing(place, args, path, &given).await {
            Ok(listing) => listing,
            Err(error) => {
                report(&CliError::from(error), place.context.json);
                failed += 1;
                continue;
            }
        };
        if place.context.json {
            in_json(&listing)?;
            continue;
        }
        if args.paths.len() > 1 && of_directory {
            let gap = if index == 0 { "" } else { "\n" };
            print_line(format_args!("{gap}{}:", shown::name(&given)))?;
        }
        print(&listing, args.long)?;
    }
    Ok(failed)
}

/// Of a directory; what is none is an entry by itself, with the name given.
async fn listing(
    place: &Place<'_>,
    args: &LsArgs,
    path: Vec<u8>,
    given: &[u8],
) -> Result<(Listing, bool), ClientError> {
    let request = v1::ListDirectoryRequest {
        path: path.clone(),
        depth: 1,
        skip_hidden: !args.all,
        limit: args.limit,
        ..Default::default()
    };
    let error = match place.session.list_directory(request).await {
        Err(error) if error.reason() == Some(Reason::PathNotADirectory) => error,
        listing => return listing.map(|listing| (listing, true)),
    };
    let request = v1::StatFileRequest {
        path,
        no_follow: true,
        ..Default::default()
    };
    // What it is not either is told by what was asked first.
    let info = place.session.stat(request).await.map_err(|_| error)?;
    let info = info.file.unwrap_or_default();
    let listing = Listing {
        entries: vec![v1::DirectoryEntry {
            path: given.to_vec(),
            kind: info.kind,
            size: info.size,
            mode: info.mode,
            modified_at: info.modified_at,
            link_target: info.link_target,
        }],
        summary: v1::ListSummary {
            path: info.path,
            entries: 1,
            ..Default::default()
        },
    };
    Ok((listing, false))
}

fn print(listing: &Listing, long: bool) -> Result<(), CliError> {
    let sizes = listing
        .entries
        .iter()
        .map(|entry| entry.size.to_string().len());
    let width = sizes.max().unwrap_or(1);
    for entry in &listing.entries {
        let name = named(entry, &entry.path);
        if long {
            let mode = shown::mode(entry.kind(), entry.mode);
            let time = shown::time(shown::seconds(entry));
            print_line(format_args!("{mode} {:>width$} {time} {name}", entry.size))?;
        } else {
            print_line(name)?;
        }
    }
    tell_what_is_missing(&listing.summary);
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
    tell_what_is_missing(summary);
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
fn tell_what_is_missing(summary: &v1::ListSummary) {
    if summary.limit_reached {
        notice(format_args!(
            "only the first {} entries are listed; raise --limit to see more",
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
