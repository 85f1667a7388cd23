//! trellis-v2-host: a host of wasmCloud v2 for tests.
//!
//! In: options, see `--help`; requests on `runtime.host.<id>.>`. Out: replies, heartbeats on
//! `runtime.operator.heartbeat.<id>`, its log on standard error. Called by trellis_dev.localcluster.v2host.
//! Invariants, as of the real host: the id and the name are new for each process; requests and heartbeats follow each
//! other, so a slow pull delays both; a request that cannot be read gets no reply; signals end the process at once.

mod http;
mod messages;
mod workloads;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use async_nats::Client;
use clap::Parser;
use futures::StreamExt;
use serde::Serialize;
use tokio::time::interval;
use tracing::{error, info};
use tracing_subscriber::EnvFilter;
use wash_runtime::engine::Engine;
use wash_runtime::host::{Host, HostApi, HostBuilder};
use wash_runtime::plugin::{wasi_blobstore, wasi_keyvalue, wasi_logging};
use wash_runtime::wit;

use crate::http::Http;
use crate::messages::{Heartbeat, IdRequest, StartRequest, Status, StatusReply, WitInterface};
use crate::workloads::{Pulls, Workloads};

#[derive(Parser)]
#[command(name = "trellis-v2-host", about = "A host of wasmCloud v2 for tests")]
struct Options {
    /// URL of the NATS server
    #[arg(long, default_value = "nats://127.0.0.1:4222")]
    nats_url: String,
    /// Host group, the host's label `hostgroup`
    #[arg(long, default_value = "default")]
    host_group: String,
    /// Address and port of the HTTP server
    #[arg(long)]
    http_addr: SocketAddr,
    /// Address by which the host is reached; in a pod, that of the pod
    #[arg(long)]
    host_name: String,
    /// Environment of the host: the namespace whose workloads it runs
    #[arg(long, default_value = "")]
    environment: String,
    /// Seconds between heartbeats
    #[arg(long, default_value_t = 15.0, value_parser = seconds)]
    heartbeat: f64,
    /// Pull from all registries over plain HTTP; without it, from those on a loopback address only
    #[arg(long)]
    allow_insecure_registries: bool,
    /// Seconds after which a pull fails
    #[arg(long, default_value_t = 30.0, value_parser = seconds)]
    registry_pull_timeout: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err(format!("'{text}' is not a positive number of seconds")),
    }
}

/// Facts of a heartbeat that the runtime does not know.
struct Identity {
    http_port: u16,
    environment: String,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .with_env_filter(filter)
        .init();
    let client = async_nats::connect(&options.nats_url)
        .await
        .context("cannot connect to NATS")?;
    let host = started(&options).await?;
    let pulls = Pulls {
        plain_http: options.allow_insecure_registries,
        timeout: Duration::from_secs_f64(options.registry_pull_timeout),
    };
    let workloads = Workloads::new(host.clone(), pulls);
    let identity = Identity {
        http_port: options.http_addr.port(),
        environment: options.environment,
    };
    serve(
        &client,
        &host,
        workloads,
        &identity,
        Duration::from_secs_f64(options.heartbeat),
    )
    .await
}

async fn started(options: &Options) -> Result<Arc<Host>> {
    let host = HostBuilder::new()
        // Memory of each instance on demand: tests run few instances and many hosts.
        .with_engine(Engine::builder().with_pooling_allocator(false).build()?)
        .with_hostname(&options.host_name)
        .with_label("hostgroup", &options.host_group)
        .with_plugin(Arc::new(Http::new(options.http_addr)))?
        .with_plugin(Arc::new(wasi_blobstore::WasiBlobstore::new(None)))?
        .with_plugin(Arc::new(wasi_keyvalue::WasiKeyvalue::new()))?
        .with_plugin(Arc::new(wasi_logging::WasiLogging))?
        .build()?;
    host.start().await.context("the host cannot start")
}

