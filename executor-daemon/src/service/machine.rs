//! `MachineService`.

use std::sync::Arc;

use executor_proto::v1;
use executor_proto::v1::machine_service_server::MachineService;
use tonic::{Request, Response, Status};

use super::convert::check::{count, length};
use super::convert::process::means;
use super::failure::Call;
use super::{Core, principal};
use crate::limits::Limits;
use crate::machine::{Facts, memory};
use crate::server::auth::Scope;

/// The service.
#[derive(Debug)]
pub(crate) struct Machines {
    core: Arc<Core>,
}

impl Machines {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }
}

#[tonic::async_trait]
impl MachineService for Machines {
    async fn get_machine(
        &self,
        request: Request<v1::GetMachineRequest>,
    ) -> Result<Response<v1::GetMachineResponse>, Status> {
        principal(request.extensions(), Scope::Any)?;
        let parts = &self.core.parts;
        let life = parts.engine.life().await;
        let life = life.map_err(|error| self.core.refusal(&error, Call::Other))?;
        let Facts {
            hostname,
            os,
            kernel_release,
            architecture,
            distribution,
            cpus,
            uid,
            gid,
            probe,
        } = parts.facts.clone();
        let machine = v1::Machine {
            machine_id: parts.machine.to_string(),
            epoch: life.epoch.to_string(),
            hostname,
            platform: Some(v1::Platform {
                os,
                kernel_release,
                architecture,
                distribution,
            }),
            cpus,
            memory: memory().map(|memory| v1::Memory {
                total_bytes: memory.total,
                available_bytes: memory.available,
            }),
            daemon_version: env!("CARGO_PKG_VERSION").to_owned(),
            protocols: vec!["executor.v1".to_owned()],
            capabilities: Some(v1::Capabilities {
                stop_means: means(life.means).into(),
                pidfd: probe.pidfd,
                openat2: probe.openat2,
                landlock_abi: probe.landlock_abi,
                cgroup_v1_controllers: probe.cgroup_v1_controllers,
                cgroup_v2_controllers: probe.cgroup_v2_controllers,
                process_limits: false,
            }),
            limits: Some(limits(&parts.limits)),
            uid,
            gid,
        };
        Ok(Response::new(v1::GetMachineResponse {
            machine: Some(machine),
        }))
    }
}

fn limits(limits: &Limits) -> v1::Limits {
    v1::Limits {
        sessions: count(limits.sessions),
        processes_per_session: count(limits.processes_per_session),
        receipts_per_session: count(limits.receipts_per_session),
        log_head_bytes: length(limits.log_head_bytes),
        log_tail_bytes: length(limits.log_tail_bytes),
        log_total_bytes: limits.log_total_bytes,
        read_page_bytes: count(limits.read_page_bytes),
        stream_page_bytes: count(limits.stream_page_bytes),
        stdin_write_bytes: count(limits.stdin_write_bytes),
        stdin_queue_bytes: count(limits.stdin_queue_bytes),
        stdin_writers: count(limits.stdin_writers),
        command_bytes: count(limits.command_bytes),
        wait_seconds: count(limits.wait_seconds),
        message_bytes: count(limits.message_bytes),
    }
}
