//! B152: what is given out is what consumers take.

use super::*;

#[test]
fn b152_kinds_that_consumers_refuse_are_converted_or_refused_by_name() {
    let original = image::load_from_memory(&fixture("gradient.png")).unwrap();
    for (name, format) in [
        ("gradient.bmp", Format::Bmp),
        ("gradient.tif", Format::Tiff),
    ] {
        let image = prepared(&fixture(name)).unwrap();
        assert_eq!((image.original.format, image.format), (format, Format::Png));
        assert_eq!(seen(&image).into_rgb8(), original.to_rgb8(), "{name}");
    }
    let heic = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic".as_slice();
    for (bytes, word) in [
        (fixture("avif.avif").as_slice(), "AVIF"),
        (fixture("icon.ico").as_slice(), "ICO"),
        (heic, "HEIC"),
        (b"\0\0\0\x0cJXL \r\n\x87\n", "JPEG XL"),
        (b"<?xml version=\"1.0\"?>\n<svg xmlns=\"\"/>", "SVG"),
        (b"%PDF-1.7\n", "PDF"),
    ] {
        let error = prepared(bytes).unwrap_err();
        assert!(matches!(error, ImageError::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn b152_what_only_looks_like_an_image_is_none() {
    for bytes in [
        b"BM is how this text begins, and it goes on".as_slice(),
        b"BM",
        b"RIFF\0\0\0\0WAVEfmt ",
        b"GIF90a",
        b"plain text\n",
        b"\0\0\0\0\0\0\0\0",
        b"\xff\xd8",
        b"<?xml version=\"1.0\"?><html/>",
    ] {
        let error = prepared(bytes).unwrap_err();
        assert_eq!(error, ImageError::NotAnImage { empty: false });
    }
    let text_mode = fixture("gradient.png")
        .into_iter()
        .filter(|byte| *byte != b'\r');
    let error = prepared(&text_mode.collect::<Vec<_>>()).unwrap_err();
    assert!(error.to_string().contains("transferred as text"), "{error}");
}

#[test]
fn b152_cmyk_and_16_bits_come_out_as_8_bits_of_rgb() {
    let image = prepared(&fixture("cmyk-red.jpg")).unwrap();
    assert_eq!((image.format, image.unchanged), (Format::Jpeg, false));
    let seen_red = seen(&image);
    assert_eq!(seen_red.color(), image::ColorType::Rgb8);
    let pixel = seen_red.into_rgb8().get_pixel(8, 8).0;
    assert!(near(pixel, [255, 0, 0]), "{pixel:?}");

    let image = prepared(&fixture("grey16.png")).unwrap();
    assert_eq!((image.format, image.unchanged), (Format::Png, false));
    assert_eq!(image.data[24], 8, "bits");
    assert_eq!(seen(&image).into_rgb8().get_pixel(0, 0).0, [0x80; 3]);
    let deep = DynamicImage::ImageRgba16(noise(20, 20).into_rgba16());
    for format in [ImageFormat::Png, ImageFormat::Tiff] {
        let image = prepared(&file_of(&deep, format)).unwrap();
        assert_eq!(seen(&image).into_rgb8(), noise(20, 20).into_rgb8());
        assert_eq!(image.data[24], 8, "bits");
    }
}

#[test]
fn b152_what_consumers_take_comes_unchanged() {
    for name in [
        "gradient.png",
        "onebit.png",
        "palette-trns.png",
        "alpha.png",
        "animated.png",
        "gradient.jpg",
        "progressive.jpg",
        "restart.jpg",
        "grey.jpg",
        "orientation-6.jpg",
        "animated.gif",
        "lossless.webp",
        "lossy.webp",
        "alpha.webp",
        "alpha-lossy.webp",
        "animated.webp",
    ] {
        let bytes = fixture(name);
        let image = prepared(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(image.unchanged && image.data == bytes, "{name}");
        assert_eq!(image.original.format, image.format, "{name}");
        seen(&image);
    }
}

#[test]
fn pages_of_a_tiff_are_counted_and_the_first_is_given_out() {
    let image = prepared(&fixture("pages.tif")).unwrap();
    assert_eq!(image.original.pictures, 2);
    assert_eq!(seen(&image).into_rgb8().get_pixel(8, 8).0, [255, 0, 0]);
}
