//! Counts its calls, to show that a suspension loses no state: a controller for tests and measurements.
//!
//! In: objects of any kind; config `{"bytes": N}`, the size of additional memory. Out: a ConfigMap `<name>-seen`
//! beside each object, with the number of calls and the objects of all calls. A cold start begins with an empty
//! table; a new version takes over the state that the former one saved.

use std::collections::BTreeMap;
use trellis_controller::{controller, host, json, kube, Controller, Error, Outcome, Request, Saved, Start, Value};

struct Stateful {
    calls: u64,
    seen: BTreeMap<String, u64>,
    filler: Vec<u8>,
    last_clock: i64,
}

fn pattern(bytes: usize) -> impl Iterator<Item = u8> {
    (0..bytes).map(|at| (at % 251) as u8)
}

impl Controller for Stateful {
    fn start(start: &Start) -> Result<Self, Error> {
        let bytes = match start.config.get("bytes") {
            None => 0,
            Some(bytes) => bytes
                .as_u64()
                .filter(|bytes| *bytes <= i32::MAX as u64)
                .ok_or("config.bytes is no whole number from 0 to 2147483647")?,
        };
        let mut filler = Vec::new();
        filler.try_reserve_exact(bytes as usize).map_err(|_| "config.bytes is more than there is memory")?;
        filler.extend(pattern(bytes as usize));
        Ok(Stateful { calls: 0, seen: BTreeMap::new(), filler, last_clock: 0 })
    }

    fn reconcile(&mut self, request: &Request) -> Result<Outcome, Error> {
        let clock = host::monotonic();
        let forward = clock >= self.last_clock;
        self.last_clock = clock;
        self.calls += 1;
        *self.seen.entry(request.key.name.clone()).or_default() += 1;
        let whole = self.filler.iter().copied().eq(pattern(self.filler.len()));
        let seen: Vec<String> =
            self.seen.iter().map(|(name, times)| format!("{}: {}", Value::from(&**name), times)).collect();
        let report = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": request.key.namespace, "name": format!("{}-seen", request.key.name)},
            "data": {
                "calls": self.calls.to_string(),
                "seen": format!("{{{}}}", seen.join(", ")),
                "memory": if whole { "whole" } else { "damaged" },
                "clock": if forward { "forward" } else { "backward" },
            },
        });
        kube::apply(&report, kube::WriteOptions { force: true, ..Default::default() })?;
        Ok(Outcome::Done)
    }

    fn save(&self) -> Option<Value> {
        Some(json!({ "calls": self.calls, "seen": self.seen }))
    }

    fn migrate(start: &Start, from: &Saved) -> Result<Self, Error> {
        let mut started = Self::start(start)?;
        started.calls = from.state["calls"].as_u64().unwrap_or(0);
        for (name, times) in from.state["seen"].as_object().into_iter().flatten() {
            started.seen.insert(name.clone(), times.as_u64().unwrap_or(0));
        }
        Ok(started)
    }
}

controller!(Stateful);
