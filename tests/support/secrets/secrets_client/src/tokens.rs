//! Keys, tokens and signed components, as the tools of wasmCloud make them, and tokens to the letter.

use std::collections::HashMap;

use anyhow::{anyhow, bail, Result};
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use base64::Engine;
use nkeys::{KeyPair, KeyPairType, XKey};
use serde::Deserialize;
use serde_json::{json, Value};
use wascap::jwt::{validate_token, CapabilityProvider, Claims, Component, Host};

#[derive(Deserialize)]
pub struct Asked {
    kind: String,
    seed: String,
    subject: String,
    name: String,
    expires: Option<u64>,
    not_before: Option<u64>,
}

/// Make a key of a kind.
pub fn key(kind: &str) -> Result<Value> {
    if kind == "curve" {
        let key = XKey::new();
        return Ok(json!({ "public": key.public_key(), "seed": key.seed()? }));
    }
    let key = KeyPair::new(match kind {
        "account" => KeyPairType::Account,
        "cluster" => KeyPairType::Cluster,
        "component" => KeyPairType::Module,
        "host" => KeyPairType::Server,
        "operator" => KeyPairType::Operator,
        "provider" => KeyPairType::Service,
        "user" => KeyPairType::User,
        _ => bail!("no kind of key: {kind}"),
    });
    Ok(json!({ "public": key.public_key(), "seed": key.seed()? }))
}

/// Sign a token of which header and claims are given.
pub fn sign(seed: &str, header: &str, claims: &str) -> Result<Value> {
    let text = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(header),
        URL_SAFE_NO_PAD.encode(claims)
    );
    let signature = KeyPair::from_seed(seed)?.sign(text.as_bytes())?;
    Ok(json!({ "token": format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)) }))
}

/// Have wascap make a token of a kind.
pub fn make_token(asked: Asked) -> Result<Value> {
    let key = KeyPair::from_seed(&asked.seed)?;
    let (issuer, subject) = (key.public_key(), asked.subject);
    let token = match asked.kind.as_str() {
        "component" => component_claims(
            (asked.name, issuer, subject),
            asked.not_before,
            asked.expires,
        )
        .encode(&key),
        "provider" => {
            let about = CapabilityProvider::new(
                asked.name,
                "test".into(),
                Some(0),
                Some("0.1.0".into()),
                HashMap::new(),
            );
            Claims::<CapabilityProvider>::with_provider(
                issuer,
                subject,
                asked.not_before,
                asked.expires,
                about,
            )
            .encode(&key)
        }
        "host" => {
            // A host signs its own token with an account key that it makes at each start, and says so.
            let labels = HashMap::from([("self_signed".to_string(), "true".to_string())]);
            Claims::<Host>::with_dates(
                asked.name,
                issuer,
                subject,
                asked.not_before,
                asked.expires,
                Some(labels),
            )
            .encode(&key)
        }
        other => bail!("no kind of token: {other}"),
    };
    Ok(json!({ "token": token.map_err(|error| anyhow!("{error}"))? }))
}

/// Return what the tools of wasmCloud say of a component: name, issuer, subject.
fn component_claims(
    (name, issuer, subject): (String, String, String),
    not_before: Option<u64>,
    expires: Option<u64>,
) -> Claims<Component> {
    let tags = Some(vec!["wasmcloud.com/experimental".into()]);
    let (revision, version) = (Some(0), Some("0.1.0".into()));
    Claims::<Component>::with_dates(
        name, issuer, subject, tags, not_before, expires, false, revision, version, None,
    )
}

/// Assemble a component of its text, and sign it as a build of wasmCloud does: the token goes into it.
pub fn make_component(text: &str, seed: &str, subject: String, name: String) -> Result<Value> {
    let key = KeyPair::from_seed(seed)?;
    let claims = component_claims((name, key.public_key(), subject), None, None);
    let signed = wascap::wasm::embed_claims(&wat::parse_str(text)?, &claims, &key);
    Ok(json!({ "data": STANDARD.encode(signed.map_err(|error| anyhow!("{error}"))?) }))
}

/// Say whether a host would take a token.
pub fn judge(kind: &str, token: &str) -> Result<Value> {
    let found = match kind {
        "component" => validate_token::<Component>(token),
        "provider" => validate_token::<CapabilityProvider>(token),
        "host" => validate_token::<Host>(token),
        other => bail!("no kind of token: {other}"),
    };
    let found = found.map_err(|error| anyhow!("{error}"))?;
    let good = found.signature_valid && !found.expired && !found.cannot_use_yet;
    Ok(json!({ "good": good }))
}
