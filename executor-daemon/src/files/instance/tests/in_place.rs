//! A write in place whose writer was killed, and what others wrote since.

use super::*;

const OLD: &[u8] = b"the old content of the file";
const SHORTER: &[u8] = b"the new one";
const LONGER: &[u8] = b"the new content of the file, longer than the old";

/// What is there at the next start, `found` in the file that was `old`.
struct Interrupted {
    world: World,
    file: PathBuf,
}

impl Interrupted {
    fn new(old: &[u8], new: &[u8], found: &[u8]) -> Self {
        let world = World::new();
        let file = world.work("f");
        fs::write(&file, old).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let before = Seen::from(&rustix::fs::stat(&file).unwrap());
        let instance = world.instance();
        let (image, handle) = instance.file("redo-").unwrap();
        write_all_at(&handle, new, 0).unwrap();
        let (kept, handle) = instance.file("old-").unwrap();
        let over = old.len().min(new.len());
        write_all_at(&handle, &old[..over], 0).unwrap();
        let record = Record::InPlace(InPlace {
            place: world.location("f"),
            before,
            image,
            old: kept,
            tail: *blake3::hash(&old[over..]).as_bytes(),
            length: new.len() as u64,
            digest: *blake3::hash(new).as_bytes(),
            mode: 0o640,
        });
        let slot = instance.record(&record).unwrap();
        slot.sync().unwrap();
        // The same file, whatever is in it.
        fs::write(&file, found).unwrap();
        slot.instance_outlives();
        instance.slots().kept = 1;
        Self { world, file }
    }

    /// What the next start makes of it.
    fn recovered(&self) -> Vec<u8> {
        drop(self.world.instance());
        let mode = fs::metadata(&self.file).unwrap().mode() & 0o7777;
        assert_eq!(mode, 0o640);
        fs::read(&self.file).unwrap()
    }

    /// The names in the dead instance's directory.
    fn kept(&self) -> Vec<(String, Vec<u8>)> {
        let all = fs::read_dir(self.world.state().join("instances")).unwrap();
        let files = all.flat_map(|one| fs::read_dir(one.unwrap().path()).unwrap());
        let mut files: Vec<_> = files
            .map(|file| {
                let file = file.unwrap();
                let name = file.file_name().into_string().unwrap();
                let kind = name.split('-').next().unwrap().to_owned();
                (kind, fs::read(file.path()).unwrap())
            })
            .collect();
        files.sort();
        files
    }
}

/// The states that a writer leaves who is killed at any byte, and after the cut.
fn left_by_a_writer(old: &[u8], new: &[u8]) -> Vec<Vec<u8>> {
    let mut states: Vec<Vec<u8>> = (0..=new.len())
        .map(|k| [&new[..k], old.get(k..).unwrap_or_default()].concat())
        .collect();
    states.push(new.to_vec());
    states
}

#[test]
fn a_write_in_place_is_finished_wherever_it_was_interrupted() {
    for new in [SHORTER, LONGER, b"THE OLD CONTENT OF THE FILE", b""] {
        for found in left_by_a_writer(OLD, new) {
            let shown = String::from_utf8_lossy(&found).into_owned();
            let interrupted = Interrupted::new(OLD, new, &found);
            assert_eq!(interrupted.recovered(), new, "{shown:?}");
            assert_eq!(interrupted.world.instances(), 0, "{shown:?}");
        }
    }
    let interrupted = Interrupted::new(b"", LONGER, b"the new co");
    assert_eq!(interrupted.recovered(), LONGER);
}

#[test]
fn what_somebody_else_wrote_since_is_left_alone_and_the_contents_are_kept() {
    let changed = |content: &[u8], at: usize| {
        let mut content = content.to_vec();
        content[at] = b'#';
        content
    };
    let cut = |content: &[u8], by: usize| content[..content.len() - by].to_vec();
    let cases: [(&[u8], Vec<u8>); 13] = [
        (LONGER, b"".to_vec()),
        (LONGER, b"theirs".to_vec()),
        // The size is right, and one byte is not: of the old or of the new.
        (LONGER, changed(OLD, 0)),
        (LONGER, changed(OLD, OLD.len() - 1)),
        (LONGER, changed(&[&LONGER[..9], &OLD[9..]].concat(), 20)),
        (LONGER, changed(&LONGER[..40], 3)),
        (LONGER, changed(LONGER, LONGER.len() - 1)),
        // They appended to what was left, or cut it.
        (LONGER, [OLD, b"\ntheir line"].concat()),
        (LONGER, [LONGER, b"\ntheir line"].concat()),
        (LONGER, cut(OLD, 1)),
        (SHORTER, changed(OLD, OLD.len() - 1)),
        (SHORTER, changed(SHORTER, 8)),
        (SHORTER, [SHORTER, b"12345"].concat()),
    ];
    for (new, found) in cases {
        let shown = String::from_utf8_lossy(&found).into_owned();
        let interrupted = Interrupted::new(OLD, new, &found);
        assert_eq!(interrupted.recovered(), found, "{shown:?}");
        let over = OLD.len().min(new.len());
        let expected = ["conflict", "old", "redo"];
        let contents = [&OLD[..over], new];
        let kept = interrupted.kept();
        let kinds: Vec<_> = kept.iter().map(|(kind, _)| kind.as_str()).collect();
        assert_eq!(kinds, expected, "{shown:?}");
        assert_eq!([&kept[1].1[..], &kept[2].1[..]], contents, "{shown:?}");
        // Nor at any later start, even when it looks like the old one again.
        fs::write(&interrupted.file, OLD).unwrap();
        assert_eq!(interrupted.recovered(), OLD, "{shown:?}");
        assert_eq!(interrupted.kept().len(), 3, "{shown:?}");
    }
}

#[test]
fn a_file_that_is_another_or_gone_is_none_to_be_finished() {
    type Act = fn(&Path);
    let acts: [(&str, Act, Option<&[u8]>); 3] = [
        ("removed", |f| fs::remove_file(f).unwrap(), None),
        (
            "replaced by an equal one",
            |f| {
                fs::write(f.with_extension("x"), OLD).unwrap();
                fs::rename(f.with_extension("x"), f).unwrap();
            },
            Some(OLD),
        ),
        (
            "moved with its directory",
            |f| {
                let above = f.parent().unwrap();
                fs::rename(above, above.with_extension("moved")).unwrap();
            },
            None,
        ),
    ];
    for (what, act, left) in acts {
        let interrupted = Interrupted::new(OLD, LONGER, OLD);
        act(&interrupted.file);
        drop(interrupted.world.instance());
        assert_eq!(fs::read(&interrupted.file).ok().as_deref(), left, "{what}");
        assert_eq!(interrupted.kept().len(), 3, "{what}");
    }
}

#[test]
fn contents_of_many_pieces_are_compared_to_the_last_byte() {
    let old = vec![b'o'; 700_000];
    let new = vec![b'n'; 600_000];
    for (k, theirs, finished) in [
        (0, None, true),
        (262_144, None, true),
        (599_999, None, true),
        (262_144, Some(262_143), false),
        (262_144, Some(262_145), false),
        (300_000, Some(599_999), false),
        (300_000, Some(699_999), false),
    ] {
        let mut found = [&new[..k], &old[k..]].concat();
        if let Some(at) = theirs {
            found[at] = b'#';
        }
        let interrupted = Interrupted::new(&old, &new, &found);
        let expected = if finished { &new } else { &found };
        assert!(interrupted.recovered() == *expected, "{k} {theirs:?}");
    }
}
