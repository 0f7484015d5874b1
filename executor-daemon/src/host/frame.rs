//! Frames: what crosses the socket between daemon and process host.
//!
//! | bytes | what |
//! |---|---|
//! | 0–3 | length of the body, little endian |
//! | 4 | [`Kind`] |
//! | 5 | descriptors beside it (`SCM_RIGHTS`), with its first byte |
//! | 6–7 | 0 |
//! | 8–15 | id of the request that it is, or answers; little endian |
//! | 16– | the body, MessagePack with named fields |
//!
//! Names, so that one release of difference either way can be read: a field
//! that is not known is passed over, one that is missing has its default.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes before the body.
const HEADER: usize = 16;
/// Longest body, in bytes: more than the longest command with its environment,
/// and a list of all processes of a large host.
pub(super) const BODY: usize = 64 << 20;
/// Most room that is made at a time for what a frame has only promised, in
/// bytes.
const PROMISED: usize = 256 << 10;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// The first one of whoever connected.
    Hello = 1,
    /// The answer to it.
    Welcome = 2,
    /// Asks.
    Request = 3,
    /// Answers.
    Reply = 4,
    /// Nobody waits for the answer of this id any more.
    Cancel = 5,
    /// The host tells the daemon something.
    Notice = 6,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        [
            Self::Hello,
            Self::Welcome,
            Self::Request,
            Self::Reply,
            Self::Cancel,
            Self::Notice,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
    }
}

/// A frame that has arrived.
#[derive(Debug)]
pub(super) struct Frame {
    /// `None`: of a later release.
    pub(super) kind: Option<Kind>,
    pub(super) id: u64,
    pub(super) body: Bytes,
    /// Those that came; an error where this process had no room for all.
    pub(super) files: Result<Vec<OwnedFd>, Vec<OwnedFd>>,
}

/// Why the stream cannot be read on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum FrameError {
    /// Longer than [`BODY`].
    #[error("a frame of {0} bytes is longer than any of ours")]
    TooLong(usize),
    /// A body is not what its kind says.
    #[error("a frame cannot be read: {0}")]
    Malformed(String),
}

/// A frame as it is sent.
///
/// # Errors
/// [`FrameError::TooLong`]; [`FrameError::Malformed`] for a value that has no
/// written form.
pub(super) fn encode(
    kind: Kind,
    id: u64,
    body: &impl Serialize,
    files: usize,
) -> Result<Bytes, FrameError> {
    let mut frame = BytesMut::with_capacity(512);
    frame.put_bytes(0, HEADER);
    let mut writer = frame.writer();
    rmp_serde::encode::write_named(&mut writer, body)
        .map_err(|error| FrameError::Malformed(error.to_string()))?;
    let mut frame = writer.into_inner();
    let length = frame.len() - HEADER;
    let told = u32::try_from(length).ok().filter(|_| length <= BODY);
    let told = told.ok_or(FrameError::TooLong(length))?;
    let mut header = frame.get_mut(..HEADER).unwrap_or_default();
    header.put_u32_le(told);
    header.put_u8(kind as u8);
    header.put_u8(u8::try_from(files).unwrap_or(u8::MAX));
    header.put_u16_le(0);
    header.put_u64_le(id);
    Ok(frame.freeze())
}

/// Reads a body.
///
/// # Errors
/// [`FrameError::Malformed`].
pub(super) fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, FrameError> {
    rmp_serde::from_slice(body).map_err(|error| FrameError::Malformed(error.to_string()))
}

/// Puts frames together from what arrives.
#[derive(Debug, Default)]
pub(super) struct FrameReader {
    bytes: BytesMut,
    /// One batch a frame that has descriptors, in their order.
    batches: VecDeque<Vec<OwnedFd>>,
}

impl FrameReader {
    /// Takes what one read gave.
    pub(super) fn push(&mut self, bytes: &[u8], batch: Option<Vec<OwnedFd>>) {
        self.bytes.extend_from_slice(bytes);
        self.batches.extend(batch);
    }

