//! A machine and how it is reached.
//!
//! A [`Machine`] always holds a channel that connects when it is first used
//! and again whenever the connection is lost, whatever the stream underneath
//! is: a Unix socket, a stream inside the process, later TCP with TLS.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use executor_proto::v1;
use executor_proto::v1::machine_service_client::MachineServiceClient;
use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};

use crate::error::{AddressError, ClientError};
use crate::retry::{Call, CallOptions, attempts};
use crate::session::{Session, SessionCredentials, SessionOptions};

/// Output messages hold up to 256 KiB; a frame holds such a message.
const FRAME_BYTES: u32 = 256 << 10;
/// What a machine may send on one stream before we read.
const STREAM_WINDOW: u32 = 2 << 20;
/// The same for all streams of a connection together.
const CONNECTION_WINDOW: u32 = 4 << 20;

/// A machine that speaks `executor.v1`. Cheap to clone; all clones share one
/// connection.
#[derive(Debug, Clone)]
pub struct Machine {
    channel: Channel,
    options: CallOptions,
}

impl Machine {
    /// Connects to the machine at `address` and asks it once who it is.
    ///
    /// `unix:///path/to/daemon.sock` is a daemon on a Unix socket. Must be
    /// called inside a tokio runtime.
    ///
    /// # Errors
    /// [`ClientError::Address`], or what the first call ends with:
    /// [`ClientError::Unreachable`] at once when nobody listens.
    pub async fn connect(address: &str) -> Result<Self, ClientError> {
        let machine = Self::connect_lazy(address)?;
        machine
            .machine_service()
            .get_machine(v1::GetMachineRequest {})
            .await
            .map_err(|status| ClientError::from_status(&status))?;
        Ok(machine)
    }

    /// As [`Machine::connect`], but connects at the first call. Must be called
    /// inside a tokio runtime.
    ///
    /// # Errors
    /// [`ClientError::Address`].
    pub fn connect_lazy(address: &str) -> Result<Self, ClientError> {
        let path = parse_address(address)?;
        Ok(Self::from_connector(move || {
            UnixStream::connect(path.clone())
        }))
    }

    /// A machine behind any stream. `factory` is called for the first
    /// connection and again whenever one was lost. Must be called inside a
    /// tokio runtime.
    #[must_use]
    pub fn from_connector<F, Fut, S>(factory: F) -> Self
    where
        F: Fn() -> Fut + Send + 'static,
        Fut: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        // The authority is not used to find the machine.
        let endpoint = Endpoint::from_static("http://machine.invalid")
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_frame_size(FRAME_BYTES);
        let channel = endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
            let stream = factory();
            async move { stream.await.map(TokioIo::new) }
        }));
        Self {
            channel,
            options: CallOptions::default(),
        }
    }

    /// The same machine, with other options for every call.
    #[must_use]
    pub fn with_options(mut self, options: CallOptions) -> Self {
        self.options = options;
        self
    }

    /// What the machine is, what it can enforce, and its limits. Changes
    /// nothing; cancel safe.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] and [`ClientError::DeadlineExceeded`].
    pub async fn info(&self) -> Result<v1::Machine, ClientError> {
        let answer = attempts(
            Call::GetMachine,
            self.options.deadline,
            Duration::ZERO,
            || {
                let mut service = self.machine_service();
                async move { service.get_machine(v1::GetMachineRequest {}).await }
            },
        )
        .await?;
        answer
            .into_inner()
            .machine
            .ok_or_else(|| ClientError::Protocol("GetMachine without a machine".into()))
    }

    /// Opens a session with credentials of its own. Dropping the future may
    /// leave the session open until its lease is over.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub async fn open_session(&self, options: SessionOptions) -> Result<Session, ClientError> {
        Session::open(self, SessionCredentials::random(), options).await
    }

    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    pub(crate) fn options(&self) -> CallOptions {
        self.options
    }

    fn machine_service(&self) -> MachineServiceClient<Channel> {
        MachineServiceClient::new(self.channel())
    }
}

/// The socket that an address names.
fn parse_address(address: &str) -> Result<PathBuf, AddressError> {
    if address.starts_with("https://") {
        return Err(AddressError::NotBuiltYet(address.to_owned()));
    }
    address
        .strip_prefix("unix://")
        .map(Path::new)
        .filter(|path| path.is_absolute() && path.file_name().is_some())
        .map(Path::to_path_buf)
        .ok_or_else(|| AddressError::Form(address.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_of_the_forms_or_the_error_lists_them() {
        assert_eq!(
            parse_address("unix:///run/executor/daemon.sock"),
            Ok(PathBuf::from("/run/executor/daemon.sock"))
        );
        for address in [
            "",
            "unix://relative.sock",
            "unix:///",
            "/run/x.sock",
            "http://host",
        ] {
            let error = parse_address(address).unwrap_err();
            assert!(error.to_string().contains("unix:///"), "{error}");
        }
        assert!(matches!(
            parse_address("https://host:7443"),
            Err(AddressError::NotBuiltYet(_))
        ));
    }

    #[tokio::test]
    async fn connecting_to_nobody_fails_at_once() {
        let error = Machine::connect("unix:///nonexistent/daemon.sock")
            .await
            .unwrap_err();
        assert!(
            matches!(
                &error,
                ClientError::Unreachable {
                    never_sent: true,
                    ..
                }
            ),
            "{error:?}"
        );
    }
}
