//! What is kept of the files of sessions that are over goes, also where nobody
//! called `EndSession`: a lease ended, or the engine is another one.
//!
//! The engine keeps the sessions, so it is asked, again and again and bounded:
//!
//! | the engine says | undo data | results of operations |
//! |---|---|---|
//! | open | stay | stay |
//! | ended | go | go |
//! | unknown (it is in a new life, or another daemon has it) | go after [`GONE`] | stay: they outlive the engine; go after a week without a change |
//! | nothing | stay | stay |

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use executor_proto::id::SessionId;
use tokio::time::Instant;

use super::Core;
use crate::host::message::Request;
use crate::process::error::ProcessError;

/// Time between two looks at the sessions of this life.
const EVERY: Duration = Duration::from_secs(5);
/// Time between two looks at what is on disk.
const DISK_EVERY: Duration = Duration::from_secs(3600);
/// A session that is unknown for so long does not come again.
const GONE: Duration = Duration::from_secs(600);
/// Sessions that the engine is asked about at a time.
const AT_A_TIME: usize = if cfg!(test) { 4 } else { 512 };

/// What was seen before.
#[derive(Debug, Default)]
struct Watch {
    /// Since when the engine does not know them.
    unknown: HashMap<SessionId, Instant>,
    /// On from here it is asked next.
    next: Option<SessionId>,
}

enum Fate {
    Open,
    Ended,
    Unknown,
    Untold,
}

impl Core {
    /// Looks until the server closes. On the current runtime.
    pub(crate) fn watch_sessions(self: &Arc<Self>) {
        let core = Arc::clone(self);
        self.tasks.spawn(async move {
            let mut watch = Watch::default();
            let mut disk = Instant::now();
            loop {
                // While nothing is kept, nothing is looked for: an idle daemon
                // does nothing.
                if core.parts.files.sessions().is_empty() {
                    tokio::select! {
                        () = core.closing.cancelled() => return,
                        () = core.changed.notified() => {}
                        () = tokio::time::sleep_until(disk + DISK_EVERY) => {}
                    }
                }
                tokio::select! {
                    () = core.closing.cancelled() => return,
                    () = tokio::time::sleep(EVERY) => {}
                }
                tokio::select! {
                    () = core.closing.cancelled() => return,
                    () = core.forget_ended(&mut watch, Instant::now()) => {}
                }
                if disk.elapsed() >= DISK_EVERY {
                    disk = Instant::now();
                    tokio::select! {
                        () = core.closing.cancelled() => return,
                        () = core.forget_recorded() => {}
                    }
                }
            }
        });
    }

    /// Of sessions of this life.
    async fn forget_ended(&self, watch: &mut Watch, now: Instant) {
        let all = self.parts.files.sessions();
        watch.unknown.retain(|id, _| all.binary_search(id).is_ok());
        // On from where it stopped: none waits for ever.
        let from = watch
            .next
            .map_or(0, |next| all.partition_point(|id| *id < next));
        let (first, rest) = all.split_at(from);
        let mut turn = rest.iter().chain(first).copied();
        for id in turn.by_ref().take(AT_A_TIME) {
            match self.fate(id).await {
                Fate::Open => drop(watch.unknown.remove(&id)),
                Fate::Ended => {
                    self.parts.registry.forget(id);
                    self.forget_files(move |files| files.end_session(id)).await;
                }
                Fate::Unknown => {
                    let since = watch.unknown.entry(id).or_insert(now);
                    if now.duration_since(*since) >= GONE {
                        self.forget_files(move |files| files.forget_undo(id)).await;
                    }
                }
                Fate::Untold => {}
            }
        }
        watch.next = turn.next();
    }

    /// Of those whose results are on disk.
    async fn forget_recorded(&self) {
        let files = Arc::clone(&self.parts.files);
        let listed = self
            .files
            .changes
            .run(&self.tasks, move || files.recorded_sessions());
        for id in listed.await.unwrap_or_default() {
            match self.fate(id).await {
                Fate::Ended => self.forget_files(move |files| files.end_session(id)).await,
                Fate::Unknown => {
                    self.forget_files(move |files| files.end_session_if_abandoned(id))
                        .await;
                }
                Fate::Open | Fate::Untold => {}
            }
        }
    }

