//! `executor rm`, `mv`, `mkdir` and `undo`

use executor_client::v1;
use serde_json::{Value, json};

use super::args::{MkdirArgs, MvArgs, RmArgs, UndoArgs};
use super::stat::file;
use super::{Place, json as file_json, shown};
use crate::cli::failure::{CliError, notice, print_line};

/// Removes one path after the other; the first that cannot be removed ends it.
pub(super) async fn rm(place: &Place<'_>, args: &RmArgs) -> Result<(), CliError> {
    for path in &args.paths {
        let request = v1::RemoveFileRequest {
            path: place.path(path)?,
            recursive: args.recursive,
            missing_ok: args.force,
            ..Default::default()
        };
        let answer = place.session.remove_file(request).await?;
        if place.context.json {
            let mut object = file_json::at(&answer.path);
            let rest = json!({
                "removed": answer.removed,
                "undo_token": place.undo_token(&answer.undo_token),
                "replayed": answer.replayed,
            });
            file_json::extend(&mut object, rest);
            print_line(Value::from(object))?;
        } else if answer.removed > 0 {
            place.tell_undo(&answer.undo_token);
            place.tell_no_undo(&answer.undo_token);
        }
    }
    Ok(())
}

/// Gives an entry another name.
pub(super) async fn mv(place: &Place<'_>, args: &MvArgs) -> Result<(), CliError> {
    let request = v1::RenameFileRequest {
        from: place.path(&args.from)?,
        to: place.path(&args.to)?,
        replace: args.replace,
        parents: args.parents,
        ..Default::default()
    };
    let answer = place.session.rename_file(request).await?;
    if place.context.json {
        let durability = answer.durability.unwrap_or_default();
        let mut object = file_json::info(&file(answer.file)?);
        let rest = json!({
            "unchanged": answer.unchanged,
            "atomic": durability.atomic,
            "checked": durability.checked,
            "undo_token": place.undo_token(&answer.undo_token),
            "replayed": answer.replayed,
        });
        file_json::extend(&mut object, rest);
        return print_line(Value::from(object));
    }
    if answer.unchanged {
        notice("both names are the same entry; nothing was changed");
    }
    place.tell_undo(&answer.undo_token);
    Ok(())
}

/// Makes directories.
pub(super) async fn mkdir(place: &Place<'_>, args: &MkdirArgs) -> Result<(), CliError> {
    for path in &args.paths {
        let request = v1::MakeDirectoryRequest {
            path: place.path(path)?,
            parents: args.parents,
            mode: args.mode,
            ..Default::default()
        };
        let answer = place.session.make_directory(request).await?;
        if place.context.json {
            let mut object = file_json::info(&file(answer.file)?);
            let rest = json!({"created": answer.created, "replayed": answer.replayed});
            file_json::extend(&mut object, rest);
            print_line(Value::from(object))?;
        }
    }
    Ok(())
}

/// Takes a change back.
pub(super) async fn undo(place: &Place<'_>, args: &UndoArgs) -> Result<(), CliError> {
    let answer = place.session.undo(&args.token).await?;
    if place.context.json {
        let mut object = match &answer.file {
            Some(info) => file_json::info(info),
            None => file_json::at(&answer.path),
        };
        let rest = json!({"present": answer.file.is_some(), "replayed": answer.replayed});
        file_json::extend(&mut object, rest);
        return print_line(Value::from(object));
    }
    let path = shown::name(&answer.path);
    if answer.file.is_some() {
        notice(format_args!("{path} is as it was"));
    } else {
        notice(format_args!(
            "nothing has the name {path} any more, as before"
        ));
    }
    Ok(())
}
