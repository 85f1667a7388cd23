//! Copies ConfigMaps to another namespace, under the same name, and deletes a copy after its source was deleted.
//!
//! In: ConfigMaps; their copies, because only a copy shows a source that was deleted while the controller did not
//! run; config `{"targetNamespace": "copies", "selector": "app=shop"}`, as `kubectl -l` accepts it; without a
//! selector, all. Out: ConfigMaps in that namespace, with the annotation and the label below. Invariant: an object
//! without this annotation for this source is never changed or deleted.

use trellis_controller::{controller, json, kube, Controller, Error, ErrorKind, Key, Outcome, Request, Start, Value};

const SOURCE: &str = "examples.trellis.dev/mirror-of";
/// Namespace of the source, so that a watch can select its copies.
const FROM: &str = "examples.trellis.dev/mirrored-from";

struct Mirror {
    target: String,
    selector: Option<String>,
}

impl Controller for Mirror {
    fn start(start: &Start) -> Result<Self, Error> {
        let target = start.config["targetNamespace"]
            .as_str()
            .ok_or("config.targetNamespace is missing: the namespace that mirrors go to")?;
        let selector = start.config["selector"].as_str().map(str::to_owned);
        Ok(Mirror { target: target.to_owned(), selector })
    }

    fn reconcile(&mut self, request: &Request) -> Result<Outcome, Error> {
        if request.key.namespace != self.target {
            self.bring(&request.key, request.object.as_ref())?;
        } else if let Some(source) = request.object.as_ref().and_then(source_of) {
            self.bring(&source, self.find(&source)?.as_ref())?;
        }
        Ok(Outcome::Done)
    }
}

impl Mirror {
    fn find(&self, source: &Key) -> Result<Option<Value>, Error> {
        let named = format!("metadata.name={}", source.name);
        let only = kube::ListOptions {
            namespace: Some(&source.namespace),
            label_selector: self.selector.as_deref(),
            field_selector: Some(&named),
            limit: Some(1),
            ..Default::default()
        };
        Ok(kube::list("v1", "ConfigMap", &only)?.items.into_iter().next())
    }

    /// Reconciles the copy of an object, also of a deleted one.
    fn bring(&self, key: &Key, object: Option<&Value>) -> Result<(), Error> {
        let source = format!("{}/{}", key.namespace, key.name);
        let mirror = Key::new("v1", "ConfigMap", &self.target, &key.name);
        let found = match kube::get(&mirror) {
            Ok(found) => Some(found),
            Err(error) if error.kind == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        match (object, found) {
            (None, None) => {}
            (Some(object), None) => drop(kube::create(&make_mirror(&mirror, key, object))?),
            (None, Some(found)) if is_ours(&found, &source) => remove(&mirror, &found)?,
            (None, Some(_)) => {}
            (Some(_), Some(found)) if !is_ours(&found, &source) => {
                return Err(format!(
                    "{} is there already and is no mirror of {}: rename one of the two",
                    mirror, source
                )
                .into());
            }
            (Some(object), Some(found)) if is_mirrored(&found, object, &key.namespace) => {}
            (Some(object), Some(found)) => {
                let mut wanted = make_mirror(&mirror, key, object);
                wanted["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"].clone();
                kube::update(&wanted, kube::WriteOptions::default())?;
            }
        }
        Ok(())
    }
}

/// Returns the source that the annotation of a copy names; an object without it, or with another name, is unmanaged.
fn source_of(mirror: &Value) -> Option<Key> {
    let (namespace, name) = mirror["metadata"]["annotations"][SOURCE].as_str()?.split_once('/')?;
    (mirror["metadata"]["name"] == name).then(|| Key::new("v1", "ConfigMap", namespace, name))
}

fn is_ours(mirror: &Value, source: &str) -> bool {
    mirror["metadata"]["annotations"][SOURCE] == source
}

/// Missing data and `{}` are equal.
fn same(left: &Value, right: &Value, field: &str) -> bool {
    let empty = json!({});
    left.get(field).unwrap_or(&empty) == right.get(field).unwrap_or(&empty)
}

fn is_mirrored(found: &Value, object: &Value, namespace: &str) -> bool {
    found["metadata"]["labels"][FROM] == namespace && same(object, found, "data") && same(object, found, "binaryData")
}

fn make_mirror(mirror: &Key, source: &Key, object: &Value) -> Value {
    let mut made = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "namespace": mirror.namespace, "name": mirror.name,
            "labels": {FROM: source.namespace},
            "annotations": {SOURCE: format!("{}/{}", source.namespace, source.name)},
        },
    });
    for field in ["data", "binaryData"] {
        if let Some(value) = object.get(field) {
            made[field] = value.clone();
        }
    }
    made
}

fn remove(mirror: &Key, found: &Value) -> Result<(), Error> {
    let as_seen = kube::DeleteOptions {
        uid: found["metadata"]["uid"].as_str(),
        resource_version: found["metadata"]["resourceVersion"].as_str(),
        ..Default::default()
    };
    match kube::delete(mirror, as_seen) {
        Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
        answer => answer,
    }
}

controller!(Mirror);
