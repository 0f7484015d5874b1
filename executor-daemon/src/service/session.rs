//! `SessionService`.

use std::sync::Arc;

use executor_proto::v1;
use executor_proto::v1::session_service_server::SessionService;
use tonic::{Request, Response, Status};

use super::convert::check::count;
use super::convert::control::grace;
use super::convert::session::{granted, open_spec, session};
use super::failure::{self, Call, unexpected};
use super::{Core, credentials, principal, secret};
use crate::host::message::{Reply, Request as Ask};
use crate::process::error::ProcessError;
use crate::server::auth::Scope;

/// The service.
#[derive(Debug)]
pub(crate) struct Sessions {
    core: Arc<Core>,
}

impl Sessions {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }
}

#[tonic::async_trait]
impl SessionService for Sessions {
    async fn open_session(
        &self,
        request: Request<v1::OpenSessionRequest>,
    ) -> Result<Response<v1::OpenSessionResponse>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        principal(&extensions, Scope::Any)?;
        self.core.accepting()?;
        let spec = open_spec(message, secret(&metadata)?)?;
        let parts = &self.core.parts;
        let opened = parts
            .registry
            .open(spec)
            .await
            .map_err(|error| failure::session(&error))?;
        Ok(Response::new(v1::OpenSessionResponse {
            session: Some(session(&opened)),
            created: opened.created,
        }))
    }

    async fn get_session(
        &self,
        request: Request<v1::GetSessionRequest>,
    ) -> Result<Response<v1::GetSessionResponse>, Status> {
        let (metadata, extensions, _) = request.into_parts();
        let core = &self.core;
        let caller = core
            .caller(&metadata, &extensions, Scope::Any, Call::Other)
            .await?;
        let opened = core
            .parts
            .registry
            .look(&caller.session)
            .await
            .map_err(|error| core.refusal(&error, Call::Other))?;
        Ok(Response::new(v1::GetSessionResponse {
            session: Some(session(&opened)),
        }))
    }

    async fn keep_alive(
        &self,
        request: Request<v1::KeepAliveRequest>,
    ) -> Result<Response<v1::KeepAliveResponse>, Status> {
        let (metadata, extensions, _) = request.into_parts();
        self.core
            .caller(&metadata, &extensions, Scope::Any, Call::Other)
            .await?;
        Ok(Response::new(v1::KeepAliveResponse {}))
    }

    async fn grant_root(
        &self,
        request: Request<v1::GrantRootRequest>,
    ) -> Result<Response<v1::GrantRootResponse>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let (path, access) = granted(message)?;
        let core = &self.core;
        let caller = core
            .caller(&metadata, &extensions, Scope::Grant, Call::Other)
            .await?;
        let registry = &core.parts.registry;
        let opened = registry
            .grant(&caller.session, path, access)
            .await
            .map_err(|error| failure::session(&error))?;
        Ok(Response::new(v1::GrantRootResponse {
            session: Some(session(&opened)),
            added: opened.created,
        }))
    }

    async fn end_session(
        &self,
        request: Request<v1::EndSessionRequest>,
    ) -> Result<Response<v1::EndSessionResponse>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let grace = grace(message.grace)?;
        principal(&extensions, Scope::Any)?;
        let core = &self.core;
        let registry = &core.parts.registry;
        let credentials = credentials(&metadata)?;
        let (session, epoch) = (credentials.session, credentials.epoch);
        match registry.authenticate(&credentials).await {
            // It is over, which is what was asked for, or it is being ended,
            // which is waited for.
            Ok(_) | Err(ProcessError::SessionEnded(_)) => {}
            Err(error) => return Err(core.refusal(&error, Call::Other).into()),
        }
        let answer = core
            .parts
            .engine
            .call_in(epoch, Ask::EndSession { session, grace }, Vec::new())
            .await;
        registry.forget(session);
        if matches!(answer, Ok(_) | Err(ProcessError::SessionEnded(_))) {
            let files = Arc::clone(&core.parts.files);
            let forget = move || files.end_session(session);
            // What cannot be forgotten now goes with the daemon.
            let _ = core.files.changes.run(&core.tasks, forget).await;
        }
        let answer = match answer {
            Err(ProcessError::SessionEnded(_)) => {
                return Ok(Response::new(v1::EndSessionResponse::default()));
            }
            answer => answer,
        };
        match answer.map_err(|error| core.refusal(&error, Call::Other))? {
            (Reply::SessionEnded { ended, survivors }, _) => {
                Ok(Response::new(v1::EndSessionResponse {
                    ended_processes: count(ended),
                    survivors,
                }))
            }
            _ => Err(unexpected("end of the session").into()),
        }
    }
}
