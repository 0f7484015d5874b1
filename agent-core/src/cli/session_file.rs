//! The command line's own session, which outlives each command: its
//! credentials are kept in a file that only the user can read.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use executor_client::{
    Lease, Machine, Reason, Session, SessionCredentials, SessionOptions, random_name,
};
use serde::{Deserialize, Serialize};

use super::Context;
use super::daemon::{make_private_directory, no_follow};
use super::failure::CliError;

/// A file longer than this is none of ours.
const LONGEST: u64 = 4_096;

#[derive(Serialize, Deserialize)]
struct Stored {
    id: String,
    secret: String,
}

/// Opens the persistent session, whose calls act on the processes of all
/// sessions.
///
/// Opening is idempotent: a daemon that knows the session returns it, one that
/// has lost it (or never had it) makes it again under the same credentials.
/// Where it was ended, new credentials take the place of the old.
pub(crate) async fn persistent_session(
    context: &Context,
    machine: &Machine,
) -> Result<Session, CliError> {
    let path = path(context)?;
    let credentials = match load(&path, context.surroundings.uid())? {
        Some(credentials) => credentials,
        None => create(&path, context.surroundings.uid())?,
    };
    match open(machine, credentials).await {
        Err(error) if error.reason() == Some(Reason::SessionEnded) => {
            let credentials = SessionCredentials::random();
            store(&path, &credentials, Replace::Yes)?;
            Ok(open(machine, credentials).await?)
        }
        opened => Ok(opened?),
    }
}

async fn open(
    machine: &Machine,
    credentials: SessionCredentials,
) -> Result<Session, executor_client::ClientError> {
    let options = SessionOptions {
        lease: Lease::None,
        label: "executor (command line)".into(),
        ..Default::default()
    };
    let session = Session::open(machine, credentials, options).await?;
    Ok(session.with_all_sessions())
}

/// One file for the user's own daemon, and one for each machine named with
/// `--machine`: a secret goes to no other machine than its own.
fn path(context: &Context) -> Result<PathBuf, CliError> {
    let state = context.surroundings.state_directory()?;
    make_private_directory(&state)?;
    Ok(match &context.address {
        None => state.join("session.json"),
        Some(address) => state.join(format!("session-{:016x}.json", fnv1a(address))),
    })
}

/// FNV-1a: names a file, protects nothing.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The credentials in the file; `None` where there is none.
fn load(path: &Path, uid: u32) -> Result<Option<SessionCredentials>, CliError> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(no_follow())
        .open(path);
    let file = match file {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(CliError::io(
                format!("cannot open {}", path.display()),
                error,
            ));
        }
    };
    read(&file, uid)
        .map(Some)
        .map_err(|why| CliError::UnsafeFile {
            path: path.to_path_buf(),
            why,
        })
}

fn read(file: &File, uid: u32) -> Result<SessionCredentials, String> {
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is not a regular file".into());
    }
    if metadata.uid() != uid {
        return Err(format!("it belongs to uid {}, not {uid}", metadata.uid()));
    }
    if metadata.mode() & 0o077 != 0 {
        let mode = metadata.mode() & 0o7777;
        return Err(format!("others may use it (mode {mode:04o}, must be 0600)"));
    }
    let mut text = String::new();
    file.take(LONGEST)
        .read_to_string(&mut text)
        .map_err(|error| error.to_string())?;
    let stored: Stored =
        serde_json::from_str(&text).map_err(|_| "it holds no session".to_owned())?;
    match (stored.id.parse(), stored.secret.parse()) {
        (Ok(id), Ok(secret)) => Ok(SessionCredentials { id, secret }),
        _ => Err("it holds no session".into()),
    }
}

/// Makes the file. When another one made it meanwhile, theirs counts.
fn create(path: &Path, uid: u32) -> Result<SessionCredentials, CliError> {
    let credentials = SessionCredentials::random();
    if store(path, &credentials, Replace::No)? {
        return Ok(credentials);
    }
    load(path, uid)?.ok_or_else(|| {
        CliError::io(
            format!("{} came and went", path.display()),
            io::ErrorKind::NotFound.into(),
        )
    })
}

#[derive(PartialEq, Eq)]
enum Replace {
    Yes,
    No,
}

/// Writes the file beside its place and then puts it there whole, so that
/// nobody reads half of it. False: there was one, and it was not to be
/// replaced.
fn store(path: &Path, credentials: &SessionCredentials, how: Replace) -> Result<bool, CliError> {
    let failed = |error| CliError::io(format!("cannot write {}", path.display()), error);
    let stored = Stored {
        id: credentials.id.to_string(),
        secret: credentials.secret.to_hex(),
    };
    let text = serde_json::to_string(&stored).map_err(|error| failed(error.into()))?;
    let beside = path.with_extension(format!("new-{}", random_name()));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    let placed = written.and_then(|()| match how {
        Replace::Yes => rustix::fs::rename(&beside, path).map_err(io::Error::from),
        Replace::No => rustix::fs::link(&beside, path).map_err(io::Error::from),
    });
    if how == Replace::No || placed.is_err() {
        // It has its name or has failed; a left-over holds a secret of nothing.
        let _ = rustix::fs::unlink(&beside);
    }
    match placed {
        Ok(()) => Ok(true),
        Err(error) if how == Replace::No && error.kind() == io::ErrorKind::AlreadyExists => {
            Ok(false)
        }
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn uid() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[test]
    fn credentials_are_kept_for_the_user_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("session.json");
        assert_eq!(load(&path, uid()).unwrap(), None);
        let made = create(&path, uid()).unwrap();
        assert_eq!(load(&path, uid()).unwrap(), Some(made.clone()));
        let mode = std::fs::metadata(&path).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o600);
        assert_eq!(create(&path, uid()).unwrap(), made, "the first one counts");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_ended_session_gets_new_credentials() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("session.json");
        create(&path, uid()).unwrap();
        let new = SessionCredentials::random();
        assert!(store(&path, &new, Replace::Yes).unwrap());
        assert_eq!(load(&path, uid()).unwrap(), Some(new));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_others_may_use_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("session.json");
        create(&path, uid()).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let error = load(&path, uid()).unwrap_err().to_string();
        assert!(error.contains("0644"), "{error}");
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let error = load(&path, uid() + 1).unwrap_err().to_string();
        assert!(error.contains("belongs to"), "{error}");
    }

    #[test]
    fn a_link_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("session.json");
        create(&directory.path().join("elsewhere"), uid()).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        load(&path, uid()).unwrap_err();
    }
}
