//! The host replaces its own program: the state becomes a value, descriptors are
//! kept open, execve(2) puts the new image in this one's place, and that goes
//! on. Children, terminals, logs, the socket and the daemon's connection stay
//! what they are.
//!
//! ```text
//! new program asked what it reads → daemon parked → engine frozen → state written
//!    → new program tried on it → execve: that one, or this again where it refused
//! ```
//!
//! From the moment that the engine is frozen there is only the way forward: an
//! image of one program or the other goes on with the state. Nothing else of this
//! image moves then: not a task, since there is no await, and no signal, since all
//! are blocked in the only thread that takes any; one that comes is pending for the
//! next image.

use std::ffi::CString;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::net::UnixListener;

use super::connection::Connection;
use super::frame::decode;
use super::front::{Front, FrontState};
use super::greeting::{EngineSettings, Predecessor, RELEASE};
use super::run::engine_config;
use super::serve::{Host, Started, locked};
use super::trial::Trial;
use crate::process::engine::{Engine, EngineState};
use crate::process::handover::{Files, Place};
use crate::socket::{Socket, SocketState};
use crate::sys::inherit;
use crate::sys::signal::BlockAll;

/// Of the whole state: one more when an image of the release before could not
/// read it.
pub(super) const FORMAT: u32 = 1;
/// How long commands that are being started are waited for.
const STARTING: Duration = Duration::from_secs(30);
/// Time for signals that have arrived to be heard.
const SIGNALS: Duration = Duration::from_millis(2);
/// Descriptors that are to be free beside those that are counted.
const SPARE: u64 = 32;

/// Everything that a later image needs. Opaque.
#[derive(Debug, Serialize, Deserialize)]
pub struct Handover {
    format: u32,
    /// The descriptors that are kept open, by their place.
    files: Vec<RawFd>,
    host: HostState,
}

#[derive(Debug, Serialize, Deserialize)]
struct HostState {
    socket: SocketState,
    /// Directory, lock, listener.
    listening: [Place; 3],
    settings: EngineSettings,
    predecessor: Option<Predecessor>,
    /// Daemons served so far.
    #[serde(default)]
    turns: u64,
    engine: EngineState,
    front: Option<FrontState>,
    asked: Option<AskedState>,
}

#[derive(Debug, Serialize, Deserialize)]
struct AskedState {
    connection: Place,
    id: u64,
    #[serde(with = "crate::path_bytes")]
    program: PathBuf,
    /// Why the program that was asked for is not the one that goes on.
    refused: Option<String>,
}

/// Who asked for an upgrade.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) connection: Arc<Connection>,
    pub(super) id: u64,
    pub(super) program: PathBuf,
    pub(super) refused: Option<String>,
}

/// What listens, for a later image.
#[derive(Debug)]
pub(super) struct Listening {
    socket: SocketState,
    files: [Arc<OwnedFd>; 3],
}

/// What an image goes on with.
pub(super) struct Resumed {
    pub(super) socket: Socket,
    pub(super) host: Host,
    pub(super) front: Option<Front>,
    pub(super) asked: Option<Asked>,
}

impl Handover {
    /// Reads what an earlier image has written to `file`.
    ///
    /// # Errors
    /// It is not that, or of a release with which this one cannot go on.
    pub fn read(file: OwnedFd) -> io::Result<Self> {
        let handover: Self = decode(&inherit::read_whole(file)?).map_err(io::Error::other)?;
        if handover.format != FORMAT {
            return Err(io::Error::other(format!(
                "the handover has format {}, this program reads {FORMAT}",
                handover.format
            )));
        }
        Ok(handover)
    }

    /// Goes on. Must be called inside a runtime, once.
    pub(super) fn resume(self, arguments: Vec<CString>) -> io::Result<Resumed> {
        let files = Files::of(inherit::adopt(&self.files)?);
        let state = self.host;
        let [directory, lock, listener] = state.listening;
        let path = state.socket.path().to_owned();
        let socket = Socket::adopt(
            state.socket,
            files.duplicate(directory)?,
            files.duplicate(lock)?,
            files.duplicate(listener)?,
        )
        .map_err(io::Error::other)?;
        let host = Host::new(path, arguments);
        let config = state.settings.clone().into_config();
        let engine = Engine::import(state.engine, &files, |epoch, containment| {
            engine_config(epoch, containment, config)
        })?;
        tracing::info!(epoch = %engine.epoch(), release = RELEASE, "the process host goes on");
        host.set_turns(state.turns);
        let started = host.watch(engine, state.settings, state.predecessor);
        let front = state
            .front
            .map(|front| front.resume(&started.engine, &files))
            .transpose()?;
        if front.is_some() {
            started.engine.engine.leases_go_on();
        }
        let asked = state
            .asked
            .map(|asked| {
                Ok::<_, io::Error>(Asked {
                    connection: Connection::new(files.get(asked.connection)?)?,
                    id: asked.id,
                    program: asked.program,
                    refused: asked.refused,
                })
            })
            .transpose()?;
        Ok(Resumed {
            socket,
            host,
            front,
            asked,
        })
    }
}

impl Host {
    /// Notes what listens.
    pub(super) fn keep_listener(&self, listener: &UnixListener, socket: &Socket) -> io::Result<()> {
        let (state, [directory, lock]) = socket.kept();
        let files = [
            directory.try_clone()?,
            lock.try_clone()?,
            listener.as_fd().try_clone_to_owned()?,
        ];
        *locked(&self.listening) = Some(Listening {
            socket: state,
            files: files.map(Arc::new),
        });
        Ok(())
    }

