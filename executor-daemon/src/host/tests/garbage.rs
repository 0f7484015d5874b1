//! Bytes that no release sends.

use proptest::prelude::*;

use super::{requests, samples};
use crate::host::control::{ControlReply, ControlRequest, Notice};
use crate::host::frame::{BODY, FrameError, FrameReader, Kind, decode, encode};
use crate::host::greeting::{Answer, Hello};
use crate::host::wire::{AskedRequest, WireReply};

/// Reads `bytes` as every message there is; only that it returns counts.
fn read_as_everything(bytes: &[u8]) {
    drop(decode::<Hello>(bytes));
    drop(decode::<Answer>(bytes));
    drop(decode::<AskedRequest>(bytes));
    drop(decode::<WireReply>(bytes));
    drop(decode::<ControlRequest>(bytes));
    drop(decode::<ControlReply>(bytes));
    drop(decode::<Notice>(bytes));
}

/// A valid body with some bytes changed, or cut.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let bodies: Vec<Vec<u8>> = requests::requests()
        .iter()
        .map(|(_, value)| rmp_serde::to_vec_named(value))
        .chain(
            samples::replies()
                .iter()
                .map(|(_, value)| rmp_serde::to_vec_named(value)),
        )
        .chain(
            samples::hellos()
                .iter()
                .map(|(_, value)| rmp_serde::to_vec_named(value)),
        )
        .map(Result::unwrap)
        .collect();
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6);
    (
        prop::sample::select(bodies),
        changes,
        any::<prop::sample::Index>(),
    )
        .prop_map(|(mut body, changes, end)| {
            for (at, byte) in changes {
                let at = at.index(body.len());
                body[at] = byte;
            }
            let end = end.index(2 * body.len());
            body.truncate(end);
            body
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn invariant_9_no_bytes_are_more_than_a_body_that_cannot_be_read(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        nearly in nearly(),
    ) {
        read_as_everything(&bytes);
        read_as_everything(&nearly);
    }

    #[test]
    fn invariant_9_any_stream_is_frames_or_an_end_and_takes_no_more_room_than_it_has_bytes(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..30),
        length in 0u32..100,
    ) {
        let mut reader = FrameReader::default();
        let (mut pushed, mut taken) = (0, 0);
        for mut piece in pieces {
            // Some of them begin with a length that may come true.
            if piece.len() > 20 {
                piece[..4].copy_from_slice(&length.to_le_bytes());
            }
            reader.push(&piece, None);
            pushed += piece.len();
            loop {
                match reader.next() {
                    Ok(Some(frame)) => {
                        taken += 16 + frame.body.len();
                        read_as_everything(&frame.body);
                    }
                    Ok(None) => break,
                    Err(FrameError::TooLong(length)) => {
                        prop_assert!(length > BODY);
                        return Ok(());
                    }
                    Err(FrameError::Malformed(why)) => prop_assert!(false, "{}", why),
                }
            }
            prop_assert!(taken <= pushed);
        }
    }
}

#[test]
fn invariant_9_a_length_that_was_only_promised_takes_no_room() {
    let mut header = encode(Kind::Request, 1, &(), 0).unwrap().to_vec();
    header.truncate(16);
    header[..4].copy_from_slice(&u32::try_from(BODY).unwrap().to_le_bytes());
    let mut reader = FrameReader::default();
    reader.push(&header, None);
    assert!(reader.next().unwrap().is_none());
    let (bytes, _) = reader.rest();
    assert!(bytes.capacity() < 1 << 20, "{} bytes", bytes.capacity());
}

#[test]
fn invariant_9_nesting_and_lengths_without_end_are_refused() {
    // Arrays in arrays, maps in maps.
    read_as_everything(&vec![0x91; 1 << 20]);
    read_as_everything(&vec![0x81; 1 << 20]);
    // Four billion entries, or bytes, of which none follows.
    for kind in [0xdd, 0xdf, 0xdb, 0xc6] {
        let huge = [kind, 0xff, 0xff, 0xff, 0xff];
        read_as_everything(&huge);
        // As the first field of each.
        for name in ["request", "result", "limits", "missing", "release"] {
            let mut body = vec![0x81, 0xa0 | u8::try_from(name.len()).unwrap()];
            body.extend_from_slice(name.as_bytes());
            body.extend_from_slice(&huge);
            read_as_everything(&body);
        }
    }
}
