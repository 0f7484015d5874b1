//! What a write in place records is what the next start needs.

use std::io::{Seek as _, Write as _};
use std::sync::Mutex;

use super::*;

/// Copies the living instance's directory, as it would be found after a death.
fn copied(state: &Path) -> PathBuf {
    let all = state.join("instances");
    let living = all.join(&names(&all)[0]);
    let dead = state.join("dead");
    fs::create_dir(&dead).unwrap();
    for name in names(&living) {
        fs::copy(living.join(&name), dead.join(&name)).unwrap();
    }
    dead
}

/// The file as it is when the writer dies, having written `k` bytes.
fn half_written(path: &Path, old: &[u8], new: &[u8], k: usize) {
    let mut file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(0).unwrap();
    file.write_all(&new[..k]).unwrap();
    file.write_all(old.get(k..).unwrap_or_default()).unwrap();
}

#[test]
fn a_write_in_place_is_finished_by_what_it_recorded() {
    for (old, new, k) in [
        ("old content", "a new content, longer", 5),
        ("old content, longer", "a new one", 3),
        ("", "a new content", 4),
        ("old content", "", 0),
    ] {
        for theirs in [false, true] {
            let world = World::new();
            let path = world.put("f", old);
            fs::hard_link(&path, world.at("second")).unwrap();
            let state = world.state.clone();
            let dead = Arc::new(Mutex::new(None));
            let found = Arc::clone(&dead);
            world.files.hooks.before_commit(move |_| {
                *found.lock().unwrap() = Some(copied(&state));
            });
            let spec = WriteSpec {
                in_place: true,
                ..WriteSpec::new("f")
            };
            world.write_as(&spec, new).unwrap();
            let dead = dead.lock().unwrap().take().unwrap();
            fs::rename(&dead, world.state.join("instances/dead")).unwrap();
            half_written(&path, old.as_bytes(), new.as_bytes(), k);
            if theirs {
                fs::File::options()
                    .append(true)
                    .open(&path)
                    .unwrap()
                    .write_all(b"their line, which fits neither")
                    .unwrap();
            }
            let before = text(&path);
            drop(Files::open(&world.state));
            let expected = if theirs { before.as_str() } else { new };
            assert_eq!(text(&path), expected, "{old:?} {new:?}");
            let stays = world.state.join("instances/dead").metadata().is_ok();
            assert_eq!(stays, theirs, "{old:?} {new:?}");
        }
    }
}

/// Nothing is kept of it for an undo.
#[test]
fn a_large_file_that_is_written_in_place_is_finished_too() {
    let world = World::new();
    let path = world.put("f", "begin");
    let mut file = fs::File::options().write(true).open(&path).unwrap();
    file.seek(std::io::SeekFrom::Start(65 << 20)).unwrap();
    file.write_all(b"end").unwrap();
    fs::hard_link(&path, world.at("second")).unwrap();
    let state = world.state.clone();
    world
        .files
        .hooks
        .before_commit(move |_| drop(copied(&state)));
    let spec = WriteSpec {
        in_place: true,
        ..WriteSpec::new("f")
    };
    world.write_as(&spec, "first").unwrap();
    fs::rename(world.state.join("dead"), world.state.join("instances/dead")).unwrap();
    // As it was when two bytes were written.
    let mut file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len((65 << 20) + 3).unwrap();
    file.write_all(b"fi\x67in").unwrap();
    file.seek(std::io::SeekFrom::Start(65 << 20)).unwrap();
    file.write_all(b"end").unwrap();
    drop(Files::open(&world.state));
    assert_eq!(text(&path), "first");
}
