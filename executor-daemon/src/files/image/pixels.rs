//! Decoded pixels, 8 bits a channel, and their reduction.

use image::metadata::Orientation;
use image::{DynamicImage, GrayAlphaImage, GrayImage, RgbImage, RgbaImage};

use super::error::ImageError;
use super::{ANIMATION_PIXELS, FRAME_PIXELS};
use crate::files::cancel::Cancel;

/// Rows between two looks at whether the caller has gone.
const ROWS: usize = 64;

/// A picture: rows from the top, channels side by side.
#[derive(Debug)]
pub(super) struct Pixels {
    pub(super) width: u32,
    pub(super) height: u32,
    /// 1: grey, 2: grey and alpha, 3: RGB, 4: RGBA.
    pub(super) channels: usize,
    pub(super) data: Vec<u8>,
}

/// A whole image.
#[derive(Debug)]
pub(super) struct Decoded {
    /// The first picture.
    pub(super) pixels: Pixels,
    pub(super) orientation: Orientation,
    /// All pictures were decoded.
    pub(super) whole: bool,
}

/// Counts the frames of an animation that are decoded.
#[derive(Debug)]
pub(super) struct Frames<'a> {
    cancel: &'a Cancel,
    left: u64,
    all: bool,
}

impl<'a> Frames<'a> {
    pub(super) fn new(cancel: &'a Cancel) -> Self {
        Self {
            cancel,
            left: ANIMATION_PIXELS,
            all: true,
        }
    }

    /// May one more frame of this size be decoded?
    pub(super) fn another(&mut self, width: u32, height: u32) -> Result<bool, ImageError> {
        check(self.cancel)?;
        let pixels = u64::from(width) * u64::from(height);
        match self.left.checked_sub(pixels) {
            Some(left) if pixels <= FRAME_PIXELS => self.left = left,
            _ => self.all = false,
        }
        Ok(self.all)
    }

    /// Has every frame been allowed that was asked for?
    pub(super) fn all(&self) -> bool {
        self.all
    }
}

/// # Errors
/// [`ImageError::Cancelled`].
pub(super) fn check(cancel: &Cancel) -> Result<(), ImageError> {
    cancel.check().map_err(|_| ImageError::Cancelled)
}

impl Pixels {
    /// As wide and high as asked, at most as it is: each new pixel is the mean
    /// of those that it covers, exactly, on white where they are transparent.
    pub(super) fn reduced(
        &self,
        (width, height): (u32, u32),
        cancel: &Cancel,
    ) -> Result<RgbImage, ImageError> {
        let (from, to) = ([self.width, self.height], [width, height]);
        let [columns, rows] = [0, 1].map(|axis: usize| Spread::new(from, to, axis));
        let stride = self.channels * usize_of(self.width);
        let mut row = vec![0_u32; 3 * usize_of(width)];
        let mut sums = vec![0_u64; row.len()];
        let mut reduced = Vec::with_capacity(row.len() * usize_of(height));
        let whole = u64::from(self.width) * u64::from(self.height);
        let steps = self.data.chunks_exact(stride.max(1)).zip(rows);
        for (at, (source, step)) in steps.enumerate() {
            if at % ROWS == 0 {
                check(cancel)?;
            }
            reduce_row(source, self.channels, columns.clone(), &mut row);
            add(&mut sums, &row, step.here);
            if step.ends {
                // Means, rounded: no sum is more than 255 times the whole.
                let means = sums.iter().map(|sum| (sum + whole / 2) / whole);
                reduced.extend(means.map(|mean| u8::try_from(mean).unwrap_or(u8::MAX)));
                sums.fill(0);
                add(&mut sums, &row, step.next);
            }
        }
        let image = RgbImage::from_raw(width, height, reduced);
        // It has exactly as many pixels; a caller that asked for none gets none.
        Ok(image.unwrap_or_default())
    }

