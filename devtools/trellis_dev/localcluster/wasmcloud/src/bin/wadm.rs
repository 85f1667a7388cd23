//! wadm: keeps the applications of lattices as their manifests say.
//!
//! In: wadm's own options and environment variables. Out: its log on standard error. Called by `trellis dev up --wadm`.
//! Invariant: it ends as soon as one of wadm's tasks does, with that task's error, so that nobody talks to a half of it.

use anyhow::{bail, Context, Result};
use clap::Parser;
use wadm::config::WadmConfig;

#[tokio::main]
async fn main() -> Result<()> {
    let config = WadmConfig::parse();
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
    let server = config.nats_server.clone();
    let mut tasks = wadm::start_wadm(config)
        .await
        .with_context(|| format!("wadm cannot start with the NATS server {server}"))?;
    match tasks.join_next().await {
        Some(ended) => ended.context("a task of wadm panicked")??,
        None => bail!("wadm started no task"),
    }
    bail!("a task of wadm ended")
}
