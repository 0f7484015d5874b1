//! Single pages: edges, gaps, characters, streams.

use std::io::ErrorKind;
use std::os::fd::AsFd;

use rustix::pipe::PipeFlags;

use super::super::segment::Ask;
use super::super::{Gap, Run, Stream};
use super::*;

#[test]
fn b094_a_cursor_older_than_the_ring_gets_the_head_an_exact_gap_and_the_newest() {
    let (mut writer, reader) = log(Geometry::PRODUCTION);
    let retained = Geometry::PRODUCTION.retained as u64;
    let head = Geometry::PRODUCTION.head as u64;
    let produced = 3 * retained;
    for at in (0..produced).step_by(1 << 16) {
        writer.append(&record_bytes(at, 1 << 16), Stream::Stdout);
    }

    let all = pages(&reader, 0, 65_536);
    assert_eq!(
        (all[0].gap, all[0].start, all[0].data.len() as u64),
        (None, 0, head)
    );
    let gap = Gap {
        from: head,
        to: produced - retained,
        newlines: Some(record_newlines(head, produced - retained)),
    };
    assert_eq!((all[1].gap, all[1].start), (Some(gap), gap.to));
    let bytes: u64 = all.iter().map(|page| page.data.len() as u64).sum();
    let gaps: u64 = all
        .iter()
        .flat_map(|page| page.gap)
        .map(|gap| gap.to - gap.from)
        .sum();
    assert_eq!(bytes + gaps, produced);
    assert_eq!(bytes, head + retained);
    for page in &all {
        assert!(page.data[..] == record_bytes(page.start, page.data.len())[..]);
    }

    let older = reader.page(retained / 2, 10).expect("a page");
    let told = older.gap.expect("a gap");
    assert_eq!(
        (told.from, told.to, older.start),
        (retained / 2, gap.to, gap.to)
    );

    let at_end = reader.page(produced, 10).expect("a page");
    assert_eq!(
        (at_end.gap, at_end.data.len(), at_end.next_cursor()),
        (None, 0, produced)
    );
    for ahead in [produced + 1, 1 << 63, u64::MAX] {
        assert_eq!(
            reader.page(ahead, 10),
            Err(ReadError::Ahead { end: produced })
        );
    }
}

#[test]
fn b095_a_character_split_between_writes_arrives_as_the_bytes_it_is() {
    let (mut writer, reader) = log(TINY);
    writer.append(b"\xe4\xb8", Stream::Stdout);
    // At the live end nothing is held back.
    assert_eq!(
        reader.page(0, 100).expect("a page").data[..],
        b"\xe4\xb8"[..]
    );
    assert_eq!(reader.page(2, 100).expect("a page").data.len(), 0);
    writer.append(b"\xad\n", Stream::Stdout);
    assert_eq!(reader.page(2, 100).expect("a page").data[..], b"\xad\n"[..]);
    assert_eq!(
        reader.page(0, 100).expect("a page").data[..],
        "中\n".as_bytes()[..]
    );
}

#[test]
fn b095_every_inner_split_of_an_emoji_gives_exact_bytes_and_cursors_count_bytes() {
    let emoji = "😀".as_bytes();
    for split in 1..4 {
        let (mut writer, reader) = log(TINY);
        writer.append(&emoji[..split], Stream::Stdout);
        let first = reader.page(0, 100).expect("a page");
        assert_eq!(
            (&first.data[..], first.next_cursor()),
            (&emoji[..split], split as u64)
        );
        writer.append(&emoji[split..], Stream::Stdout);
        let second = reader.page(first.next_cursor(), 100).expect("a page");
        assert_eq!(
            (&second.data[..], second.next_cursor()),
            (&emoji[split..], 4)
        );
    }
}

#[test]
fn b095_pages_of_one_byte_and_an_unfinished_end_are_exact() {
    let (mut writer, reader) = log(TINY);
    writer.append("a中".as_bytes(), Stream::Stdout);
    writer.append(b"\xe4\xb8", Stream::Stdout);
    writer.publish_exit();
    writer.publish_end();
    for max in [0, 1, 2, 3, 100] {
        let all = pages(&reader, 0, max);
        let joined: Vec<u8> = all.iter().flat_map(|page| page.data.to_vec()).collect();
        assert_eq!(joined, b"a\xe4\xb8\xad\xe4\xb8");
        assert!(all.iter().all(|page| page.data.len() <= max.max(1)));
    }
}

#[test]
fn a_page_that_max_cuts_does_not_cut_a_character() {
    let text = "aé中😀".repeat(6);
    let (mut writer, reader) = log(TINY);
    writer.append(text.as_bytes(), Stream::Stdout);
    for max in 4..20 {
        for page in pages(&reader, 0, max) {
            assert!(
                std::str::from_utf8(&page.data).is_ok(),
                "{max} {:?}",
                page.data
            );
        }
    }
}

#[test]
fn a_page_goes_over_the_edge_of_the_head_where_there_is_no_gap() {
    let (mut writer, reader) = log(TINY);
    writer.append(&record_bytes(0, 300), Stream::Stdout);
    let page = reader.page(10, 1000).expect("a page");
    assert_eq!((page.gap, page.data.len()), (None, 290));
    writer.append(&record_bytes(300, 21), Stream::Stdout);
    let page = reader.page(10, 1000).expect("a page");
    assert_eq!((page.gap, page.data.len()), (None, 54));
    let page = reader.page(64, 1000).expect("a page");
    assert_eq!(page.gap.map(|gap| (gap.from, gap.to)), Some((64, 65)));
    assert_eq!((page.start, page.data.len()), (65, 256));
}

