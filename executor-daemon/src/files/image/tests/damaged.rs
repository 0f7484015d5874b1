//! B151: what is not whole is no image, whatever its header says.

use super::*;

#[track_caller]
fn damaged(bytes: &[u8], what: &str) {
    match prepared(bytes) {
        Err(error @ ImageError::Damaged { .. }) => {
            assert!(!error.to_string().contains('\n'), "{error}");
        }
        other => panic!("{what}: {other:?}"),
    }
}

#[test]
fn b151_an_empty_file_is_no_image() {
    let error = prepared(b"").unwrap_err();
    assert_eq!(error, ImageError::NotAnImage { empty: true });
}

#[test]
fn b151_an_image_that_is_cut_off_is_damaged_wherever_that_is() {
    for name in [
        "gradient.png",
        "onebit.png",
        "animated.png",
        "gradient.jpg",
        "progressive.jpg",
        "restart.jpg",
        "cmyk.jpg",
        "animated.gif",
        "disposal-previous.gif",
        "lossless.webp",
        "lossy.webp",
        "alpha-lossy.webp",
        "animated.webp",
        "gradient.bmp",
        "gradient.tif",
    ] {
        let whole = fixture(name);
        prepared(&whole).unwrap_or_else(|error| panic!("{name}: {error}"));
        for part in (1..16)
            .map(|part| whole.len() * part / 16)
            .chain([whole.len() - 1])
        {
            match prepared(&whole[..part]) {
                Err(ImageError::Damaged { .. } | ImageError::NotAnImage { .. }) => {}
                // The last byte of this one pads a strip.
                Ok(_) if name == "gradient.tif" && part == whole.len() - 1 => {}
                other => panic!("{name}, {part} bytes: {other:?}"),
            }
        }
    }
}

#[test]
fn b151_data_that_is_missing_in_the_middle_is_noticed() {
    let picture = noise(200, 200);
    for format in [
        ImageFormat::Png,
        ImageFormat::Jpeg,
        ImageFormat::WebP,
        ImageFormat::Bmp,
    ] {
        let whole = file_of(&picture, format);
        prepared(&whole).unwrap();
        let (before, after) = whole.split_at(whole.len() / 2);
        damaged(&[before, &after[2048..]].concat(), &format!("{format:?}"));
    }
}

#[test]
fn b151_a_checksum_that_is_wrong_is_damage_in_any_chunk_of_a_png() {
    let whole = fixture("gradient.png");
    let rest = &whole[33..];
    let whole = [&whole[..33], &chunk(b"tEXt", b"Comment\0text"), rest].concat();
    prepared(&whole).unwrap();
    let mut at = 8;
    let mut seen = Vec::new();
    while at < whole.len() {
        let length = u32::from_be_bytes(whole[at..at + 4].try_into().unwrap()) as usize;
        let kind = whole[at + 4..at + 8].to_vec();
        at += 12 + length;
        let mut bad = whole.clone();
        bad[at - 1] ^= 1;
        if kind == b"IEND" {
            continue;
        }
        damaged(&bad, &kind.escape_ascii().to_string());
        seen.push(kind);
    }
    assert!(seen.contains(&b"tEXt".to_vec()) && seen.contains(&b"IDAT".to_vec()));
    // The data's own checksum, with that of the chunk mended.
    let end = whole.len() - 12;
    let start = whole.windows(4).position(|kind| kind == b"IDAT").unwrap() + 4;
    let mut data = whole[start..end - 4].to_vec();
    *data.last_mut().unwrap() ^= 1;
    let bad = [&whole[..start - 8], &chunk(b"IDAT", &data), &whole[end..]].concat();
    damaged(&bad, "adler");
}

#[test]
fn b151_a_jpeg_without_its_end_and_one_that_ends_too_early_are_damaged() {
    let whole = file_of(&noise(128, 128), ImageFormat::Jpeg);
    let data = &whole[..whole.len() - 2];
    assert_eq!(whole[data.len()..], [0xff, 0xd9]);
    damaged(data, "no end");
    for part in [data.len() / 2, data.len() * 3 / 4, data.len() - 200] {
        let mut early = data[..part].to_vec();
        while early.last() == Some(&0xff) {
            early.pop();
        }
        early.extend([0xff, 0xd9]);
        damaged(&early, "ends early");
    }
}

#[test]
fn b151_what_follows_the_end_is_accepted_and_never_given_out() {
    let garbage = b"<script>PK\x03\x04garbage\xff\xd9";
    let whole = fixture("gradient.png");
    let image = prepared(&[&whole, garbage.as_slice()].concat()).unwrap();
    assert_eq!((image.format, image.unchanged), (Format::Png, false));
    assert!(memchr::memmem::find(&image.data, b"garbage").is_none());
    let before = image::load_from_memory(&whole).unwrap();
    assert_eq!(seen(&image).into_rgb8(), before.into_rgb8());
    for name in ["gradient.jpg", "animated.gif", "lossy.webp"] {
        let whole = fixture(name);
        let image = prepared(&[&whole, garbage.as_slice()].concat()).unwrap();
        assert!(image.unchanged && image.data == whole, "{name}");
    }
}

#[test]
fn a_later_frame_that_is_damaged_is_damage_of_the_whole() {
    let whole = fixture("animated.gif");
    // A frame's data becomes one whose codes lead nowhere.
    let last = whole.iter().rposition(|byte| *byte == 0x2c).unwrap();
    let mut bad = whole.clone();
    let flags = bad[last + 9];
    let colors = if flags & 0x80 == 0 {
        0
    } else {
        3 << ((flags & 7) + 1)
    };
    let data = last + 10 + colors + 2;
    let length = usize::from(bad[data - 1]);
    bad[data..data + length].fill(0xff);
    damaged(&bad, "gif");
    let whole = fixture("animated.webp");
    let last = memchr::memmem::rfind(&whole, b"VP8L").unwrap();
    let mut bad = whole.clone();
    bad[last + 13..].fill(0xff);
    damaged(&bad, "webp");
    let whole = fixture("animated.png");
    let last = memchr::memmem::rfind(&whole, b"fdAT").unwrap();
    let mut bad = whole.clone();
    bad[last + 12] ^= 0x55;
    damaged(&bad, "png");
}
