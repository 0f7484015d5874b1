//! Pages of lines.

use std::os::unix::fs::FileExt as _;

use super::super::cancel::Cancel;
use super::super::error::FileError;
use super::super::fence::Fence;
use super::super::line_index::LineIndexes;
use super::super::read_lines::{Lines, ReadLines, read_lines};
use super::super::resolve::Means;
use super::super::text::encoding::TextError;
use super::super::text::line_ending::LineEnding;
use super::super::version::Digest;
use super::Tree;

fn read(fence: &Fence, request: &ReadLines) -> Result<Lines, FileError> {
    read_with(fence, request, &LineIndexes::new(4))
}

pub(super) fn read_with(
    fence: &Fence,
    request: &ReadLines,
    indexes: &LineIndexes,
) -> Result<Lines, FileError> {
    read_lines(fence, "f".as_ref(), request, indexes, &Cancel::new())
}

pub(super) fn at(offset: u64) -> ReadLines {
    ReadLines {
        offset,
        ..ReadLines::default()
    }
}

/// The content of `f`, and a fence around it.
fn with(content: impl AsRef<[u8]>) -> (Tree, Fence) {
    let tree = Tree::new();
    tree.file("w/app/f", content);
    let fence = tree.fence(Means::Kernel);
    (tree, fence)
}

/// All pages one after another, each following from the one before.
fn all(fence: &Fence, request: &ReadLines) -> (String, usize) {
    let indexes = LineIndexes::new(4);
    let mut request = request.clone();
    let (mut text, mut pages) = (String::new(), 0);
    loop {
        let page = read_with(fence, &request, &indexes).unwrap();
        assert!(page.text.len() <= request.page_bytes);
        assert_eq!(page.first_line, request.offset);
        text.push_str(&page.text);
        pages += 1;
        let Some(next) = page.next_offset else {
            assert!(page.next_in_line.is_none());
            return (text, pages);
        };
        assert!(!page.text.is_empty(), "page {pages} does not move on");
        request.offset = next;
        request.in_line = page.next_in_line.unwrap_or(0);
    }
}

#[test]
fn b046_the_final_newline_is_no_line() {
    for (content, total) in [
        ("a\nb\n", 2),
        ("a\nb", 2),
        ("", 0),
        ("\n", 1),
        ("\n\n", 2),
        ("\r\n\r", 2),
        ("\u{feff}", 0),
        ("\u{feff}\n", 1),
    ] {
        let (_tree, fence) = with(content);
        let page = read(&fence, &at(1)).unwrap();
        assert_eq!(page.total_lines, Some(total), "{content:?}");
        assert_eq!(u64::from(page.lines), total, "{content:?}");
        assert_eq!(page.next_offset, None, "{content:?}");
        assert_eq!(page.text, content.trim_start_matches('\u{feff}'));
        let open = !content.ends_with('\n') && total > 0;
        assert_eq!(page.unterminated, open, "{content:?}");
        if total > 0 {
            let last = read(&fence, &at(total)).unwrap();
            assert_eq!((last.first_line, last.lines), (total, 1), "{content:?}");
        }
        for offset in [total + 1, total + 2, u64::MAX] {
            if offset == 1 {
                continue; // An empty file's only page, told by its total.
            }
            match read(&fence, &at(offset)) {
                Err(FileError::LineOffsetAhead {
                    offset: told,
                    lines,
                    ..
                }) => assert_eq!((told, lines), (offset, total), "{content:?}"),
                other => panic!("{content:?} at {offset}: {other:?}"),
            }
        }
    }
    let (_tree, fence) = with("a\nb\n");
    let error = read(&fence, &at(3)).unwrap_err().to_string();
    assert!(
        error.contains("offset 3") && error.contains("2 lines"),
        "{error}"
    );
    for (offset, limit) in [(0, 1), (1, 0), (1, 2001)] {
        let request = ReadLines {
            limit,
            ..at(offset)
        };
        let refused = read(&fence, &request);
        assert!(matches!(refused, Err(FileError::InvalidArgument { .. })));
    }
}