#[test]
fn a_page_is_put_behind_what_a_buffer_holds() {
    let (mut writer, reader) = log(TINY);
    writer.append(b"output", Stream::Stdout);
    let mut buffer = bytes::BytesMut::from(&b"frame "[..]);
    let head = reader.page_into(0, 3, &mut buffer).expect("a page");
    assert_eq!(
        (&buffer[..], head.length, head.start),
        (&b"frame out"[..], 3, 0)
    );
    let refused = reader.page_into(7, 3, &mut buffer);
    assert_eq!(refused, Err(ReadError::Ahead { end: 6 }));
    assert_eq!(&buffer[..], b"frame out");
}

#[test]
fn runs_say_which_stream_each_byte_came_from() {
    let (mut writer, reader) = log(TINY);
    writer.append(b"only out", Stream::Stdout);
    assert_eq!(reader.page(0, 100).expect("a page").runs, []);
    writer.append(b"error", Stream::Stderr);
    writer.append(b" again", Stream::Stderr);
    writer.append(b"out", Stream::Stdout);
    let run = |stream, length| Run { stream, length };
    assert_eq!(
        reader.page(0, 100).expect("a page").runs,
        [
            run(Stream::Stdout, 8),
            run(Stream::Stderr, 11),
            run(Stream::Stdout, 3)
        ]
    );
    assert_eq!(
        reader.page(10, 2).expect("a page").runs,
        [run(Stream::Stderr, 2)]
    );
    assert_eq!(reader.page(0, 8).expect("a page").runs, []);
    assert_eq!(reader.page(19, 8).expect("a page").runs, []);
}

#[test]
fn a_page_ends_where_it_would_have_more_than_1024_runs() {
    let (mut writer, reader) = log(Geometry::PRODUCTION);
    for _ in 0..2000 {
        writer.append(b"o", Stream::Stdout);
        writer.append(b"ee", Stream::Stderr);
    }
    let all = pages(&reader, 0, 65_536);
    assert_eq!(
        all.iter().map(|page| page.runs.len()).collect::<Vec<_>>(),
        [1024, 1024, 1024, 928]
    );
    assert_eq!(all[3].next_cursor(), 6000);
}

#[test]
fn a_read_fills_the_log_from_a_descriptor_up_to_its_end() {
    let (mut writer, reader) = log(TINY);
    let (output, input) = rustix::pipe::pipe_with(PipeFlags::NONBLOCK).expect("a pipe");
    let produced = record_bytes(0, 500);
    rustix::io::write(&input, &produced).expect("a write");
    let mut steps = Vec::new();
    let blocked = loop {
        match writer.read_from(output.as_fd(), Stream::Stdout, 1000) {
            Ok(read) => steps.push(read),
            Err(error) => break error,
        }
    };
    assert_eq!(blocked.kind(), ErrorKind::WouldBlock);
    // To the edge of the head, then never more than the slack.
    assert_eq!(steps, [64, 64, 64, 64, 64, 64, 64, 52]);
    drop(input);
    assert_eq!(
        writer
            .read_from(output.as_fd(), Stream::Stdout, 1000)
            .expect("the end"),
        0
    );
    let page = reader.page(244, 1000).expect("a page");
    assert_eq!(page.data[..], produced[244..]);
    assert_eq!(writer.end(), 500);
}

#[test]
fn a_read_to_any_place_gives_the_same_bytes() {
    for before in [1, 63, 65, 127, 300] {
        let (mut writer, reader) = log(TINY);
        let (output, input) = rustix::pipe::pipe_with(PipeFlags::NONBLOCK).expect("a pipe");
        writer.append(&record_bytes(0, before), Stream::Stdout);
        rustix::io::write(&input, &record_bytes(before as u64, 200)).expect("a write");
        drop(input);
        while writer
            .read_from(output.as_fd(), Stream::Stdout, 50)
            .expect("a read")
            > 0
        {}
        assert_eq!(writer.end(), before as u64 + 200);
        for page in pages(&reader, 0, 1000) {
            assert!(page.data[..] == record_bytes(page.start, page.data.len())[..]);
        }
    }
}

#[test]
fn what_was_given_up_is_told_with_its_newlines() {
    let (mut writer, reader) = log(TINY);
    writer.append(&record_bytes(0, 200), Stream::Stdout);
    writer.ask(Ask::Tail);
    writer.shrink_if_asked();
    let gap = reader.page(64, 10).expect("a page").gap.expect("a gap");
    assert_eq!((gap.from, gap.to), (64, 200));
    assert_eq!(gap.newlines, Some(record_newlines(64, 200)));
    assert_eq!(reader.status().expect("a status").dropped, 136);
    writer.ask(Ask::All);
    writer.append(&record_bytes(200, 5), Stream::Stdout);
    let page = reader.page(0, 10).expect("a page");
    let gap = page.gap.expect("a gap");
    assert_eq!(
        (gap.from, gap.to, gap.newlines),
        (0, 200, Some(record_newlines(0, 200)))
    );
    assert_eq!(page.data[..], record_bytes(200, 5)[..]);
}
