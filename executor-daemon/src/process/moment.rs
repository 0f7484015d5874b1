//! Moments as they are written down for a later image of this program: how
//! long ago. What passes between writing and reading is not counted, so a
//! deadline is late by as long as that took.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::time::{Duration, Instant};

#[derive(Serialize, Deserialize)]
enum Moment {
    Ago(Duration),
    In(Duration),
}

pub(crate) fn serialize<S: Serializer>(at: &Instant, serializer: S) -> Result<S::Ok, S::Error> {
    let now = Instant::now();
    let moment = match at.checked_duration_since(now) {
        Some(left) if !left.is_zero() => Moment::In(left),
        _ => Moment::Ago(now.duration_since(*at)),
    };
    moment.serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Instant, D::Error> {
    let now = Instant::now();
    // One before the machine's start is as long ago as can be.
    Ok(match Moment::deserialize(deserializer)? {
        Moment::Ago(ago) => now.checked_sub(ago).unwrap_or(now),
        Moment::In(left) => now.checked_add(left).unwrap_or(now),
    })
}

/// The same where there may be none.
pub(crate) mod optional {
    use super::{Deserialize, Deserializer, Instant, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Written(#[serde(with = "super")] Instant);

    pub(crate) fn serialize<S: Serializer>(
        at: &Option<Instant>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        at.map(Written).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Instant>, D::Error> {
        let written = Option::<Written>::deserialize(deserializer)?;
        Ok(written.map(|written| written.0))
    }
}
