//! Kind and size of an image, from its first bytes and without allocating.

use super::bytes::{array, byte, u16_le, u32_le};
use super::error::ImageError;
use super::{Format, SIDE, converted, gif, jpeg, png, webp};

/// The kind of an image whose content begins with `head`.
///
/// # Errors
/// [`ImageError::NotAnImage`]; [`ImageError::Unsupported`] for kinds that are
/// known and not read.
pub(super) fn recognise(head: &[u8]) -> Result<Format, ImageError> {
    let starts = |magic: &[u8]| head.starts_with(magic);
    // Of PNG four bytes: the others tell how it was damaged on its way.
    Ok(if starts(b"\x89PNG") {
        Format::Png
    } else if starts(b"\xff\xd8\xff") {
        Format::Jpeg
    } else if starts(b"GIF87a") || starts(b"GIF89a") {
        Format::Gif
    } else if starts(b"RIFF") && array(head, 8) == Some(*b"WEBP") {
        Format::WebP
    } else if starts(b"II*\0") || starts(b"MM\0*") || starts(b"II+\0") || starts(b"MM\0+") {
        Format::Tiff
    } else if starts(b"BM") && is_bitmap(head) {
        Format::Bmp
    } else if let Some(kind) = other(head) {
        return Err(ImageError::Unsupported { kind: kind.into() });
    } else {
        return Err(ImageError::NotAnImage {
            empty: head.is_empty(),
        });
    })
}

/// Width and height in pixels; `None`: these bytes do not reach so far.
pub(super) fn size(format: Format, bytes: &[u8]) -> Option<(u32, u32)> {
    match format {
        Format::Png => png::size(bytes),
        Format::Gif => gif::size(bytes),
        Format::Jpeg => jpeg::size(bytes),
        Format::WebP => webp::size(bytes),
        Format::Bmp => bitmap_size(bytes),
        Format::Tiff => converted::tiff_size(bytes),
    }
}

/// May an image of this size be decoded?
///
/// # Errors
/// [`ImageError::TooManyPixels`]; [`ImageError::Damaged`] for one without any.
pub(super) fn check(format: Format, (width, height): (u32, u32)) -> Result<(), ImageError> {
    if width == 0 || height == 0 {
        return Err(ImageError::damaged(
            format,
            format_args!("its header says {width} x {height} pixels"),
        ));
    }
    if width > SIDE || height > SIDE {
        return Err(ImageError::TooManyPixels {
            format,
            width,
            height,
        });
    }
    Ok(())
}

/// "BM" alone begins texts too.
fn is_bitmap(head: &[u8]) -> bool {
    u32_le(head, 14).is_some_and(|length| matches!(length, 12 | 16 | 40 | 52 | 56 | 64 | 108 | 124))
}

fn bitmap_size(bytes: &[u8]) -> Option<(u32, u32)> {
    if u32_le(bytes, 14)? == 12 {
        return Some((u16_le(bytes, 18)?.into(), u16_le(bytes, 20)?.into()));
    }
    let signed = |at| array(bytes, at).map(i32::from_le_bytes);
    // A negative height: the rows are stored from the top.
    Some((signed(18)?.unsigned_abs(), signed(22)?.unsigned_abs()))
}

/// Kinds that consumers mostly refuse too.
fn other(head: &[u8]) -> Option<&'static str> {
    let starts = |magic: &[u8]| head.starts_with(magic);
    if array(head, 4) == Some(*b"ftyp") {
        return match &array::<4>(head, 8)? {
            b"avif" | b"avis" => Some("an AVIF image"),
            b"heic" | b"heix" | b"heim" | b"heis" | b"hevc" | b"hevx" | b"mif1" | b"msf1" => {
                Some("a HEIC image")
            }
            _ => None,
        };
    }
    // The ninth byte of an icon's first entry is reserved.
    let icons =
        |kind| starts(&[0, 0, kind, 0]) && u16_le(head, 4) > Some(0) && byte(head, 9) == Some(0);
    Some(if icons(1) {
        "an ICO image"
    } else if icons(2) {
        "a CUR image"
    } else if starts(b"\0\0\0\x0cJXL ") || starts(b"\xff\x0a") {
        "a JPEG XL image"
    } else if starts(b"\0\0\0\x0cjP  ") || starts(b"\xff\x4f\xff\x51") {
        "a JPEG 2000 image"
    } else if starts(b"8BPS") {
        "a Photoshop image"
    } else if starts(b"%PDF-") {
        "a PDF document"
    } else if is_svg(head) {
        "an SVG image, which is text"
    } else if starts(b"\x76\x2f\x31\x01") {
        "an OpenEXR image"
    } else {
        return None;
    })
}

fn is_svg(head: &[u8]) -> bool {
    let head = head
        .strip_prefix(b"\xef\xbb\xbf")
        .unwrap_or(head)
        .trim_ascii_start();
    if head.starts_with(b"<svg") {
        return true;
    }
    let first = head.get(..head.len().min(1024)).unwrap_or_default();
    (head.starts_with(b"<?xml") || head.starts_with(b"<!--") || head.starts_with(b"<!DOCTYPE svg"))
        && memchr::memmem::find(first, b"<svg").is_some()
}
