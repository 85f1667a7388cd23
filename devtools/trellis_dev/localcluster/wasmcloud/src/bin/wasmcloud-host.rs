//! wasmcloud-host: a host of one lattice, with the built-in providers.
//!
//! In: options, see `--help`. Out: its log on standard error. Called by `trellis dev up --wadm` and by tests.
//! Invariant: SIGTERM, SIGINT and a stop by the control interface end it alike: the lattice is told, then it exits.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use nkeys::KeyPair;
use tokio::signal::unix::{signal, SignalKind};
use tokio::time::{timeout_at, Instant};
use wasmcloud_host::oci::Config as OciConfig;
use wasmcloud_host::url::Url;
use wasmcloud_host::wasmbus::Features;
use wasmcloud_host::{WasmbusHost, WasmbusHostConfig};

/// The release of wasmCloud that the host's crate belongs to; hosts of that release report it.
const RELEASE: &str = "1.9.2";
/// How long the lattice may take to hear that the host ends.
const GOODBYE: Duration = Duration::from_secs(10);

#[derive(Parser)]
#[command(name = "wasmcloud-host", version = RELEASE, about = "A wasmCloud host")]
struct Options {
    /// URL of the NATS server, for control and for calls
    #[arg(long, default_value = "nats://127.0.0.1:4222")]
    nats: Url,
    /// Lattice to be a host of
    #[arg(long, default_value = "default")]
    lattice: String,
    /// JetStream domain, if the server has one
    #[arg(long)]
    js_domain: Option<String>,
    /// Label KEY=VALUE; may be given several times
    #[arg(long = "label", value_parser = key_and_value)]
    labels: Vec<(String, String)>,
    /// File with the host's own seed (SN...); a new identity without it
    #[arg(long)]
    seed_file: Option<PathBuf>,
    /// Seconds between heartbeats
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    heartbeat: u64,
    /// Allow components and providers from files (file://)
    #[arg(long)]
    allow_file_load: bool,
    /// Registry HOST:PORT to be asked over plain HTTP; may be given several times
    #[arg(long)]
    insecure_registry: Vec<String>,
    /// Subject prefix of secrets backends
    #[arg(long)]
    secrets_topic: Option<String>,
}

fn key_and_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err(format!("'{text}' is no KEY=VALUE")),
    }
}

fn host_key(file: Option<&PathBuf>) -> Result<Option<Arc<KeyPair>>> {
    let Some(path) = file else { return Ok(None) };
    let name = path.display();
    let seed = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    // The library's error may quote what it was given, which is a secret.
    let key = KeyPair::from_seed(seed.trim()).ok();
    Ok(Some(Arc::new(key.with_context(|| format!("{name} holds no seed of a host"))?)))
}

fn configuration(options: Options) -> Result<WasmbusHostConfig> {
    let features = Features::new()
        .enable_builtin_http_client()
        .enable_builtin_http_server()
        .enable_builtin_messaging_nats();
    Ok(WasmbusHostConfig {
        ctl_nats_url: options.nats.clone(),
        rpc_nats_url: options.nats,
        lattice: options.lattice.into(),
        js_domain: options.js_domain,
        labels: options.labels.into_iter().collect::<HashMap<_, _>>(),
        host_key: host_key(options.seed_file.as_ref())?,
        heartbeat_interval: Some(Duration::from_secs(options.heartbeat)),
        allow_file_load: options.allow_file_load,
        oci_opts: OciConfig {
            allowed_insecure: options.insecure_registry,
            ..OciConfig::default()
        },
        secrets_topic_prefix: options.secrets_topic,
        experimental_features: features,
        version: RELEASE.into(),
        ..WasmbusHostConfig::default()
    })
}

#[tokio::main]
async fn main() -> Result<()> {
    let config = configuration(Options::parse())?;
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (host, goodbye) = WasmbusHost::new(config)
        .await
        .context("the host cannot start")?;
    let deadline = tokio::select! {
        stopped = host.stopped() => stopped?,
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
    };
    timeout_at(deadline.unwrap_or_else(|| Instant::now() + GOODBYE), goodbye)
        .await
        .context("the lattice could not be told in time")?
}
