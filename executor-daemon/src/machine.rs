//! What the machine is, and the identity it keeps for life.

use std::path::{Path, PathBuf};

use executor_proto::id::MachineId;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::sandbox::probe::{Probe, probe};

/// What does not change while the daemon lives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// As uname(2) gives it.
    pub hostname: String,
    /// As uname(2) gives it: "Linux".
    pub os: String,
    /// As uname(2) gives it.
    pub kernel_release: String,
    /// As uname(2) gives it: "x86_64".
    pub architecture: String,
    /// `PRETTY_NAME` of os-release(5); empty where there is none.
    pub distribution: String,
    /// CPUs this process may run on (sched_getaffinity(2)).
    pub cpus: u32,
    /// User that commands run as.
    pub uid: u32,
    /// Group that commands run as.
    pub gid: u32,
    /// What the kernel can enforce.
    pub probe: Probe,
}

impl Facts {
    /// Looks, once, when the daemon starts. Blocks for a few milliseconds.
    #[must_use]
    pub fn collect() -> Self {
        let uname = rustix::system::uname();
        let text = |name: &std::ffi::CStr| name.to_string_lossy().into_owned();
        Self {
            hostname: text(uname.nodename()),
            os: text(uname.sysname()),
            kernel_release: text(uname.release()),
            architecture: text(uname.machine()),
            distribution: distribution().unwrap_or_default(),
            cpus: rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count()),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            probe: probe(),
        }
    }
}

/// Bytes, as `/proc/meminfo` has them at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// `MemTotal`
    pub total: u64,
    /// `MemAvailable`
    pub available: u64,
}

/// Asks the kernel (proc(5)). `None` where procfs is not there.
#[must_use]
pub fn memory() -> Option<Memory> {
    let text = small_file(Path::new("/proc/meminfo"))?;
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        let kibibytes: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
        kibibytes.checked_mul(1024)
    };
    Some(Memory {
        total: field("MemTotal:")?,
        available: field("MemAvailable:")?,
    })
}

fn distribution() -> Option<String> {
    let text = small_file(Path::new("/etc/os-release"))
        .or_else(|| small_file(Path::new("/usr/lib/os-release")))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(line.trim_matches(['"', '\'']).to_owned())
}

fn small_file(path: &Path) -> Option<String> {
    use std::io::Read as _;
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = String::new();
    let file = std::fs::File::from(file);
    file.take(64 << 10).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Why the machine has no lasting identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The state directory cannot be used.
    #[error("the state directory {path:?} cannot be used: {errno}")]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// What stands there is no identity of ours.
    #[error(
        "{path:?} is not a machine id: {why}; restore it, or remove it to become a new machine"
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

const NAME: &str = "machine-id";

/// The machine's id: read from the state directory, or made there at the first
/// start. Two that start at once agree on one.
///
/// # Errors
/// When it can be neither read nor made.
pub fn identity(state: &Path) -> Result<MachineId, IdentityError> {
    let unusable = |errno| IdentityError::Directory {
        path: state.to_owned(),
        errno,
    };
    crate::socket::private_directory::create_all(state).map_err(unusable)?;
    let directory = rustix::fs::open(
        state,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(unusable)?;
    let path = state.join(NAME);
    match read_id(&directory) {
        Err(Errno::NOENT) => {}
        Err(Errno::LOOP) => {
            return Err(IdentityError::Damaged {
                path,
                why: "it is a link".to_owned(),
            });
        }
        Err(errno) => return Err(unusable(errno)),
        Ok(text) => return parsed(&text, path),
    }
    let id = MachineId::random();
    match publish(&directory, id) {
        Ok(()) => Ok(id),
        // Somebody else was first.
        Err(Errno::EXIST) => {
            let text = read_id(&directory).map_err(unusable)?;
            parsed(&text, path)
        }
        Err(errno) => Err(unusable(errno)),
    }
}

fn parsed(text: &str, path: PathBuf) -> Result<MachineId, IdentityError> {
    text.trim_end().parse().map_err(
        |error: executor_proto::id::InvalidId| IdentityError::Damaged {
            path,
            why: error.to_string(),
        },
    )
}

fn read_id(directory: &std::os::fd::OwnedFd) -> Result<String, Errno> {
    use std::io::Read as _;
    let file = rustix::fs::openat(
        directory,
        NAME,
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let stat = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    let mut bytes = Vec::new();
    std::fs::File::from(file)
        .take(256)
        .read_to_end(&mut bytes)
        .map_err(|_| Errno::IO)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Written whole under a name of its own, then linked to its place, which
/// fails where there is one already.
fn publish(directory: &std::os::fd::OwnedFd, id: MachineId) -> Result<(), Errno> {
    use std::io::Write as _;
    let temporary = format!(".{NAME}.{}", MachineId::random());
    let file = rustix::fs::openat(
        directory,
        &temporary,
        OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::RUSR | Mode::WUSR,
    )?;
    let mut file = std::fs::File::from(file);
    let published = file
        .write_all(format!("{id}\n").as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        .and_then(|()| {
            rustix::fs::linkat(directory, &temporary, directory, NAME, AtFlags::empty())
        });
    // Its second name has served; one that cannot be removed does no harm.
    let _ = rustix::fs::unlinkat(directory, &temporary, AtFlags::empty());
    published
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_keeps_its_id() {
        let state = tempfile::tempdir().unwrap();
        let path = state.path().join("deep/state");
        let id = identity(&path).unwrap();
        assert_eq!(identity(&path).unwrap(), id);
        let names: Vec<_> = std::fs::read_dir(&path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, [NAME], "no temporary is left");
        let mode = rustix::fs::stat(path.join(NAME)).unwrap().st_mode;
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn many_that_start_at_once_agree_on_one_id() {
        let state = tempfile::tempdir().unwrap();
        let ids: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| identity(state.path()).unwrap()))
                .collect();
            threads.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    }

    #[test]
    fn a_damaged_or_planted_id_is_refused_and_left_alone() {
        let state = tempfile::tempdir().unwrap();
        let path = state.path().join(NAME);
        let victim = state.path().join("victim");
        for (make, content) in [("text", "not an id"), ("empty", "")] {
            put(&path, content);
            let error = identity(state.path()).unwrap_err().to_string();
            assert!(error.contains("machine-id"), "{make}: {error}");
            rustix::fs::unlink(&path).unwrap();
        }
        put(&victim, "mch_aaaaaaaaaaaaaaaaaaaaaaaaaa\n");
        rustix::fs::symlink(&victim, &path).unwrap();
        let error = identity(state.path()).unwrap_err().to_string();
        assert!(error.contains("a link"), "{error}");
    }

    fn put(path: &Path, content: &str) {
        use std::io::Write as _;
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path)
            .unwrap();
        file.write_all(content.as_bytes()).unwrap();
    }

    #[test]
    fn the_machine_is_described() {
        let facts = Facts::collect();
        assert_eq!(facts.os, "Linux");
        assert!(facts.cpus >= 1);
        let memory = memory().unwrap();
        assert!(memory.total >= memory.available);
        assert!(memory.available > 0);
    }
}
