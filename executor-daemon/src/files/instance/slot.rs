//! A slot: a small file that holds the record of one mutation at a time.
//!
//! Overwritten in place, because a mutation should not cost the making of yet
//! another file. The record and the inode that is added to it have places of
//! their own, each with a checksum, so that a write that was cut short takes
//! nothing back that was whole.
//!
//! ```text
//!  0      length u32, checksum 16, record       length 0: nothing is recorded
//!  INODE  checksum 16 over the record's checksum and this: device, inode
//! ```

use std::os::fd::OwnedFd;

use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use super::Instance;
use super::location::FileId;
use super::record::Record;

/// Where the inode is written: behind the longest record there can be (four
/// paths of 4,095 bytes, three names of 255, numbers).
const INODE: u64 = 20 << 10;
const CHECKSUM: usize = 16;
const HEAD: usize = 4 + CHECKSUM;
const ADDED: usize = CHECKSUM + 16;

/// The open file of a slot.
#[derive(Debug)]
pub(super) struct SlotFile(OwnedFd);

/// A slot that holds a record, until it is dropped.
#[derive(Debug)]
pub(crate) struct Slot<'a> {
    instance: &'a Instance,
    file: Option<SlotFile>,
    checksum: [u8; CHECKSUM],
}

impl Instance {
    /// Records what is about to be made.
    ///
    /// # Errors
    /// As the kernel refuses, `ENOSPC` above all; then nothing may be made.
    pub(crate) fn record(&self, record: &Record) -> Result<Slot<'_>, Errno> {
        let file = self.slot_file()?;
        // From here on the file goes back to the others by `Slot::drop`.
        let mut slot = Slot {
            instance: self,
            file: Some(file),
            checksum: [0; CHECKSUM],
        };
        slot.write(record)?;
        Ok(slot)
    }

    fn slot_file(&self) -> Result<SlotFile, Errno> {
        let number = {
            let mut slots = self.slots();
            if let Some(file) = slots.free.pop() {
                return Ok(file);
            }
            slots.made += 1;
            slots.made
        };
        let file = rustix::fs::openat(
            self.directory(),
            format!("slot-{number}"),
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::RUSR | Mode::WUSR,
        )?;
        // With its space reserved, no later record fails for want of it.
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, INODE + 4096) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(SlotFile(file)),
            Err(errno) => {
                self.remove(&format!("slot-{number}"));
                Err(errno)
            }
        }
    }
}

impl Slot<'_> {
    fn write(&mut self, record: &Record) -> Result<(), Errno> {
        let record = rmp_serde::to_vec(record).map_err(|_| Errno::INVAL)?;
        let length = u32::try_from(record.len()).map_err(|_| Errno::TOOBIG)?;
        if record.len() + HEAD > usize::try_from(INODE).unwrap_or(usize::MAX) {
            return Err(Errno::NAMETOOLONG);
        }
        self.checksum = checksum(&[&record]);
        let bytes = [&length.to_le_bytes()[..], &self.checksum, &record].concat();
        self.write_at(&bytes, 0)
    }

    /// Adds the inode of what was made.
    ///
    /// # Errors
    /// As the kernel refuses; the record itself stands.
    pub(crate) fn made(&self, id: FileId) -> Result<(), Errno> {
        let bytes = added(&self.checksum, id);
        self.write_at(&bytes, INODE)
    }

    /// Makes the record outlast a power cut.
    ///
    /// # Errors
    /// As the kernel refuses.
    pub(crate) fn sync(&self) -> Result<(), Errno> {
        let Some(SlotFile(file)) = &self.file else {
            return Err(Errno::BADF);
        };
        rustix::fs::fsync(file)?;
        rustix::fs::fsync(self.instance.directory())
    }

    /// Takes the record back so that no power cut brings it again.
    ///
    /// # Errors
    /// As the kernel refuses.
    pub(crate) fn clear_for_good(self) -> Result<(), Errno> {
        self.write_at(&[0; HEAD], 0)?;
        let Some(SlotFile(file)) = &self.file else {
            return Err(Errno::BADF);
        };
        rustix::fs::fdatasync(file)
    }

    /// Leaves the record for the recovery: what it tells of is still there.
    pub(crate) fn keep(mut self) {
        self.file = None;
        self.instance.slots().kept += 1;
    }

    #[cfg(test)]
    pub(super) fn forget_file(&mut self) {
        self.file = None;
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> Result<(), Errno> {
        let Some(SlotFile(file)) = &self.file else {
            return Err(Errno::BADF);
        };
        write_all_at(file, bytes, at)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if self.file.is_none() {
            return;
        }
        let cleared = self.write_at(&[0; HEAD], 0);
        let Some(file) = self.file.take() else {
            return;
        };
        match cleared {
            Ok(()) => {
                self.instance.slots().free.push(file);
            }
            // What it tells of is gone; the recovery will see that.
            Err(errno) => tracing::warn!(%errno, "a record could not be taken back"),
        }
    }
}

/// What a slot tells, and the inode that was added. `None`: nothing, or a
/// record that was cut short, before whose end nothing was made.
pub(super) fn read(file: &OwnedFd) -> Result<Option<(Record, Option<FileId>)>, Errno> {
    let mut bytes = vec![0; usize::try_from(INODE).unwrap_or(0) + ADDED];
    read_at(file, &mut bytes, 0)?;
    Ok(parse(&bytes))
}

fn parse(bytes: &[u8]) -> Option<(Record, Option<FileId>)> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (sum, rest) = rest.split_first_chunk::<CHECKSUM>()?;
    let record = rest.get(..length).filter(|record| !record.is_empty())?;
    if *sum != checksum(&[record]) {
        return None;
    }
    let record = rmp_serde::from_slice(record).ok()?;
    let added_bytes = bytes.get(usize::try_from(INODE).ok()?..)?;
    let id = added_bytes.get(CHECKSUM..ADDED).and_then(|ids| {
        let (device, inode) = ids.split_first_chunk::<8>()?;
        Some(FileId {
            device: u64::from_le_bytes(*device),
            inode: u64::from_le_bytes(*inode.first_chunk::<8>()?),
        })
    });
    let id = id.filter(|id| added_bytes.get(..ADDED) == Some(&added(sum, *id)));
    Some((record, id))
}

/// The inode's bytes; its checksum ties it to one record.
fn added(record: &[u8; CHECKSUM], id: FileId) -> [u8; ADDED] {
    let mut bytes = [0; ADDED];
    let ids = [id.device.to_le_bytes(), id.inode.to_le_bytes()].concat();
    let sum = checksum(&[record, &ids]);
    for (to, from) in bytes.iter_mut().zip(sum.iter().chain(&ids)) {
        *to = *from;
    }
    bytes
}

pub(in crate::files) fn checksum(parts: &[&[u8]]) -> [u8; CHECKSUM] {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    let mut sum = [0; CHECKSUM];
    hasher.finalize_xof().fill(&mut sum);
    sum
}

/// Fills `buffer` from `at`; less only where the file ends.
pub(crate) fn read_at(file: &OwnedFd, buffer: &mut [u8], at: u64) -> Result<usize, Errno> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pread(file, rest, at + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(filled)
}

/// Writes all of `bytes` at `at`: a short write goes on, none is success.
pub(crate) fn write_all_at(file: &OwnedFd, mut bytes: &[u8], mut at: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, at) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => {
                bytes = bytes.get(count..).unwrap_or_default();
                at += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
