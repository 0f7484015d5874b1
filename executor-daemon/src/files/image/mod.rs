//! Images as models can be shown them: decoded whole, of a kind that consumers
//! take, within a number of bytes and pixels.
//!
//! ```text
//! bytes ─► header: kind, size ─► one module a kind: extent ─► decoded
//!              │ refused                  │ damaged      │ damaged
//!              ▼                          ▼              ▼
//!                                          fits ─► the bytes themselves
//!                          kind or depth to change ─► PNG ─┐ too large
//!                                         too large ─► JPEG ◄┘ scaled until it fits
//! ```
//!
//! 1. Nothing is allocated by what a header says before it was compared with
//!    [`SIDE`]; each decoder is given the bounds besides.
//! 2. What is given out was decoded to its last byte, also where it is given out
//!    unchanged. All frames of an animation are decoded, up to
//!    [`ANIMATION_PIXELS`] in all; of one that has more only the first is given
//!    out.
//! 3. Bytes after the end of an image are no part of it and are never given out.
//! 4. What is made anew is shown as the original is: EXIF orientation is applied
//!    and gone, and of JPEG what was transparent is white.
//!
//! [`prepare`] is pure; [`read_image()`] gets the bytes through the fence.

mod bytes;
mod converted;
pub mod error;
mod fit;
mod gif;
mod header;
mod jpeg;
mod pixels;
mod png;
mod prepare;
mod read;
#[cfg(test)]
mod tests;
mod webp;

use std::fmt;

pub use prepare::prepare;
pub use read::{ReadImage, read_image};

/// Most bytes of a file that is read.
pub const FILE_BYTES: u64 = 20 << 20;
/// Most pixels of a side.
pub const SIDE: u32 = 8_000;
/// Most pixels that are decoded of all frames of an animation.
pub const ANIMATION_PIXELS: u64 = 256 << 20;
/// Most pixels of a frame, for more than the first to be decoded.
const FRAME_PIXELS: u64 = 16 << 20;
/// What is returned where nothing else is asked for.
pub const KILOBYTES_DEFAULT: u32 = 500;
/// The most that may be asked for: with all else it fits into one message.
pub const KILOBYTES: u32 = 4_000;

/// The kinds of image that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// PNG, APNG.
    Png,
    /// JPEG.
    Jpeg,
    /// GIF.
    Gif,
    /// WebP.
    WebP,
    /// BMP. Never given out.
    Bmp,
    /// TIFF. Never given out.
    Tiff,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Png => "PNG",
            Self::Jpeg => "JPEG",
            Self::Gif => "GIF",
            Self::WebP => "WebP",
            Self::Bmp => "BMP",
            Self::Tiff => "TIFF",
        })
    }
}

/// What an image is asked to fit into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Most of what is given out, in units of 1,024 bytes: 1 to [`KILOBYTES`].
    pub kilobytes: u32,
    /// Most pixels of a side of what is given out: 1 to [`SIDE`].
    pub side: u32,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            kilobytes: KILOBYTES_DEFAULT,
            side: SIDE,
        }
    }
}

/// An image that fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Of [`Image::data`].
    pub format: Format,
    /// Of [`Image::data`], in pixels.
    pub width: u32,
    /// Of [`Image::data`], in pixels.
    pub height: u32,
    /// An image file.
    pub data: Vec<u8>,
    /// The data is the original's, without what followed its end.
    pub unchanged: bool,
    /// What it was.
    pub original: Original,
}

/// What an image was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Original {
    /// Its kind.
    pub format: Format,
    /// In pixels, as stored.
    pub width: u32,
    /// In pixels, as stored.
    pub height: u32,
    /// EXIF orientation, 1 (as stored) to 8.
    pub orientation: u8,
    /// Frames of an animation, pages of a TIFF; at least 1.
    pub pictures: u32,
}

/// What is known before anything is decoded.
#[derive(Debug, Clone, Copy)]
struct Extent {
    /// Where the image ends; what follows is no part of it.
    end: usize,
    /// Frames or pages; at least 1.
    pictures: u32,
    /// Consumers may not show it as it is.
    change: bool,
}
