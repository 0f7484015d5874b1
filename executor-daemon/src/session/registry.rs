//! The daemon's view of sessions: who may act as one, and where its names lead.
//!
//! It is a cache of what the engine keeps. An entry is made from the record and
//! the descriptors that the engine hands out, and is dropped when the engine
//! says that the session is over; a lost entry costs one call.
//!
//! 1. No session is used before its secret's hash was compared.
//! 2. The secret itself is neither kept nor logged.
//! 3. The engine hears of a session's client at most once a second, or four
//!    times in a lease that is shorter than four.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use executor_proto::id::{Epoch, SessionId, SessionSecret};
use tokio::time::Instant;

use super::place::{Place, first_directory, granted};
use super::record::{Access, RootRecord, SessionCounts, SessionRecord};
pub use super::request::{Credentials, OpenSpec, SessionError};
use crate::files::fence::Fence;
use crate::files::resolve::{Directory, Means, ResolveError, Resolver};
use crate::files::roots::{Root, Roots};
use crate::files::secret::SecretFiles;
use crate::host::client::{Answer, HostClient};
use crate::host::message::{Descriptor, Reply, Request};
use crate::limits::Limits;
use crate::process::error::ProcessError;

/// Time between two reports of contact; less where a quarter of the lease is.
const CONTACT: Duration = Duration::from_secs(1);
/// Shortest time between two reports of contact, however short a lease.
const CONTACT_MIN: Duration = Duration::from_millis(10);

/// A session that may be used: its secret was shown.
#[derive(Debug)]
pub struct Session {
    record: SessionRecord,
    epoch: Epoch,
    fence: Arc<Fence>,
    /// When the engine last heard of it. Std: held for a comparison.
    contact: Mutex<Instant>,
}

/// What opening or looking at a session gives.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The session.
    pub session: Arc<Session>,
    /// Its processes.
    pub counts: SessionCounts,
    /// Made by this call.
    pub created: bool,
}

impl Session {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.record.id
    }

    /// The life of the engine that it belongs to.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What the engine keeps of it.
    #[must_use]
    pub fn record(&self) -> &SessionRecord {
        &self.record
    }

    /// Where its names lead.
    #[must_use]
    pub fn resolver(&self) -> &Resolver {
        self.fence.resolver()
    }

    /// What its file operations go through.
    #[must_use]
    pub fn fence(&self) -> &Arc<Fence> {
        &self.fence
    }

    /// The directory that a command is started in; an empty name is the
    /// session's own. Blocks no other call.
    ///
    /// # Errors
    /// See [`ResolveError`].
    pub async fn directory(self: &Arc<Self>, given: &OsStr) -> Result<Directory, ResolveError> {
        if given.is_empty()
            && let Some(directory) = self.resolver().cwd_at_once()
        {
            return Ok(directory);
        }
        let session = Arc::clone(self);
        let name = given.to_owned();
        blocking(given, move || session.resolver().directory(&name)).await
    }

    /// `true` at most once in [`CONTACT`], or more often where the lease could
    /// end meanwhile.
    fn contact_is_due(&self) -> bool {
        let now = Instant::now();
        let often = self.quarter_lease().map_or(CONTACT, |q| q.min(CONTACT));
        let mut last = locked(&self.contact);
        let due = now.duration_since(*last) >= often;
        if due {
            *last = now;
        }
        due
    }

    fn quarter_lease(&self) -> Option<Duration> {
        self.record.lease.map(|lease| (lease / 4).max(CONTACT_MIN))
    }

    fn is_stale(&self) -> bool {
        let since = locked(&self.contact).elapsed();
        self.record
            .lease
            .is_some_and(|lease| since > lease + CONTACT)
    }
}

/// All sessions that this daemon has served.
#[derive(Debug)]
pub struct Registry {
    engine: HostClient,
    operator: Arc<Roots>,
    home: Option<PathBuf>,
    means: Means,
    secrets: Arc<SecretFiles>,
    capacity: usize,
    unsized_bytes: u64,
    /// Std: held for one look-up or change, never across an await.
    sessions: Mutex<HashMap<SessionId, Arc<Session>>>,
}

impl Registry {
    /// An empty registry before an engine. Sessions get no more than
    /// `operator` grants, and nothing that is one of `secrets`.
    #[must_use]
    pub fn new(
        engine: HostClient,
        operator: Roots,
        home: Option<PathBuf>,
        means: Means,
        secrets: SecretFiles,
        limits: &Limits,
    ) -> Self {
        Self {
            engine,
            operator: Arc::new(operator),
            home,
            means,
            secrets: Arc::new(secrets),
            capacity: limits.sessions,
            unsized_bytes: limits.file_unsized_bytes,
            sessions: Mutex::default(),
        }
    }

