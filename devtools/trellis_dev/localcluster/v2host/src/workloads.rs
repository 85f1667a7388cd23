//! The workloads of the host by the ids of the operator, and what the runtime makes of them.
//!
//! In: requests to start, to report and to stop. Out: statuses, as recorded. Called by main. The runtime generates ids of
//! its own and forgets causes, so this keeps both. Invariants: a failed pull reserves no id; a failure to link or to
//! bind does, until a stop.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::timeout;
use tracing::error;
use wash_runtime::host::{Host, HostApi};
use wash_runtime::oci::{OciConfig, pull_component};
use wash_runtime::types;
use wash_runtime::wit;

use crate::messages::{
    LocalResources, PullSecret, Service, State, Status, Volume, WitInterface, Workload,
};

/// How images are pulled. `plain_http`: from all registries; without it, from those on a loopback address only.
pub struct Pulls {
    pub plain_http: bool,
    pub timeout: Duration,
}

enum Entry {
    /// The id of the runtime, and the number of components.
    Started(String, u64),
    /// The cause.
    Failed(String),
}

pub struct Workloads {
    host: Arc<Host>,
    pulls: Pulls,
    entries: HashMap<String, Entry>,
}

impl Workloads {
    pub fn new(host: Arc<Host>, pulls: Pulls) -> Self {
        Self {
            host,
            pulls,
            entries: HashMap::new(),
        }
    }

    /// Return the numbers of components that run and of workloads that have an id.
    pub fn counts(&self) -> (u64, u64) {
        let components = self.entries.values().map(|entry| match entry {
            Entry::Started(_, components) => *components,
            Entry::Failed(_) => 0,
        });
        (components.sum(), self.entries.len() as u64)
    }

    pub async fn start(&mut self, id: String, workload: Workload) -> Status {
        if self.entries.contains_key(&id) {
            return status(
                &id,
                State::Error,
                format!("Workload ID [{id}] already exists"),
            );
        }
        let components = workload.wit_world.components.len() as u64;
        let workload = match self.pulled(workload).await {
            Ok(workload) => workload,
            Err(cause) => return failed(&id, &cause),
        };
        match self
            .host
            .workload_start(types::WorkloadStartRequest { workload })
            .await
        {
            Ok(started) => {
                let found = started.workload_status;
                self.entries
                    .insert(id.clone(), Entry::Started(found.workload_id, components));
                status(&id, state(&found.workload_state), found.message)
            }
            Err(cause) => {
                self.entries
                    .insert(id.clone(), Entry::Failed(format!("{cause:#}")));
                failed(&id, &cause)
            }
        }
    }

    pub async fn status(&self, id: &str) -> Result<Status> {
        match self.entries.get(id) {
            None => Ok(status(
                id,
                State::NotFound,
                format!("Workload not found: {id}"),
            )),
            Some(Entry::Failed(cause)) => Ok(status(
                id,
                State::Error,
                format!("Workload is Error: {cause}"),
            )),
            Some(Entry::Started(own, _)) => {
                let request = types::WorkloadStatusRequest {
                    workload_id: own.clone(),
                };
                let found = self.host.workload_status(request).await?.workload_status;
                Ok(status(id, state(&found.workload_state), found.message))
            }
        }
    }

    pub async fn stop(&mut self, id: &str) -> Result<Status> {
        match self.entries.remove(id) {
            None => {
                return Ok(status(
                    id,
                    State::NotFound,
                    "Workload not found".to_string(),
                ));
            }
            Some(Entry::Failed(_)) => {}
            Some(Entry::Started(own, _)) => {
                self.host
                    .workload_stop(types::WorkloadStopRequest { workload_id: own })
                    .await?;
            }
        }
        Ok(status(
            id,
            State::Stopping,
            "Workload stopped successfully".to_string(),
        ))
    }