#[test]
fn pages_follow_each_other_and_say_where_the_next_begins() {
    let content: String = (1..=1000).map(|n| format!("line {n}\n")).collect();
    let (_tree, fence) = with(&content);
    let page = read(&fence, &at(1)).unwrap();
    assert_eq!((page.lines, page.next_offset), (200, Some(201)));
    assert_eq!(page.total_lines, Some(1000));
    assert_eq!(page.digest, Some(Digest::of(content.as_bytes())));
    assert_eq!(page.line_ending, LineEnding::Lf);
    let last = ReadLines {
        limit: 100,
        ..at(901)
    };
    let page = read(&fence, &last).unwrap();
    assert!(page.text.starts_with("line 901\n") && page.text.ends_with("line 1000\n"));
    assert_eq!(page.next_offset, None, "the last line was read");
    for (limit, page_bytes) in [(1, 65_536), (7, 65_536), (2000, 1024), (2000, 65_536)] {
        let request = ReadLines {
            limit,
            page_bytes,
            ..at(1)
        };
        assert_eq!(all(&fence, &request).0, content, "{limit} {page_bytes}");
    }
}

#[test]
fn a_page_of_lines_that_fit_exactly_is_full() {
    let line = format!("{}\n", "x".repeat(1023));
    let (_tree, fence) = with(line.repeat(3));
    let request = ReadLines {
        page_bytes: 2048,
        ..at(1)
    };
    let page = read(&fence, &request).unwrap();
    assert_eq!((page.lines, page.next_offset), (2, Some(3)));
    let page = read(
        &fence,
        &ReadLines {
            offset: 3,
            ..request
        },
    )
    .unwrap();
    assert_eq!((page.lines, page.next_offset), (1, None));
}

#[test]
fn b047_a_long_line_is_named_or_cut_and_each_page_moves_on() {
    let short = format!("{}\n", "a".repeat(500));
    let mut one = format!("{{\"p\":\"{}", "0".repeat(2_000_000));
    one.push_str(&"\u{6f22}\u{5b57}\u{8a9e}".repeat(333_333));
    let few = "\u{8a9e}a".repeat(80_000);
    let crlf = format!("{}\r\n", "\u{e9}\r".repeat(100_000));
    for (content, line) in [
        (one.clone(), 1),
        (format!("{short}{few}\n{short}"), 2),
        (format!("{short}{crlf}{short}"), 2),
        ("\u{1f600}".repeat(50_000), 1),
    ] {
        let (tree, fence) = with(&content);
        super::settle(&tree.at("w/app/f"));
        let length = content.split_inclusive('\n').nth(line - 1).unwrap().len() as u64;
        match read(&fence, &at(line as u64)) {
            Err(FileError::LineTooLong {
                line: told,
                length: bytes,
                limit,
                ..
            }) => assert_eq!((told, bytes, limit), (line as u64, length, 65_536)),
            other => panic!("{other:?}"),
        }
        for page_bytes in [65_536, 65_535, 40_000] {
            let request = ReadLines {
                clip_long_lines: true,
                page_bytes,
                ..at(1)
            };
            let (text, pages) = all(&fence, &request);
            assert!(text == content, "pages are not the file");
            assert!(pages <= content.len() / (page_bytes - 4) + 4, "{pages}");
        }
    }
}

#[test]
fn b047_a_place_in_a_line_must_be_one() {
    let content = format!("{}\nsecond\n", "\u{e9}".repeat(100_000));
    let (_tree, fence) = with(&content);
    let inside = |offset, in_line| ReadLines {
        clip_long_lines: true,
        in_line,
        ..at(offset)
    };
    assert_eq!(read(&fence, &inside(2, 3)).unwrap().text, "ond\n");
    let page = read(&fence, &inside(1, 199_998)).unwrap();
    assert_eq!(page.text, "\u{e9}\nsecond\n");
    assert_eq!((page.first_line, page.lines), (1, 2));
    for (offset, in_line) in [
        (1, 1),
        (1, 200_001),
        (1, 1 << 40),
        (2, 7),
        (2, 8),
        (1, u64::MAX),
    ] {
        let refused = read(&fence, &inside(offset, in_line));
        let told = matches!(
            refused,
            Err(FileError::InvalidArgument {
                field: "in_line",
                ..
            })
        );
        assert!(told, "{offset} {in_line}: {refused:?}");
    }
    let not_asked = ReadLines {
        in_line: 2,
        ..at(1)
    };
    assert!(read(&fence, &not_asked).is_err());
}

