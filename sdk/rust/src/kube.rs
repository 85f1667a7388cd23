//! Requests to Kubernetes as the controller's ServiceAccount, with its RBAC permissions.

use crate::{host, Error, Key};
use serde_json::{json, Map, Value};

/// Options of a list. `ListOptions::default()`: all objects of all namespaces, 100 per page.
#[derive(Clone, Debug, Default)]
pub struct ListOptions<'a> {
    pub namespace: Option<&'a str>,
    pub label_selector: Option<&'a str>,
    pub field_selector: Option<&'a str>,
    pub limit: Option<u32>,
    /// Continuation: [`List::next`] of the former page.
    pub next: Option<&'a str>,
}

/// One page of a list.
#[derive(Clone, Debug)]
pub struct List {
    pub items: Vec<Value>,
    /// Continuation for the next page; `None` on the last one.
    pub next: Option<String>,
}

/// Options of a write.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteOptions<'a> {
    /// For apply: take over fields of other field managers.
    pub force: bool,
    /// Subresource, such as `status`.
    pub subresource: Option<&'a str>,
}

/// Preconditions of a deletion, and the policy for dependent objects.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeleteOptions<'a> {
    pub uid: Option<&'a str>,
    pub resource_version: Option<&'a str>,
    /// `Background`, `Foreground` or `Orphan`.
    pub propagation_policy: Option<&'a str>,
}

/// Format of the patch in [`patch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patch {
    Merge,
    Json,
}

/// Type of an [`event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    Normal,
    Warning,
}

pub fn get(key: &Key) -> Result<Value, Error> {
    object(keyed("get", key), &format!("get {}", key))
}

pub fn list(api_version: &str, kind: &str, options: &ListOptions<'_>) -> Result<List, Error> {
    let mut request = fields(json!({ "op": "list", "apiVersion": api_version, "kind": kind }));
    set(&mut request, "namespace", options.namespace);
    set(&mut request, "labelSelector", options.label_selector);
    set(&mut request, "fieldSelector", options.field_selector);
    set(&mut request, "limit", options.limit);
    set(&mut request, "continue", options.next);
    let mut answer = call(&request.into(), &format!("list {}", kind))?;
    let items = match answer["items"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    };
    let next = answer["continue"].as_str().filter(|next| !next.is_empty()).map(str::to_owned);
    Ok(List { items, next })
}

pub fn create(wanted: &Value) -> Result<Value, Error> {
    write("create", wanted, WriteOptions::default())
}

/// Server-side apply: this controller becomes the manager of exactly the fields of `wanted`.
pub fn apply(wanted: &Value, options: WriteOptions<'_>) -> Result<Value, Error> {
    write("apply", wanted, options)
}

/// Replaces an object. It has the `resourceVersion` of its last read.
pub fn update(wanted: &Value, options: WriteOptions<'_>) -> Result<Value, Error> {
    write("update", wanted, options)
}

pub fn patch(key: &Key, how: Patch, patch: &Value, options: WriteOptions<'_>) -> Result<Value, Error> {
    let mut request = keyed("patch", key);
    set(&mut request, "type", Some(if how == Patch::Merge { "merge" } else { "json" }));
    set(&mut request, "patch", Some(patch.clone()));
    set_write(&mut request, options);
    object(request, &format!("patch {}", key))
}

pub fn delete(key: &Key, options: DeleteOptions<'_>) -> Result<(), Error> {
    let mut request = keyed("delete", key);
    set(&mut request, "uid", options.uid);
    set(&mut request, "resourceVersion", options.resource_version);
    set(&mut request, "propagationPolicy", options.propagation_policy);
    call(&request.into(), &format!("delete {}", key)).map(drop)
}

/// Records a Kubernetes Event about an object. `reason`: one word in CamelCase.
pub fn event(regarding: &Value, event_type: EventType, reason: &str, message: &str) -> Result<(), Error> {
    let key = Key::of(regarding);
    let mut reference = fields(json!({ "apiVersion": key.api_version, "kind": key.kind, "name": key.name }));
    set(&mut reference, "namespace", Some(&*key.namespace).filter(|namespace| !namespace.is_empty()));
    set(&mut reference, "uid", regarding["metadata"]["uid"].as_str());
    let event_type = if event_type == EventType::Normal { "Normal" } else { "Warning" };
    let request = json!({
        "op": "event", "regarding": reference, "type": event_type, "reason": reason, "message": message,
    });
    call(&request, &format!("event about {}", key)).map(drop)
}

/// Sends any request of the ABI, also one without a function in this module. `what` begins the message of an error.
pub fn call(request: &Value, what: &str) -> Result<Value, Error> {
    let answer = host::call(request).map_err(|problem| Error::of_answer(what, 0, "BadAnswer", &problem.to_string()))?;
    let error = &answer["error"];
    if error.is_null() {
        return Ok(answer);
    }
    let code = error["code"].as_u64().unwrap_or(0) as u16;
    let text = |name: &str, without: &'static str| error[name].as_str().unwrap_or(without).to_owned();
    Err(Error::of_answer(what, code, &text("reason", ""), &text("message", "no message")))
}

fn object(request: Map<String, Value>, what: &str) -> Result<Value, Error> {
    call(&request.into(), what).map(|mut answer| answer["object"].take())
}

fn write(verb: &str, wanted: &Value, options: WriteOptions<'_>) -> Result<Value, Error> {
    let mut request = fields(json!({ "op": verb, "object": wanted }));
    set_write(&mut request, options);
    object(request, &format!("{} {}", verb, Key::of(wanted)))
}

fn keyed(verb: &str, key: &Key) -> Map<String, Value> {
    let mut request = fields(json!({
        "op": verb, "apiVersion": key.api_version, "kind": key.kind, "name": key.name,
    }));
    set(&mut request, "namespace", Some(&*key.namespace).filter(|namespace| !namespace.is_empty()));
    request
}

fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn set(request: &mut Map<String, Value>, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        request.insert(name.to_owned(), value.into());
    }
}

fn set_write(request: &mut Map<String, Value>, options: WriteOptions<'_>) {
    set(request, "force", Some(true).filter(|_| options.force));
    set(request, "subresource", options.subresource);
}
