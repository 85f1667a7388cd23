//! secrets-client: the secrets protocol from the side of a wasmCloud host, for tests and benchmarks.
//!
//! In: the address of a NATS server as the only argument, and questions on standard input, one JSON object a line.
//! Out: one JSON object a line, in order; `{"error": "..."}` for what could not be done. Keys, boxes and tokens are those
//! of the crates a host is made of (nkeys, wascap, wasmcloud-secrets-client), so a server is not its own judge.
//! Invariant: nothing is checked or repaired on its way out: a test may send what no host would.

mod load;
mod tokens;

use std::str::FromStr;
use std::time::Duration;

use anyhow::{anyhow, Context, Result};
use async_nats::{Client, HeaderMap, HeaderName, HeaderValue, Request};
use base64::engine::general_purpose::STANDARD;
use base64::Engine;
use nkeys::XKey;
use serde::Deserialize;
use serde_json::{json, Value};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use wasmcloud_secrets_types::SecretRequest;

/// One question. Bytes are base64, keys and seeds as nkeys writes them.
#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Question {
    /// Make a key of a kind: account, cluster, component, curve, host, operator, provider, user.
    Key { kind: String },
    /// Sign a token of which header and claims are given to the letter.
    Sign {
        seed: String,
        header: String,
        claims: String,
    },
    /// Have wascap make a token of a kind: component, provider, host.
    Token(tokens::Asked),
    /// Have wascap judge a token of a kind, as a host does.
    Judge { kind: String, token: String },
    /// Make a signed component of WebAssembly's text format.
    Component {
        text: String,
        seed: String,
        subject: String,
        name: String,
    },
    /// Seal bytes for a key, or open what was sealed for ours.
    Seal {
        seed: String,
        to: String,
        data: String,
    },
    Open {
        seed: String,
        from: String,
        data: String,
    },
    /// Publish with a reply subject, and wait for the answer.
    Request {
        subject: String,
        #[serde(default)]
        headers: Vec<(String, String)>,
        data: String,
        seconds: f64,
    },
    /// Publish without a reply subject.
    Publish {
        subject: String,
        #[serde(default)]
        headers: Vec<(String, String)>,
        data: String,
    },
    /// Ask as a host does, with its own client: key first, then the secret.
    AskAsHost {
        prefix: String,
        backend: String,
        request: Box<SecretRequest>,
    },
    /// Ask for many, some at once.
    Load(load::Plan),
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let url = std::env::args()
        .nth(1)
        .context("usage: secrets-client NATS_URL")?;
    let client = async_nats::connect(&url)
        .await
        .context("NATS does not answer")?;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut output = tokio::io::stdout();
    while let Some(line) = lines.next_line().await? {
        let answer = match answer(&client, &line).await {
            Ok(found) => found,
            Err(error) => json!({ "error": format!("{error:#}") }),
        };
        output.write_all(format!("{answer}\n").as_bytes()).await?;
        output.flush().await?;
    }
    Ok(())
}

async fn answer(client: &Client, line: &str) -> Result<Value> {
    match serde_json::from_str(line).context("no question")? {
        Question::Key { kind } => tokens::key(&kind),
        Question::Sign {
            seed,
            header,
            claims,
        } => tokens::sign(&seed, &header, &claims),
        Question::Token(token) => tokens::make_token(token),
        Question::Judge { kind, token } => tokens::judge(&kind, &token),
        Question::Component {
            text,
            seed,
            subject,
            name,
        } => tokens::make_component(&text, &seed, subject, name),
        Question::Seal { seed, to, data } => {
            let sealed = xkey(&seed)?.seal(&STANDARD.decode(data)?, &XKey::from_public_key(&to)?);
            Ok(json!({ "data": STANDARD.encode(sealed.map_err(|error| anyhow!("{error}"))?) }))
        }
        Question::Open { seed, from, data } => {
            let opened = xkey(&seed)?.open(&STANDARD.decode(data)?, &XKey::from_public_key(&from)?);
            Ok(json!({ "data": STANDARD.encode(opened.map_err(|error| anyhow!("{error}"))?) }))
        }
        Question::Request {
            subject,
            headers,
            data,
            seconds,
        } => request(client, subject, &headers, &data, seconds).await,
        Question::Publish {
            subject,
            headers,
            data,
        } => {
            let payload = STANDARD.decode(data)?.into();
            client
                .publish_with_headers(subject, header_map(&headers)?, payload)
                .await?;
            client.flush().await?;
            Ok(json!({}))
        }
        Question::AskAsHost {
            prefix,
            backend,
            request,
        } => ask_as_host(client, &prefix, &backend, *request).await,
        Question::Load(plan) => load::run(client, plan).await,
    }
}

fn xkey(seed: &str) -> Result<XKey> {
    XKey::from_seed(seed).map_err(|error| anyhow!("no curve seed: {error}"))
}

fn header_map(headers: &[(String, String)]) -> Result<HeaderMap> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name = HeaderName::from_str(name).map_err(|error| anyhow!("{error}"))?;
        map.append(
            name,
            HeaderValue::from_str(value).map_err(|error| anyhow!("{error}"))?,
        );
    }
    Ok(map)
}

async fn request(
    client: &Client,
    subject: String,
    headers: &[(String, String)],
    data: &str,
    seconds: f64,
) -> Result<Value> {
    let asked = Request::new()
        .payload(STANDARD.decode(data)?.into())
        .headers(header_map(headers)?)
        .timeout(Some(Duration::from_secs_f64(seconds)));
    let answer = client.send_request(subject, asked).await?;
    let headers: Vec<(String, String)> = answer
        .headers
        .iter()
        .flat_map(HeaderMap::iter)
        .flat_map(|(name, values)| {
            values
                .iter()
                .map(move |value| (name.to_string(), value.to_string()))
        })
        .collect();
    Ok(json!({ "data": STANDARD.encode(&answer.payload), "headers": headers }))
}

async fn ask_as_host(
    client: &Client,
    prefix: &str,
    backend: &str,
    request: SecretRequest,
) -> Result<Value> {
    let asking = wasmcloud_secrets_client::Client::new(backend, prefix, client.clone()).await?;
    let secret = asking.get(request, XKey::new()).await?;
    Ok(json!({
        "version": secret.version, "string_secret": secret.string_secret, "binary_secret": secret.binary_secret,
    }))
}
