//! Sizes: what is asked for is kept, and nothing is allocated by what a header
//! says before it was compared.

use super::*;
use crate::files::image::FILE_BYTES;

#[test]
fn what_is_too_large_is_scaled_until_it_fits() {
    let picture = noise(700, 350);
    for format in [
        ImageFormat::Png,
        ImageFormat::Jpeg,
        ImageFormat::WebP,
        ImageFormat::Bmp,
        ImageFormat::Gif,
    ] {
        let file = file_of(&picture, format);
        for kilobytes in [1, 3, 20, 100] {
            let bounds = Bounds {
                kilobytes,
                ..Bounds::default()
            };
            let image = fitted(&file, bounds).unwrap();
            assert_eq!((image.format, image.unchanged), (Format::Jpeg, false));
            assert!(image.data.len() <= 1024 * kilobytes as usize);
            assert!(image.width <= 700 && image.width.abs_diff(2 * image.height) <= 2);
            assert_eq!((image.original.width, image.original.height), (700, 350));
            if kilobytes == 100 {
                assert!(image.width > 300, "no smaller than it has to be");
            }
            seen(&image);
        }
    }
}

#[test]
fn thin_pictures_keep_a_pixel() {
    for (width, height) in [(4_000, 1), (1, 4_000)] {
        let file = file_of(&noise(width, height), ImageFormat::Png);
        let bounds = Bounds {
            kilobytes: 1,
            side: 100,
        };
        let image = fitted(&file, bounds).unwrap();
        assert_eq!(image.width.min(image.height), 1);
        seen(&image);
    }
}

#[test]
fn what_fits_in_bytes_is_scaled_only_for_its_side() {
    let file = fixture("gradient.png");
    let bounds = |side| Bounds {
        side,
        ..Bounds::default()
    };
    assert!(fitted(&file, bounds(48)).unwrap().unchanged);
    let image = fitted(&file, bounds(47)).unwrap();
    assert_eq!(
        (image.width, image.height, image.unchanged),
        (47, 31, false)
    );
}

#[test]
fn a_converted_picture_that_is_too_large_as_png_comes_as_jpeg() {
    let file = file_of(&noise(120, 120), ImageFormat::Bmp);
    let bounds = Bounds {
        kilobytes: 20,
        ..Bounds::default()
    };
    let image = fitted(&file, bounds).unwrap();
    assert_eq!((image.format, image.width), (Format::Jpeg, 120));
}

#[test]
fn what_is_made_is_whole_however_closely_it_fits() {
    let bounds = Bounds {
        kilobytes: 1,
        ..Bounds::default()
    };
    let mut kinds = std::collections::HashSet::new();
    for width in 250..400 {
        let file = file_of(&noise(width, 1), ImageFormat::Bmp);
        let image = fitted(&file, bounds).unwrap();
        assert!(image.data.len() <= 1024);
        prepared(&image.data).unwrap_or_else(|error| panic!("{width}: {error}"));
        kinds.insert(image.format);
    }
    assert_eq!(kinds.len(), 2, "PNG as long as it fits, then JPEG");
}

/// Headers of 60,000 by 60,000 pixels, or as many as the kind can say.
fn bombs() -> Vec<(Format, Vec<u8>)> {
    let side = 60_000_u32;
    let mut png = png_header(side, side);
    png.extend(chunk(b"IDAT", &[0x78, 0x9c, 0x03, 0x00]));
    png.extend(chunk(b"IEND", &[]));
    let mut gif = b"GIF89a".to_vec();
    gif.extend([
        0x60, 0xea, 0x60, 0xea, 0x80, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff,
    ]);
    gif.extend(b"\x2c\0\0\0\0\x60\xea\x60\xea\0\x02\x02\x44\x01\0\x3b");
    let jpeg =
        b"\xff\xd8\xff\xc0\0\x11\x08\xea\x60\xea\x60\x03\x01\x11\0\x02\x11\0\x03\x11\0\xff\xd9";
    let webp = b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x5f\xea\0\x5f\xea\0";
    let lossless = b"RIFF\x12\0\0\0WEBPVP8L\x05\0\0\0\x2f\xff\xff\xff\x0f\0";
    let mut bmp = file_of(&noise(2, 2), ImageFormat::Bmp);
    bmp[18..26].copy_from_slice(&[0x60, 0xea, 0, 0, 0x60, 0xea, 0, 0]);
    let tiff = b"II*\0\x08\0\0\0\x02\0\0\x01\x04\0\x01\0\0\0\x60\xea\0\0\x01\x01\x04\0\x01\0\0\0\x60\xea\0\0\0\0\0\0";
    vec![
        (Format::Png, png),
        (Format::Gif, gif),
        (Format::Jpeg, jpeg.to_vec()),
        (Format::WebP, webp.to_vec()),
        (Format::WebP, lossless.to_vec()),
        (Format::Bmp, bmp),
        (Format::Tiff, tiff.to_vec()),
    ]
}