async fn serve(
    client: &Client,
    host: &Arc<Host>,
    mut workloads: Workloads,
    identity: &Identity,
    period: Duration,
) -> Result<()> {
    let prefix = format!("runtime.host.{}.", host.id());
    let mut requests = client.subscribe(format!("{prefix}>")).await?;
    // The operator asks a host as soon as it has the first heartbeat.
    client.flush().await?;
    info!(
        host_id = host.id(),
        friendly_name = host.friendly_name(),
        "Host started"
    );
    let mut ticks = interval(period);
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                let payload = serde_json::to_vec(&heartbeat(host, &workloads, identity).await?)?;
                client.publish(format!("runtime.operator.heartbeat.{}", host.id()), payload.into()).await?;
            }
            request = requests.next() => {
                let request = request.context("the subscription of requests ended")?;
                let command = request.subject.strip_prefix(prefix.as_str()).unwrap_or_default();
                match reply(host, &mut workloads, identity, command, &request.payload).await {
                    Ok(payload) => if let Some(inbox) = request.reply {
                        client.publish(inbox, payload.into()).await?;
                    },
                    Err(cause) => error!("error handling command: {cause:#}"),
                }
            }
        }
    }
}

/// Return the reply to a request; an error means that there is none.
async fn reply(
    host: &Arc<Host>,
    workloads: &mut Workloads,
    identity: &Identity,
    command: &str,
    payload: &[u8],
) -> Result<Vec<u8>> {
    match command {
        "heartbeat" => indented(&heartbeat(host, workloads, identity).await?),
        "workload.start" => {
            let request: StartRequest = serde_json::from_slice(payload)?;
            let workload = request.workload.context("workload is required")?;
            if request.workload_id.is_empty() {
                bail!("workload_id is required");
            }
            status_reply(workloads.start(request.workload_id, workload).await)
        }
        "workload.status" => {
            let request: IdRequest = serde_json::from_slice(payload)?;
            status_reply(workloads.status(&request.workload_id).await?)
        }
        "workload.stop" => {
            let request: IdRequest = serde_json::from_slice(payload)?;
            status_reply(workloads.stop(&request.workload_id).await?)
        }
        _ => bail!("unknown command: {command}"),
    }
}

fn status_reply(workload_status: Status) -> Result<Vec<u8>> {
    indented(&StatusReply { workload_status })
}

fn indented<T: Serialize>(message: &T) -> Result<Vec<u8>> {
    Ok(serde_json::to_vec_pretty(message)?)
}

async fn heartbeat(
    host: &Arc<Host>,
    workloads: &Workloads,
    identity: &Identity,
) -> Result<Heartbeat> {
    let found = host.heartbeat().await?;
    // The runtime counts failed starts, too, for as long as it runs.
    let (component_count, workload_count) = workloads.counts();
    Ok(Heartbeat {
        id: found.id,
        hostname: found.hostname,
        friendly_name: found.friendly_name,
        version: found.version,
        labels: found.labels.into_iter().collect(),
        started_at: found.started_at.to_rfc3339(),
        os_arch: found.os_arch,
        os_name: found.os_name,
        os_kernel: found.os_kernel,
        system_cpu_usage: found.system_cpu_usage,
        system_memory_total: found.system_memory_total,
        system_memory_free: found.system_memory_free,
        component_count,
        workload_count,
        imports: interfaces(found.imports),
        exports: interfaces(found.exports),
        http_port: identity.http_port,
        environment: identity.environment.clone(),
    })
}

/// Return the interfaces of plugins; that of the HTTP server is not listed, as it is built in.
fn interfaces(found: Vec<wit::WitInterface>) -> Vec<WitInterface> {
    let listed = found.into_iter().filter(|it| {
        (it.namespace.as_str(), it.package.as_str()) != (http::NAMESPACE, http::PACKAGE)
    });
    listed
        .map(|it| WitInterface {
            namespace: it.namespace,
            package: it.package,
            version: it
                .version
                .map(|version| version.to_string())
                .unwrap_or_default(),
            interfaces: it.interfaces.into_iter().collect(),
            ..WitInterface::default()
        })
        .collect()
}
