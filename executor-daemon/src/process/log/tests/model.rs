//! Log, ring and pages against a plain vector.

use proptest::prelude::*;

use super::super::Stream;
use super::super::segment::Ask;
use super::*;

#[derive(Debug, Clone)]
enum Step {
    Append { length: usize, stderr: bool },
    Shrink { all: bool },
    Read { reader: usize, max: usize },
    Look { back: usize, max: usize },
}

/// What the log must be.
#[derive(Debug, Default)]
struct Model {
    bytes: Vec<u8>,
    streams: Vec<Stream>,
    floor: usize,
    head_from: usize,
}

impl Model {
    fn retained(&self, geometry: Geometry, offset: usize) -> bool {
        if offset < geometry.head {
            offset >= self.head_from
        } else {
            offset >= self.floor && offset + geometry.retained >= self.bytes.len()
        }
    }

    fn check(&self, geometry: Geometry, page: &Page, cursor: u64, max: usize) {
        let at = |offset: u64| usize::try_from(offset).expect("small");
        let (end, cursor, start) = (self.bytes.len(), at(cursor), at(page.start));
        assert_eq!(at(page.end), end);

        let expected = (cursor..end).find(|offset| self.retained(geometry, *offset));
        assert_eq!(
            start,
            expected.unwrap_or(end),
            "goes on at the next retained byte"
        );
        let gap = page.gap.map(|gap| (at(gap.from), at(gap.to)));
        assert_eq!(
            gap,
            (start > cursor).then_some((cursor, start)),
            "the gap is exact"
        );
        if let Some(gap) = page.gap {
            let newlines = self.bytes[cursor..start]
                .iter()
                .filter(|b| **b == b'\n')
                .count();
            assert!(gap.newlines.is_none_or(|told| told == newlines as u64));
            let known = cursor == 0 || cursor == geometry.head;
            // A page without a byte does not reach a count behind it.
            if known && start < end && geometry.slack <= geometry.retained {
                assert!(
                    gap.newlines.is_some(),
                    "newlines from {cursor} to {start} are known"
                );
            }
        }

        let until = (start..end).find(|offset| !self.retained(geometry, *offset));
        let offered = until.unwrap_or(end) - start;
        let stop = start + page.data.len();
        assert!(
            page.data[..] == self.bytes[start..stop],
            "bytes from {start} to {stop}"
        );
        assert!(page.data.len() <= max.max(1));
        assert_eq!(page.data.is_empty(), offered == 0);
        let most = offered.min(max.max(1));
        assert!(page.data.len() + 3 >= most || page.runs.len() == 1024);
        assert!(page.data.len() == offered || page.data.len() <= max.max(1));

        let told: Vec<Stream> = if page.runs.is_empty() {
            vec![Stream::Stdout; page.data.len()]
        } else {
            let runs = page.runs.iter();
            runs.flat_map(|run| vec![run.stream; run.length]).collect()
        };
        assert!(
            told == self.streams[start..stop],
            "streams from {start} to {stop}"
        );
        assert!(
            page.runs
                .windows(2)
                .all(|two| two[0].stream != two[1].stream)
        );
    }
}

/// Bytes with newlines and characters of every length among them.
fn produced(offset: usize) -> u8 {
    let text = "a\né中\n😀bc".as_bytes();
    text[(offset + offset / 61) % text.len()]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (1..120_usize, any::<bool>())
            .prop_map(|(length, stderr)| Step::Append { length, stderr }),
        1 => any::<bool>().prop_map(|all| Step::Shrink { all }),
        6 => (0..3_usize, 0..200_usize).prop_map(|(reader, max)| Step::Read { reader, max }),
        4 => (0..1200_usize, 0..400_usize).prop_map(|(back, max)| Step::Look { back, max }),
    ];
    proptest::collection::vec(step, 1..80)
}

fn geometries() -> impl Strategy<Value = Geometry> {
    (1..100_usize, 1..300_usize, 1..100_usize).prop_map(|(head, retained, slack)| Geometry {
        head,
        retained,
        slack,
        slots: 2,
    })
}

fn run(geometry: Geometry, steps: Vec<Step>, separate: bool) {
    let store = LogStore::new(geometry, PLENTY);
    let (mut writer, first) = store.create(Arc::default()).expect("a log");
    let there = reader_there(&store, &elsewhere(&store), &first);
    let readers = [first, writer.reader(), there];
    let mut model = Model::default();
    let mut cursors = [0_u64; 3];
    let mut seen = [0_u64; 3];
    for step in steps {
        match step {
            Step::Append { length, stderr } => {
                let from = model.bytes.len();
                let bytes: Vec<u8> = (from..from + length).map(produced).collect();
                let stream = if stderr && separate {
                    Stream::Stderr
                } else {
                    Stream::Stdout
                };
                writer.append(&bytes, stream);
                model.bytes.extend(bytes);
                model.streams.resize(model.bytes.len(), stream);
                assert_eq!(writer.end(), model.bytes.len() as u64);
            }
            Step::Shrink { all } => {
                writer.ask(if all { Ask::All } else { Ask::Tail });
                writer.shrink_if_asked();
                let end = model.bytes.len();
                if end > geometry.head {
                    model.floor = end;
                }
                if all {
                    model.head_from = end.min(geometry.head);
                }
            }
            Step::Read { reader, max } => {
                let page = readers[reader].page(cursors[reader], max).expect("a page");
                model.check(geometry, &page, cursors[reader], max);
                let gap = page.gap.map_or(0, |gap| gap.to - gap.from);
                seen[reader] += gap + page.data.len() as u64;
                cursors[reader] = page.next_cursor();
                assert_eq!(seen[reader], cursors[reader]);
            }
            Step::Look { back, max } => {
                let cursor = model.bytes.len().saturating_sub(back) as u64;
                for reader in &readers {
                    let page = reader.page(cursor, max).expect("a page");
                    model.check(geometry, &page, cursor, max);
                }
            }
        }
        assert_eq!(readers[0].status(), readers[2].status());
        let status = readers[0].status().expect("a status");
        let lost = (0..model.bytes.len())
            .filter(|at| !model.retained(geometry, *at))
            .count();
        assert_eq!((status.end, status.dropped), (writer.end(), lost as u64));
    }

    let retired = writer.retire();
    for reader in 0..3 {
        for page in pages(&readers[reader], cursors[reader], 50) {
            model.check(geometry, &page, cursors[reader], 50);
            let gap = page.gap.map_or(0, |gap| gap.to - gap.from);
            seen[reader] += gap + page.data.len() as u64;
            cursors[reader] = page.next_cursor();
        }
        assert_eq!(
            seen[reader],
            model.bytes.len() as u64,
            "bytes + gaps = produced"
        );
        assert!(readers[reader].status().expect("a status").ended);
    }
    drop(retired);
    assert!(readers.iter().all(gone));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn invariant_3_a_cursor_never_lies(
        geometry in geometries(), steps in steps(), separate in any::<bool>(),
    ) {
        run(geometry, steps, separate);
    }
}