    async fn fate(&self, id: SessionId) -> Fate {
        match self
            .parts
            .engine
            .call(Request::GetSession(id), Vec::new())
            .await
        {
            Ok(_) => Fate::Open,
            Err(ProcessError::SessionEnded(_)) => Fate::Ended,
            Err(ProcessError::SessionNotFound(_)) => Fate::Unknown,
            Err(_) => Fate::Untold,
        }
    }

    /// What cannot be forgotten now is met again.
    async fn forget_files(&self, forget: impl FnOnce(&crate::files::Files) + Send + 'static) {
        let files = Arc::clone(&self.parts.files);
        let forgotten = self.files.changes.run(&self.tasks, move || forget(&files));
        if let Err(error) = forgotten.await {
            tracing::debug!(?error, "what is kept of an ended session stays for now");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Mutex;

    use executor_proto::id::{Epoch, MachineId, OperationId};

    use super::*;
    use crate::files::Files;
    use crate::files::cancel::Cancel;
    use crate::files::content::Content;
    use crate::files::error::FileError;
    use crate::files::fence::Fence;
    use crate::files::line_index::LineIndexes;
    use crate::files::mutation::Caller;
    use crate::files::resolve::{Means, Resolver, directory};
    use crate::files::roots::{Root, Roots};
    use crate::files::secret::SecretFiles;
    use crate::files::write::WriteSpec;
    use crate::host::client::tests::Envelope;
    use crate::host::client::{HostClient, Life};
    use crate::host::message::Reply;
    use crate::limits::Limits;
    use crate::machine::Facts;
    use crate::process::snapshot::StopMeans;
    use crate::service::Parts;
    use crate::session::record::Access;
    use crate::session::registry::Registry;

    type Says = fn(SessionId) -> Option<ProcessError>;

    struct World {
        _top: tempfile::TempDir,
        core: Arc<Core>,
        fence: Fence,
        /// What the engine says of a session; of others that it is open.
        says: Arc<Mutex<HashMap<SessionId, Says>>>,
    }

    impl World {
        fn new() -> Self {
            let top = tempfile::tempdir().unwrap();
            let (state, app) = (top.path().join("state"), top.path().join("app"));
            for path in [&state, &app] {
                std::fs::create_dir(path).unwrap();
            }
            let (engine, mut requests) = HostClient::played(Life {
                epoch: Epoch::random(),
                means: StopMeans::BestEffort,
            });
            let says: Arc<Mutex<HashMap<SessionId, Says>>> = Arc::default();
            let known = Arc::clone(&says);
            let answering = async move {
                while let Some(Envelope { request, reply, .. }) = requests.recv().await {
                    let Request::GetSession(id) = request else {
                        panic!("{request:?}");
                    };
                    let says = known.lock().unwrap().get(&id).copied();
                    let error = says.and_then(|says| says(id));
                    let _ = reply.send(error.map_or(Ok((Reply::Done, Vec::new())), Err));
                }
            };
            let roots = || Roots::new(vec![Root::open(&app, Access::ReadWrite).unwrap()]);
            let secrets = || SecretFiles::new([""; 0], []).unwrap();
            let cwd = directory(&roots(), Path::new("/"), app.as_os_str(), Means::Walk).unwrap();
            let fence = Fence::new(
                Resolver::new(roots(), cwd, Means::Walk),
                Arc::new(secrets()),
            );
            let limits = Limits::default();
            let core = Core::new(Parts {
                engine: engine.clone(),
                machine: MachineId::random(),
                facts: Facts::collect(),
                registry: Registry::new(engine, roots(), None, Means::Walk, secrets(), &limits),
                files: Arc::new(Files::open(&state)),
                indexes: Arc::new(LineIndexes::new(0)),
                searches: crate::files::search::Settings::default(),
                limits,
            });
            core.tasks.spawn(answering);
            Self {
                _top: top,
                core,
                fence,
                says,
            }
        }

        fn files(&self) -> &Files {
            &self.core.parts.files
        }

        /// A session that wrote something, and the token to take it back.
        fn session(&self, says: Says) -> (SessionId, String) {
            let session = SessionId::random();
            self.says.lock().unwrap().insert(session, says);
            let content = Content::of(b"x".to_vec());
            let spec = WriteSpec::new(session.to_string());
            let written = self.files().write(self.caller(session), &spec, &content);
            (session, written.unwrap().value.undo_token.unwrap())
        }

        fn caller(&self, session: SessionId) -> Caller<'_> {
            Caller {
                session,
                fence: &self.fence,
                operation: OperationId::random(),
                cancel: Cancel::never(),
            }
        }

        fn can_undo(&self, (session, token): &(SessionId, String)) -> bool {
            match self.files().undo(self.caller(*session), token) {
                Ok(_) => true,
                Err(FileError::UndoForgotten { .. }) => false,
                Err(error) => panic!("{error}"),
            }
        }

        fn has_results(&self, (session, _): &(SessionId, String)) -> bool {
            self.files().recorded_sessions().contains(session)
        }
    }

    const OPEN: Says = |_| None;
    const ENDED: Says = |id| Some(ProcessError::SessionEnded(id));
    const UNKNOWN: Says = |id| Some(ProcessError::SessionNotFound(id));
    const GONE_AWAY: Says = |_| Some(ProcessError::EngineGone);

    #[tokio::test]
    async fn what_is_kept_of_a_session_goes_as_the_engine_says() {
        // Whether its results and what can be undone are kept, at once and later.
        for (what, says, results, undo) in [
            ("open", OPEN, true, [true, true]),
            ("ended", ENDED, false, [false, false]),
            ("unknown", UNKNOWN, true, [true, false]),
            ("no engine", GONE_AWAY, true, [true, true]),
        ] {
            for (later, undo) in [false, true].into_iter().zip(undo) {
                let world = World::new();
                let one = world.session(says);
                let mut watch = Watch::default();
                let now = Instant::now();
                world.core.forget_ended(&mut watch, now).await;
                if later {
                    world.core.forget_ended(&mut watch, now + GONE).await;
                }
                assert_eq!(world.has_results(&one), results, "{what}, later: {later}");
                assert_eq!(world.can_undo(&one), undo, "{what}, later: {later}");
            }
        }
    }

    #[tokio::test]
    async fn a_session_that_is_known_again_begins_anew() {
        let world = World::new();
        let one = world.session(UNKNOWN);
        let mut watch = Watch::default();
        world.core.forget_ended(&mut watch, Instant::now()).await;
        assert!(watch.unknown.contains_key(&one.0));
        world.says.lock().unwrap().insert(one.0, OPEN);
        world.core.forget_ended(&mut watch, Instant::now()).await;
        assert!(watch.unknown.is_empty());
        assert!(world.can_undo(&one));
    }

    #[tokio::test]
    async fn every_session_has_its_turn() {
        let world = World::new();
        let open: Vec<_> = (0..7).map(|_| world.session(OPEN)).collect();
        let ended: Vec<_> = (0..6).map(|_| world.session(ENDED)).collect();
        let mut watch = Watch::default();
        for _ in 0..13_usize.div_ceil(AT_A_TIME) {
            world.core.forget_ended(&mut watch, Instant::now()).await;
        }
        let mut left: Vec<_> = open.iter().map(|(session, _)| *session).collect();
        left.sort_unstable();
        assert_eq!(world.files().sessions(), left);
        assert!(!ended.iter().any(|one| world.has_results(one)));
    }

    #[tokio::test]
    async fn results_on_disk_of_ended_sessions_go_whoever_wrote_them() {
        let world = World::new();
        let (open, ended) = (world.session(OPEN), world.session(OPEN));
        let unknown = world.session(UNKNOWN);
        // As after a start: nothing of it is in memory.
        world.says.lock().unwrap().insert(ended.0, ENDED);
        world.core.forget_recorded().await;
        assert!(world.has_results(&open) && world.has_results(&unknown));
        assert!(!world.has_results(&ended));
    }
}
