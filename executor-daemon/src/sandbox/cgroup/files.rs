//! A cgroup's files and directories, by descriptor.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags};

/// Cgroups nest no deeper than this for us; the kernel's own default is
/// unlimited.
pub(super) const DEPTH: usize = 32;

pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Events {
    pub(super) populated: bool,
    pub(super) frozen: bool,
}

pub(super) fn events(directory: BorrowedFd<'_>) -> io::Result<Events> {
    let text = read_at(directory, "cgroup.events")?;
    let says = |wanted: &[u8]| lines(&text).any(|line| line == wanted);
    Ok(Events {
        // Anything but a clear "nobody" counts as populated.
        populated: !says(b"populated 0"),
        frozen: says(b"frozen 1"),
    })
}

pub(super) fn collect_pids(
    directory: BorrowedFd<'_>,
    depth: usize,
    pids: &mut Vec<u32>,
) -> io::Result<()> {
    // A threaded cgroup refuses the file; its processes are listed above it.
    let text = read_at(directory, "cgroup.procs").unwrap_or_default();
    // 0 stands for a process outside our pid namespace.
    pids.extend(
        lines(&text)
            .filter_map(|line| std::str::from_utf8(line).ok()?.parse::<u32>().ok())
            .filter(|pid| *pid != 0),
    );
    if depth == 0 {
        return Ok(());
    }
    for name in subdirectories(directory)? {
        if let Ok(nested) = open_directory(directory, name.as_c_str()) {
            let _ = collect_pids(nested.as_fd(), depth - 1, pids);
        }
    }
    Ok(())
}

pub(super) fn remove_nested(directory: BorrowedFd<'_>, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else {
        return;
    };
    for name in subdirectories(directory).unwrap_or_default() {
        if let Ok(nested) = open_directory(directory, name.as_c_str()) {
            remove_nested(nested.as_fd(), depth);
        }
        let _ = rustix::fs::unlinkat(directory, name.as_c_str(), AtFlags::REMOVEDIR);
    }
}

pub(super) fn subdirectories(directory: BorrowedFd<'_>) -> io::Result<Vec<std::ffi::CString>> {
    let stat = rustix::fs::fstat(directory)?;
    // A cgroup directory has two links and one for each below it.
    if stat.st_nlink == 2 {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let special = matches!(name.to_bytes(), b"." | b"..");
        if !special && entry.file_type() == rustix::fs::FileType::Directory {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

pub(super) fn open_directory(
    at: BorrowedFd<'_>,
    name: impl rustix::path::Arg,
) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(at, name, flags, Mode::empty())?)
}

pub(super) fn read_at(directory: BorrowedFd<'_>, name: &str) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::openat(directory, name, flags, Mode::empty())?);
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(text)
}

pub(super) fn write_at(directory: BorrowedFd<'_>, name: &str, value: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    File::from(rustix::fs::openat(directory, name, flags, Mode::empty())?).write_all(value)
}
