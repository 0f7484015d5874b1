//! An image made anew: as PNG if it is small enough, else as JPEG, scaled until
//! it is.

use std::io::{self, Write};

use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::metadata::Orientation;
use image::{DynamicImage, RgbImage};

use super::error::ImageError;
use super::pixels::{Pixels, check, usize_of};
use super::{Bounds, Format};
use crate::files::cancel::Cancel;

/// Qualities that are tried before the picture is made smaller, 1 to 100.
const QUALITIES: [u8; 2] = [85, 70];
/// Pixels that a byte of JPEG can hold; a picture that has more is made smaller
/// before it is tried.
const PIXELS_OF_A_BYTE: u64 = 8;

/// An image file.
pub(super) struct Made {
    pub(super) format: Format,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) data: Vec<u8>,
}

impl Bounds {
    pub(super) fn bytes(&self) -> usize {
        usize_of(self.kilobytes) << 10
    }
}

/// As PNG, with all its colors and its alpha; `None`: it would be too large.
pub(super) fn png(
    pixels: Pixels,
    orientation: Orientation,
    bounds: &Bounds,
) -> Result<Result<Made, Pixels>, ImageError> {
    let Some(image) = pixels.upright(orientation) else {
        let why = "it has another number of pixels than it says";
        return Err(ImageError::damaged(Format::Png, why));
    };
    let mut file = Bounded {
        data: Vec::new(),
        limit: bounds.bytes(),
        full: false,
    };
    let done = image.write_with_encoder(PngEncoder::new(&mut file));
    // The encoder writes the last chunk where it can tell of no failure.
    if done.is_err() || file.full {
        return Ok(Err(Pixels::from(image)));
    }
    Ok(Ok(Made {
        format: Format::Png,
        width: image.width(),
        height: image.height(),
        data: file.data,
    }))
}

/// As JPEG on white, as large as it can be.
pub(super) fn jpeg(
    pixels: Pixels,
    orientation: Orientation,
    bounds: &Bounds,
    cancel: &Cancel,
) -> Result<Made, ImageError> {
    let most = bounds.bytes();
    let first = first_size(&pixels, bounds);
    let mut image = DynamicImage::from(pixels.reduced(first, cancel)?);
    drop(pixels);
    image.apply_orientation(orientation);
    let mut image = image.into_rgb8();
    loop {
        let mut least = usize::MAX;
        for quality in QUALITIES {
            check(cancel)?;
            let data = encoded(&image, quality)?;
            if data.len() <= most {
                return Ok(Made {
                    format: Format::Jpeg,
                    width: image.width(),
                    height: image.height(),
                    data,
                });
            }
            least = least.min(data.len());
        }
        let (width, height) = image.dimensions();
        if (width, height) == (1, 1) {
            // Less than the smallest bound, so this is never met.
            return Err(ImageError::TooMuchMemory {
                format: Format::Jpeg,
            });
        }
        // The length goes with the area.
        let ratio = 1_000_000_u64.saturating_mul(most as u64) / (least as u64).max(1);
        let per_mille = (ratio.isqrt() * 9 / 10).clamp(250, 800);
        let less = |side: u32| {
            let side = u64::from(side) * per_mille / 1_000;
            u32::try_from(side).unwrap_or(u32::MAX).max(1)
        };
        image = Pixels::from(image).reduced((less(width), less(height)), cancel)?;
    }
}

/// Within the side, with as many pixels as can fit, of the same shape.
pub(super) fn first_size(pixels: &Pixels, bounds: &Bounds) -> (u32, u32) {
    let (width, height) = (u64::from(pixels.width), u64::from(pixels.height));
    let area = PIXELS_OF_A_BYTE * bounds.bytes() as u64;
    let longest = width.max(height).max(1);
    let side = longest.min(bounds.side.into());
    let scaled = |side_of: u64| (side_of * side + longest / 2) / longest;
    let (mut to_width, mut to_height) = (scaled(width), scaled(height));
    if to_width * to_height > area {
        to_width = (area * width / height.max(1)).isqrt();
        to_height = (area * height / width.max(1)).isqrt();
    }
    let side = |value: u64, of: u32| u32::try_from(value).unwrap_or(of).clamp(1, of.max(1));
    (side(to_width, pixels.width), side(to_height, pixels.height))
}

fn encoded(image: &RgbImage, quality: u8) -> Result<Vec<u8>, ImageError> {
    let mut data = Vec::new();
    let encoder = JpegEncoder::new_with_quality(&mut data, quality);
    let done = image.write_with_encoder(encoder);
    done.map_err(|error| ImageError::damaged(Format::Jpeg, error))?;
    Ok(data)
}

impl From<DynamicImage> for Pixels {
    fn from(image: DynamicImage) -> Self {
        let (width, height) = (image.width(), image.height());
        Self {
            width,
            height,
            channels: image.color().channel_count().into(),
            data: image.into_bytes(),
        }
    }
}

/// A file that must not grow beyond a limit.
struct Bounded {
    data: Vec<u8>,
    limit: usize,
    /// Something did not fit: what is there is no whole file.
    full: bool,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.full |= self.data.len() + bytes.len() > self.limit;
        if self.full {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.data.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
