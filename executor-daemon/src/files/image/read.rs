//! An image from a file, through the fence.

use std::ffi::OsStr;
use std::path::PathBuf;

use super::prepare::{examine, prepare};
use super::{Bounds, FILE_BYTES, Image, KILOBYTES, SIDE};
use crate::files::cancel::Cancel;
use crate::files::entry::Last;
use crate::files::error::FileError;
use crate::files::fence::Fence;
use crate::files::object::Facts;
use crate::files::opened::{CHUNK_BYTES, Content};

/// Bytes that are looked at before the others are read.
const HEAD_BYTES: usize = 64 << 10;

/// An image and the file that it came from.
#[derive(Debug)]
pub struct ReadImage {
    /// What the file was when it was opened; the image is of this version.
    pub facts: Facts,
    /// Its absolute name, without links.
    pub path: PathBuf,
    /// The image.
    pub image: Image,
}

/// Reads an image, so that it fits into `bounds`. Takes memory as the module
/// bounds it, and seconds for the largest; between its steps it looks at
/// `cancel`.
///
/// # Errors
/// [`FileError::Image`], [`FileError::InvalidArgument`] for bounds out of their
/// range, [`FileError::Changed`] if the file was changed meanwhile,
/// [`FileError::NotARegularFile`], and as [`Fence::object`].
pub fn read_image(
    fence: &Fence,
    given: &OsStr,
    bounds: &Bounds,
    cancel: &Cancel,
) -> Result<ReadImage, FileError> {
    within("max_image_kb", bounds.kilobytes, KILOBYTES)?;
    within("max_side", bounds.side, SIDE)?;
    let content = Content::open(fence.object(given, Last::Follow)?, fence.unsized_bytes())?;
    let refused = |error| match error {
        super::error::ImageError::Cancelled => FileError::Cancelled,
        error => FileError::Image {
            given: given.into(),
            error,
        },
    };
    let mut head = vec![0; HEAD_BYTES];
    let head = content.read(0, &mut head)?;
    examine(head, content.facts().size).map_err(refused)?;
    let bytes = whole(&content, cancel)?;
    if !content.is_unchanged()? {
        return Err(FileError::Changed {
            given: given.into(),
        });
    }
    let image = prepare(bytes, bounds, cancel).map_err(refused)?;
    Ok(ReadImage {
        facts: *content.facts(),
        path: content.object().path().to_owned(),
        image,
    })
}

fn within(field: &'static str, value: u32, most: u32) -> Result<(), FileError> {
    if (1..=most).contains(&value) {
        return Ok(());
    }
    Err(FileError::InvalidArgument {
        field,
        why: format!("{value} is not 1 to {most}"),
    })
}

/// All of it, or one byte more than is taken.
fn whole(content: &Content, cancel: &Cancel) -> Result<Vec<u8>, FileError> {
    let most = usize::try_from(FILE_BYTES)
        .unwrap_or(usize::MAX)
        .saturating_add(1);
    let size = usize::try_from(content.facts().size).unwrap_or(most);
    let mut bytes = Vec::with_capacity(size.min(most));
    let mut chunk = vec![0; CHUNK_BYTES];
    while bytes.len() < most {
        cancel.check()?;
        let room = CHUNK_BYTES.min(most - bytes.len());
        let read = content.read(
            bytes.len() as u64,
            chunk.get_mut(..room).unwrap_or_default(),
        )?;
        bytes.extend_from_slice(read);
        if read.len() < room {
            break;
        }
    }
    Ok(bytes)
}
