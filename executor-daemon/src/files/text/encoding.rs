//! Bytes become text, strictly, and text the same bytes again.
//!
//! UTF-8 unless a BOM says UTF-16 or the caller names another encoding (a label
//! of the WHATWG Encoding Standard). Nothing is ever replaced by U+FFFD: the
//! first byte that is no text is an error with its offset. A BOM is not part of
//! the text; [`Encoding`] remembers that it was there.
//!
//! Two encodings of the standard are left out: `ISO-2022-JP`, whose bytes mean
//! different things after an escape sequence, so that a line alone cannot be
//! read, and `replacement`, which decodes nothing.

use std::borrow::Cow;

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{DecoderResult, ISO_2022_JP, REPLACEMENT, UTF_8, UTF_16BE, UTF_16LE};

/// A NUL in this many first bytes makes a file binary.
pub const PROBE_BYTES: usize = 8 << 10;
/// Longest unfinished character that may stand at a cut, in bytes (GB 18030).
const UNFINISHED_BYTES: usize = 3;
/// How much a guess at the encoding looks at.
const GUESS_BYTES: usize = 64 << 10;

/// Why bytes are no text, or text cannot become bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// No encoding has this name.
    #[error(
        "{label:?} names no encoding; use a label of the WHATWG Encoding Standard, such as \"utf-8\", \"utf-16le\", \"windows-1252\", \"gbk\", \"shift_jis\""
    )]
    UnknownEncoding {
        /// As it was given, at most 64 characters of it.
        label: String,
    },
    /// A NUL in the first 8 KiB.
    #[error("the file is binary: byte {offset} is NUL{}", hint(*likely))]
    Binary {
        /// Where, from the file's start.
        offset: u64,
        /// What it may be if it is text after all.
        likely: Option<&'static str>,
    },
    /// A byte that is no text in the encoding.
    #[error("not {encoding} text: byte {offset} begins no character{}", hint(*likely))]
    NotText {
        /// What it was read as.
        encoding: &'static str,
        /// The first bad byte, from the file's start.
        offset: u64,
        /// What it probably is.
        likely: Option<&'static str>,
    },
    /// A character that the encoding has not.
    #[error(
        "{character:?} (U+{:04X}) on line {line} cannot be written in {encoding}, the file's encoding",
        u32::from(*character)
    )]
    Unencodable {
        /// Of the file.
        encoding: &'static str,
        /// The first one that cannot be written.
        character: char,
        /// Its line in the text, from 1.
        line: u64,
    },
    /// Decoding and encoding again would change bytes.
    #[error(
        "byte {offset} is written in a way that {encoding} would not write again, so that an edit would change more than it names; convert the file first"
    )]
    NotReversible {
        /// What it was read as.
        encoding: &'static str,
        /// The first byte that would change, from the file's start.
        offset: u64,
    },
}

fn hint(likely: Option<&'static str>) -> String {
    likely.map_or_else(String::new, |name| {
        format!("; it looks like {name}: name it as the encoding")
    })
}

/// How the bytes of one file are text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoding {
    inner: &'static encoding_rs::Encoding,
    bom: bool,
}

impl Encoding {
    /// UTF-8 without a BOM: what new files are.
    pub const UTF_8: Self = Self {
        inner: UTF_8,
        bom: false,
    };

    /// The encoding of a file that begins with `head` (at least its first 3
    /// bytes, or all of it). `label` is what the caller says, `None` leaves it
    /// to the BOM. Within UTF-16 a BOM decides the byte order.
    ///
    /// # Errors
    /// [`TextError::UnknownEncoding`].
    pub fn of(head: &[u8], label: Option<&str>) -> Result<Self, TextError> {
        let by_bom = by_bom(head);
        let Some(label) = label else {
            return Ok(by_bom.unwrap_or(Self::UTF_8));
        };
        let inner = encoding_rs::Encoding::for_label(label.as_bytes())
            .filter(|found| *found != ISO_2022_JP && *found != REPLACEMENT)
            .ok_or_else(|| TextError::UnknownEncoding {
                label: label.chars().take(64).collect(),
            })?;
        let plain = Self { inner, bom: false };
        Ok(by_bom
            .filter(|found| found.inner == inner || (found.is_utf_16() && plain.is_utf_16()))
            .unwrap_or(plain))
    }

