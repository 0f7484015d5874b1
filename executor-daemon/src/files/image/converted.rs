//! BMP and TIFF: read to be converted.

use std::io::Cursor;

use image::codecs::bmp::BmpDecoder;
use image::codecs::tiff::TiffDecoder;
use image::error::ImageError as CodecError;
use image::{DynamicImage, ImageDecoder, Limits};

use super::bytes::{array, u16_be, u16_le, u32_be, u32_le};
use super::error::ImageError;
use super::pixels::{Decoded, Pixels};
use super::{Extent, Format, SIDE};

/// Bytes of pixels: as many as the largest picture with four channels has.
const MEMORY: u64 = 256 << 20;
/// Most pages that are counted.
const PAGES: u32 = 1_000;

pub(super) fn bmp(bytes: &[u8]) -> Result<Decoded, ImageError> {
    let decoder = BmpDecoder::new(Cursor::new(bytes));
    decoded(
        Format::Bmp,
        decoder.map_err(|error| failed(Format::Bmp, &error))?,
    )
}

pub(super) fn tiff(bytes: &[u8]) -> Result<Decoded, ImageError> {
    let decoder = TiffDecoder::new(Cursor::new(bytes));
    decoded(
        Format::Tiff,
        decoder.map_err(|error| failed(Format::Tiff, &error))?,
    )
}

fn decoded(format: Format, mut decoder: impl ImageDecoder) -> Result<Decoded, ImageError> {
    let failed = |error: CodecError| failed(format, &error);
    let mut limits = Limits::default();
    limits.max_image_width = Some(SIDE);
    limits.max_image_height = Some(SIDE);
    limits.max_alloc = Some(MEMORY);
    limits.reserve(decoder.total_bytes()).map_err(failed)?;
    limits.max_alloc = Some(MEMORY);
    decoder.set_limits(limits).map_err(failed)?;
    let orientation = decoder.orientation().map_err(failed)?;
    let image = DynamicImage::from_decoder(decoder).map_err(failed)?;
    let (width, height) = (image.width(), image.height());
    let (channels, data) = match image {
        DynamicImage::ImageLuma8(image) => (1, image.into_raw()),
        image if image.color().has_alpha() => (4, image.into_rgba8().into_raw()),
        image => (3, image.into_rgb8().into_raw()),
    };
    Ok(Decoded {
        pixels: Pixels {
            width,
            height,
            channels,
            data,
        },
        orientation,
        whole: true,
    })
}

fn failed(format: Format, error: &CodecError) -> ImageError {
    match error {
        CodecError::Limits(_) => ImageError::TooMuchMemory { format },
        CodecError::Unsupported(what) => ImageError::Unsupported {
            kind: format!("a {format} image of a rare kind ({what})"),
        },
        other => ImageError::damaged(format, other),
    }
}

/// Neither says where it ends: all bytes are the image's.
pub(super) fn extent(format: Format, bytes: &[u8]) -> Extent {
    Extent {
        end: bytes.len(),
        pictures: match format {
            Format::Tiff => Directory::first(bytes).map_or(1, |first| first.pages()),
            _ => 1,
        },
        change: true,
    }
}

/// Width and height of the first page.
pub(super) fn tiff_size(bytes: &[u8]) -> Option<(u32, u32)> {
    let directory = Directory::first(bytes)?;
    Some((directory.number(256)?, directory.number(257)?))
}

/// A directory of a TIFF, of the classic kind or of BigTIFF's.
/// <https://www.awaresystems.be/imaging/tiff/bigtiff.html>
#[derive(Clone, Copy)]
struct Directory<'a> {
    bytes: &'a [u8],
    little: bool,
    big: bool,
    at: usize,
}

impl<'a> Directory<'a> {
    fn first(bytes: &'a [u8]) -> Option<Self> {
        let little = bytes.first() == Some(&b'I');
        let mut directory = Self {
            bytes,
            little,
            big: false,
            at: 0,
        };
        directory.big = directory.short(2)? == 43;
        directory.at = directory.offset(if directory.big { 8 } else { 4 })?;
        Some(directory)
    }

    fn short(&self, at: usize) -> Option<u16> {
        if self.little {
            u16_le(self.bytes, at)
        } else {
            u16_be(self.bytes, at)
        }
    }

    fn long(&self, at: usize) -> Option<u32> {
        if self.little {
            u32_le(self.bytes, at)
        } else {
            u32_be(self.bytes, at)
        }
    }

    fn offset(&self, at: usize) -> Option<usize> {
        if !self.big {
            return usize::try_from(self.long(at)?).ok();
        }
        let number = array(self.bytes, at)?;
        let number = if self.little {
            u64::from_le_bytes(number)
        } else {
            u64::from_be_bytes(number)
        };
        usize::try_from(number).ok()
    }

    /// How many entries, where the first one is, and how long each is.
    fn entries(&self) -> Option<(usize, usize, usize)> {
        if self.big {
            Some((self.offset(self.at)?, self.at.checked_add(8)?, 20))
        } else {
            Some((self.short(self.at)?.into(), self.at.checked_add(2)?, 12))
        }
    }

    /// The number that an entry holds.
    fn number(&self, tag: u16) -> Option<u32> {
        let (count, first, length) = self.entries()?;
        // No directory has more; one that says so is damaged.
        for entry in 0..count.min(usize::from(u16::MAX)) {
            let at = first.checked_add(entry.checked_mul(length)?)?;
            if self.short(at)? != tag {
                continue;
            }
            let value = at.checked_add(if self.big { 12 } else { 8 })?;
            return match self.short(at + 2)? {
                3 => self.short(value).map(u32::from),
                4 => self.long(value),
                16 if self.big => u32::try_from(self.offset(value)?).ok(),
                _ => None,
            };
        }
        None
    }

    fn pages(mut self) -> u32 {
        let mut pages = 1;
        while pages < PAGES {
            let next = self.entries().and_then(|(count, first, length)| {
                let end = first.checked_add(count.checked_mul(length)?)?;
                self.offset(end).filter(|next| *next != 0)
            });
            let Some(next) = next else { break };
            self.at = next;
            pages += 1;
        }
        pages
    }
}
