//! Images.

use std::path::PathBuf;

use executor_proto::reason::Failure;
use executor_proto::v1;

use super::{info, path};
use crate::files::image::{Bounds, Format, ReadImage};

/// What an image is asked to fit into.
pub(in crate::service) fn bounds(
    request: v1::ReadImageRequest,
) -> Result<(PathBuf, Bounds), Failure> {
    let default = Bounds::default();
    let bounds = Bounds {
        kilobytes: request.max_image_kb.unwrap_or(default.kilobytes),
        side: request.max_side.unwrap_or(default.side),
    };
    Ok((path("path", request.path)?, bounds))
}

/// An image.
pub(in crate::service) fn image(read: ReadImage) -> v1::ReadImageResponse {
    let image = read.image;
    let original = image.original;
    v1::ReadImageResponse {
        file: Some(info(&read.path, &read.facts, None)),
        original_format: format(original.format).into(),
        original_width: original.width,
        original_height: original.height,
        orientation: original.orientation.into(),
        frames: original.pictures,
        format: format(image.format).into(),
        width: image.width,
        height: image.height,
        data: image.data,
        unchanged: image.unchanged,
    }
}

fn format(format: Format) -> v1::ImageFormat {
    match format {
        Format::Png => v1::ImageFormat::Png,
        Format::Jpeg => v1::ImageFormat::Jpeg,
        Format::Gif => v1::ImageFormat::Gif,
        Format::WebP => v1::ImageFormat::Webp,
        Format::Bmp => v1::ImageFormat::Bmp,
        Format::Tiff => v1::ImageFormat::Tiff,
    }
}
