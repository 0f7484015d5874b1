//! Images under changes: whatever the bytes are, there is an answer, and what it
//! gives out is an image that fits.
//!
//! `.ci/run` replays the corpus and some random changes of it and of the
//! fixtures. To look for more: `EXECUTOR_FUZZ_MINUTES=10 cargo test -p
//! executor-daemon --lib look_for_images -- --ignored`. It keeps those bytes that
//! get an answer that none got before, in `fuzz/image`.

use super::*;
use crate::files::tests::exploring::{Random, corpus, explore, replay};
use crate::files::tests::scaled;

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/image");
/// A larger picture takes long and shows nothing new.
const PIXELS: u64 = 1 << 20;

/// What the answer was like.
type Sign = (Option<Format>, String);

/// Asks for the image that `bytes` are; panics where a promise is broken.
fn ask(bytes: &[u8]) -> Sign {
    let bounds = Bounds {
        kilobytes: 2,
        side: 64,
    };
    if let Ok((_, Some((width, height)))) =
        crate::files::image::prepare::examine(bytes, bytes.len() as u64)
        && u64::from(width) * u64::from(height) > PIXELS
    {
        return (None, "large".into());
    }
    match fitted(bytes, bounds) {
        Ok(image) => {
            assert!(image.data.len() <= 2048 && image.width.max(image.height) <= 64);
            let again = prepared(&image.data).unwrap();
            assert_eq!((again.width, again.height), (image.width, image.height));
            let original = image.original;
            let kind = (
                image.unchanged,
                original.orientation,
                original.pictures.min(4),
            );
            (Some(original.format), format!("{kind:?}"))
        }
        Err(ImageError::Damaged { format, why }) => {
            // How it begins; what follows are numbers and names from the bytes.
            let plain = |word: &&str| word.chars().all(|letter| letter.is_ascii_lowercase());
            let words: Vec<_> = why.split_whitespace().take(5).filter(plain).collect();
            (Some(format), words.join(" "))
        }
        Err(error) => (None, format!("{:?}", std::mem::discriminant(&error))),
    }
}

fn byte(random: &mut Random) -> u8 {
    const TELLING: [u8; 8] = [0, 1, 0x7f, 0x80, 0xff, 0xd9, 0x2c, 0x3b];
    match random.below(3) {
        0 => TELLING[random.below(TELLING.len())],
        _ => random.byte(),
    }
}

fn changed(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = corpus[random.below(corpus.len())].clone();
    // Headers are where it matters.
    let reach = if random.below(2) == 0 { 64 } else { usize::MAX };
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len().min(reach) + 1);
        match random.below(5) {
            0 | 1 if at < bytes.len() => bytes[at] = byte(random),
            2 => bytes.insert(at, byte(random)),
            3 if at < bytes.len() => drop(bytes.remove(at)),
            _ => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend(&other[from..]);
            }
        }
    }
    bytes.truncate(8 << 10);
    mend_checksums(&mut bytes);
    bytes
}

/// Most changes of a PNG would only ever be found by its checksums.
fn mend_checksums(bytes: &mut [u8]) {
    if !bytes.starts_with(b"\x89PNG") {
        return;
    }
    let mut at = 8;
    while let Some(length) = bytes.get(at..at + 4) {
        let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
        let Some(data) = bytes.get(at + 4..).and_then(|rest| rest.get(..length + 4)) else {
            return;
        };
        let mended = chunk(data[..4].try_into().unwrap(), &data[4..]);
        let end = at + mended.len();
        let Some(place) = bytes.get_mut(at..end) else {
            return;
        };
        place.copy_from_slice(&mended);
        at = end;
    }
}

/// What was found before, and the fixtures.
fn known() -> Vec<Vec<u8>> {
    corpus(&[CORPUS, FIXTURES])
}

#[test]
fn known_images_and_some_random_changes_of_them_get_an_answer() {
    replay(&known(), scaled(20_000, 500), changed, ask);
}

#[test]
#[ignore = "looks for new images, for as many minutes as EXECUTOR_FUZZ_MINUTES says"]
fn look_for_images() {
    explore(CORPUS, known(), changed, |bytes| [ask(bytes)]);
}
