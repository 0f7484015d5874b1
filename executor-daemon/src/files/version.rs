//! Which content a file has: by what the file system says of it ([`Version`]),
//! and by the content itself ([`Digest`]).

use std::fmt;
use std::str::FromStr;

use super::object::Facts;

/// Device, inode, size, mtime and ctime of a file. Two that are equal are of
/// one content, as far as the file system's clock can tell writes apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
pub struct Version {
    dev: u64,
    ino: u64,
    size: u64,
    mtime: (i64, u32),
    ctime: (i64, u32),
}

impl Version {
    /// The version that these facts are of.
    #[must_use]
    pub fn of(facts: &Facts) -> Self {
        Self {
            dev: facts.dev,
            ino: facts.ino,
            size: facts.size,
            mtime: facts.mtime,
            ctime: facts.ctime,
        }
    }
}

/// Opaque text; only [`Version::from_str`] reads it.
impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            dev,
            ino,
            size,
            mtime,
            ctime,
        } = self;
        write!(
            f,
            "v1-{dev:x}-{ino:x}-{size:x}-{:x}.{:x}-{:x}.{:x}",
            mtime.0.cast_unsigned(),
            mtime.1,
            ctime.0.cast_unsigned(),
            ctime.1
        )
    }
}

/// A text that is no version or no digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(&'static str);

impl FromStr for Version {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        const WRONG: ParseError =
            ParseError("a version must be exactly what an earlier reply gave as `version`");
        let mut parts = text.split('-');
        let mut next = || parts.next().ok_or(WRONG);
        if next()? != "v1" {
            return Err(WRONG);
        }
        let number = |text: &str| u64::from_str_radix(text, 16).map_err(|_| WRONG);
        let time = |text: &str| {
            let (seconds, nanos) = text.split_once('.').ok_or(WRONG)?;
            let nanos = u32::from_str_radix(nanos, 16).map_err(|_| WRONG)?;
            Ok::<_, ParseError>((number(seconds)?.cast_signed(), nanos))
        };
        let version = Self {
            dev: number(next()?)?,
            ino: number(next()?)?,
            size: number(next()?)?,
            mtime: time(next()?)?,
            ctime: time(next()?)?,
        };
        // One text for one version: no "+1", no capitals, nothing after it.
        (version.to_string() == text)
            .then_some(version)
            .ok_or(WRONG)
    }
}

/// BLAKE3 of a content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Digest(#[serde(with = "serde_bytes")] [u8; 32]);

impl Digest {
    /// The digest of `content`.
    #[must_use]
    pub fn of(content: &[u8]) -> Self {
        Self(*blake3::hash(content).as_bytes())
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<blake3::Hash> for Digest {
    fn from(hash: blake3::Hash) -> Self {
        Self(*hash.as_bytes())
    }
}

/// 64 hexadecimal digits.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        blake3::Hash::from_hex(text)
            .map(Self::from)
            .map_err(|_| ParseError("a digest is BLAKE3 as 64 hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_back_from_its_text_and_from_no_other() {
        let version = Version {
            dev: 0xfe01,
            ino: u64::MAX,
            size: 0,
            mtime: (-1, 999_999_999),
            ctime: (i64::MAX, 0),
        };
        let text = version.to_string();
        assert_eq!(text.parse(), Ok(version));
        let others = [
            String::new(),
            "v1".into(),
            "v2-1-1-1-1.1-1.1".into(),
            text.to_uppercase(),
            format!("{text}-0"),
            format!("{text} "),
            text.replacen("-fe01", "-+fe01", 1),
            text.replacen("-fe01", "-0fe01", 1),
        ];
        for other in others {
            assert!(other.parse::<Version>().is_err(), "{other}");
        }
    }

    #[test]
    fn a_digest_is_read_back_from_its_text_and_from_no_other() {
        let digest = Digest::of(b"abc");
        let text = digest.to_string();
        assert_eq!(text.len(), 64);
        assert_eq!(text.parse(), Ok(digest));
        for other in ["", "abc", &text[1..], &format!("{text}0"), &"g".repeat(64)] {
            assert!(other.parse::<Digest>().is_err(), "{other}");
        }
    }
}