    /// Opens a session, or finds the one that is there. Cancel safe: what was
    /// opened stays, and the same call finds it.
    ///
    /// # Errors
    /// See [`SessionError`].
    pub async fn open(&self, spec: OpenSpec) -> Result<Opened, SessionError> {
        let hash = hash(&spec.secret);
        match self.fetch(spec.id, hash).await {
            Ok(opened) => return Ok(opened),
            Err(ProcessError::SessionNotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let place = self.place(&spec).await?;
        let record = SessionRecord {
            id: spec.id,
            secret_hash: hash,
            lease: spec.lease,
            label: spec.label,
            cwd: place.cwd.name,
            roots: place.roots.iter().map(record_of).collect(),
            created_at: SystemTime::now(),
        };
        let handles = place.roots.iter().map(|root| Arc::clone(root.handle()));
        let descriptors = std::iter::once(place.cwd.handle)
            .chain(handles)
            .map(Descriptor::Directory)
            .collect();
        let answer = self
            .engine
            .call(Request::OpenSession(record), descriptors)
            .await?;
        Ok(self.adopt(spec.id, hash, answer)?)
    }

    /// Adds a root to a session within the operator's, or gives one another
    /// access; `None`: as the operator grants. `created` in what is returned
    /// says whether that changed anything. Cancel safe.
    ///
    /// # Errors
    /// See [`SessionError`].
    pub async fn grant(
        &self,
        session: &Session,
        path: PathBuf,
        access: Option<Access>,
    ) -> Result<Opened, SessionError> {
        let operator = Arc::clone(&self.operator);
        let means = self.means;
        let asked = vec![(path, access)];
        let roots = tokio::task::spawn_blocking(move || granted(&operator, asked, means))
            .await
            .unwrap_or_else(|_| Err(ProcessError::EngineGone.into()))?;
        let root = roots.first().ok_or(ProcessError::EngineGone)?;
        let request = Request::GrantRoot {
            session: session.id(),
            root: record_of(root),
        };
        let directory = Descriptor::Directory(Arc::clone(root.handle()));
        let answer = self
            .engine
            .call_in(session.epoch, request, vec![directory])
            .await?;
        Ok(self.adopt(session.id(), session.record.secret_hash, answer)?)
    }

    /// The session that the credentials are for; counts as contact. Cancel
    /// safe.
    ///
    /// # Errors
    /// [`ProcessError::EpochOver`], `SessionNotFound`, `SessionEnded`,
    /// `SessionSecretMismatch`.
    pub async fn authenticate(
        &self,
        credentials: &Credentials,
    ) -> Result<Arc<Session>, ProcessError> {
        let current = credentials.epoch;
        self.engine.check(current).await?;
        let hash = hash(&credentials.secret);
        let known = locked(&self.sessions).get(&credentials.session).cloned();
        let session = match known.filter(|session| session.epoch == current) {
            Some(session) => session,
            None => {
                let found = self.fetch_in(current, credentials.session, hash).await?;
                found.session
            }
        };
        check(&session.record, hash)?;
        self.contact(&session).await?;
        Ok(session)
    }

    /// The session with its counts, fresh from the engine.
    ///
    /// # Errors
    /// As the engine refuses.
    pub async fn look(&self, session: &Session) -> Result<Opened, ProcessError> {
        self.fetch_in(session.epoch, session.id(), session.record.secret_hash)
            .await
    }

    /// Tells the engine that the session's client is there, at most once a
    /// second. Cancel safe.
    ///
    /// # Errors
    /// When the session is over.
    pub async fn contact(&self, session: &Session) -> Result<(), ProcessError> {
        if !session.contact_is_due() {
            return Ok(());
        }
        let told = self
            .engine
            .call_in(session.epoch, Request::Contact(session.id()), Vec::new())
            .await;
        if let Err(error) = told {
            self.forget_if_over(session.id(), &error);
            return Err(error);
        }
        Ok(())
    }

    /// How often contact is to be told while a call or stream is open; `None`
    /// for a session without a lease.
    #[must_use]
    pub fn contact_period(&self, session: &Session) -> Option<Duration> {
        session.quarter_lease()
    }

    /// Waits for `work`; meanwhile its client counts as there.
    pub async fn while_open<F: Future>(&self, session: &Session, work: F) -> F::Output {
        let mut work = std::pin::pin!(work);
        let Some(period) = self.contact_period(session) else {
            return work.await;
        };
        loop {
            tokio::select! {
                biased;
                output = &mut work => return output,
                () = tokio::time::sleep(period) => {
                    // The work itself meets the end of its session.
                    if let Err(error) = self.contact(session).await {
                        tracing::debug!(session = %session.id(), %error, "contact was not taken");
                    }
                }
            }
        }
    }

    /// Drops what is kept of a session.
    pub fn forget(&self, session: SessionId) {
        locked(&self.sessions).remove(&session);
    }

    /// Drops what is kept of a session that is over, as `error` tells.
    pub fn forget_if_over(&self, session: SessionId, error: &ProcessError) {
        if matches!(
            error,
            ProcessError::SessionEnded(_) | ProcessError::SessionNotFound(_)
        ) {
            self.forget(session);
        }
    }

    async fn fetch(&self, id: SessionId, hash: [u8; 32]) -> Result<Opened, ProcessError> {
        let answer = self.engine.call(Request::GetSession(id), Vec::new()).await;
        self.fetched(id, hash, answer)
    }

    async fn fetch_in(
        &self,
        epoch: Epoch,
        id: SessionId,
        hash: [u8; 32],
    ) -> Result<Opened, ProcessError> {
        let asked = self
            .engine
            .call_in(epoch, Request::GetSession(id), Vec::new());
        self.fetched(id, hash, asked.await)
    }

    fn fetched(
        &self,
        id: SessionId,
        hash: [u8; 32],
        answer: Answer,
    ) -> Result<Opened, ProcessError> {
        if let Err(error) = &answer {
            self.forget_if_over(id, error);
        }
        self.adopt(id, hash, answer?)
    }

    fn adopt(
        &self,
        id: SessionId,
        hash: [u8; 32],
        (reply, descriptors): (Reply, Vec<Descriptor>),
    ) -> Result<Opened, ProcessError> {
        let Reply::Session {
            record,
            epoch,
            counts,
            created,
        } = reply
        else {
            tracing::error!(session = %id, "the engine answered a session with another reply");
            return Err(ProcessError::EngineGone);
        };
        check(&record, hash)?;
        let known = locked(&self.sessions).get(&id).cloned();
        // One whose roots have become more is another value; calls that run go
        // on with the one they have.
        let same =
            |session: &Arc<Session>| session.epoch == epoch && session.record.roots == record.roots;
        if let Some(session) = known.filter(same) {
            return Ok(Opened {
                session,
                counts,
                created,
            });
        }
        let session = Arc::new(self.session(record, epoch, descriptors)?);
        self.remember(Arc::clone(&session));
        Ok(Opened {
            session,
            counts,
            created,
        })
    }

    fn session(
        &self,
        record: SessionRecord,
        epoch: Epoch,
        descriptors: Vec<Descriptor>,
    ) -> Result<Session, ProcessError> {
        let mut handles = descriptors.into_iter().filter_map(|one| match one {
            Descriptor::Directory(handle) => Some(handle),
            Descriptor::Log(_) => None,
        });
        let missing = |path: &Path| ProcessError::MissingDescriptor(path.to_owned());
        let cwd = Directory {
            handle: handles.next().ok_or_else(|| missing(&record.cwd))?,
            name: record.cwd.clone(),
        };
        let mut roots = Vec::with_capacity(record.roots.len());
        for root in &record.roots {
            let handle = handles.next().ok_or_else(|| missing(&root.path))?;
            let root = Root::from_handle(&root.path, root.access, handle)
                .map_err(|_| missing(&root.path))?;
            roots.push(root);
        }
        let resolver = Resolver::new(Roots::new(roots), cwd, self.means);
        Ok(Session {
            fence: Arc::new(
                Fence::new(resolver, Arc::clone(&self.secrets)).reading_at_most(self.unsized_bytes),
            ),
            record,
            epoch,
            contact: Mutex::new(Instant::now()),
        })
    }

    /// Keeps an entry. Sessions whose lease has surely passed go; if there are
    /// still too many, any may: it costs one call to have it again.
    fn remember(&self, session: Arc<Session>) {
        let mut sessions = locked(&self.sessions);
        if sessions.len() >= self.capacity {
            sessions.retain(|_, kept| !kept.is_stale());
        }
        if sessions.len() >= self.capacity
            && let Some(any) = sessions.keys().next().copied()
        {
            sessions.remove(&any);
        }
        sessions.insert(session.id(), session);
    }

    async fn place(&self, spec: &OpenSpec) -> Result<Place, SessionError> {
        let operator = Arc::clone(&self.operator);
        let (means, home) = (self.means, self.home.clone());
        let (roots, cwd) = (spec.roots.clone(), spec.cwd.clone());
        tokio::task::spawn_blocking(move || {
            let roots = granted(&operator, roots, means)?;
            let cwd = first_directory(&roots, cwd, home, means)?;
            Ok(Place { roots, cwd })
        })
        .await
        .unwrap_or_else(|_| Err(ProcessError::EngineGone.into()))
    }
}

fn record_of(root: &Root) -> RootRecord {
    RootRecord {
        path: root.path().to_owned(),
        access: root.access(),
    }
}

fn hash(secret: &SessionSecret) -> [u8; 32] {
    *blake3::hash(secret.as_bytes()).as_bytes()
}

fn check(record: &SessionRecord, hash: [u8; 32]) -> Result<(), ProcessError> {
    // blake3::Hash compares in constant time.
    if blake3::Hash::from_bytes(record.secret_hash) == blake3::Hash::from_bytes(hash) {
        Ok(())
    } else {
        Err(ProcessError::SessionSecretMismatch(record.id))
    }
}

/// A lock is never held where code can panic half-way through a change, so
/// what a poisoned one guards is whole.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn blocking<T: Send + 'static>(
    given: &OsStr,
    work: impl FnOnce() -> Result<T, ResolveError> + Send + 'static,
) -> Result<T, ResolveError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| {
        Err(ResolveError::Other {
            given: given.into(),
            errno: rustix::io::Errno::CANCELED,
        })
    })
}
