//! B154, B155: what is made anew is shown as the original is.

use super::*;
use crate::files::image::pixels::Pixels;

const SMALL: Bounds = Bounds {
    kilobytes: 500,
    side: 20,
};

#[test]
fn b154_orientation_is_applied_once() {
    let rotated = |orientation: u8| format!("orientation-{orientation}.jpg");
    let mut cases: Vec<_> = (1..=8)
        .map(|orientation| (rotated(orientation), orientation))
        .collect();
    cases.extend(["webp", "png", "tif"].map(|kind| (format!("orientation-6.{kind}"), 6)));
    for (name, orientation) in cases {
        let image = fitted(&fixture(&name), SMALL).unwrap();
        assert_eq!(image.original.orientation, orientation, "{name}");
        let stored = if orientation < 5 { (40, 20) } else { (20, 40) };
        assert_eq!(
            (image.original.width, image.original.height),
            stored,
            "{name}"
        );
        assert_eq!((image.width, image.height), (20, 10), "{name}");
        let pixels = seen(&image).into_rgb8();
        assert!(near(pixels.get_pixel(1, 1).0, [255, 0, 0]), "{name}");
        for (x, y) in [(18, 1), (1, 8), (18, 8)] {
            assert!(near(pixels.get_pixel(x, y).0, [255; 3]), "{name} {x} {y}");
        }
        // The tag is gone: who looks at it turns nothing again.
        let again = fitted(&image.data, SMALL).unwrap();
        assert_eq!(
            (again.original.orientation, again.unchanged),
            (1, true),
            "{name}"
        );
    }
    // Converted without being scaled.
    let image = prepared(&fixture("orientation-6.tif")).unwrap();
    assert_eq!(
        (image.width, image.height, image.format),
        (40, 20, Format::Png)
    );
    assert!(near(
        seen(&image).into_rgb8().get_pixel(2, 2).0,
        [255, 0, 0]
    ));
}

#[test]
fn b155_what_is_transparent_becomes_white_and_nothing_bleeds_into_it() {
    let bounds = Bounds {
        side: 8,
        ..Bounds::default()
    };
    for name in ["alpha.png", "alpha.webp", "alpha-lossy.webp"] {
        let image = fitted(&fixture(name), bounds).unwrap();
        assert_eq!((image.format, image.width), (Format::Jpeg, 8), "{name}");
        let pixels = seen(&image).into_rgb8();
        assert!(near(pixels.get_pixel(0, 0).0, [255; 3]), "{name}");
        assert!(near(pixels.get_pixel(4, 4).0, [0, 0, 255]), "{name}");
    }
    // Half of it is transparent red, which must not tint the mean.
    let pixels = Pixels {
        width: 2,
        height: 1,
        channels: 4,
        data: vec![0, 0, 255, 255, 255, 0, 0, 0],
    };
    let reduced = pixels.reduced((1, 1), &Cancel::new()).unwrap();
    assert_eq!(reduced.get_pixel(0, 0).0, [128, 128, 255]);
    let grey = Pixels {
        width: 1,
        height: 2,
        channels: 2,
        data: vec![0, 255, 0, 0],
    };
    let reduced = grey.reduced((1, 1), &Cancel::new()).unwrap();
    assert_eq!(reduced.get_pixel(0, 0).0, [128; 3]);
}

#[test]
fn b155_frames_are_told_and_the_first_is_composed_as_it_is_shown() {
    for name in [
        "animated.gif",
        "disposal-previous.gif",
        "animated.png",
        "animated.webp",
    ] {
        let bytes = fixture(name);
        let kept = prepared(&bytes).unwrap();
        assert!(kept.unchanged, "{name}");
        assert_eq!(kept.original.pictures, 3, "{name}");
        let bounds = Bounds {
            side: 12,
            ..Bounds::default()
        };
        let first = fitted(&bytes, bounds).unwrap();
        assert_eq!(
            (first.format, first.original.pictures),
            (Format::Jpeg, 3),
            "{name}"
        );
        let pixels = seen(&first).into_rgb8();
        assert!(near(pixels.get_pixel(2, 4).0, [255, 0, 0]), "{name}");
        assert!(near(pixels.get_pixel(10, 1).0, [255; 3]), "{name}");
    }
}

#[test]
fn b155_a_first_frame_smaller_than_the_screen_stands_where_it_belongs() {
    let mut file = Vec::new();
    {
        let mut encoder = gif::Encoder::new(&mut file, 20, 10, &[255, 0, 0, 0, 0, 255]).unwrap();
        let mut frame = gif::Frame::from_indexed_pixels(4, 4, vec![0; 16], None);
        (frame.left, frame.top) = (10, 2);
        encoder.write_frame(&frame).unwrap();
        // Beyond the screen: what does not fit is not shown.
        (frame.left, frame.top) = (18, 8);
        encoder.write_frame(&frame).unwrap();
    }
    let bounds = Bounds {
        side: 19,
        ..Bounds::default()
    };
    let image = fitted(&file, bounds).unwrap();
    assert_eq!(image.original.pictures, 2);
    let pixels = seen(&image).into_rgb8();
    assert!(near(pixels.get_pixel(11, 3).0, [255, 0, 0]));
    assert!(near(pixels.get_pixel(2, 3).0, [255; 3]));
    assert!(near(pixels.get_pixel(18, 8).0, [255; 3]));
}

#[test]
fn a_smaller_picture_has_the_exact_means_of_the_larger() {
    let noise = noise(97, 61);
    let pixels = Pixels::from(noise.clone());
    for size in [(97, 61), (48, 30), (33, 61), (97, 1), (1, 1), (96, 60)] {
        let reduced = pixels.reduced(size, &Cancel::new()).unwrap();
        assert_eq!(reduced.dimensions(), size);
        // By hand, at each pixel: the part of each old pixel that it covers.
        let covered = |at: u32, old: u32, new: u32, index: u32| {
            let (from, to) = (at * old, (at + 1) * old);
            (to.min((index + 1) * new)).saturating_sub(from.max(index * new))
        };
        for (x, y) in [(0, 0), (size.0 - 1, size.1 - 1), (size.0 / 2, size.1 / 3)] {
            let mut sums = [0_u64; 3];
            for (old_x, old_y, pixel) in noise.as_rgb8().unwrap().enumerate_pixels() {
                let weight = covered(x, 97, size.0, old_x) * covered(y, 61, size.1, old_y);
                for (sum, value) in sums.iter_mut().zip(pixel.0) {
                    *sum += u64::from(value) * u64::from(weight);
                }
            }
            let means = sums.map(|sum| u8::try_from((sum + 97 * 61 / 2) / (97 * 61)).unwrap());
            assert_eq!(reduced.get_pixel(x, y).0, means, "{size:?} {x} {y}");
        }
    }
}