#[test]
fn image_bombs_are_refused_from_the_header_with_the_numbers() {
    for (format, bytes) in bombs() {
        match prepared(&bytes).unwrap_err() {
            ImageError::TooManyPixels {
                format: told,
                width,
                height,
            } => {
                assert_eq!(told, format);
                assert!(width > 8_000 && height > 8_000, "{width} x {height}");
            }
            other => panic!("{format}: {other}"),
        }
    }
    let just = png_header(8_000, 8_001);
    let error = prepared(&just).unwrap_err().to_string();
    assert!(
        error.contains("8000 x 8001") && error.contains("limit of 8000 x 8000"),
        "{error}"
    );
    // One that may be decoded is, and has nothing.
    let error = prepared(&png_header(8_000, 8_000)).unwrap_err();
    assert!(matches!(error, ImageError::Damaged { .. }), "{error}");
    for size in [(0, 5), (5, 0)] {
        let error = prepared(&png_header(size.0, size.1)).unwrap_err();
        assert!(matches!(error, ImageError::Damaged { .. }), "{error}");
    }
}

#[test]
fn a_picture_in_an_image_cannot_be_larger_than_the_image() {
    // A canvas of 1 by 1 pixel, in it one of 16,383 by 16,383.
    let webp =
        b"RIFF\x24\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0VP8L\x05\0\0\0\x2f\xfe\xbf\xff\x0f\0";
    let error = prepared(webp).unwrap_err();
    assert!(matches!(error, ImageError::TooManyPixels { .. }), "{error}");
    let mut gif = b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff".to_vec();
    gif.extend(b"\x2c\0\0\0\0\xff\xff\xff\xff\0\x02\x02\x44\x01\0\x3b");
    let error = prepared(&gif).unwrap_err();
    assert!(matches!(error, ImageError::TooMuchMemory { .. }), "{error}");
    let small = fixture("gradient.jpg");
    let large = b"\xff\xc0\0\x11\x08\xea\x60\xea\x60\x03\x01\x11\0\x02\x11\0\x03\x11\0";
    let error = prepared(&[&small[..2], large, &small[2..]].concat()).unwrap_err();
    assert!(matches!(error, ImageError::TooManyPixels { .. }), "{error}");
    let frame = memchr::memmem::find(&small, b"\xff\xc0").unwrap() + 19;
    let error = prepared(&[&small[..frame], large, &small[frame..]].concat()).unwrap_err();
    assert!(matches!(error, ImageError::Damaged { .. }), "{error}");
}

#[test]
fn a_file_that_is_too_large_is_refused_by_its_length() {
    let head = fixture("gradient.png");
    let size = FILE_BYTES + 1;
    let error = crate::files::image::prepare::examine(&head, size).unwrap_err();
    let format = Format::Png;
    assert_eq!(error, ImageError::TooManyBytes { format, size });
    assert!(crate::files::image::prepare::examine(&head, FILE_BYTES).is_ok());
}

#[test]
fn animations_without_end_give_their_first_frame() {
    // Each frame costs a few bytes and four million pixels.
    let mut file = b"GIF89a\x00\x08\x00\x08\x80\0\0\xff\0\0\0\0\xff".to_vec();
    let mut pixels = Vec::new();
    gif::Encoder::new(&mut pixels, 2_048, 2_048, &[255, 0, 0, 0, 0, 255])
        .unwrap()
        .write_frame(&gif::Frame::from_indexed_pixels(
            2_048,
            2_048,
            vec![0; 2_048 * 2_048],
            None,
        ))
        .unwrap();
    let from = pixels
        .iter()
        .skip(19)
        .position(|byte| *byte == 0x2c)
        .unwrap()
        + 19;
    let frame = &pixels[from..pixels.len() - 1];
    for _ in 0..80 {
        file.extend(frame);
    }
    file.push(0x3b);
    let bounds = Bounds {
        side: 2_048,
        kilobytes: 4_000,
    };
    let image = fitted(&file, bounds).unwrap();
    assert_eq!((image.original.pictures, image.unchanged), (80, false));
    assert_eq!((image.format, image.width), (Format::Png, 2_048));
}

#[test]
fn who_has_gone_is_not_worked_for() {
    let cancel = Cancel::new();
    cancel.cancel();
    for name in ["gradient.png", "gradient.bmp", "animated.gif"] {
        let gone = prepare(fixture(name), &Bounds::default(), &cancel);
        assert_eq!(gone, Err(ImageError::Cancelled));
    }
}