    /// Becomes another program. Returns only when that cannot be done, with the
    /// reason; everything is as it was then.
    pub(super) async fn upgrade(&self, asked: Asked) -> String {
        let Ok(_one) = self.upgrading.try_lock() else {
            return "another upgrade is under way".to_owned();
        };
        let Some(started) = self.started() else {
            return "no daemon has come yet; there is nothing to go on with".to_owned();
        };
        if !asked.program.is_absolute() {
            return format!("{} is not an absolute path", asked.program.display());
        }
        let program = asked.program.clone();
        let tried = tokio::task::spawn_blocking(move || Trial::of(&program, None));
        match tried.await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return why,
            Err(error) => return error.to_string(),
        }
        // What ends the host is done here, or is pending for the next image.
        let signals = BlockAll::new();
        self.parking.send_replace(true);
        let front = self.parked_front().await;
        let engine = &started.engine.engine;
        engine.leases_stand_still();
        tokio::time::sleep(SIGNALS).await;
        let frozen = match engine.is_closing() {
            true => Err("the process host is ending".to_owned()),
            false => room(files_of(engine, front.is_some())),
        };
        let frozen = match frozen {
            Ok(()) => engine.freeze(STARTING).await.map_err(|why| why.to_string()),
            Err(why) => Err(why),
        };
        if let Err(why) = frozen {
            if front.is_some() {
                engine.leases_go_on();
            }
            *locked(&self.parked) = front;
            self.parking.send_replace(false);
            drop(signals);
            return why;
        }
        // Nothing else moves from here on: no await until the next image.
        let failed = self.replace(&started, front, asked);
        // Nothing can go on here: what was frozen stays so.
        tracing::error!(error = %failed, "the process host could not be replaced");
        std::process::exit(1);
    }

    /// From here on there is only the way forward. Blocks.
    fn replace(&self, started: &Started, front: Option<Front>, asked: Asked) -> io::Error {
        let mut files = Files::default();
        let Some(listening) = locked(&self.listening).take() else {
            return io::Error::other("what listens is not known");
        };
        let kept = &listening.files;
        let state = HostState {
            socket: listening.socket.clone(),
            listening: [0, 1, 2].map(|at| kept.get(at).map_or(0, |file| files.put(file))),
            settings: started.settings.clone(),
            predecessor: started.predecessor.clone(),
            turns: self.turns(),
            engine: started.engine.engine.export(&mut files),
            front: front.map(|front| FrontState::of(front, &mut files)),
            asked: Some(AskedState {
                connection: files.put(asked.connection.file()),
                id: asked.id,
                program: asked.program.clone(),
                refused: None,
            }),
        };
        let mut handover = Handover {
            format: FORMAT,
            files: files.all().iter().map(|file| file.as_raw_fd()).collect(),
            host: state,
        };
        let mut program = asked.program;
        let tried = written(&handover).map_err(|error| error.to_string());
        let tried = tried.and_then(|state| Trial::of(&program, Some(&state)));
        if let Err(why) = tried {
            tracing::error!(%why, program = %program.display(), "the program cannot go on with this host");
            if let Some(asked) = &mut handover.host.asked {
                asked.refused = Some(why);
            }
            program = PathBuf::from("/proc/self/exe");
        }
        let files = files.all();
        let failed = self.execute(&program, &handover, files);
        tracing::error!(error = %failed, program = %program.display(), "execve failed; going on with this program");
        if let Some(asked) = &mut handover.host.asked {
            asked.refused = Some(failed.to_string());
        }
        self.execute(Path::new("/proc/self/exe"), &handover, files)
    }

    fn execute(&self, program: &Path, handover: &Handover, files: &[Arc<OwnedFd>]) -> io::Error {
        let file = match written(handover) {
            Ok(file) => file,
            Err(error) => return error,
        };
        let Ok(path) = CString::new(program.as_os_str().as_bytes()) else {
            return io::ErrorKind::InvalidInput.into();
        };
        let resume = [inherit::RESUME.to_owned(), number(file.as_raw_fd())];
        let argv: Vec<_> = self.arguments.iter().cloned().chain(resume).collect();
        let kept: Vec<_> = files.iter().map(Arc::as_ref).chain([&file]).collect();
        inherit::replace(&path, &argv, &[], &kept)
    }
}

/// Descriptors that the next image needs beside those that are open.
fn files_of(engine: &Engine, front: bool) -> u64 {
    // Each segment and what listens is taken over by a descriptor of its own.
    engine.logs().live().len() as u64 + if front { 8 } else { 4 } + SPARE
}

fn room(needed: u64) -> Result<(), String> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |open| open.count() as u64);
    if limit.is_none_or(|limit| open + needed <= limit) {
        return Ok(());
    }
    Err(format!(
        "{open} descriptors are open and {needed} more are needed for a moment; the limit is {}",
        limit.unwrap_or(0)
    ))
}

fn written(handover: &Handover) -> io::Result<OwnedFd> {
    use rustix::fs::MemfdFlags;
    let file = rustix::fs::memfd_create("executor-handover", MemfdFlags::CLOEXEC)?;
    let mut file = std::fs::File::from(file);
    let text = rmp_serde::to_vec_named(handover).map_err(io::Error::other)?;
    file.write_all(&text)?;
    file.rewind()?;
    Ok(file.into())
}

fn number(fd: RawFd) -> CString {
    CString::new(fd.to_string()).unwrap_or_default()
}
