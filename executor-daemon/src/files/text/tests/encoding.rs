use encoding_rs::{BIG5, EUC_KR, GB18030, GBK, SHIFT_JIS, WINDOWS_1252};
use proptest::prelude::*;

use super::super::encoding::{Encoding, PROBE_BYTES, Text, TextError};

fn refused(bytes: &[u8], label: Option<&str>) -> TextError {
    Text::read(bytes, label).unwrap_err()
}

#[test]
fn a_bom_decides_and_is_no_part_of_the_text() {
    let utf_16 = |bytes: &mut dyn Iterator<Item = [u8; 2]>| bytes.flatten().collect::<Vec<u8>>();
    let text = "import os\nÄ 語 😀\n";
    let little = utf_16(
        &mut "\u{feff}"
            .chars()
            .chain(text.chars())
            .collect::<String>()
            .encode_utf16()
            .map(u16::to_le_bytes),
    );
    let big = utf_16(
        &mut "\u{feff}"
            .chars()
            .chain(text.chars())
            .collect::<String>()
            .encode_utf16()
            .map(u16::to_be_bytes),
    );
    let utf_8 = ["\u{feff}", text].concat().into_bytes();
    for (bytes, name, bom) in [
        (text.as_bytes(), "UTF-8", false),
        (&utf_8, "UTF-8", true),
        (&little, "UTF-16LE", true),
        (&big, "UTF-16BE", true),
    ] {
        let read = Text::read(bytes, None).unwrap();
        assert_eq!(read.content, text, "{name}");
        assert_eq!(read.encoding.name(), name);
        assert_eq!(read.encoding.has_bom(), bom, "{name}");
        assert_eq!(read.to_bytes().unwrap(), bytes, "{name}");
    }
    // Elsewhere U+FEFF is an ordinary character.
    let read = Text::read("a\u{feff}b".as_bytes(), None).unwrap();
    assert_eq!(read.content, "a\u{feff}b");
}

#[test]
fn b049_a_character_that_a_probe_cuts_is_text() {
    for shift in 1..=4 {
        let whole = "a".repeat(shift) + &"\u{8a9e}".repeat(4000);
        for probe in [512, 1000, 1024, 4096, PROBE_BYTES] {
            let head = &whole.as_bytes()[..probe];
            let encoding = Encoding::of(head, None).unwrap();
            encoding.check_not_binary(head).unwrap();
            let (text, taken) = encoding.decode_prefix(head, 0).unwrap();
            assert!(probe - taken < 3, "{shift} {probe} {taken}");
            assert_eq!(text.as_bytes(), &whole.as_bytes()[..taken]);
        }
        assert_eq!(Text::read(whole.as_bytes(), None).unwrap().content, whole);
    }
}

#[test]
fn b049_what_is_no_utf_8_is_named_with_the_byte_and_the_likely_encoding() {
    let chinese = "中文文件的内容，用旧的编码写成。".repeat(20);
    let japanese = "これは古い文字コードで書かれた文章です。".repeat(20);
    let french = "L'été dernier, là-bas, où ça gênait déjà. ".repeat(20);
    for (encoding, text) in [
        (GBK, &chinese),
        (SHIFT_JIS, &japanese),
        (WINDOWS_1252, &french),
    ] {
        let text = "plain ascii\n".to_owned() + text;
        let (bytes, ..) = encoding.encode(&text);
        let first = bytes.iter().position(|byte| *byte >= 0x80).unwrap();
        let TextError::NotText {
            encoding: read_as,
            offset,
            likely,
        } = refused(&bytes, None)
        else {
            panic!("{encoding:?}");
        };
        assert_eq!(read_as, "UTF-8");
        assert_eq!(offset, first as u64, "{encoding:?}");
        assert_eq!(likely, Some(encoding.name()));
        // And with that name it is read, and written back as it was.
        let read = Text::read(&bytes, likely).unwrap();
        assert_eq!(read.content, text);
        assert_eq!(read.to_bytes().unwrap(), *bytes);
    }
}

#[test]
fn the_first_bad_byte_is_found_in_every_encoding() {
    for (label, bytes, bad) in [
        ("utf-8", &b"ab\xffcd"[..], 2),
        ("utf-8", b"ab\xe8\xaa", 2),
        ("utf-8", b"\xed\xa0\x80", 0),
        ("shift_jis", b"abc\x82\x21z", 3),
        ("gbk", b"abc\xff", 3),
        ("big5", b"abcd\x81\x20", 4),
        ("euc-kr", b"a\xc8", 1),
        ("utf-16le", b"a\0\x00\xd8b\0", 2),
        ("utf-16be", b"\0a\0b\0", 4),
    ] {
        let encoding = Encoding::of(bytes, Some(label)).unwrap();
        let error = encoding.decode(bytes, 100).unwrap_err();
        let TextError::NotText { offset, .. } = error else {
            panic!("{label}: {error}");
        };
        assert_eq!(offset, 100 + bad, "{label} {bytes:?}");
    }
}

