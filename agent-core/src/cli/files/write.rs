//! `executor write`

use bytes::BytesMut;
use executor_client::v1::{self, precondition::Condition};
use serde_json::json;

use super::args::WriteArgs;
use super::stat::file;
use super::{Place, json as file_json};
use crate::cli::failure::{CliError, notice, print_line};
use crate::cli::run::input::Input;

/// What a machine takes of one file.
const LARGEST: usize = 256 << 20;

/// Makes a file of what comes on stdin.
pub(super) async fn run(place: &Place<'_>, args: &WriteArgs) -> Result<(), CliError> {
    let open = v1::WriteFileOpen {
        path: place.path(&args.path)?,
        precondition: condition(args).map(|condition| v1::Precondition {
            condition: Some(condition),
        }),
        mode: args.mode,
        parents: args.parents,
        in_place: args.in_place,
        allow_elision: args.allow_elision,
        ..Default::default()
    };
    let mut content = BytesMut::new();
    let mut input = Input::start()?;
    while let Some(data) = input.next().await? {
        content.extend_from_slice(&data);
        if content.len() > LARGEST {
            return Err(CliError::Usage(format!(
                "more than {LARGEST} bytes came on stdin, which is the most of one write"
            )));
        }
    }
    let answer = place.session.write_file(open, content.freeze()).await?;
    let info = file(answer.file)?;
    if place.context.json {
        let durability = answer.durability.unwrap_or_default();
        let mut object = file_json::info(&info);
        let rest = json!({
            "digest": answer.digest,
            "created": answer.created,
            "atomic": durability.atomic,
            "checked": durability.checked,
            "undo_token": place.undo_token(&answer.undo_token),
            "replayed": answer.replayed,
        });
        file_json::extend(&mut object, rest);
        return print_line(serde_json::Value::from(object));
    }
    let done = if answer.created { "made" } else { "replaced" };
    notice(format_args!("{done}, {} bytes", info.size));
    place.tell_undo(&answer.undo_token);
    Ok(())
}

fn condition(args: &WriteArgs) -> Option<Condition> {
    if args.new {
        return Some(Condition::MustNotExist(true));
    }
    let digest = args.if_digest.clone().map(Condition::Digest);
    digest.or_else(|| args.if_version.clone().map(Condition::Version))
}
