//! `executor cat`

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use executor_client::v1;
use serde_json::{Value, json};

use super::args::CatArgs;
use super::{Place, json as file_json};
use crate::cli::failure::{CliError, print_line, report};
use crate::cli::sink::{Sink, Target};

/// Prints the bytes of files, one after the other. Says how many could not be
/// read, which has been told.
pub(super) async fn run(place: &Place<'_>, args: &CatArgs) -> Result<usize, CliError> {
    let sink = Sink::start()?;
    let mut failed = 0;
    for path in &args.paths {
        match one(place, args, place.path(path)?, &sink).await {
            Ok(()) => {}
            Err(error @ CliError::Client(_)) => {
                // In its place: what came before is written first.
                sink.settle().await?;
                report(&error, place.context.json);
                failed += 1;
            }
            Err(error) => return Err(error),
        }
    }
    sink.finish().await?;
    Ok(failed)
}

async fn one(
    place: &Place<'_>,
    args: &CatArgs,
    path: Vec<u8>,
    sink: &Sink,
) -> Result<(), CliError> {
    let mut bytes = place.session.read_bytes(v1::ReadBytesRequest {
        path: path.clone(),
        offset: args.offset,
        length: args.length,
        ..Default::default()
    });
    loop {
        let offset = bytes.offset();
        let Some(data) = bytes.next().await? else {
            return Ok(());
        };
        if place.context.json {
            print_line(part(&path, offset, &data))?;
        } else {
            sink.write(Target::Stdout, data).await?;
        }
    }
}

/// As `text` where the bytes are UTF-8, else as `base64`.
fn part(path: &[u8], offset: u64, data: &[u8]) -> Value {
    let mut object = file_json::at(path);
    let content = match std::str::from_utf8(data) {
        Ok(text) => json!({"offset": offset, "text": text}),
        Err(_) => json!({"offset": offset, "base64": STANDARD.encode(data)}),
    };
    file_json::extend(&mut object, content);
    object.into()
}
