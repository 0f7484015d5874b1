//! `executor stat`

use executor_client::{ClientError, v1};

use super::args::StatArgs;
use super::{Place, json, shown};
use crate::cli::failure::{CliError, print_line};

/// Tells what paths name.
pub(super) async fn run(place: &Place<'_>, args: &StatArgs) -> Result<(), CliError> {
    for path in &args.paths {
        let request = v1::StatFileRequest {
            path: place.path(path)?,
            no_follow: args.no_follow,
            with_digest: args.digest,
        };
        let answer = place.session.stat(request).await?;
        let info = file(answer.file)?;
        if place.context.json {
            let mut object = json::info(&info);
            if !answer.digest.is_empty() {
                object.insert("digest".into(), answer.digest.into());
            }
            print_line(serde_json::Value::from(object))?;
        } else {
            for (name, value) in rows(&info, &answer.digest) {
                print_line(format_args!("{name:>9}  {value}"))?;
            }
        }
    }
    Ok(())
}

/// The description that every answer has.
pub(super) fn file(info: Option<v1::FileInfo>) -> Result<v1::FileInfo, CliError> {
    info.ok_or_else(|| ClientError::Protocol("an answer without the file".into()).into())
}

fn rows(info: &v1::FileInfo, digest: &str) -> Vec<(&'static str, String)> {
    let mut rows = vec![
        ("path", shown::name(&info.path)),
        ("kind", shown::kind(info.kind()).to_owned()),
    ];
    if info.kind() == v1::FileKind::Link {
        rows.push(("leads to", shown::name(&info.link_target)));
    }
    let mode = shown::mode(info.kind(), info.mode);
    rows.extend([
        ("size", format!("{} bytes", info.size)),
        ("mode", format!("{:04o} {mode}", info.mode)),
        ("owner", format!("{}:{}", info.uid, info.gid)),
        ("links", info.links.to_string()),
        (
            "modified",
            info.modified_at
                .map_or_else(|| "-".into(), |at| at.to_string()),
        ),
        ("version", info.version.clone()),
    ]);
    if !digest.is_empty() {
        rows.push(("digest", digest.to_owned()));
    }
    rows
}