#[test]
fn b049_text_is_known_wherever_a_probe_would_cut_it() {
    for lead in 1..4 {
        for count in [170, 400, 1400, 4000] {
            let content = "a".repeat(lead) + &"\u{8a9e}".repeat(count);
            let (_tree, fence) = with(&content);
            assert!(
                read(&fence, &at(1)).unwrap().text == content,
                "{lead} {count}"
            );
        }
    }
    let (gbk, _, _) = encoding_rs::GBK.encode("第一行\n第二行还有更多的汉字\n");
    let (_tree, fence) = with(&gbk);
    match read(&fence, &at(1)) {
        Err(FileError::Text {
            error: TextError::NotText { offset, likely, .. },
            ..
        }) => assert_eq!((offset, likely), (0, Some("GBK"))),
        other => panic!("{other:?}"),
    }
    let named = ReadLines {
        encoding: Some("gbk".into()),
        ..at(2)
    };
    let page = read(&fence, &named).unwrap();
    assert_eq!(
        (page.text.as_str(), page.encoding.name()),
        ("第二行还有更多的汉字\n", "GBK")
    );
    let utf_16: Vec<u8> = "\u{feff}één\r\n二\u{10a0a}\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let (_tree, fence) = with(&utf_16);
    let page = read(&fence, &at(1)).unwrap();
    assert_eq!(page.text, "één\r\n二\u{10a0a}\n");
    assert_eq!(
        (page.encoding.name(), page.encoding.has_bom()),
        ("UTF-16LE", true)
    );
    assert_eq!(page.line_ending, LineEnding::Mixed);
    for nul in [0, 100, 8191] {
        let mut bytes = vec![b'a'; 9000];
        bytes[nul] = 0;
        let (_tree, fence) = with(&bytes);
        let Err(FileError::Text {
            error: TextError::Binary { offset, .. },
            ..
        }) = read(&fence, &at(1))
        else {
            panic!("NUL at {nul} is text");
        };
        assert_eq!(offset, nul as u64);
    }
}