    /// With all its channels, shown upright.
    pub(super) fn upright(self, orientation: Orientation) -> Option<DynamicImage> {
        let Self {
            width,
            height,
            channels,
            data,
        } = self;
        let mut image: DynamicImage = match channels {
            1 => GrayImage::from_raw(width, height, data)?.into(),
            2 => GrayAlphaImage::from_raw(width, height, data)?.into(),
            3 => RgbImage::from_raw(width, height, data)?.into(),
            _ => RgbaImage::from_raw(width, height, data)?.into(),
        };
        image.apply_orientation(orientation);
        Some(image)
    }
}

impl From<RgbImage> for Pixels {
    fn from(image: RgbImage) -> Self {
        Self {
            width: image.width(),
            height: image.height(),
            channels: 3,
            data: image.into_raw(),
        }
    }
}

/// What one old pixel adds to the new one that is being made, and to the next.
#[derive(Debug, Clone, Copy)]
struct Step {
    here: u32,
    next: u32,
    /// The new pixel is complete.
    ends: bool,
}

/// Spreads the old pixels of an axis over the new ones, in parts of an old
/// pixel of which there are as many as new pixels: a new one takes as many as
/// there are old ones.
#[derive(Debug, Clone)]
struct Spread {
    old: u32,
    new: u32,
    /// Parts that the new pixel has.
    filled: u32,
}

impl Spread {
    fn new(old: [u32; 2], new: [u32; 2], axis: usize) -> Self {
        let pick = |sizes: [u32; 2]| sizes.get(axis).copied().unwrap_or(1);
        Self {
            old: pick(old),
            // More than there are cannot be made.
            new: pick(new).min(pick(old)),
            filled: 0,
        }
    }
}

impl Iterator for Spread {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let here = self.new.min(self.old - self.filled);
        let next = self.new - here;
        self.filled += here;
        let ends = self.filled == self.old;
        if ends {
            self.filled = next;
        }
        Some(Step { here, next, ends })
    }
}

fn reduce_row(source: &[u8], channels: usize, columns: Spread, row: &mut [u32]) {
    row.fill(0);
    match channels {
        1 => gather(source.iter().map(|grey| [*grey; 3]), columns, row),
        2 => {
            let pixels = source.as_chunks().0.iter();
            gather(
                pixels.map(|[grey, alpha]| [over_white(*grey, *alpha); 3]),
                columns,
                row,
            );
        }
        3 => gather(source.as_chunks().0.iter().copied(), columns, row),
        _ => {
            let pixels = source.as_chunks().0.iter();
            let flat =
                |[r, g, b, alpha]: &[u8; 4]| [r, g, b].map(|value| over_white(*value, *alpha));
            gather(pixels.map(flat), columns, row);
        }
    }
}

fn gather(pixels: impl Iterator<Item = [u8; 3]>, columns: Spread, row: &mut [u32]) {
    let mut sums = row.as_chunks_mut::<3>().0.iter_mut();
    let Some(mut sum) = sums.next() else { return };
    for (pixel, step) in pixels.zip(columns) {
        for (sum, value) in sum.iter_mut().zip(pixel) {
            *sum += u32::from(value) * step.here;
        }
        if step.ends {
            let Some(next) = sums.next() else { return };
            sum = next;
            for (sum, value) in sum.iter_mut().zip(pixel) {
                *sum += u32::from(value) * step.next;
            }
        }
    }
}

fn add(sums: &mut [u64], row: &[u32], times: u32) {
    for (sum, value) in sums.iter_mut().zip(row) {
        *sum += u64::from(*value) * u64::from(times);
    }
}

fn over_white(value: u8, alpha: u8) -> u8 {
    let (value, alpha) = (u32::from(value), u32::from(alpha));
    let mixed = (value * alpha + 255 * (255 - alpha) + 127) / 255;
    u8::try_from(mixed).unwrap_or(u8::MAX)
}

pub(super) fn usize_of(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
