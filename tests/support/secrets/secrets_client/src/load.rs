//! Load: many requests for secrets, some at once, each sealed with a fresh key as a host's are.
//!
//! In: how many, how many at once, for what. Out: how long each took, and what came instead of the value.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{anyhow, Context, Result};
use async_nats::{Client, HeaderMap, Request};
use nkeys::XKey;
use serde::Deserialize;
use serde_json::{json, Value};

const HOST_XKEY: &str = "WasmCloud-Host-Xkey";
const RESPONSE_XKEY: &str = "Server-Response-Xkey";

#[derive(Deserialize)]
pub struct Plan {
    subject: String,
    server_xkey: String,
    /// Requests as they are before they are sealed, and the value each has to bring; taken in turns.
    requests: Vec<(String, String)>,
    at_once: usize,
    count: usize,
    seconds: f64,
}

/// What one worker saw.
#[derive(Default)]
struct Seen {
    took: Vec<u64>,
    wrong: HashMap<String, usize>,
}

/// Ask for all; answer with nanoseconds for each that brought its value, in all, and what else came how often.
pub async fn run(client: &Client, plan: Plan) -> Result<Value> {
    let server = XKey::from_public_key(&plan.server_xkey).map_err(|error| anyhow!("{error}"))?;
    let (plan, next) = (Arc::new(plan), Arc::new(AtomicUsize::new(0)));
    let begun = Instant::now();
    let workers: Vec<_> = (0..plan.at_once)
        .map(|_| {
            tokio::spawn(work(
                client.clone(),
                plan.clone(),
                server.clone(),
                next.clone(),
            ))
        })
        .collect();
    let mut all = Seen::default();
    for worker in workers {
        let seen = worker.await?;
        all.took.extend(seen.took);
        for (what, times) in seen.wrong {
            *all.wrong.entry(what).or_default() += times;
        }
    }
    let elapsed = u64::try_from(begun.elapsed().as_nanos())?;
    Ok(json!({ "took": all.took, "elapsed": elapsed, "wrong": all.wrong }))
}

async fn work(client: Client, plan: Arc<Plan>, server: XKey, next: Arc<AtomicUsize>) -> Seen {
    let mut seen = Seen::default();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= plan.count {
            return seen;
        }
        let (request, expected) = &plan.requests[number % plan.requests.len()];
        let begun = Instant::now();
        match ask(&client, &plan, &server, request).await {
            Ok(found) if found == *expected => {
                seen.took
                    .push(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
            }
            Ok(_) => *seen.wrong.entry("another value".into()).or_default() += 1,
            Err(error) => *seen.wrong.entry(format!("{error:#}")).or_default() += 1,
        }
    }
}

/// Ask for one; return its value.
async fn ask(client: &Client, plan: &Plan, server: &XKey, request: &str) -> Result<String> {
    let ours = XKey::new();
    let sealed = ours
        .seal(request.as_bytes(), server)
        .map_err(|error| anyhow!("{error}"))?;
    let mut headers = HeaderMap::new();
    headers.insert(HOST_XKEY, ours.public_key().as_str());
    let asked = Request::new()
        .payload(sealed.into())
        .headers(headers)
        .timeout(Some(Duration::from_secs_f64(plan.seconds)));
    let answer = client.send_request(plan.subject.clone(), asked).await?;
    let theirs = answer
        .headers
        .as_ref()
        .and_then(|headers| headers.get(RESPONSE_XKEY));
    let Some(theirs) = theirs else {
        return Err(anyhow!("{}", String::from_utf8_lossy(&answer.payload)));
    };
    let theirs = XKey::from_public_key(theirs.as_str()).map_err(|error| anyhow!("{error}"))?;
    let opened = ours
        .open(&answer.payload, &theirs)
        .map_err(|error| anyhow!("{error}"))?;
    let secret: Value = serde_json::from_slice(&opened)?;
    let value = secret["secret"]["string_secret"]
        .as_str()
        .context("no string_secret")?;
    Ok(value.to_string())
}
