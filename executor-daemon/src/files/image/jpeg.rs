//! JPEG. <https://www.w3.org/Graphics/JPEG/itu-t81.pdf>

use image::metadata::Orientation;
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;

use super::bytes::{byte, u16_be};
use super::error::ImageError;
use super::pixels::{Decoded, Pixels, usize_of};
use super::{Extent, Format, SIDE};

const START_OF_SCAN: u8 = 0xda;
const END_OF_IMAGE: u8 = 0xd9;
/// In place of the marker at the end: more than a decoder looks ahead.
const AHEAD: [u8; 8] = [0; 8];

/// Width and height; `None`: the frame's header comes later.
pub(super) fn size(bytes: &[u8]) -> Option<(u32, u32)> {
    frame(bytes).map(|frame| (frame.width.into(), frame.height.into()))
}

/// What the frame's header says.
struct FrameHeader {
    width: u16,
    height: u16,
    components: u8,
}

fn frame(bytes: &[u8]) -> Option<FrameHeader> {
    let mut at = 2;
    loop {
        let (marker, after) = marker(bytes, at)?;
        if is_frame(marker) {
            return Some(FrameHeader {
                height: u16_be(bytes, after + 3)?,
                width: u16_be(bytes, after + 5)?,
                components: byte(bytes, after + 7)?,
            });
        }
        at = match marker {
            END_OF_IMAGE => return None,
            _ if is_alone(marker) => after,
            _ => after + usize::from(u16_be(bytes, after)?).max(2),
        };
    }
}

/// The next marker from `at`, and where it ends. What stands before it is
/// looked over, as decoders do.
fn marker(bytes: &[u8], mut at: usize) -> Option<(u8, usize)> {
    loop {
        at += memchr::memchr(0xff, bytes.get(at..)?)? + 1;
        match byte(bytes, at)? {
            // A byte of data, or one that fills.
            0 | 0xff => {}
            marker => return Some((marker, at + 1)),
        }
    }
}

/// SOF0 to SOF15; DHT, JPG and DAC lie between.
fn is_frame(marker: u8) -> bool {
    matches!(marker, 0xc0..=0xcf) && !matches!(marker, 0xc4 | 0xc8 | 0xcc)
}

/// Markers without a segment: TEM, RST0 to RST7, SOI.
fn is_alone(marker: u8) -> bool {
    matches!(marker, 0x01 | 0xd0..=0xd8)
}

/// Goes through the segments to the marker that ends the image. What cameras put
/// behind it, as a second image, is no part of it.
pub(super) fn extent(bytes: &[u8]) -> Result<Extent, ImageError> {
    let cut = |part| ImageError::cut_off(Format::Jpeg, part);
    let mut at = 2;
    let mut frames = 0;
    loop {
        let found = marker(bytes, at);
        let (marker, after) =
            found.ok_or_else(|| cut("its data: the end-of-image marker is missing"))?;
        if marker == END_OF_IMAGE {
            at = after;
            break;
        }
        frames += u32::from(is_frame(marker));
        at = after;
        if !is_alone(marker) {
            let length = u16_be(bytes, after).ok_or_else(|| cut("a segment"))?;
            at += usize::from(length).max(2);
        }
    }
    // With two of them it could be larger than the first one says.
    if frames > 1 {
        return Err(ImageError::damaged(
            Format::Jpeg,
            "it has two frame headers",
        ));
    }
    Ok(Extent {
        end: at,
        pictures: 1,
        // CMYK and YCCK, which many consumers show wrongly or not at all.
        change: frame(bytes).is_some_and(|frame| frame.components == 4),
    })
}

pub(super) fn decode(bytes: &[u8]) -> Result<Decoded, ImageError> {
    let side = usize_of(SIDE);
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(side)
        .set_max_height(side);
    let without_end;
    let input = if is_one_scan(bytes) {
        // At an end that comes too early decoders fill with grey and tell
        // nothing. Without the marker they tell that data is missing.
        let data = bytes.get(..bytes.len().saturating_sub(2));
        without_end = [data.unwrap_or_default(), &AHEAD].concat();
        without_end.as_slice()
    } else {
        bytes
    };
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(input), options);
    decoder.decode_headers().map_err(failed)?;
    let grey = decoder.input_colorspace() == Some(ColorSpace::Luma);
    let (color, channels) = if grey {
        (ColorSpace::Luma, 1)
    } else {
        (ColorSpace::RGB, 3)
    };
    decoder.set_options(options.jpeg_set_out_colorspace(color));
    let memory = ImageError::TooMuchMemory {
        format: Format::Jpeg,
    };
    let mut data = vec![0; decoder.output_buffer_size().ok_or(memory)?];
    decoder.decode_into(&mut data).map_err(failed)?;
    let exif = decoder.exif().map(Vec::as_slice);
    let orientation = exif.and_then(Orientation::from_exif_chunk);
    let (width, height) = size(bytes).unwrap_or_default();
    if data.len() != usize_of(width) * usize_of(height) * channels {
        let why = "its two headers do not agree on its size";
        return Err(ImageError::damaged(Format::Jpeg, why));
    }
    Ok(Decoded {
        pixels: Pixels {
            width,
            height,
            channels,
            data,
        },
        orientation: orientation.unwrap_or(Orientation::NoTransforms),
        whole: true,
    })
}

/// All data is in one sequential scan.
fn is_one_scan(bytes: &[u8]) -> bool {
    let (mut at, mut scans, mut sequential) = (2, 0_u32, false);
    while let Some((marker, after)) = marker(bytes, at) {
        scans += u32::from(marker == START_OF_SCAN);
        sequential |= matches!(marker, 0xc0 | 0xc1);
        at = match u16_be(bytes, after) {
            Some(length) if !is_alone(marker) => after + usize::from(length).max(2),
            _ => after,
        };
    }
    sequential && scans == 1
}

fn failed(error: DecodeErrors) -> ImageError {
    match error {
        DecodeErrors::Unsupported(kind) => ImageError::Unsupported {
            kind: format!("a JPEG image of a rare kind ({kind:?})"),
        },
        other => {
            // Its text has line breaks.
            let text = format!("{other:?}");
            let why: Vec<_> = text.split_whitespace().collect();
            ImageError::damaged(Format::Jpeg, why.join(" "))
        }
    }
}
