use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use super::*;

#[test]
fn takes_memory_when_touched_and_gives_it_back() {
    let memory = SharedMemory::create("test", 1 << 20).expect("memory");
    assert_eq!(memory.allocated(), 0);
    memory.copy_in(8192, b"bytes");
    assert_eq!(memory.allocated(), 4096);
    let mut out = BytesMut::from(&b"some "[..]);
    memory.append_to(8192, 5, &mut out);
    assert_eq!(&out[..], b"some bytes");
    memory.punch(8192, 4096).expect("hole");
    assert_eq!(memory.allocated(), 0);
}

#[test]
fn can_neither_shrink_nor_grow_but_be_written() {
    let memory = SharedMemory::create("test", 4096).expect("memory");
    let seals = rustix::fs::fcntl_get_seals(memory.file()).expect("seals");
    assert!(seals.contains(SealFlags::SHRINK | SealFlags::GROW));
    assert!(!seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE | SealFlags::SEAL));
}

#[test]
fn reads_a_descriptor_to_its_end() {
    let memory = SharedMemory::create("test", 4096).expect("memory");
    let (reader, writer) = rustix::pipe::pipe().expect("pipe");
    rustix::io::write(&writer, b"a\nb\n\n").expect("write");
    drop(writer);
    assert_eq!(memory.read_from_fd(10, 3, reader.as_fd()).expect("read"), 3);
    assert_eq!(memory.read_from_fd(13, 9, reader.as_fd()).expect("read"), 2);
    assert_eq!(memory.read_from_fd(15, 9, reader.as_fd()).expect("read"), 0);
    assert_eq!(memory.count(10, 5, b'\n'), 3);
}

#[test]
fn counts_across_chunks() {
    let memory = SharedMemory::create("test", 4 * CHUNK).expect("memory");
    memory.copy_in(1, &vec![b'\n'; 3 * CHUNK]);
    for (at, length, count) in [
        (0, 4 * CHUNK, 3 * CHUNK),
        (2, CHUNK + 1, CHUNK + 1),
        (7, 0, 0),
    ] {
        assert_eq!(memory.count(at, length, b'\n'), count as u64);
        assert_eq!(memory.count_own(at, length, b'\n'), count as u64);
    }
}

#[test]
fn atomics_are_where_the_bytes_are() {
    let memory = SharedMemory::create("test", 4096).expect("memory");
    memory.atomics::<2>(16)[1].store(u64::MAX, Ordering::Relaxed);
    assert_eq!(memory.count(0, 4096, 0xff), 8);
    assert_eq!(memory.count(24, 8, 0xff), 8);
    assert_eq!((memory.word(16), memory.word(24)), (0, u64::MAX));
}

#[test]
#[should_panic(expected = "outside")]
fn nothing_is_touched_out_of_bounds() {
    let memory = SharedMemory::create("test", 4096).expect("memory");
    memory.copy_in(4092, b"bytes");
}

#[test]
fn a_view_sees_what_is_written_after_it_was_mapped_and_outlives_its_descriptor() {
    let memory = SharedMemory::create("test", 8192).expect("memory");
    let file = memory.reopen_read_only().expect("a descriptor");
    let view = SharedView::map(file.as_fd(), 8192).expect("a view");
    drop(file);
    memory.copy_in(5000, b"bytes\n");
    memory.atomics::<1>(8)[0].store(7, Ordering::Release);
    assert_eq!(view.words::<2>(0).acquire(1), 7);
    assert_eq!(view.count(0, 8192, b'\n'), 1);
    drop(memory);
    let mut out = BytesMut::new();
    view.append_to(5000, 5, &mut out);
    assert_eq!(&out[..], b"bytes");
}

#[test]
fn a_descriptor_for_reading_only_gives_no_way_to_write() {
    let memory = SharedMemory::create("test", 4096).expect("memory");
    let file = memory.reopen_read_only().expect("a descriptor");
    assert!(rustix::io::write(&file, b"x").is_err());
    let refused = SharedMemory::map(file, 4096).map(drop);
    assert_eq!(
        refused.expect_err("refused").kind(),
        io::ErrorKind::PermissionDenied
    );
}

#[test]
fn only_sealed_memory_of_the_right_size_is_mapped() {
    let memory = SharedMemory::create("test", 8192).expect("memory");
    for length in [0, 4096, 8191, 8193, 1 << 40] {
        let refused = SharedView::map(memory.file().as_fd(), length).map(drop);
        assert_eq!(
            refused.expect_err("refused").kind(),
            io::ErrorKind::InvalidData
        );
    }
    let unsealed = rustix::fs::memfd_create("test", MemfdFlags::ALLOW_SEALING).expect("a memfd");
    rustix::fs::ftruncate(&unsealed, 4096).expect("a size");
    let refused = SharedView::map(unsealed.as_fd(), 4096).map(drop);
    assert_eq!(
        refused.expect_err("refused").kind(),
        io::ErrorKind::InvalidData
    );
    let (pipe, _) = rustix::pipe::pipe().expect("a pipe");
    assert!(SharedView::map(pipe.as_fd(), 4096).is_err());
}
