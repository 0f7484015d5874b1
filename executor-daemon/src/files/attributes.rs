//! What a replacement takes over from the file it replaces: owner, group,
//! extended attributes, ACL, mode.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{Gid, Mode, Uid, XattrFlags};
use rustix::io::Errno;

use super::error::FileError;
use super::object::{Facts, Object};

/// Attributes that say something of the content they are beside, and would be
/// wrong beside another one (evm(7), ima: digests and signatures).
const OF_THE_CONTENT: [&[u8]; 2] = [b"security.ima", b"security.evm"];

/// Makes `to`, a file of ours with mode 0600, what `from` is but for its
/// content. Never wider than `from`'s mode, not for a moment: the owner and the
/// ACL come first, the mode last.
///
/// # Errors
/// [`FileError::WouldChangeOwner`], [`FileError::WouldLoseAttributes`].
pub(super) fn take_over(from: &Object, to: &OwnedFd, mode: u32) -> Result<(), FileError> {
    let facts = from.facts();
    let failed = |errno| FileError::from_errno(errno, "preparing a replacement of", from.given());
    let ours = Facts::of(to).map_err(failed)?;
    if (ours.uid, ours.gid) != (facts.uid, facts.gid) {
        own(to, &ours, facts).map_err(|errno| match errno {
            Errno::PERM | Errno::ACCESS | Errno::INVAL => FileError::WouldChangeOwner {
                given: from.given().to_owned(),
                uid: facts.uid,
                gid: facts.gid,
            },
            errno => failed(errno),
        })?;
    }
    extended(from, to)?;
    rustix::fs::fchmod(to, Mode::from_raw_mode(mode)).map_err(failed)?;
    // A group that we are not in costs the setgid bit, silently (chmod(2)).
    let now = Facts::of(to).map_err(failed)?;
    if now.mode != mode {
        return Err(FileError::WouldLoseAttributes {
            given: from.given().to_owned(),
            attribute: format!("mode {mode:04o}"),
        });
    }
    Ok(())
}

fn own(to: &OwnedFd, ours: &Facts, wanted: &Facts) -> Result<(), Errno> {
    let uid = (ours.uid != wanted.uid).then(|| Uid::from_raw(wanted.uid));
    let gid = (ours.gid != wanted.gid).then(|| Gid::from_raw(wanted.gid));
    rustix::fs::fchown(to, uid, gid)
}

fn extended(from: &Object, to: &OwnedFd) -> Result<(), FileError> {
    let failed = |errno| FileError::from_errno(errno, "preparing a replacement of", from.given());
    let wanted = all(from.handle()).map_err(failed)?;
    let there = all(to.as_fd()).map_err(failed)?;
    for (name, value) in &wanted {
        if there.get(name) == Some(value) || OF_THE_CONTENT.contains(&name.as_slice()) {
            continue;
        }
        rustix::fs::fsetxattr(to, name.as_slice(), value, XattrFlags::empty()).map_err(
            |errno| match errno {
                Errno::NOSPC | Errno::DQUOT | Errno::IO => failed(errno),
                _ => FileError::WouldLoseAttributes {
                    given: from.given().to_owned(),
                    attribute: String::from_utf8_lossy(name).into_owned(),
                },
            },
        )?;
    }
    // What the directory gave the new file and the old one has not, as a
    // default ACL would.
    for name in there.keys().filter(|name| !wanted.contains_key(*name)) {
        match rustix::fs::fremovexattr(to, name.as_slice()) {
            Ok(()) | Err(Errno::NODATA) => {}
            Err(errno) if name.starts_with(b"system.") => return Err(failed(errno)),
            // A label that the system insists on.
            Err(_) => {}
        }
    }
    Ok(())
}

type Attributes = BTreeMap<Vec<u8>, Vec<u8>>;

/// All extended attributes (xattr(7)) that may be seen.
fn all(file: BorrowedFd<'_>) -> Result<Attributes, Errno> {
    // By the link in procfs: an O_PATH handle takes no flistxattr(2).
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let names = match grown(|buffer| rustix::fs::listxattr(&link, buffer)) {
        Err(Errno::OPNOTSUPP) => return Ok(Attributes::new()),
        names => names?,
    };
    let mut found = Attributes::new();
    for name in names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        match grown(|buffer| rustix::fs::getxattr(&link, name, buffer)) {
            Ok(value) => drop(found.insert(name.to_vec(), value)),
            // Gone meanwhile, or not for us to see.
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(found)
}

/// Attributes have at most 64 KiB (xattr(7)).
fn grown(read: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; 1024];
    loop {
        match read(&mut buffer) {
            Ok(count) => {
                buffer.truncate(count);
                return Ok(buffer);
            }
            Err(Errno::RANGE) if buffer.len() < (64 << 10) => buffer.resize(64 << 10, 0),
            Err(errno) => return Err(errno),
        }
    }
}
