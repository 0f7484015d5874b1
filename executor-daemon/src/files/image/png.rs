//! PNG and APNG. <https://www.w3.org/TR/png-3/>

use std::io::{Cursor, ErrorKind};

use image::metadata::Orientation;
use png::{BitDepth, ColorType, DecodingError, Transformations};

use super::bytes::{array, byte, length, u32_be};
use super::error::ImageError;
use super::pixels::{Decoded, Frames, Pixels};
use super::{Extent, Format};

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
/// Length, type and checksum of a chunk.
const CHUNK: usize = 12;

/// Width and height, from the chunk that is first.
pub(super) fn size(bytes: &[u8]) -> Option<(u32, u32)> {
    let header = array(bytes, 12) == Some(*b"IHDR") && bytes.starts_with(SIGNATURE);
    header.then_some((u32_be(bytes, 16)?, u32_be(bytes, 20)?))
}

/// Goes through the chunks. What follows IEND is cut off by making the image
/// anew, as is a depth of 16 bits.
pub(super) fn extent(bytes: &[u8]) -> Result<Extent, ImageError> {
    if !bytes.starts_with(SIGNATURE) {
        let why = "its signature is not a PNG's; it may have been transferred as text";
        return Err(ImageError::damaged(Format::Png, why));
    }
    let (mut at, mut pictures) = (SIGNATURE.len(), 1);
    loop {
        let chunk: Option<(u32, [u8; 4])> = u32_be(bytes, at).zip(array(bytes, at + 4));
        let Some((size, kind)) = chunk else {
            return Err(ImageError::cut_off(
                Format::Png,
                "its chunks: IEND is missing",
            ));
        };
        if &kind == b"acTL" {
            pictures = u32_be(bytes, at + 8).unwrap_or(1).max(1);
        }
        at = at.saturating_add(length(size)).saturating_add(CHUNK);
        if at > bytes.len() {
            let part = format!("a chunk of type {}", kind.escape_ascii());
            return Err(ImageError::cut_off(Format::Png, &part));
        }
        if &kind == b"IEND" {
            break;
        }
    }
    Ok(Extent {
        end: at,
        pictures,
        change: at < bytes.len() || byte(bytes, 24) == Some(16),
    })
}

/// Every checksum is compared, those of chunks too that nobody needs.
pub(super) fn decode(bytes: &[u8], mut frames: Frames<'_>) -> Result<Decoded, ImageError> {
    let mut options = png::DecodeOptions::default();
    options.set_ignore_adler32(false);
    options.set_skip_ancillary_crc_failures(false);
    // Those can be compressed and large, and are not needed.
    options.set_ignore_text_chunk(true);
    options.set_ignore_iccp_chunk(true);
    let mut decoder = png::Decoder::new_with_options(Cursor::new(bytes), options);
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    let mut reader = decoder.read_info().map_err(failed)?;
    let channels = match reader.output_color_type() {
        (ColorType::Grayscale, BitDepth::Eight) => 1,
        (ColorType::GrayscaleAlpha, BitDepth::Eight) => 2,
        (ColorType::Rgb, BitDepth::Eight) => 3,
        (ColorType::Rgba, BitDepth::Eight) => 4,
        (color, depth) => {
            let why = format!("{color:?} with {depth:?} bits is unknown");
            return Err(ImageError::damaged(Format::Png, why));
        }
    };
    let memory = ImageError::TooMuchMemory {
        format: Format::Png,
    };
    let mut data = vec![0; reader.output_buffer_size().ok_or(memory)?];
    reader.next_frame(&mut data).map_err(failed)?;
    let info = reader.info();
    let (width, height) = info.size();
    let exif = info.exif_metadata.as_deref();
    let orientation = exif.and_then(Orientation::from_exif_chunk);
    let control = info.animation_control().map(|control| control.num_frames);
    // A first picture that belongs to no frame is for those that know none.
    let extra = info.frame_control.is_none();
    if let Some(count) = control.map(|count| count.saturating_add(extra.into())) {
        let mut frame = Vec::new();
        for _ in 1..count {
            if !frames.another(width, height)? {
                break;
            }
            frame.resize(data.len(), 0);
            reader.next_frame(&mut frame).map_err(failed)?;
        }
    }
    if frames.all() {
        reader.finish().map_err(failed)?;
    }
    Ok(Decoded {
        pixels: Pixels {
            width,
            height,
            channels,
            data,
        },
        orientation: orientation.unwrap_or(Orientation::NoTransforms),
        whole: frames.all(),
    })
}

fn failed(error: DecodingError) -> ImageError {
    match error {
        DecodingError::LimitsExceeded => ImageError::TooMuchMemory {
            format: Format::Png,
        },
        DecodingError::IoError(error) if error.kind() == ErrorKind::UnexpectedEof => {
            ImageError::cut_off(Format::Png, "its data")
        }
        other => ImageError::damaged(Format::Png, other),
    }
}
