//! From the bytes of a file to an image that fits.

use std::panic::{AssertUnwindSafe, catch_unwind};

use image::metadata::Orientation;

use super::error::ImageError;
use super::pixels::{Decoded, Frames, check};
use super::{
    Bounds, Extent, FILE_BYTES, Format, Image, Original, converted, fit, gif, header, jpeg, png,
    webp,
};
use crate::files::cancel::Cancel;

/// Decodes an image whole and makes it fit.
///
/// # Errors
/// Whatever [`ImageError`] names.
pub fn prepare(mut bytes: Vec<u8>, bounds: &Bounds, cancel: &Cancel) -> Result<Image, ImageError> {
    let (format, size) = examine(&bytes, bytes.len() as u64)?;
    let extent = extent(format, &bytes)?;
    let (width, height) =
        size.ok_or_else(|| ImageError::cut_off(format, "its header, before its size"))?;
    bytes.truncate(extent.end);
    check(cancel)?;
    // Decoders are large, and what they are given comes from anywhere.
    let decoded = catch_unwind(AssertUnwindSafe(|| decode(format, &bytes, cancel)));
    let decoded = decoded
        .unwrap_or_else(|_| Err(ImageError::damaged(format, "its decoder gave up on it")))?;
    check(cancel)?;
    let Decoded {
        pixels,
        orientation,
        whole,
    } = decoded;
    let original = Original {
        format,
        width,
        height,
        orientation: orientation.to_exif(),
        pictures: extent.pictures,
    };
    let small = width.max(height) <= bounds.side;
    let change = extent.change || !whole;
    if !change && small && bytes.len() <= bounds.bytes() {
        return Ok(Image {
            format,
            width,
            height,
            data: bytes,
            unchanged: true,
            original,
        });
    }
    drop(bytes);
    let made = remake(format, pixels, orientation, change && small, bounds, cancel)?;
    Ok(Image {
        format: made.format,
        width: made.width,
        height: made.height,
        data: made.data,
        unchanged: false,
        original,
    })
}

/// What a file of `size` bytes is that begins with `head`, as far as it can be
/// seen, in constant memory.
///
/// # Errors
/// For what is no image or one that is too large.
pub(super) fn examine(head: &[u8], size: u64) -> Result<(Format, Option<(u32, u32)>), ImageError> {
    let format = header::recognise(head)?;
    if size > FILE_BYTES {
        return Err(ImageError::TooManyBytes { format, size });
    }
    let pixels = header::size(format, head);
    if let Some(pixels) = pixels {
        header::check(format, pixels)?;
    }
    Ok((format, pixels))
}

fn extent(format: Format, bytes: &[u8]) -> Result<Extent, ImageError> {
    match format {
        Format::Png => png::extent(bytes),
        Format::Jpeg => jpeg::extent(bytes),
        Format::Gif => gif::extent(bytes),
        Format::WebP => webp::extent(bytes),
        Format::Bmp | Format::Tiff => Ok(converted::extent(format, bytes)),
    }
}

fn decode(format: Format, bytes: &[u8], cancel: &Cancel) -> Result<Decoded, ImageError> {
    let frames = Frames::new(cancel);
    match format {
        Format::Png => png::decode(bytes, frames),
        Format::Jpeg => jpeg::decode(bytes),
        Format::Gif => gif::decode(bytes, frames),
        Format::WebP => webp::decode(bytes, frames),
        Format::Bmp => converted::bmp(bytes),
        Format::Tiff => converted::tiff(bytes),
    }
}

/// A JPEG stays one; of the others what only has to change its kind keeps its
/// colors, if that is small enough.
fn remake(
    format: Format,
    pixels: super::pixels::Pixels,
    orientation: Orientation,
    as_it_is: bool,
    bounds: &Bounds,
    cancel: &Cancel,
) -> Result<fit::Made, ImageError> {
    if !as_it_is || format == Format::Jpeg {
        return fit::jpeg(pixels, orientation, bounds, cancel);
    }
    match fit::png(pixels, orientation, bounds)? {
        Ok(made) => Ok(made),
        // It is upright by now.
        Err(pixels) => fit::jpeg(pixels, Orientation::NoTransforms, bounds, cancel),
    }
}