    /// Return the workload of the runtime, with the bytes of its images.
    async fn pulled(&self, workload: Workload) -> Result<types::Workload> {
        let mut components = Vec::new();
        for component in workload.wit_world.components {
            let bytes = self
                .pull(&component.image, component.image_pull_secret)
                .await;
            components.push(types::Component {
                bytes: bytes
                    .with_context(|| {
                        format!("failed to pull image for component '{}'", component.name)
                    })?
                    .into(),
                local_resources: resources(component.local_resources),
                pool_size: component.pool_size,
                max_invocations: component.max_invocations,
            });
        }
        Ok(types::Workload {
            namespace: workload.namespace,
            name: workload.name,
            annotations: workload.annotations,
            service: match workload.service {
                None => None,
                Some(found) => Some(self.service(found).await?),
            },
            components,
            host_interfaces: workload
                .wit_world
                .host_interfaces
                .into_iter()
                .map(interface)
                .collect::<Result<_>>()?,
            volumes: workload.volumes.into_iter().map(volume).collect(),
        })
    }

    async fn service(&self, service: Service) -> Result<types::Service> {
        let bytes = self.pull(&service.image, service.image_pull_secret).await;
        Ok(types::Service {
            bytes: bytes.context("failed to pull image for service")?.into(),
            local_resources: resources(service.local_resources),
            max_restarts: service.max_restarts,
        })
    }

    async fn pull(&self, image: &str, secret: Option<PullSecret>) -> Result<Vec<u8>> {
        let config = OciConfig {
            credentials: secret.map(|found| (found.username, found.password)),
            insecure: self.pulls.plain_http || is_loopback(image),
            cache_dir: None,
        };
        let seconds = self.pulls.timeout.as_secs_f64();
        let (bytes, _) = timeout(self.pulls.timeout, pull_component(image, config))
            .await
            .with_context(|| {
                format!("timeout pulling component from {image} after {seconds}s")
            })??;
        Ok(bytes)
    }
}

/// Return whether the registry of an image is on a loopback address.
fn is_loopback(image: &str) -> bool {
    let registry = image.split('/').next().unwrap_or_default();
    let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
    host == "localhost"
        || host
            .parse::<std::net::Ipv4Addr>()
            .is_ok_and(|address| address.is_loopback())
}

fn failed(id: &str, cause: &anyhow::Error) -> Status {
    let reason = format!("{cause:#}");
    error!(workload_id = id, reason, "failed to start workload");
    status(id, State::Error, reason)
}

fn status(id: &str, workload_state: State, message: String) -> Status {
    Status {
        workload_id: id.to_string(),
        workload_state,
        message,
    }
}

fn state(found: &types::WorkloadState) -> State {
    match found {
        types::WorkloadState::Unspecified | types::WorkloadState::Starting => State::Starting,
        types::WorkloadState::Running => State::Running,
        types::WorkloadState::Completed => State::Completed,
        types::WorkloadState::Stopping => State::Stopping,
        types::WorkloadState::Error => State::Error,
    }
}

fn resources(given: LocalResources) -> types::LocalResources {
    types::LocalResources {
        // The runtime's value for no limit is -1, and v2's is 0.
        memory_limit_mb: if given.memory_limit_mb == 0 {
            -1
        } else {
            given.memory_limit_mb
        },
        cpu_limit: if given.cpu_limit == 0 {
            -1
        } else {
            given.cpu_limit
        },
        config: given.config,
        environment: given.environment,
        volume_mounts: given
            .volume_mounts
            .into_iter()
            .map(|mount| types::VolumeMount {
                name: mount.name,
                mount_path: mount.mount_path,
                read_only: mount.read_only,
            })
            .collect(),
        allowed_hosts: given.allowed_hosts,
    }
}

fn volume(given: Volume) -> types::Volume {
    let volume_type = match given.host_path {
        Some(path) => types::VolumeType::HostPath(types::HostPathVolume {
            local_path: path.local_path,
        }),
        None => types::VolumeType::EmptyDir(types::EmptyDirVolume {}),
    };
    types::Volume {
        name: given.name,
        volume_type,
    }
}

fn interface(given: WitInterface) -> Result<wit::WitInterface> {
    let version = match given.version.as_str() {
        "" => None,
        text => Some(
            semver::Version::parse(text).with_context(|| format!("'{text}' is not a version"))?,
        ),
    };
    Ok(wit::WitInterface {
        namespace: given.namespace,
        package: given.package,
        interfaces: given.interfaces.into_iter().collect(),
        version,
        config: given.config,
    })
}
