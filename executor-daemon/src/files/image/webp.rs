//! WebP. <https://developers.google.com/speed/webp/docs/riff_container>

use std::io::Cursor;

use image::metadata::Orientation;
use image_webp::{DecodingError, WebPDecoder};

use super::bytes::{array, byte, length, u16_le, u24_le, u32_le};
use super::error::ImageError;
use super::pixels::{Decoded, Frames, Pixels};
use super::{Extent, Format, header};

/// Where the chunks begin, after `RIFF`, a length and `WEBP`.
const FIRST: usize = 12;
/// Most that one allocation for anything but pixels takes.
const MEMORY: usize = 64 << 20;

/// Goes through the chunks and compares what each picture says of its size:
/// a decoder allocates by it.
pub(super) fn extent(bytes: &[u8]) -> Result<Extent, ImageError> {
    let cut = |part| ImageError::cut_off(Format::WebP, part);
    let stated = u32_le(bytes, 4).ok_or_else(|| cut("its header"))?;
    let end = length(stated).saturating_add(8);
    if end > bytes.len() {
        let why = format!("it says that it has {end} bytes, and has {}", bytes.len());
        return Err(ImageError::damaged(Format::WebP, why));
    }
    let image = bytes.get(..end).unwrap_or_default();
    let (mut at, mut pictures) = (FIRST, 0_u32);
    while at < end {
        let (kind, size) = chunk(image, at).ok_or_else(|| cut("a chunk"))?;
        if &kind == b"ANMF" {
            pictures = pictures.saturating_add(1);
            // The frame's place and duration, then chunks again.
            frame(image, at + 24, at + 8 + size)?;
        } else {
            picture(image, at, kind)?;
        }
        at = next(at, size);
    }
    Ok(Extent {
        end,
        pictures: pictures.max(1),
        change: false,
    })
}

fn frame(image: &[u8], mut at: usize, end: usize) -> Result<(), ImageError> {
    while at < end {
        let inner = chunk(image, at);
        let (kind, size) = inner.ok_or_else(|| ImageError::cut_off(Format::WebP, "a frame"))?;
        picture(image, at, kind)?;
        at = next(at, size);
    }
    Ok(())
}

fn picture(image: &[u8], at: usize, kind: [u8; 4]) -> Result<(), ImageError> {
    match size_of_chunk(image, at, kind) {
        Some(size) => header::check(Format::WebP, size),
        None if matches!(&kind, b"VP8 " | b"VP8L" | b"VP8X") => {
            Err(ImageError::cut_off(Format::WebP, "the header of a picture"))
        }
        None => Ok(()),
    }
}

/// Width and height of the canvas.
pub(super) fn size(bytes: &[u8]) -> Option<(u32, u32)> {
    size_of_chunk(bytes, FIRST, array(bytes, FIRST)?)
}

fn size_of_chunk(bytes: &[u8], at: usize, kind: [u8; 4]) -> Option<(u32, u32)> {
    let at = at.checked_add(8)?;
    match &kind {
        b"VP8X" => Some((u24_le(bytes, at + 4)? + 1, u24_le(bytes, at + 7)? + 1)),
        // 14 bits each, above them a scale.
        b"VP8 " => {
            let side = |at| u16_le(bytes, at).map(|side| u32::from(side & 0x3fff));
            Some((side(at + 6)?, side(at + 8)?))
        }
        // 14 bits each, less one, after a signature.
        b"VP8L" => {
            byte(bytes, at).filter(|byte| *byte == 0x2f)?;
            let sides = u32_le(bytes, at + 1)?;
            Some(((sides & 0x3fff) + 1, (sides >> 14 & 0x3fff) + 1))
        }
        _ => None,
    }
}

/// Type and size of the chunk at `at`, if all of it is there.
fn chunk(image: &[u8], at: usize) -> Option<([u8; 4], usize)> {
    let (kind, size) = (array(image, at)?, length(u32_le(image, at + 4)?));
    (at.checked_add(8)?.checked_add(size)? <= image.len()).then_some((kind, size))
}

/// Chunks have an even number of bytes.
fn next(at: usize, size: usize) -> usize {
    at + 8 + size + size % 2
}

pub(super) fn decode(bytes: &[u8], mut frames: Frames<'_>) -> Result<Decoded, ImageError> {
    let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(failed)?;
    decoder.set_memory_limit(MEMORY);
    let (width, height) = decoder.dimensions();
    header::check(Format::WebP, (width, height))?;
    let orientation = decoder.exif_metadata().map_err(failed)?;
    let orientation = orientation.and_then(|exif| Orientation::from_exif_chunk(&exif));
    let memory = ImageError::TooMuchMemory {
        format: Format::WebP,
    };
    let mut data = vec![0; decoder.output_buffer_size().ok_or(memory)?];
    if decoder.is_animated() {
        if !decoder.has_alpha() {
            // What no frame covers is transparent, whatever the header says.
            let white = decoder.set_background_color([u8::MAX; 4]);
            white.map_err(failed)?;
        }
        decoder.read_frame(&mut data).map_err(failed)?;
        let mut frame = Vec::new();
        for _ in 1..decoder.num_frames() {
            if !frames.another(width, height)? {
                break;
            }
            frame.resize(data.len(), 0);
            decoder.read_frame(&mut frame).map_err(failed)?;
        }
    } else {
        decoder.read_image(&mut data).map_err(failed)?;
    }
    Ok(Decoded {
        pixels: Pixels {
            width,
            height,
            channels: if decoder.has_alpha() { 4 } else { 3 },
            data,
        },
        orientation: orientation.unwrap_or(Orientation::NoTransforms),
        whole: frames.all(),
    })
}

fn failed(error: DecodingError) -> ImageError {
    match error {
        DecodingError::MemoryLimitExceeded | DecodingError::ImageTooLarge => {
            ImageError::TooMuchMemory {
                format: Format::WebP,
            }
        }
        DecodingError::IoError(_) => ImageError::cut_off(Format::WebP, "its data"),
        other => ImageError::damaged(Format::WebP, other),
    }
}
