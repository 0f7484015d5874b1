//! What a call can end with besides its answer.

use std::collections::HashMap;
use std::error::Error as _;
use std::time::Duration;

use executor_proto::reason::{Failure, Reason};
use tonic::{Code, ConnectError, Status};

/// Why a call has no answer. Match on [`ClientError::reason`], never on the
/// text: the text is for the person or model that reads it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// The machine answered, and refused.
    #[error("{message}")]
    Refused {
        /// Why.
        reason: Reason,
        /// What happened, the value, the limit, what to do next.
        message: String,
        /// Facts for programs; docs/errors.md names them.
        metadata: HashMap<String, String>,
    },
    /// No connection, or it was lost before the answer came.
    #[error("the machine cannot be reached: {message}")]
    Unreachable {
        /// What the transport said.
        message: String,
        /// The request surely never left: there was no connection to send it
        /// on. False: it may have been carried out.
        never_sent: bool,
    },
    /// The call's deadline passed while it waited for the answer. The request
    /// may have been carried out.
    #[error("no answer from the machine within {deadline:?}")]
    DeadlineExceeded {
        /// The deadline as it was given, with the call's own `wait`.
        deadline: Duration,
    },
    /// An answer without a reason of this protocol: a proxy, another service,
    /// a daemon that does not know the call.
    #[error("{message} ({code:?})")]
    Foreign {
        /// The gRPC code.
        code: Code,
        /// The status's text.
        message: String,
    },
    /// The machine's answer does not keep the protocol's rules.
    #[error("the machine broke the protocol: {0}")]
    Protocol(String),
    /// The address names no machine that this client can connect to.
    #[error(transparent)]
    Address(#[from] AddressError),
}

/// Why an address cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Not one of the forms.
    #[error(
        "{0:?} is not the address of a machine: use unix:///path/to/daemon.sock \
         (an absolute path)"
    )]
    Form(String),
    /// TCP with TLS.
    #[error("{0:?}: connecting over the network is not built yet; use unix:///path/to/daemon.sock")]
    NotBuiltYet(String),
}

impl ClientError {
    /// The protocol's reason, where there is one. An unreachable machine is
    /// [`Reason::Unreachable`].
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Refused { reason, .. } => Some(*reason),
            Self::Unreachable { .. } => Some(Reason::Unreachable),
            _ => None,
        }
    }

    /// The gRPC code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Refused { reason, .. } => reason.code(),
            Self::Unreachable { .. } => Code::Unavailable,
            Self::DeadlineExceeded { .. } => Code::DeadlineExceeded,
            Self::Foreign { code, .. } => *code,
            Self::Protocol(_) => Code::Internal,
            Self::Address(_) => Code::InvalidArgument,
        }
    }

    /// A fact that the machine sent along, as `tombstone` or `limit`.
    #[must_use]
    pub fn metadata(&self, key: &str) -> Option<&str> {
        match self {
            Self::Refused { metadata, .. } => metadata.get(key).map(String::as_str),
            _ => None,
        }
    }

    /// Reads what a call ended with.
    ///
    /// A stream that dies reads as `Unknown` or `Internal` with an HTTP/2
    /// error, a call that races with it as `Cancelled`: all are the loss of
    /// the connection.
    pub(crate) fn from_status(status: &Status) -> Self {
        if let Some(failure) = Failure::from_status(status) {
            return Self::Refused {
                reason: failure.reason,
                message: failure.message,
                metadata: failure.metadata,
            };
        }
        let lost = match status.code() {
            Code::Unavailable | Code::Unknown | Code::Cancelled => true,
            // A status that was sent has no source; the transport's has. (HTTP/2's
            // ENHANCE_YOUR_CALM, which ends a connection on which many calls were
            // given up at once, comes as RESOURCE_EXHAUSTED.)
            Code::Internal | Code::ResourceExhausted => status.source().is_some(),
            _ => false,
        };
        if lost {
            return Self::Unreachable {
                message: innermost(status),
                never_sent: never_connected(status),
            };
        }
        Self::Foreign {
            code: status.code(),
            message: status.message().to_owned(),
        }
    }
}

/// The cause at the bottom: "Connection refused" says more than "transport
/// error".
fn innermost(status: &Status) -> String {
    let mut source = status.source();
    let mut text = status.message().to_owned();
    while let Some(error) = source {
        text = error.to_string();
        source = error.source();
    }
    text
}

/// The connection was never made, so nothing can have been sent on it.
fn never_connected(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_reason_and_facts() {
        let status = Status::from(
            Failure::new(Reason::ProcessNotFound, "no such process").with("tombstone", "true"),
        );
        let error = ClientError::from_status(&status);
        assert_eq!(error.reason(), Some(Reason::ProcessNotFound));
        assert_eq!(error.code(), Code::NotFound);
        assert_eq!(error.metadata("tombstone"), Some("true"));
        assert_eq!(error.to_string(), "no such process");
    }

    #[test]
    fn a_dying_connection_is_unreachable_and_another_status_is_not() {
        for status in [
            Status::unknown("protocol error: missing grpc-status trailer"),
            Status::cancelled("operation was canceled"),
            Status::unavailable("tcp connect error"),
        ] {
            let error = ClientError::from_status(&status);
            assert_eq!(error.reason(), Some(Reason::Unreachable), "{status}");
            assert!(matches!(
                error,
                ClientError::Unreachable {
                    never_sent: false,
                    ..
                }
            ));
        }
        let error = ClientError::from_status(&Status::unimplemented("no such service"));
        assert_eq!(error.reason(), None);
        assert_eq!(error.code(), Code::Unimplemented);
        let error = ClientError::from_status(&Status::internal("sent by a server"));
        assert_eq!(error.reason(), None);
    }
}
