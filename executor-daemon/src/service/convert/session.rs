//! Sessions.

use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Duration;

use executor_proto::id::SessionSecret;
use executor_proto::reason::Failure;
use executor_proto::v1;

use super::check::{count, duration, id, invalid, number, text};
use super::process::duration as duration_to_wire;
use super::start::path;
use crate::session::record::{Access, ROOTS_MAX};
use crate::session::registry::{OpenSpec, Opened};

/// The lease where a request names none.
const LEASE_DEFAULT: Duration = Duration::from_secs(3600);
/// The longest lease.
const LEASE_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// A session to be opened.
pub(in crate::service) fn open_spec(
    request: v1::OpenSessionRequest,
    secret: SessionSecret,
) -> Result<OpenSpec, Failure> {
    if request.roots.len() > ROOTS_MAX {
        let given = request.roots.len();
        return Err(invalid(
            "roots",
            format_args!("{given} roots; a session has at most {ROOTS_MAX}"),
        ));
    }
    let roots = request.roots.into_iter().enumerate();
    let roots = roots.map(|(at, one)| root(&format!("roots[{at}]"), one));
    let lease = duration("lease", request.lease, LEASE_DEFAULT, LEASE_MAX)?;
    Ok(OpenSpec {
        id: id("session_id", &request.session_id)?,
        secret,
        roots: roots.collect::<Result<_, Failure>>()?,
        cwd: if request.working_directory.is_empty() {
            None
        } else {
            Some(absolute("working_directory", request.working_directory)?)
        },
        lease: (!lease.is_zero()).then_some(lease),
        label: text("label", request.label, 0, 256)?,
    })
}

/// A root to be granted.
pub(in crate::service) fn granted(
    request: v1::GrantRootRequest,
) -> Result<(PathBuf, Option<Access>), Failure> {
    let asked = request
        .root
        .ok_or_else(|| invalid("root", format_args!("it is missing")))?;
    root("root", asked)
}

fn root(field: &str, root: v1::Root) -> Result<(PathBuf, Option<Access>), Failure> {
    let access = match number(&format!("{field}.mode"), root.mode)? {
        v1::AccessMode::Unspecified => None,
        v1::AccessMode::ReadOnly => Some(Access::ReadOnly),
        v1::AccessMode::ReadWrite => Some(Access::ReadWrite),
    };
    Ok((absolute(&format!("{field}.path"), root.path)?, access))
}

fn absolute(field: &str, bytes: Vec<u8>) -> Result<PathBuf, Failure> {
    let path = PathBuf::from(path(field, bytes)?);
    if path.is_absolute() {
        return Ok(path);
    }
    Err(invalid(
        field,
        format_args!("{path:?} must be an absolute path"),
    ))
}

/// A session as it is.
pub(in crate::service) fn session(opened: &Opened) -> v1::Session {
    let record = opened.session.record();
    v1::Session {
        session_id: record.id.to_string(),
        epoch: opened.session.epoch().to_string(),
        roots: record
            .roots
            .iter()
            .map(|root| v1::Root {
                path: root.path.as_os_str().as_bytes().to_vec(),
                mode: match root.access {
                    Access::ReadOnly => v1::AccessMode::ReadOnly,
                    Access::ReadWrite => v1::AccessMode::ReadWrite,
                }
                .into(),
            })
            .collect(),
        working_directory: record.cwd.as_os_str().as_bytes().to_vec(),
        lease: record.lease.map(duration_to_wire),
        created_at: Some(record.created_at.into()),
        label: record.label.clone(),
        running_processes: count(opened.counts.running),
        kept_processes: count(opened.counts.kept),
    }
}
