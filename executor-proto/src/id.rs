//! Identifiers: a prefix and 26 lower-case base32 characters (RFC 4648, the
//! alphabet `a`–`z`, `2`–`7`), 130 random bits.

use std::fmt;
use std::str::FromStr;

const LENGTH: usize = 26;
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Why a text is not the identifier it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not {what}: it must be {prefix:?} followed by 26 characters of a-z and 2-7")]
pub struct InvalidId {
    what: &'static str,
    prefix: &'static str,
    given: String,
}

/// A text shortened for an error message, on a character boundary.
fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}

fn random_body() -> [u8; LENGTH] {
    let mut body = [0u8; LENGTH];
    // The system's random source fails only where there is no such source at
    // all (getrandom(2)); an identifier that is not random would be unsafe.
    #[expect(
        clippy::expect_used,
        reason = "no safe way to go on without randomness"
    )]
    getrandom::fill(&mut body).expect("the kernel provides random bytes");
    for byte in &mut body {
        *byte = ALPHABET
            .get(usize::from(*byte & 31))
            .copied()
            .unwrap_or(b'a');
    }
    body
}

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; LENGTH]);

        impl $name {
            /// What the text form begins with.
            pub const PREFIX: &str = $prefix;

            /// Makes a new identifier from the kernel's random source.
            #[must_use]
            pub fn random() -> Self {
                Self(random_body())
            }

            fn body(&self) -> &str {
                // The bytes come from `random_body` or `from_str`, so they are
                // characters of the alphabet.
                std::str::from_utf8(&self.0).unwrap_or_default()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", Self::PREFIX, self.body())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                text.strip_prefix(Self::PREFIX)
                    .and_then(|body| <[u8; LENGTH]>::try_from(body.as_bytes()).ok())
                    .filter(|body| body.iter().all(|byte| ALPHABET.contains(byte)))
                    .map(Self)
                    .ok_or_else(|| InvalidId {
                        what: $what,
                        prefix: Self::PREFIX,
                        given: shortened(text),
                    })
            }
        }
    };
}

identifier!(
    /// One command started for a session. Made by the client.
    ProcessId, "prc_", "a process id"
);
identifier!(
    /// What one agent or person does on one machine. Made by the client.
    SessionId, "ses_", "a session id"
);
identifier!(
    /// A machine, for its whole life.
    MachineId, "mch_", "a machine id"
);
identifier!(
    /// One change to files, however often it is asked for. Made by the client.
    OperationId, "op_", "an operation id"
);
identifier!(
    /// One life of the process engine; cursors and processes belong to it.
    Epoch, "epo_", "an epoch"
);

/// The secret of a session. Whoever has it acts as the session.
///
/// `Debug` does not show it. Its text form is 64 hexadecimal digits.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionSecret([u8; 32]);

impl SessionSecret {
    /// Makes a new secret from the kernel's random source.
    #[must_use]
    pub fn random() -> Self {
        let mut bytes = [0u8; 32];
        #[expect(
            clippy::expect_used,
            reason = "no safe way to go on without randomness"
        )]
        getrandom::fill(&mut bytes).expect("the kernel provides random bytes");
        Self(bytes)
    }

    /// The raw bytes, to be hashed.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The text form. Do not log it.
    #[must_use]
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Debug for SessionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionSecret(…)")
    }
}

/// A text is not a session secret. The text is not repeated here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the session secret must be 64 hexadecimal digits")]
pub struct InvalidSecret;

impl FromStr for SessionSecret {
    type Err = InvalidSecret;

    fn from_str(text: &str) -> Result<Self, InvalidSecret> {
        if text.len() != 64 || !text.is_ascii() {
            return Err(InvalidSecret);
        }
        let mut bytes = [0u8; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| InvalidSecret)?;
            if pair.starts_with('+') {
                return Err(InvalidSecret);
            }
            *byte = u8::from_str_radix(pair, 16).map_err(|_| InvalidSecret)?;
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_its_text_form() {
        for _ in 0..100 {
            let id = ProcessId::random();
            assert_eq!(id.to_string().len(), 30);
            assert_eq!(id.to_string().parse(), Ok(id));
        }
    }

    #[test]
    fn what_is_not_an_id_is_refused_with_the_rule() {
        for text in [
            "",
            "prc_",
            "prc_short",
            "ses_aaaaaaaaaaaaaaaaaaaaaaaaaa",
            "prc_AAAAAAAAAAAAAAAAAAAAAAAAAA",
            "prc_aaaaaaaaaaaaaaaaaaaaaaaaa1",
            "prc_aaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "prc_ééééééééééééé",
        ] {
            let error = text.parse::<ProcessId>().unwrap_err();
            assert!(error.to_string().contains("26 characters"), "{error}");
        }
    }

    #[test]
    fn a_secret_is_not_shown_and_survives_its_text_form() {
        let secret = SessionSecret::random();
        assert_eq!(format!("{secret:?}"), "SessionSecret(…)");
        assert_eq!(secret.to_hex().parse(), Ok(secret));
        assert_eq!("+1".repeat(32).parse::<SessionSecret>(), Err(InvalidSecret));
        assert_eq!("zz".repeat(32).parse::<SessionSecret>(), Err(InvalidSecret));
    }
}