    /// Its name in the WHATWG Encoding Standard, such as `UTF-8`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.inner.name()
    }

    /// The file begins with a byte order mark.
    #[must_use]
    pub fn has_bom(self) -> bool {
        self.bom
    }

    /// The BOM itself; empty where there is none.
    #[must_use]
    pub fn bom(self) -> &'static [u8] {
        match self.inner {
            _ if !self.bom => &[],
            inner if inner == UTF_16LE => &[0xff, 0xfe],
            inner if inner == UTF_16BE => &[0xfe, 0xff],
            _ => &[0xef, 0xbb, 0xbf],
        }
    }

    /// Bytes of one code unit: 2 in UTF-16, else 1. A line ends at a code unit.
    #[must_use]
    pub fn unit(self) -> usize {
        if self.is_utf_16() { 2 } else { 1 }
    }

    /// The code unit of `\n`.
    #[must_use]
    pub fn newline(self) -> &'static [u8] {
        match self.inner {
            inner if inner == UTF_16LE => b"\n\0",
            inner if inner == UTF_16BE => b"\0\n",
            _ => b"\n",
        }
    }

    /// Where the first `\n` at or after `from` begins. `bytes` begins at a code
    /// unit, and so does `from`.
    #[must_use]
    pub fn find_newline(self, bytes: &[u8], from: usize) -> Option<usize> {
        let unit = self.unit();
        let mut at = from;
        loop {
            let found = at + memchr::memmem::find(bytes.get(at..)?, self.newline())?;
            if found.is_multiple_of(unit) {
                return Some(found);
            }
            at = found + 1;
        }
    }

    /// Is the file binary? `head` is its first [`PROBE_BYTES`] bytes, or all of
    /// it, with the BOM. In UTF-16 a NUL is a NUL character.
    ///
    /// # Errors
    /// [`TextError::Binary`].
    pub fn check_not_binary(self, head: &[u8]) -> Result<(), TextError> {
        let head = head.get(..PROBE_BYTES).unwrap_or(head);
        let nul = if self.is_utf_16() {
            head.chunks_exact(2)
                .position(|unit| unit == [0, 0])
                .map(|index| index * 2)
        } else {
            memchr::memchr(0, head)
        };
        let Some(offset) = nul else { return Ok(()) };
        Err(TextError::Binary {
            offset: offset as u64,
            likely: if self.is_utf_16() {
                None
            } else {
                utf_16_by_zeros(head)
            },
        })
    }

    /// The text of `bytes`, which begin and end at a character; `at` is where
    /// they stand in the file, for the error. A BOM must have been cut off.
    ///
    /// # Errors
    /// [`TextError::NotText`].
    pub fn decode(self, bytes: &[u8], at: u64) -> Result<Cow<'_, str>, TextError> {
        if self.inner == UTF_8 {
            return std::str::from_utf8(bytes)
                .map(Cow::Borrowed)
                .map_err(|error| self.not_text(bytes, error.valid_up_to(), at));
        }
        self.inner
            .decode_without_bom_handling_and_without_replacement(bytes)
            .ok_or_else(|| {
                let bad = self.first_bad(bytes, true).unwrap_or(bytes.len());
                self.not_text(bytes, bad, at)
            })
    }

    /// Like [`Encoding::decode`] for bytes that may end inside a character, as
    /// where a buffer ended: that character is left. Returns the text and the
    /// bytes it took.
    ///
    /// # Errors
    /// [`TextError::NotText`], never for the character that was cut.
    pub fn decode_prefix(self, bytes: &[u8], at: u64) -> Result<(Cow<'_, str>, usize), TextError> {
        if let Some(bad) = self.first_bad(bytes, false) {
            return Err(self.not_text(bytes, bad, at));
        }
        // Nothing is bad, so only a character at the end can be unfinished.
        let mut refused = None;
        for unfinished in 0..=UNFINISHED_BYTES.min(bytes.len()) {
            let taken = bytes.len() - unfinished;
            match self.decode(bytes.get(..taken).unwrap_or_default(), at) {
                Ok(text) => return Ok((text, taken)),
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.unwrap_or_else(|| self.not_text(bytes, bytes.len(), at)))
    }

    /// The bytes of `text`, with the BOM if the file had one.
    ///
    /// # Errors
    /// [`TextError::Unencodable`].
    pub fn encode(self, text: &str) -> Result<Vec<u8>, TextError> {
        let mut bytes = self.bom().to_vec();
        if self.inner == UTF_8 {
            bytes.extend_from_slice(text.as_bytes());
        } else if self.inner == UTF_16LE {
            bytes.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
        } else if self.inner == UTF_16BE {
            bytes.extend(text.encode_utf16().flat_map(u16::to_be_bytes));
        } else {
            let (encoded, _, lost) = self.inner.encode(text);
            // Some characters are written as another one's bytes, such as the
            // yen sign as a backslash in Shift_JIS.
            let (read, _) = self.inner.decode_without_bom_handling(&encoded);
            if lost || read != text {
                return Err(self.unencodable(text));
            }
            bytes.extend_from_slice(&encoded);
        }
        Ok(bytes)
    }

    fn is_utf_16(self) -> bool {
        self.inner == UTF_16LE || self.inner == UTF_16BE
    }

    /// The first byte that begins no character. With `whole`, a character that
    /// the end cuts is one.
    fn first_bad(self, bytes: &[u8], whole: bool) -> Option<usize> {
        if self.inner == UTF_8 {
            let error = std::str::from_utf8(bytes).err()?;
            return (whole || error.error_len().is_some()).then(|| error.valid_up_to());
        }
        let mut decoder = self.inner.new_decoder_without_bom_handling();
        let mut sink = [0_u8; 4096];
        let mut read = 0;
        loop {
            let rest = bytes.get(read..).unwrap_or_default();
            let (result, taken, _) =
                decoder.decode_to_utf8_without_replacement(rest, &mut sink, whole);
            read += taken;
            match result {
                DecoderResult::InputEmpty => return None,
                DecoderResult::OutputFull => {}
                DecoderResult::Malformed(bad, after) => {
                    return Some(read.saturating_sub(usize::from(bad) + usize::from(after)));
                }
            }
        }
    }

    fn not_text(self, bytes: &[u8], bad: usize, at: u64) -> TextError {
        TextError::NotText {
            encoding: self.name(),
            offset: at + bad as u64,
            likely: guess(bytes, bad).filter(|name| *name != self.name()),
        }
    }

    fn unencodable(self, text: &str) -> TextError {
        let mut line = 1;
        for character in text.chars() {
            let mut buffer = [0; 4];
            let one = character.encode_utf8(&mut buffer);
            let (encoded, _, lost) = self.inner.encode(one);
            if lost || self.inner.decode_without_bom_handling(&encoded).0 != *one {
                return TextError::Unencodable {
                    encoding: self.name(),
                    character,
                    line,
                };
            }
            line += u64::from(character == '\n');
        }
        TextError::Unencodable {
            encoding: self.name(),
            character: char::REPLACEMENT_CHARACTER,
            line,
        }
    }
}

