//! Mirrors ConfigMaps into another namespace, under the same name, and deletes a mirror when its source is gone.
//!
//! In: ConfigMaps; config `{"targetNamespace": "copies"}`. Out: ConfigMaps there, with the annotation below. Invariant:
//! what does not have this annotation, with this source, is never changed and never deleted.

use trellis_controller::{controller, json, kube, Controller, Error, ErrorKind, Key, Outcome, Request, Start, Value};

const SOURCE: &str = "examples.trellis.dev/mirror-of";

struct Mirror {
    target: String,
}

impl Controller for Mirror {
    fn start(start: &Start) -> Result<Self, Error> {
        let target = start.config["targetNamespace"]
            .as_str()
            .ok_or("config.targetNamespace is missing: the namespace that mirrors go to")?;
        Ok(Mirror { target: target.to_owned() })
    }

    fn reconcile(&mut self, request: &Request) -> Result<Outcome, Error> {
        if request.key.namespace == self.target {
            return Ok(Outcome::Done); // a mirror, or somebody else's
        }
        let source = format!("{}/{}", request.key.namespace, request.key.name);
        let mirror = Key::new("v1", "ConfigMap", &self.target, &request.key.name);
        let found = match kube::get(&mirror) {
            Ok(found) => Some(found),
            Err(error) if error.kind == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        match (&request.object, found) {
            (None, None) => {}
            (Some(object), None) => drop(kube::create(&make_mirror(&mirror, &source, object))?),
            (None, Some(found)) if is_ours(&found, &source) => remove(&mirror, &found)?,
            (None, Some(_)) => {}
            (Some(_), Some(found)) if !is_ours(&found, &source) => {
                return Err(format!(
                    "{} is there already and is no mirror of {}: rename one of the two",
                    mirror, source
                )
                .into());
            }
            (Some(object), Some(found)) if same(object, &found, "data") && same(object, &found, "binaryData") => {}
            (Some(object), Some(found)) => {
                let mut wanted = make_mirror(&mirror, &source, object);
                wanted["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"].clone();
                kube::update(&wanted, kube::WriteOptions::default())?;
            }
        }
        Ok(Outcome::Done)
    }
}

fn is_ours(mirror: &Value, source: &str) -> bool {
    mirror["metadata"]["annotations"][SOURCE] == source
}

/// No data and `{}` are the same.
fn same(left: &Value, right: &Value, field: &str) -> bool {
    let empty = json!({});
    left.get(field).unwrap_or(&empty) == right.get(field).unwrap_or(&empty)
}

fn make_mirror(mirror: &Key, source: &str, object: &Value) -> Value {
    let mut made = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": mirror.namespace, "name": mirror.name, "annotations": {SOURCE: source}},
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
