//! `executor view`

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;

use executor_client::v1;
use rustix::termios::isatty;
use serde_json::{Value, json};

use super::args::ViewArgs;
use super::stat::file;
use super::terminal_image::Protocol;
use super::{Place, json as file_json, shown};
use crate::cli::failure::{CliError, notice, print_line};

/// Tells what an image is, and shows or saves it.
pub(super) async fn run(place: &Place<'_>, args: &ViewArgs) -> Result<(), CliError> {
    let request = v1::ReadImageRequest {
        path: place.path(&args.path)?,
        max_image_kb: Some(args.max_kb),
        max_side: args.max_side,
    };
    let answer = place.session.read_image(request).await?;
    let info = file(answer.file.clone())?;
    if let Some(target) = &args.save {
        save(target, &answer.data)?;
    }
    if place.context.json {
        return print_line(in_json(&info, &answer));
    }
    for (name, value) in rows(&info, &answer) {
        print_line(format_args!("{name:>11}  {value}"))?;
    }
    if !args.quiet && isatty(rustix::stdio::stdout()) {
        show(place, &answer.data)?;
    }
    if let Some(target) = &args.save {
        notice(format_args!("saved as {}", target.display()));
    }
    Ok(())
}

fn save(target: &Path, data: &[u8]) -> Result<(), CliError> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    let saved = options
        .open(target)
        .and_then(|mut file| file.write_all(data));
    saved.map_err(|error| CliError::Io {
        what: format!("cannot write {}", target.display()),
        source: error,
    })
}

fn show(place: &Place<'_>, data: &[u8]) -> Result<(), CliError> {
    let surroundings = &place.context.surroundings;
    let variable = |name: &str| surroundings.variable(name)?.to_str();
    let Some(protocol) = Protocol::of(variable) else {
        return Ok(());
    };
    let Some(mut sequence) = protocol.sequence(data) else {
        return Ok(());
    };
    sequence.push(b'\n');
    let written = io::stdout().write_all(&sequence);
    written.map_err(|error| CliError::io("cannot write to stdout", error))
}

fn rows(info: &v1::FileInfo, image: &v1::ReadImageResponse) -> Vec<(&'static str, String)> {
    let format = name(image.original_format());
    let (width, height) = (image.original_width, image.original_height);
    let mut rows = vec![
        ("path", shown::name(&info.path)),
        ("image", format!("{format}, {width} x {height} pixels")),
        ("size", format!("{} bytes", info.size)),
    ];
    if image.frames > 1 {
        rows.push(("frames", image.frames.to_string()));
    }
    if image.orientation > 1 {
        rows.push(("orientation", format!("{} (EXIF)", image.orientation)));
    }
    let returned = if image.unchanged {
        "unchanged".into()
    } else {
        format!(
            "{}, {} x {} pixels, {} bytes",
            name(image.format()),
            image.width,
            image.height,
            image.data.len()
        )
    };
    rows.push(("returned", returned));
    rows
}

fn in_json(info: &v1::FileInfo, image: &v1::ReadImageResponse) -> Value {
    let mut object = file_json::info(info);
    let rest = json!({
        "original": {
            "format": name(image.original_format()),
            "width": image.original_width,
            "height": image.original_height,
            "orientation": image.orientation,
            "frames": image.frames,
        },
        "returned": {
            "format": name(image.format()),
            "width": image.width,
            "height": image.height,
            "bytes": image.data.len(),
            "unchanged": image.unchanged,
        },
    });
    file_json::extend(&mut object, rest);
    object.into()
}

fn name(format: v1::ImageFormat) -> &'static str {
    match format {
        v1::ImageFormat::Unspecified => "unknown",
        v1::ImageFormat::Png => "PNG",
        v1::ImageFormat::Jpeg => "JPEG",
        v1::ImageFormat::Gif => "GIF",
        v1::ImageFormat::Webp => "WebP",
        v1::ImageFormat::Bmp => "BMP",
        v1::ImageFormat::Tiff => "TIFF",
    }
}
