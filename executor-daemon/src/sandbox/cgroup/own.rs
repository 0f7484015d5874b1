//! Where our own cgroup is.

#![expect(
    clippy::disallowed_methods,
    reason = "reads the kernel's own files below /proc"
)]

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::files::lines;

/// The directory of the cgroup v2 that this process is in.
///
/// # Errors
/// `NotFound` where no cgroup v2 is mounted, or not with our cgroup in it.
pub fn own_directory() -> io::Result<PathBuf> {
    let mounts = std::fs::read("/proc/self/mountinfo")?;
    let groups = std::fs::read("/proc/self/cgroup")?;
    directory(&mounts, &groups)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no cgroup v2 is mounted here"))
}

/// From mountinfo (proc_pid_mountinfo(5)) and the line `0::PATH`.
fn directory(mounts: &[u8], groups: &[u8]) -> Option<PathBuf> {
    let own = lines(groups).find_map(|line| line.strip_prefix(b"0::"))?;
    let own = Path::new(OsStr::from_bytes(own));
    lines(mounts).find_map(|line| {
        let separator = line.windows(3).position(|w| w == b" - ")?;
        let (before, after) = line.split_at_checked(separator)?;
        if after.get(3..)?.split(|b| *b == b' ').next()? != b"cgroup2" {
            return None;
        }
        let mut fields = before.split(|b| *b == b' ').skip(3);
        let root = unescape(fields.next()?);
        let mount_point = unescape(fields.next()?);
        // Outside the mount's root: somebody else's part of the tree.
        let below = own.strip_prefix(root).ok()?;
        if below.components().any(|c| c.as_os_str() == "..") {
            return None;
        }
        Some(mount_point.join(below))
    })
}

/// Undoes the octal escapes of mountinfo: `\040` is a space.
fn unescape(field: &[u8]) -> PathBuf {
    let mut name = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *byte == b'\\');
        let code = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                name.push(code);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                name.push(*byte);
                rest = after;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &[u8] = b"31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw\n\
        32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        41 31 0:38 / /sys/fs/cgroup/uni\\040fied rw shared:4 - cgroup2 cgroup2 rw\n";

    #[test]
    fn our_cgroup_is_found_in_hybrid_and_unified_layouts() {
        for (mounts, groups, expected) in [
            (
                HYBRID,
                &b"4:memory:/x\n0::/\n"[..],
                Some("/sys/fs/cgroup/uni fied"),
            ),
            (
                HYBRID,
                b"0::/a.slice/b\n",
                Some("/sys/fs/cgroup/uni fied/a.slice/b"),
            ),
            (
                b"1 2 0:3 / /c rw - cgroup2 none rw",
                b"0::/u/x",
                Some("/c/u/x"),
            ),
            // A container that sees only its own part, by bind mount.
            (
                b"1 2 0:3 /docker/1 /c rw - cgroup2 none rw",
                b"0::/docker/1/x",
                Some("/c/x"),
            ),
            (
                b"1 2 0:3 /docker/1 /c rw - cgroup2 none rw",
                b"0::/docker/2",
                None,
            ),
            (
                b"1 2 0:3 / /c rw - cgroup2 none rw",
                b"0::/../outside",
                None,
            ),
            (b"1 2 0:3 / /c rw - cgroup none rw,cpu", b"1:cpu:/", None),
            (b"", b"", None),
        ] {
            assert_eq!(directory(mounts, groups), expected.map(PathBuf::from));
        }
    }
}
