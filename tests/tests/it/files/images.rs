//! Images over a real daemon.

use std::fs;
use std::path::{Path, PathBuf};

use executor_client::{Reason, path_bytes, v1};
use executor_tests::{Daemon, DaemonOptions, in_time};
use tokio::task::JoinSet;

use super::cli::Cli;
use super::*;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../executor-daemon/tests/fixtures/images")
        .join(name)
}

fn image(path: impl AsRef<Path>) -> v1::ReadImageRequest {
    v1::ReadImageRequest {
        path: path_bytes(path.as_ref()),
        ..Default::default()
    }
}

/// A JPEG of so many bytes: comments fill it.
fn jpeg_of(length: usize) -> Vec<u8> {
    let small = fs::read(fixture("gradient.jpg")).unwrap();
    let (start, rest) = small.split_at(2);
    let mut file = start.to_vec();
    let mut missing = length - small.len();
    while missing > 0 {
        // Marker and length; none may be left too small for another comment.
        let mut comment = missing.min(60_000);
        if (1..4).contains(&(missing - comment)) {
            comment -= 4;
        }
        file.extend([0xff, 0xfe]);
        file.extend(u16::try_from(comment - 2).unwrap().to_be_bytes());
        file.resize(file.len() + comment - 4, b' ');
        missing -= comment;
    }
    file.extend(rest);
    assert_eq!(file.len(), length);
    file
}

#[tokio::test]
async fn an_image_comes_as_it_is_or_as_it_fits() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let bytes = fs::read(fixture("orientation-6.jpg")).unwrap();
    fs::write(daemon.work().join("photo"), &bytes).unwrap();
    let kept = session.read_image(image("photo")).await.unwrap();
    assert!(kept.unchanged && kept.data == bytes);
    assert_eq!((kept.original_width, kept.original_height), (20, 40));
    assert_eq!((kept.width, kept.height, kept.frames), (20, 40, 1));
    assert_eq!(kept.format(), v1::ImageFormat::Jpeg);
    let file = kept.file.unwrap();
    assert_eq!(file.size, bytes.len() as u64);
    assert!(file.path.ends_with(b"/photo"));
    let request = v1::ReadImageRequest {
        max_side: Some(20),
        ..image("photo")
    };
    let scaled = session.read_image(request).await.unwrap();
    assert!(!scaled.unchanged && scaled.data.starts_with(b"\xff\xd8\xff"));
    assert_eq!((scaled.original_width, scaled.original_height), (20, 40));
    assert_eq!(
        (scaled.orientation, scaled.width, scaled.height),
        (6, 20, 10)
    );

    fs::copy(fixture("gradient.bmp"), daemon.work().join("bitmap")).unwrap();
    let converted = session.read_image(image("bitmap")).await.unwrap();
    assert_eq!(converted.original_format(), v1::ImageFormat::Bmp);
    assert_eq!(converted.format(), v1::ImageFormat::Png);
    assert!(converted.data.starts_with(b"\x89PNG"));
    fs::copy(fixture("animated.gif"), daemon.work().join("moving")).unwrap();
    assert_eq!(session.read_image(image("moving")).await.unwrap().frames, 3);
}

#[tokio::test]
async fn b139_the_largest_image_fits_into_a_message() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let path = daemon.work().join("large.jpg");
    let request = |kilobytes| v1::ReadImageRequest {
        max_image_kb: kilobytes,
        ..image("large.jpg")
    };
    for (length, kilobytes, unchanged) in [
        (500 << 10, None, true),
        ((500 << 10) + 1, None, false),
        (4_000 << 10, Some(4_000), true),
        ((4_000 << 10) + 1, Some(4_000), false),
        (20 << 20, Some(4_000), false),
    ] {
        fs::write(&path, jpeg_of(length)).unwrap();
        let read = session.read_image(request(kilobytes)).await.unwrap();
        assert_eq!(read.unchanged, unchanged, "{length}");
        assert_eq!(read.data.len() == length, unchanged, "{length}");
        assert_eq!((read.width, read.height), (48, 32), "{length}");
    }
    fs::write(&path, jpeg_of((20 << 20) + 1)).unwrap();
    let error = refused(
        session.read_image(request(None)).await,
        Reason::ImageTooLarge,
    );
    assert_eq!(error.metadata("size"), Some("20971521"));
    assert_eq!(error.metadata("maximum"), Some("20971520"));
}

