//! A text that is larger than what may be kept of it.

use std::os::unix::fs::FileExt as _;

use super::super::error::FileError;
use super::super::line_index::LineIndexes;
use super::super::read_lines::ReadLines;
use super::super::resolve::Means;
use super::Tree;
use super::lines::{at, bytes_read, read_with};

/// Paged backwards, with an index of the whole: each page costs what one page
/// costs, and memory does not grow with the file.
#[test]
fn a_large_file_is_paged_from_its_end_in_constant_memory() {
    const BLOCK: u64 = 1 << 20;
    const LINE: usize = 64;
    let blocks = super::scaled(1024, 48) as u64;
    let tree = Tree::new();
    let path = tree.at("w/app/f");
    let file = std::fs::File::create_new(&path).unwrap();
    let rest = format!("{}\n", "x".repeat(LINE - 1)).repeat((1 << 20) / LINE - 1);
    for block in 0..blocks {
        let content = format!("{block:0width$}\n{rest}", width = LINE - 1);
        file.write_all_at(content.as_bytes(), block * BLOCK)
            .unwrap();
    }
    super::settle(&path);
    let fence = tree.fence(Means::Kernel);
    let indexes = LineIndexes::new(4);
    let memory = memory();
    let Err(FileError::LineOffsetAhead { lines, .. }) = read_with(&fence, &at(u64::MAX), &indexes)
    else {
        panic!("there is no end");
    };
    assert_eq!(lines, blocks * BLOCK / LINE as u64);
    let before = bytes_read();
    let mut offset = lines + 1;
    for page in 1..=200 {
        offset -= 1000;
        let request = ReadLines {
            limit: 1000,
            ..at(offset)
        };
        let found = read_with(&fence, &request, &indexes).unwrap();
        assert_eq!(
            (found.lines, found.total_lines),
            (1000, Some(lines)),
            "{page}"
        );
        for (line, text) in (offset..).zip(found.text.lines()) {
            let (block, within) = ((line - 1) / 16_384, (line - 1) % 16_384);
            if within == 0 {
                assert_eq!(text.parse::<u64>().unwrap(), block);
            }
        }
    }
    let each = (bytes_read() - before) / 200;
    assert!(each < BLOCK, "{each} bytes a page");
    // What other tests use at the same time is in it too.
    let grown = self::memory().saturating_sub(memory);
    assert!(blocks < 1024 || grown < blocks * BLOCK / 4, "{grown} bytes");
}

/// The memory of this process in use (proc(5), `status`).
#[expect(clippy::disallowed_methods, reason = "the kernel's account of a test")]
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.unwrap().trim().strip_suffix(" kB").unwrap();
    1024 * kib.parse::<u64>().unwrap()
}
