//! A member of a ring: if the ConfigMap that it watches has a newer data.nonce, it writes this to the next
//! ConfigMap.
//!
//! In: ConfigMaps; config `{"next": "ring-7"}`, a name in the same namespace. Out: data.nonce of the next one, by
//! apply. The last written value is cached, which saves a request; after a cold start, the controller reads the next
//! one.

use trellis_controller::{
    controller, json, kube, parse_number, Controller, Error, ErrorKind, Key, Outcome, Request, Start,
};

struct Ring {
    next: String,
    passed_on: Option<i64>,
}

impl Controller for Ring {
    fn start(start: &Start) -> Result<Self, Error> {
        let next = start.config["next"].as_str().ok_or("config.next is missing: the name of the next ConfigMap")?;
        Ok(Ring { next: next.to_owned(), passed_on: None })
    }

    fn reconcile(&mut self, request: &Request) -> Result<Outcome, Error> {
        let text = request.object.as_ref().and_then(|object| object["data"]["nonce"].as_str());
        let text = match text {
            Some(text) if request.key.name != self.next => text,
            _ => return Ok(Outcome::Done),
        };
        let nonce = parse_number(text).ok_or_else(|| format!("data.nonce is no whole number: {}", text))?;
        if Some(nonce) <= self.passed_on {
            return Ok(Outcome::Done);
        }
        let next = Key { name: self.next.clone(), ..request.key.clone() };
        let old = match kube::get(&next) {
            Ok(found) => found["data"]["nonce"].as_str().and_then(parse_number),
            Err(error) if error.kind == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if old < Some(nonce) {
            let wanted = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"namespace": next.namespace, "name": next.name}, "data": {"nonce": text},
            });
            kube::apply(&wanted, kube::WriteOptions { force: true, ..Default::default() })?;
        }
        self.passed_on = Some(nonce);
        Ok(Outcome::Done)
    }
}

controller!(Ring);
