//! GIF. <https://www.w3.org/Graphics/GIF/spec-gif89a.txt>

use std::num::NonZeroU64;

use gif::{ColorOutput, DecodeOptions, DecodingError, Frame, MemoryLimit};
use image::metadata::Orientation;

use super::bytes::{byte, u16_le};
use super::error::ImageError;
use super::pixels::{Decoded, Frames, Pixels, usize_of};
use super::{Extent, Format, SIDE};

/// Indexes of one frame.
const FRAME_BYTES: u64 = SIDE as u64 * SIDE as u64;

/// Goes through the blocks.
pub(super) fn extent(bytes: &[u8]) -> Result<Extent, ImageError> {
    let cut = |part| ImageError::cut_off(Format::Gif, part);
    let flags = byte(bytes, 10).ok_or_else(|| cut("its header"))?;
    let (mut at, mut pictures) = (13 + colors(flags), 0_u32);
    loop {
        match byte(bytes, at) {
            // An extension: its label, then blocks.
            Some(0x21) => at = blocks(bytes, at + 2).ok_or_else(|| cut("an extension"))?,
            Some(0x2c) => {
                pictures = pictures.saturating_add(1);
                let flags = byte(bytes, at + 9).ok_or_else(|| cut("a frame"))?;
                // After the colors comes a code size, then blocks.
                let data = at + 10 + colors(flags) + 1;
                at = blocks(bytes, data).ok_or_else(|| cut("a frame"))?;
            }
            Some(0x3b) => break,
            Some(other) => {
                let why = format!("byte {at} is {other:#04x}, which begins no block");
                return Err(ImageError::damaged(Format::Gif, why));
            }
            None => return Err(cut("its blocks: the trailer is missing")),
        }
    }
    if pictures == 0 {
        return Err(ImageError::damaged(Format::Gif, "it has no frame"));
    }
    Ok(Extent {
        end: at + 1,
        pictures,
        change: false,
    })
}

/// Bytes of the color table that flags tell.
fn colors(flags: u8) -> usize {
    if flags & 0x80 == 0 {
        return 0;
    }
    3 << ((flags & 7) + 1)
}

/// Where a run of blocks ends that begins at `at`.
fn blocks(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match byte(bytes, at)? {
            0 => return Some(at + 1),
            size => at += 1 + usize::from(size),
        }
    }
}

/// The first frame is laid on a transparent screen, as browsers do; what else
/// there is is decoded and not kept.
pub(super) fn decode(bytes: &[u8], mut frames: Frames<'_>) -> Result<Decoded, ImageError> {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    if let Some(limit) = NonZeroU64::new(FRAME_BYTES) {
        options.set_memory_limit(MemoryLimit::Bytes(limit));
    }
    let mut decoder = options.read_info(bytes).map_err(failed)?;
    let (width, height) = (decoder.width().into(), decoder.height().into());
    let palette = decoder.global_palette().map(<[u8]>::to_vec);
    let first = decoder.read_next_frame().map_err(failed)?;
    let first = first.ok_or_else(|| ImageError::damaged(Format::Gif, "it has no frame"))?;
    let data = on_screen(first, palette.as_deref(), width, height);
    while let Some(frame) = decoder.next_frame_info().map_err(failed)? {
        if !frames.another(frame.width.into(), frame.height.into())? {
            break;
        }
        let mut indexes = vec![0; decoder.buffer_size()];
        decoder.read_into_buffer(&mut indexes).map_err(failed)?;
    }
    Ok(Decoded {
        pixels: Pixels {
            width,
            height,
            channels: 4,
            data,
        },
        orientation: Orientation::NoTransforms,
        whole: frames.all(),
    })
}

/// RGBA. What a frame has beyond the screen is not shown.
fn on_screen(frame: &Frame<'_>, global: Option<&[u8]>, width: u32, height: u32) -> Vec<u8> {
    let palette = frame.palette.as_deref().or(global).unwrap_or_default();
    let color = |index: u8| match palette.as_chunks().0.get(usize::from(index)) {
        Some([r, g, b]) if frame.transparent != Some(index) => [*r, *g, *b, u8::MAX],
        _ => [0; 4],
    };
    let stride = 4 * usize_of(width);
    let mut screen = vec![0; stride * usize_of(height)];
    let rows = screen
        .chunks_exact_mut(stride.max(1))
        .skip(frame.top.into());
    let indexes = frame.buffer.chunks_exact(usize::from(frame.width).max(1));
    for (row, indexes) in rows.zip(indexes) {
        let pixels = row.as_chunks_mut().0.iter_mut().skip(frame.left.into());
        for (pixel, index) in pixels.zip(indexes) {
            *pixel = color(*index);
        }
    }
    screen
}

/// Width and height of the screen.
pub(super) fn size(bytes: &[u8]) -> Option<(u32, u32)> {
    Some((u16_le(bytes, 6)?.into(), u16_le(bytes, 8)?.into()))
}

fn failed(error: DecodingError) -> ImageError {
    match error {
        DecodingError::MemoryLimit | DecodingError::OutOfMemory => ImageError::TooMuchMemory {
            format: Format::Gif,
        },
        other => ImageError::damaged(Format::Gif, other),
    }
}
