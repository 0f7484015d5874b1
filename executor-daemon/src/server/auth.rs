//! Who calls: one layer before every service, on every listener.
//!
//! A connection says who its peer is ([`Peer`]); the layer makes a
//! [`Principal`] of it or refuses. Services take the principal from the
//! request and fail closed where there is none.

use executor_proto::reason::{Failure, Reason};
use tonic::service::Interceptor;
use tonic::{Request, Status};

/// What may be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Whatever everybody may who was let in.
    Any,
    /// Everything, for all sessions.
    Admin,
    /// Commands of the caller's own session.
    Processes,
    /// Reading files.
    FilesRead,
    /// Writing files.
    FilesWrite,
    /// Typing into somebody's terminal.
    Attach,
    /// Giving a session another root.
    Grant,
}

impl Scope {
    /// The name in messages and configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Admin => "admin",
            Self::Processes => "processes",
            Self::FilesRead => "files:read",
            Self::FilesWrite => "files:write",
            Self::Attach => "attach",
            Self::Grant => "grant",
        }
    }

    fn bit(self) -> u8 {
        match self {
            Self::Any => 0,
            Self::Admin => 1,
            Self::Processes => 2,
            Self::FilesRead => 4,
            Self::FilesWrite => 8,
            Self::Attach => 16,
            Self::Grant => 32,
        }
    }
}

/// A set of scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scopes(u8);

impl Scopes {
    /// Every scope there is.
    pub const ALL: Self = Self(63);

    /// These.
    #[must_use]
    pub fn of(scopes: &[Scope]) -> Self {
        Self(scopes.iter().fold(0, |all, scope| all | scope.bit()))
    }

    /// Is it among them?
    #[must_use]
    pub fn has(self, scope: Scope) -> bool {
        self.0 & scope.bit() == scope.bit()
    }
}

/// Who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// A user of this machine, through the Unix socket.
    User {
        /// Effective uid at the time of connect(2).
        uid: u32,
    },
    /// The program that embeds us.
    Embedder,
}

/// A checked caller. Only the layer makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    identity: Identity,
    scopes: Scopes,
}

impl Principal {
    /// Who it is.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// What it may do.
    #[must_use]
    pub fn scopes(&self) -> Scopes {
        self.scopes
    }

    /// Refuses a caller without `scope`.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`, with the scope in its metadata.
    pub fn require(&self, scope: Scope) -> Result<(), Failure> {
        if self.scopes.has(scope) {
            return Ok(());
        }
        let name = scope.name();
        Err(Failure::new(
            Reason::PermissionDenied,
            format!("this call needs the scope {name}, which the caller does not have"),
        )
        .with("scope", name))
    }
}

/// The other end of a connection, as the listener saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// Of a Unix socket; `None` where the kernel would not say.
    User(Option<u32>),
    /// The program that embeds us, over memory.
    Embedder,
}

/// The layer. The socket belongs to `uid`, and so must its peers.
#[derive(Debug, Clone)]
pub struct Authenticator {
    uid: u32,
}

impl Authenticator {
    /// For sockets of this user.
    #[must_use]
    pub fn new(uid: u32) -> Self {
        Self { uid }
    }

    /// The principal that a peer is.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` for anybody else, and where no listener said who it
    /// is.
    pub fn authenticate(&self, peer: Option<&Peer>) -> Result<Principal, Failure> {
        match peer {
            Some(Peer::User(Some(uid))) if *uid == self.uid => Ok(Principal {
                identity: Identity::User { uid: *uid },
                scopes: Scopes::ALL,
            }),
            Some(Peer::Embedder) => Ok(Principal {
                identity: Identity::Embedder,
                scopes: Scopes::ALL,
            }),
            Some(Peer::User(Some(uid))) => {
                let ours = self.uid;
                tracing::warn!(uid, "a peer of another user was refused");
                Err(Failure::new(
                    Reason::Unauthenticated,
                    format!("this socket belongs to uid {ours}; uid {uid} may not use it"),
                ))
            }
            Some(Peer::User(None)) | None => Err(Failure::new(
                Reason::Unauthenticated,
                "the peer of this connection is not known",
            )),
        }
    }
}

impl Interceptor for Authenticator {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let principal = self.authenticate(request.extensions().get::<Peer>())?;
        request.extensions_mut().insert(principal);
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_sockets_own_user_is_let_in() {
        let layer = Authenticator::new(1000);
        let principal = layer.authenticate(Some(&Peer::User(Some(1000)))).unwrap();
        assert_eq!(principal.identity(), &Identity::User { uid: 1000 });
        principal.require(Scope::Admin).unwrap();
        for peer in [
            Some(Peer::User(Some(0))),
            Some(Peer::User(Some(1001))),
            Some(Peer::User(None)),
            None,
        ] {
            let failure = layer.authenticate(peer.as_ref()).unwrap_err();
            assert_eq!(failure.reason, Reason::Unauthenticated, "{peer:?}");
        }
    }

    #[test]
    fn a_request_of_an_unknown_connection_is_refused() {
        let status = Authenticator::new(0).call(Request::new(())).unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unauthenticated);
    }

    #[test]
    fn a_missing_scope_is_named() {
        let principal = Principal {
            identity: Identity::Embedder,
            scopes: Scopes::of(&[Scope::Processes, Scope::FilesRead]),
        };
        principal.require(Scope::Any).unwrap();
        principal.require(Scope::FilesRead).unwrap();
        let failure = principal.require(Scope::Admin).unwrap_err();
        assert_eq!(failure.reason, Reason::PermissionDenied);
        assert_eq!(failure.metadata["scope"], "admin");
    }
}