/// A whole file as text that can be changed and written back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// Without a BOM.
    pub content: String,
    /// How it was and is written.
    pub encoding: Encoding,
}

impl Text {
    /// Reads a whole file; `label` as in [`Encoding::of`].
    ///
    /// # Errors
    /// See [`TextError`]; [`TextError::NotReversible`] where writing the same
    /// text back would change bytes.
    pub fn read(bytes: &[u8], label: Option<&str>) -> Result<Self, TextError> {
        let encoding = Encoding::of(bytes, label)?;
        encoding.check_not_binary(bytes)?;
        let skipped = encoding.bom().len();
        let content = encoding
            .decode(bytes.get(skipped..).unwrap_or_default(), skipped as u64)?
            .into_owned();
        let text = Self { content, encoding };
        if encoding.inner != UTF_8 {
            let back = text.to_bytes();
            if back.as_deref() != Ok(bytes) {
                let back = back.unwrap_or_default();
                let same = back.iter().zip(bytes).take_while(|(a, b)| a == b).count();
                return Err(TextError::NotReversible {
                    encoding: encoding.name(),
                    offset: same as u64,
                });
            }
        }
        Ok(text)
    }

    /// The file's bytes.
    ///
    /// # Errors
    /// [`TextError::Unencodable`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, TextError> {
        self.encoding.encode(&self.content)
    }
}

fn by_bom(head: &[u8]) -> Option<Encoding> {
    let (inner, _) = encoding_rs::Encoding::for_bom(head)?;
    Some(Encoding { inner, bom: true })
}

/// What bytes that are not what they were taken for probably are.
fn guess(bytes: &[u8], bad: usize) -> Option<&'static str> {
    if let Some(found) = by_bom(bytes) {
        return Some(found.name());
    }
    // From a line's start, so that no character is cut.
    let from = bytes
        .get(..bad)
        .and_then(|before| memchr::memrchr(b'\n', before))
        .map_or(0, |newline| newline + 1);
    let from = from.max(bad.saturating_sub(GUESS_BYTES / 2));
    let window = bytes.get(from..).unwrap_or_default();
    let window = window.get(..GUESS_BYTES).unwrap_or(window);
    if memchr::memchr(0, window).is_some() {
        return utf_16_by_zeros(window);
    }
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(window, window.len() < GUESS_BYTES);
    Some(detector.guess(None, Utf8Detection::Deny).name())
}

/// UTF-16 without a BOM shows by zeros in every second byte.
fn utf_16_by_zeros(head: &[u8]) -> Option<&'static str> {
    let pairs = head.len() / 2;
    let zeros = |at: usize| {
        head.chunks_exact(2)
            .filter(|unit| unit.get(at) == Some(&0))
            .count()
    };
    let (even, odd) = (zeros(0), zeros(1));
    if pairs >= 2 && odd * 2 > pairs && even * 8 < pairs {
        Some(UTF_16LE.name())
    } else if pairs >= 2 && even * 2 > pairs && odd * 8 < pairs {
        Some(UTF_16BE.name())
    } else {
        None
    }
}