#[test]
fn b049_the_offset_of_a_bad_byte_is_the_files() {
    let mut content = "line\n".repeat(30_000).into_bytes();
    content[100_003] = 0xff;
    let (_tree, fence) = with(&content);
    read(&fence, &at(1)).unwrap();
    match read(&fence, &at(20_001)) {
        Err(FileError::Text {
            error: TextError::NotText { offset, .. },
            ..
        }) => {
            assert_eq!(offset, 100_003);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn b052_a_bom_is_a_flag_and_no_text() {
    let (_tree, fence) = with("\u{feff}import os\n\u{feff}x\n");
    let page = read(&fence, &at(1)).unwrap();
    assert!(page.encoding.has_bom());
    assert_eq!(page.text, "import os\n\u{feff}x\n", "elsewhere it is text");
    let page = read(&fence, &at(2)).unwrap();
    assert!(page.encoding.has_bom() && page.text.starts_with('\u{feff}'));
}

#[test]
fn long_lines_in_other_encodings_are_cut_on_a_character_too() {
    let text = "語€".repeat(60_000) + "\r\nende\n";
    for label in ["utf-16le", "utf-16be", "gb18030"] {
        let bytes = match label {
            "utf-16le" => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
            "utf-16be" => text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
            _ => encoding_rs::GB18030.encode(&text).0.into_owned(),
        };
        let (tree, fence) = with(&bytes);
        super::settle(&tree.at("w/app/f"));
        let request = ReadLines {
            encoding: Some(label.into()),
            clip_long_lines: true,
            ..at(1)
        };
        assert!(all(&fence, &request).0 == text, "{label}");
    }
}

#[test]
fn an_index_gives_the_same_pages_as_reading_from_the_start() {
    let content: String = (1..=300_000).map(|n| format!("{n}\n")).collect();
    let (tree, fence) = with(&content);
    super::settle(&tree.at("w/app/f"));
    let indexes = LineIndexes::new(4);
    for offset in [300_000, 1, 150_000, 299_999, 2, 200_000, 300_000] {
        let request = ReadLines {
            limit: 1,
            ..at(offset)
        };
        let page = read_with(&fence, &request, &indexes).unwrap();
        assert_eq!(page.text, format!("{offset}\n"));
        assert_eq!(page.digest, Some(Digest::of(content.as_bytes())));
    }
    // Another content under the same name is another version.
    tree.file("w/app/f", content.replace('1', "one\n"));
    let request = ReadLines {
        limit: 1,
        ..at(300_000)
    };
    let page = read_with(&fence, &request, &indexes).unwrap();
    let expected = content.replace('1', "one\n");
    assert_eq!(Some(page.text.trim_end()), expected.lines().nth(299_999));
}

#[test]
fn a_later_page_does_not_start_at_byte_0() {
    let tree = Tree::new();
    let path = tree.at("w/app/f");
    let file = std::fs::File::create_new(&path).unwrap();
    let line = "0123456789abcde\n";
    let block = line.repeat(1 << 16);
    for at in 0..32 {
        file.write_all_at(block.as_bytes(), at << 20).unwrap();
    }
    super::settle(&path);
    let fence = tree.fence(Means::Kernel);
    let indexes = LineIndexes::new(4);
    let total = 32 << 16;
    let request = ReadLines {
        limit: 1,
        ..at(total)
    };
    read_with(&fence, &request, &indexes).unwrap();
    let before = bytes_read();
    for back in 1..20 {
        let request = ReadLines {
            limit: 1,
            ..at(total - back * 1000)
        };
        let page = read_with(&fence, &request, &indexes).unwrap();
        assert_eq!((page.lines, page.text.as_str()), (1, line));
    }
    let each = (bytes_read() - before) / 20;
    assert!(each < 1 << 20, "{each} bytes a page");
}

/// What this thread has read by read(2) and the like (proc(5), `io`).
#[expect(clippy::disallowed_methods, reason = "the kernel's account of a test")]
pub(super) fn bytes_read() -> u64 {
    let io = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    let rchar = io.lines().next().unwrap();
    rchar.strip_prefix("rchar: ").unwrap().parse().unwrap()
}

#[test]
fn a_file_without_a_size_is_read_to_its_end() {
    use super::super::resolve::{Resolver, directory};
    use super::super::roots::{Root, Roots};
    use crate::session::record::Access;
    for means in super::BOTH {
        let proc = std::path::Path::new("/proc");
        let roots = Roots::new(vec![Root::open(proc, Access::ReadOnly).unwrap()]);
        let cwd = directory(&roots, proc, proc.as_os_str(), means).unwrap();
        let fence = super::fence(Resolver::new(roots, cwd, means));
        let indexes = LineIndexes::new(4);
        for name in ["self/status", "cpuinfo", "mounts"] {
            let request = ReadLines {
                limit: 2000,
                ..at(1)
            };
            let page =
                read_lines(&fence, name.as_ref(), &request, &indexes, &Cancel::new()).unwrap();
            assert!(page.lines > 0 && page.facts.size == 0, "{name}");
        }
    }
}

#[test]
fn a_cancelled_read_ends() {
    let (_tree, fence) = with("a\n");
    let cancel = Cancel::new();
    cancel.cancel();
    let request = at(5);
    let result = read_lines(
        &fence,
        "f".as_ref(),
        &request,
        &LineIndexes::new(1),
        &cancel,
    );
    assert!(matches!(result, Err(FileError::Cancelled)));
}
