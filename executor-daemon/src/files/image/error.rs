//! Why bytes are no image that can be given out.

use super::{FILE_BYTES, Format, SIDE};

/// See the module's documentation. The messages say nothing of the file's name:
/// whoever knows it puts it before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// Nothing that looks like an image.
    #[error(
        "{}; an image is known by its content, whatever its name says; read it as lines or bytes",
        if *.empty { "it is empty" } else { "its content is not an image" }
    )]
    NotAnImage {
        /// There is no content.
        empty: bool,
    },
    /// An image that is not read here.
    #[error(
        "it is {kind}, which is not read here; read are PNG, JPEG, GIF, WebP, BMP and TIFF: convert it to one of them first"
    )]
    Unsupported {
        /// What it is, as `an AVIF image`.
        kind: String,
    },
    /// More pixels than are decoded.
    #[error(
        "the {format} image has {width} x {height} pixels, above the limit of {SIDE} x {SIDE}; it was not decoded; scale it, or cut a part out, with a program on the machine"
    )]
    TooManyPixels {
        /// Its kind.
        format: Format,
        /// As its header says.
        width: u32,
        /// As its header says.
        height: u32,
    },
    /// More bytes than are read.
    #[error(
        "the {format} image has {size} bytes, above the limit of {FILE_BYTES}; it was not read; scale it, or cut a part out, with a program on the machine"
    )]
    TooManyBytes {
        /// Its kind.
        format: Format,
        /// Bytes of the file.
        size: u64,
    },
    /// Decoding it would take more memory than one image may.
    #[error(
        "the {format} image would take more memory to decode than one image may; convert it with a program on the machine"
    )]
    TooMuchMemory {
        /// Its kind.
        format: Format,
    },
    /// Not what its kind asks for, or not all of it.
    #[error(
        "the {format} image is damaged: {why}; it may not have been written to its end; make it or fetch it again"
    )]
    Damaged {
        /// Its kind.
        format: Format,
        /// In which way.
        why: String,
    },
    /// The caller gave up.
    #[error("cancelled by the caller")]
    Cancelled,
}

impl ImageError {
    pub(super) fn damaged(format: Format, why: impl ToString) -> Self {
        Self::Damaged {
            format,
            why: why.to_string(),
        }
    }

    pub(super) fn cut_off(format: Format, part: &str) -> Self {
        Self::damaged(format, format_args!("it ends within {part}"))
    }
}