    /// The next whole frame.
    ///
    /// # Errors
    /// [`FrameError::TooLong`]; nothing more can be read then.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some(mut header) = self.bytes.get(..HEADER) else {
            self.drop_strays();
            return Ok(None);
        };
        let length = header.get_u32_le() as usize;
        let kind = Kind::of(header.get_u8());
        let count = usize::from(header.get_u8());
        header.advance(2);
        let id = header.get_u64_le();
        if length > BODY {
            return Err(FrameError::TooLong(length));
        }
        if self.bytes.len() < HEADER + length {
            let missing = HEADER + length - self.bytes.len();
            self.bytes.reserve(missing.min(PROMISED));
            self.drop_strays();
            return Ok(None);
        }
        self.bytes.advance(HEADER);
        let body = self.bytes.split_to(length).freeze();
        let batch = if count == 0 {
            Vec::new()
        } else {
            self.batches.pop_front().unwrap_or_default()
        };
        Ok(Some(Frame {
            kind,
            id,
            body,
            files: if batch.len() == count {
                Ok(batch)
            } else {
                Err(batch)
            },
        }))
    }

    /// All whole frames are taken: but for the newest batch, which may belong to
    /// the one that has begun, no frame has said that these come beside it.
    fn drop_strays(&mut self) {
        while self.batches.len() > 1 {
            self.batches.pop_front();
        }
    }

    /// What has arrived and was not taken yet.
    pub(super) fn rest(self) -> (BytesMut, VecDeque<Vec<OwnedFd>>) {
        (self.bytes, self.batches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_whole_whatever_the_pieces() {
        let mut all = Vec::new();
        for (id, text) in [(1, "one"), (2, ""), (3, &"long ".repeat(100))] {
            all.extend_from_slice(&encode(Kind::Request, id, &text, 0).unwrap());
        }
        for piece in [1, 7, 16, 17, all.len()] {
            let mut reader = FrameReader::default();
            let mut found = Vec::new();
            for bytes in all.chunks(piece) {
                reader.push(bytes, None);
                while let Some(frame) = reader.next().unwrap() {
                    assert_eq!(frame.kind, Some(Kind::Request));
                    found.push((frame.id, decode::<String>(&frame.body).unwrap()));
                }
            }
            let lengths: Vec<_> = found.iter().map(|(id, text)| (*id, text.len())).collect();
            assert_eq!(lengths, [(1, 3), (2, 0), (3, 500)]);
        }
    }

    #[test]
    fn a_length_out_of_bounds_and_a_body_of_another_kind_are_told() {
        let mut reader = FrameReader::default();
        reader.push(&[0xff; HEADER], None);
        assert!(matches!(reader.next(), Err(FrameError::TooLong(_))));
        assert!(decode::<String>(&[0xc1, 0xff]).is_err());
        assert!(decode::<String>(b"").is_err());
    }

    #[test]
    fn descriptors_that_found_no_room_are_missed_by_their_frame_alone() {
        let file = || rustix::pipe::pipe().unwrap().0;
        let mut reader = FrameReader::default();
        let frames: Vec<_> = [2, 0, 1]
            .into_iter()
            .map(|files| encode(Kind::Reply, 7, &(), files).unwrap())
            .collect();
        reader.push(&frames[0], Some(vec![file()]));
        reader.push(&frames[1], None);
        reader.push(&frames[2], Some(vec![file()]));
        let mut next = || {
            reader
                .next()
                .unwrap()
                .unwrap()
                .files
                .map(|files| files.len())
                .map_err(|files| files.len())
        };
        assert_eq!((next(), next(), next()), (Err(1), Ok(0), Ok(1)));
    }

    #[test]
    fn descriptors_that_no_frame_speaks_of_do_not_pile_up() {
        let file = || rustix::pipe::pipe().unwrap().0;
        let mut reader = FrameReader::default();
        for _ in 0..100 {
            let frame = encode(Kind::Request, 7, &(), 0).unwrap();
            reader.push(&frame, Some(vec![file(), file()]));
            let frame = reader.next().unwrap().unwrap();
            assert_eq!(frame.files.unwrap().len(), 0);
            assert!(reader.next().unwrap().is_none());
        }
        assert!(reader.rest().1.len() <= 1);
    }
}
