//! What hosts of this format have handed over to their next image, with
//! commands under each means: read for good.
//!
//! The recordings lie in `tests/fixtures/host/handover-1.txt`; the ignored test
//! `record_handovers` of the end-to-end tests adds new ones. A change for which
//! one of them cannot be read makes a new format (`FORMAT` in `upgrade.rs`).

use rmpv::Value;

use super::recorded::parsed;
use super::tree::{bytes, missing, tree, with_more_fields};
use crate::host::frame::decode;
use crate::host::upgrade::Handover;

/// Without spans of time: those that reach to the present are others each time.
fn timeless(tree: &Value) -> Value {
    let is_span = |entries: &[(Value, Value)]| {
        let mut names = entries.iter().map(|(name, _)| name.as_str());
        names.any(|name| name == Some("nanos"))
    };
    match tree {
        Value::Map(entries) if is_span(entries) => Value::Nil,
        Value::Map(entries) => Value::Map(
            entries
                .iter()
                .map(|(name, value)| (name.clone(), timeless(value)))
                .collect(),
        ),
        Value::Array(values) => Value::Array(values.iter().map(timeless).collect()),
        other => other.clone(),
    }
}

#[test]
fn handovers_are_read_as_they_were_recorded() {
    let recordings = parsed(include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/host/handover-1.txt"
    )));
    assert!(recordings.len() >= 3);
    for (name, body) in recordings {
        let old = tree(&body);
        for (body, when) in [
            (body, "as it was recorded"),
            (bytes(&with_more_fields(&old)), "of a later release"),
        ] {
            let read = decode::<Handover>(&body);
            let read = read.unwrap_or_else(|error| panic!("{name}, {when}: {error}"));
            // Nothing of it was passed over.
            let again = tree(&rmp_serde::to_vec_named(&read).unwrap());
            let lost = missing(&timeless(&old), &timeless(&again), "");
            assert_eq!(lost, None, "{name}, {when}");
        }
    }
}