#[test]
fn a_nul_in_the_first_8_kib_is_binary_and_one_after_is_not() {
    let mut bytes = vec![b'a'; PROBE_BYTES + 10];
    bytes[PROBE_BYTES] = 0;
    assert!(Text::read(&bytes, None).is_ok());
    bytes[PROBE_BYTES - 1] = 0;
    let expected = TextError::Binary {
        offset: PROBE_BYTES as u64 - 1,
        likely: None,
    };
    assert_eq!(refused(&bytes, None), expected);
    // In UTF-16 a zero byte is nothing special, a NUL character is.
    let bytes = b"\xff\xfea\0\0\0b\0";
    assert_eq!(
        refused(bytes, None),
        TextError::Binary {
            offset: 4,
            likely: None
        }
    );
    // UTF-16 that does not say so.
    let bytes: Vec<u8> = "some text\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let expected = TextError::Binary {
        offset: 1,
        likely: Some("UTF-16LE"),
    };
    assert_eq!(refused(&bytes, None), expected);
    assert_eq!(
        Text::read(&bytes, Some("utf-16le")).unwrap().content,
        "some text\n"
    );
}

#[test]
fn names_that_cannot_be_used_are_refused() {
    for label in ["", "utf-9", "iso-2022-jp", "replacement", "\u{9670}"] {
        assert_eq!(
            Encoding::of(b"", Some(label)),
            Err(TextError::UnknownEncoding {
                label: label.to_owned()
            })
        );
    }
    let long = "\u{9670}".repeat(500);
    let error = Encoding::of(b"", Some(&long)).unwrap_err().to_string();
    assert!(error.len() < 600, "{error}");
}

#[test]
fn what_the_encoding_cannot_write_is_refused_with_its_line() {
    let text = Text::read(b"caf\xe9\nb\n", Some("windows-1252")).unwrap();
    let changed = Text {
        content: "café\nb €\n語\n".to_owned(),
        ..text
    };
    assert_eq!(
        changed.to_bytes(),
        Err(TextError::Unencodable {
            encoding: "windows-1252",
            character: '語',
            line: 3
        })
    );
}

#[test]
fn bytes_that_would_not_come_back_are_refused() {
    // Two spellings of the same character: only one is written again.
    let bytes = b"abc\xa1\x5az\xa1\xc3\n";
    let read = Text::read(bytes, Some("big5"));
    match read {
        Ok(text) => assert_eq!(text.to_bytes().unwrap(), bytes),
        Err(error) => assert!(matches!(error, TextError::NotReversible { .. }), "{error}"),
    }
    // NEC and IBM rows of Shift_JIS.
    let error = refused(b"abc\xfa\x54\n", Some("shift_jis"));
    assert_eq!(
        error,
        TextError::NotReversible {
            encoding: "Shift_JIS",
            offset: 3
        }
    );
}

#[test]
fn a_newline_is_a_code_unit() {
    let bytes: Vec<u8> = "\u{a0a}\u{a00}a\nb"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let encoding = Encoding::of(&bytes, Some("utf-16le")).unwrap();
    assert_eq!(encoding.find_newline(&bytes, 0), Some(6));
    assert_eq!(encoding.find_newline(&bytes, 8), None);
    let bytes: Vec<u8> = "\u{a0a}\u{a}\u{a00}"
        .encode_utf16()
        .flat_map(u16::to_be_bytes)
        .collect();
    let encoding = Encoding::of(&bytes, Some("utf-16be")).unwrap();
    assert_eq!(encoding.find_newline(&bytes, 0), Some(2));
}

const LABELS: [&str; 8] = [
    "utf-8",
    "utf-16le",
    "utf-16be",
    "gb18030",
    "gbk",
    "big5",
    "shift_jis",
    "windows-1251",
];

proptest! {
    #[test]
    fn what_is_written_is_read_again(text in "[\\x01-\\x7f]{0,20}\\PC{0,40}", label in 0..LABELS.len()) {
        let label = LABELS[label];
        let encoding = Encoding::of(b"", Some(label)).unwrap();
        if let Ok(bytes) = encoding.encode(&text) {
            prop_assert_eq!(encoding.decode(&bytes, 0).unwrap(), text.as_str(), "{}", label);
            // Cut anywhere, the whole characters before the cut are read.
            for cut in 0..=bytes.len() {
                let (part, taken) = encoding.decode_prefix(&bytes[..cut], 0).unwrap();
                prop_assert!(cut - taken <= 3);
                prop_assert!(text.starts_with(&*part), "{} {}", label, cut);
                let rest = encoding.decode(&bytes[taken..], 0).unwrap();
                prop_assert_eq!([&*part, &*rest].concat(), text.as_str());
            }
        }
    }

    #[test]
    fn whatever_is_read_is_written_back(bytes in prop::collection::vec(any::<u8>(), 0..64), label in 0..LABELS.len()) {
        if let Ok(text) = Text::read(&bytes, Some(LABELS[label])) {
            prop_assert_eq!(&text.to_bytes().unwrap(), &bytes);
        }
        let _ = Text::read(&bytes, None);
    }
}

#[test]
fn the_encodings_that_are_promised_are_there() {
    for encoding in [BIG5, EUC_KR, GB18030, GBK, SHIFT_JIS] {
        assert_eq!(
            Encoding::of(b"", Some(encoding.name())).unwrap().name(),
            encoding.name()
        );
    }
}
