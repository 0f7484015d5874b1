//! Images by value and through the fence.

mod bounds;
mod corpus;
mod damaged;
mod kinds;
mod shown;
mod through_the_fence;

use std::io::Cursor;

use image::{DynamicImage, ImageFormat, Rgb, RgbImage};

use super::error::ImageError;
use super::{Bounds, Format, Image, prepare};
use crate::files::cancel::Cancel;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/images");

fn fixture(name: &str) -> Vec<u8> {
    content(&std::path::Path::new(FIXTURES).join(name))
}

#[expect(clippy::disallowed_methods, reason = "what a test brings along")]
fn content(path: &std::path::Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

fn fitted(bytes: &[u8], bounds: Bounds) -> Result<Image, ImageError> {
    prepare(bytes.to_vec(), &bounds, &Cancel::new())
}

fn prepared(bytes: &[u8]) -> Result<Image, ImageError> {
    fitted(bytes, Bounds::default())
}

/// What a consumer sees; it must be able to.
fn seen(image: &Image) -> DynamicImage {
    let format = match image.format {
        Format::Png => ImageFormat::Png,
        Format::Jpeg => ImageFormat::Jpeg,
        Format::Gif => ImageFormat::Gif,
        Format::WebP => ImageFormat::WebP,
        format => panic!("{format} was given out"),
    };
    let seen = image::load_from_memory_with_format(&image.data, format).unwrap();
    assert_eq!(
        (seen.width(), seen.height()),
        (image.width, image.height),
        "as the answer says"
    );
    seen
}

fn file_of(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    image.write_to(&mut file, format).unwrap();
    file.into_inner()
}

/// A picture that no encoder makes small.
fn noise(width: u32, height: u32) -> DynamicImage {
    let mut state = 1_u32;
    RgbImage::from_fn(width, height, |_, _| {
        Rgb([0; 3].map(|_: u8| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        }))
    })
    .into()
}

fn near(pixel: impl Into<[u8; 3]>, wanted: [u8; 3]) -> bool {
    let pixel: [u8; 3] = pixel.into();
    pixel
        .iter()
        .zip(wanted)
        .all(|(is, wanted)| is.abs_diff(wanted) < 40)
}

/// A chunk of a PNG, with its checksum (PNG, Annex D).
fn chunk(kind: &[u8; 4], data: &[u8]) -> Vec<u8> {
    let mut crc = u32::MAX;
    for byte in kind.iter().chain(data) {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 {
                crc >> 1 ^ 0xedb8_8320
            } else {
                crc >> 1
            };
        }
    }
    let length = u32::try_from(data.len()).unwrap().to_be_bytes();
    [&length, kind.as_slice(), data, &(!crc).to_be_bytes()].concat()
}

/// A PNG's header for a size, and nothing that belongs to it.
fn png_header(width: u32, height: u32) -> Vec<u8> {
    let size = [width.to_be_bytes(), height.to_be_bytes()].concat();
    let header = [size.as_slice(), &[8, 6, 0, 0, 0]].concat();
    [b"\x89PNG\r\n\x1a\n".as_slice(), &chunk(b"IHDR", &header)].concat()
}