#[tokio::test]
async fn what_is_no_image_is_told_by_its_reason() {
    let daemon = Daemon::start().await;
    let session = daemon.session().await;
    let put = |name: &str, content: &[u8]| fs::write(daemon.work().join(name), content).unwrap();
    let whole = fs::read(fixture("gradient.png")).unwrap();
    put("text.png", b"not an image\n");
    put("empty.png", b"");
    put("half.png", &whole[..whole.len() / 2]);
    put("photo.avif", &fs::read(fixture("avif.avif")).unwrap());
    let mut bomb = whole.clone();
    bomb[16..24].copy_from_slice(&[0, 0, 0xea, 0x60, 0, 0, 0xea, 0x60]);
    put("bomb.png", &bomb);
    for (name, reason) in [
        ("text.png", Reason::NotAnImage),
        ("empty.png", Reason::NotAnImage),
        ("half.png", Reason::ImageDamaged),
        ("photo.avif", Reason::ImageUnsupported),
        ("bomb.png", Reason::ImageTooLarge),
        ("none.png", Reason::PathNotFound),
        (".", Reason::IsADirectory),
    ] {
        let error = refused(session.read_image(image(name)).await, reason);
        if reason == Reason::ImageTooLarge {
            let number = |key| error.metadata(key).map(str::to_owned);
            assert_eq!(number("width").as_deref(), Some("60000"));
            assert_eq!(number("maximum").as_deref(), Some("8000"));
        }
    }
    for (kilobytes, side, field) in [
        (Some(0), None, "max_image_kb"),
        (Some(4_001), None, "max_image_kb"),
        (None, Some(0), "max_side"),
        (None, Some(8_001), "max_side"),
    ] {
        let request = v1::ReadImageRequest {
            max_image_kb: kilobytes,
            max_side: side,
            ..image("half.png")
        };
        let error = refused(session.read_image(request).await, Reason::InvalidArgument);
        assert_eq!(error.metadata("field"), Some(field));
    }
}

#[tokio::test]
async fn images_wait_for_each_other_where_few_are_read_at_a_time() {
    let daemon = Daemon::start_with(DaemonOptions {
        configuration: "[limits]\nimage_reads = 1\n".into(),
        ..Default::default()
    })
    .await;
    let session = daemon.session().await;
    fs::write(daemon.work().join("photo"), jpeg_of(400 << 10)).unwrap();
    let mut reads = JoinSet::new();
    for _ in 0..16 {
        let session = session.clone();
        reads.spawn(async move { session.read_image(image("photo")).await });
    }
    while let Some(read) = in_time("images", reads.join_next()).await {
        assert!(read.unwrap().unwrap().unchanged);
    }
}

#[tokio::test]
async fn view_tells_what_an_image_is_and_saves_what_a_model_would_get() {
    let cli = Cli::on(None);
    fs::copy(fixture("orientation-6.jpg"), cli.path().join("photo.jpg")).unwrap();
    let told = cli.prints(&["view", "photo.jpg"]).await;
    for words in ["JPEG, 20 x 40 pixels", "6 (EXIF)", "returned  unchanged"] {
        assert!(told.contains(words), "{told}");
    }
    assert!(!told.contains('\x1b'), "no terminal, no picture: {told}");
    let told = cli
        .json(&[
            "--json",
            "view",
            "--max-side",
            "20",
            "--save",
            "s.jpg",
            "photo.jpg",
        ])
        .await;
    assert_eq!(told[0]["original"]["orientation"], 6);
    assert_eq!(told[0]["returned"]["width"], 20);
    let saved = fs::read(cli.path().join("s.jpg")).unwrap();
    assert_eq!(told[0]["returned"]["bytes"], saved.len());
    let again = cli.json(&["--json", "view", "s.jpg"]).await;
    assert_eq!(again[0]["original"]["height"], 10);
    fs::write(cli.path().join("text"), "text").unwrap();
    let error = cli.fails(&["--json", "view", "text"]).await;
    assert!(error.contains("NOT_AN_IMAGE"), "{error}");
}
