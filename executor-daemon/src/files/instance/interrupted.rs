//! Is a file as a write in place leaves it whose writer was killed?
//!
//! The writer writes the new content from its first byte to its last over the
//! old one and then cuts off what the old one had more. So there is, at any
//! moment, a number `k` for which the file is
//!
//! ```text
//!  new[..k] old[k..]      before the cut; its size is the larger of k and the old one
//!  new                    after it
//! ```
//!
//! Anything else somebody else wrote. A foreign write that leaves one of these
//! states cannot be told apart and loses nothing: what it wrote is in the old
//! content or in the new.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::record::InPlace;
use super::slot::read_at;
use crate::files::cancel::Cancel;

/// Bytes that are compared at a time.
const CHUNK: usize = 256 << 10;

/// Is `file`, of `size` bytes, in one of the states above? `image` begins with
/// the new content, `old` with what was written over.
///
/// # Errors
/// As one of the files cannot be read.
pub(super) fn is_interrupted(
    file: &OwnedFd,
    size: u64,
    image: &OwnedFd,
    old: &OwnedFd,
    record: &InPlace,
) -> Result<bool, Errno> {
    let (before, after) = (record.before.size, record.length);
    let is_cut = before > after && size == after;
    let has_grown = before < size && size <= after;
    // Of a wrong length all is wrong; of these two all has to be new.
    let new = equal_until(file, image, 0, size.min(after))?;
    if is_cut || has_grown {
        return Ok(new == size);
    }
    let over = before.min(after);
    Ok(size == before
        && equal_until(file, old, new, over)? == over
        && digest_of_rest(file, over, before, Cancel::never())? == record.tail)
}

/// Where, from `at` on, the two first differ or one ends; `end` at the most.
fn equal_until(one: &OwnedFd, other: &OwnedFd, mut at: u64, end: u64) -> Result<u64, Errno> {
    let (mut first, mut second) = (vec![0; CHUNK], vec![0; CHUNK]);
    while at < end {
        let want = usize::try_from(end - at).map_or(CHUNK, |left| left.min(CHUNK));
        let filled = |file, buffer: &mut Vec<u8>| {
            let part = buffer.get_mut(..want).unwrap_or_default();
            read_at(file, part, at)
        };
        let both = filled(one, &mut first)?.min(filled(other, &mut second)?);
        let pairs = first.iter().zip(&second).take(both);
        let equal = pairs.take_while(|(first, second)| first == second).count();
        at += equal as u64;
        if equal < want {
            break;
        }
    }
    Ok(at)
}

/// BLAKE3 of the bytes from `at` to `end`.
///
/// # Errors
/// `EIO` where the file ends before; as it cannot be read.
pub(in crate::files) fn digest_of_rest(
    file: &OwnedFd,
    mut at: u64,
    end: u64,
    cancel: &Cancel,
) -> Result<[u8; 32], Errno> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; CHUNK];
    while at < end {
        cancel.errno()?;
        let want = usize::try_from(end - at).map_or(CHUNK, |left| left.min(CHUNK));
        let part = buffer.get_mut(..want).unwrap_or_default();
        let count = read_at(file, part, at)?;
        if count < want {
            return Err(Errno::IO);
        }
        hasher.update(part);
        at += count as u64;
    }
    Ok(*hasher.finalize().as_bytes())
}
