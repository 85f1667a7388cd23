//! A host's side of the secrets protocol, by the crates that a wasmCloud host is made of.
//!
//! One question a line on standard input, one answer a line on standard output, both JSON:
//! `ask` makes keys and tokens, and seals a request as a host does; `read` opens an answer as a host does; `validate`
//! looks at tokens as the protocol's own crate does; `public` says which key a seed is. Test keys only.

use std::collections::HashMap;
use std::io::{stdin, stdout, BufRead, Write};

use anyhow::{anyhow, bail, Context as _, Result};
use nkeys::{KeyPair, KeyPairType, XKey};
use serde_json::{json, Value};
use wascap::jwt::{CapabilityProvider, Claims, Component, Host};
use wasmcloud_secrets_types::{Application, Context, SecretConfig, SecretResponse};

const FROM_NOW_ON: Option<u64> = None;

fn main() -> Result<()> {
    for line in stdin().lock().lines() {
        let question: Value = serde_json::from_str(&line?)?;
        let answer = answer(&question).unwrap_or_else(|error| json!({"failed": format!("{error:#}")}));
        writeln!(stdout(), "{answer}")?;
        stdout().flush()?;
    }
    Ok(())
}

fn answer(question: &Value) -> Result<Value> {
    match text(question, "op")? {
        "ask" => ask(question),
        "read" => read(question),
        "validate" => validate(question),
        "public" => Ok(json!({"public": curve_seed(question)?.public_key()})),
        other => bail!("no operation {other}"),
    }
}

fn ask(question: &Value) -> Result<Value> {
    let server = curve_key(question, "server")?;
    let expires = question["expires"].as_u64();
    let (account, entity_jwt, entity) = match text(question, "entity")? {
        "component" => component(expires)?,
        "provider" => provider(expires)?,
        other => bail!("no entity {other}"),
    };
    let (host, issuer) = (KeyPair::new_server(), KeyPair::new_account());
    let labels = HashMap::from([("self_signed".to_string(), "true".to_string())]);
    let host_jwt = Claims::<Host>::new("blue-sky-1".into(), issuer.public_key(), host.public_key(), Some(labels))
        .encode(&issuer)?;
    let properties = serde_json::from_value(question["properties"].clone())?;
    let config = SecretConfig::new(
        "a-name".into(),
        "kube".into(),
        text(question, "key")?.into(),
        Some(text(question, "field")?.into()),
        None,
        properties,
    );
    let application = question["application"].as_str().map(String::from);
    let request = config.try_into_request(&entity_jwt, &host_jwt, application.as_ref())?;
    let own = XKey::new();
    let sealed = own.seal(serde_json::to_string(&request)?.as_bytes(), &server)?;
    Ok(json!({
        "header": own.public_key(), "payload": hex(&sealed), "seed": own.seed()?,
        "issuer": account, "entity": entity, "host": host.public_key(), "host_issuer": issuer.public_key(),
    }))
}

fn component(expires: Option<u64>) -> Result<(String, String, String)> {
    let (account, module) = (KeyPair::new_account(), KeyPair::new_module());
    let claims = Claims::<Component>::with_dates(
        "shop".into(),
        account.public_key(),
        module.public_key(),
        None,
        FROM_NOW_ON,
        expires,
        false,
        Some(1),
        Some("0.1.0".into()),
        None,
    );
    Ok((account.public_key(), claims.encode(&account)?, module.public_key()))
}

fn provider(expires: Option<u64>) -> Result<(String, String, String)> {
    let (account, service) = (KeyPair::new_account(), KeyPair::new_service());
    let claims = Claims::<CapabilityProvider>::with_dates(
        "shop".into(),
        account.public_key(),
        service.public_key(),
        "acme".into(),
        Some(1),
        Some("0.1.0".into()),
        HashMap::from([("x86_64-linux".to_string(), "AB".to_string())]),
        FROM_NOW_ON,
        expires,
    );
    Ok((account.public_key(), claims.encode(&account)?, service.public_key()))
}

fn read(question: &Value) -> Result<Value> {
    let payload = unhex(text(question, "payload")?)?;
    let Some(header) = question["header"].as_str() else {
        let response: SecretResponse = serde_json::from_slice(&payload).context("not an answer of the protocol")?;
        let error = response.error.ok_or_else(|| anyhow!("an unsealed answer without an error"))?;
        return Ok(json!({"error": error.to_string()}));
    };
    let opened = curve_seed(question)?.open(&payload, &XKey::from_public_key(header)?)?;
    let response: SecretResponse = serde_json::from_slice(&opened).context("not an answer of the protocol")?;
    let secret = response.secret.ok_or_else(|| anyhow!("a sealed answer without a secret"))?;
    Ok(json!({"version": secret.version, "string": secret.string_secret, "bytes": secret.binary_secret}))
}

fn validate(question: &Value) -> Result<Value> {
    let context = Context {
        entity_jwt: text(question, "entity_jwt")?.into(),
        host_jwt: text(question, "host_jwt")?.into(),
        application: Application::default(),
    };
    Ok(json!({"refused": context.valid_claims().err().map(|error| error.to_string())}))
}

fn curve_seed(question: &Value) -> Result<XKey> {
    Ok(XKey::from_seed(text(question, "seed")?)?)
}

fn curve_key(question: &Value, name: &str) -> Result<XKey> {
    let key = text(question, name)?;
    let key = XKey::from_public_key(key)?;
    if key.key_pair_type() != KeyPairType::Curve {
        bail!("no curve key");
    }
    Ok(key)
}

fn text<'a>(question: &'a Value, name: &str) -> Result<&'a str> {
    question[name].as_str().with_context(|| format!("{name} is missing"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Result<Vec<u8>> {
    let pairs = (0..text.len()).step_by(2).map(|at| text.get(at..at + 2).unwrap_or("-"));
    Ok(pairs.map(|pair| u8::from_str_radix(pair, 16)).collect::<Result<_, _>>()?)
}
