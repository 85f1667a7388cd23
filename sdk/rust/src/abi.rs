//! What [`controller!`](crate::controller) defines the module's exports with. No controller needs it by name.
//!
//! In: requests, in the room that `alloc` gave. Out: results, in memory that stays until the next call. Called by the
//! host, one call at a time.

use crate::{Controller, Error, Key, Outcome, Request, Saved, Start};
use serde_json::{json, Map, Value};

/// The version of the ABI that this library is made for.
pub const VERSION: i32 = 1;

/// A request that was large once: its room is not kept for ever.
const KEPT_ROOM: usize = 64 * 1024;

/// The one instance of a controller, with the texts of the call under way.
pub struct Held<C> {
    controller: Option<C>,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl<C> Default for Held<C> {
    fn default() -> Self {
        Held { controller: None, request: Vec::new(), answer: Vec::new() }
    }
}

impl<C: Controller> Held<C> {
    /// Room for a request. 0: there is none.
    pub fn alloc(&mut self, length: u32) -> u32 {
        let length = length as usize;
        if self.request.capacity() > KEPT_ROOM {
            self.request = Vec::new();
        }
        self.request.clear();
        if self.request.try_reserve_exact(length.max(1)).is_err() {
            return 0;
        }
        self.request.resize(length, 0);
        self.request.as_mut_ptr() as usize as u32
    }

    /// Start the controller.
    pub fn init(&mut self, length: u32) -> u64 {
        let read = self.read(length);
        let started = read.and_then(|read| C::start(&start_of(&read)));
        self.keep(started)
    }

    /// Start the controller with what a former version saved.
    pub fn migrate(&mut self, length: u32) -> u64 {
        let started = self.read(length).and_then(|read| {
            let from = Saved { sha256: text(&read["from"]["sha256"]), state: read["from"]["state"].clone() };
            let nothing = from.state.as_object().map_or(true, Map::is_empty);
            if nothing {
                C::start(&start_of(&read))
            } else {
                C::migrate(&start_of(&read), &from)
            }
        });
        self.keep(started)
    }

    /// Call the controller for one key.
    pub fn reconcile(&mut self, length: u32) -> u64 {
        let read = self.read(length);
        let outcome = match (read, &mut self.controller) {
            (Ok(read), Some(controller)) => controller.reconcile(&request_of(read)),
            (Ok(_), None) => Err(Error::from("the controller was not started: init comes first")),
            (Err(error), _) => Err(error),
        };
        match outcome {
            Ok(Outcome::RequeueAfter(seconds)) if seconds > 0 => self.answer(&json!({ "requeueAfter": seconds })),
            Ok(_) => 0,
            Err(error) => self.answer(&json!({ "error": error.to_string() })),
        }
    }

    /// Ask the controller what the next version should know.
    pub fn save(&mut self) -> u64 {
        match self.controller.as_ref().and_then(Controller::save) {
            Some(state) => self.answer(&state),
            None => 0,
        }
    }

    fn read(&self, length: u32) -> Result<Value, Error> {
        let text = self.request.get(..length as usize).unwrap_or_default();
        serde_json::from_slice(text).map_err(|problem| format!("the host's request is not JSON: {}", problem).into())
    }

    fn keep(&mut self, started: Result<C, Error>) -> u64 {
        match started {
            Ok(controller) => {
                self.controller = Some(controller);
                0
            }
            Err(error) => self.answer(&json!({ "error": error.to_string() })),
        }
    }

    fn answer(&mut self, value: &Value) -> u64 {
        self.answer = value.to_string().into_bytes();
        (self.answer.as_ptr() as usize as u64) << 32 | self.answer.len() as u64
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn start_of(read: &Value) -> Start {
    Start {
        namespace: text(&read["controller"]["namespace"]),
        name: text(&read["controller"]["name"]),
        config: read["config"].clone(),
        config_maps: read["configMaps"].clone(),
        secrets: read["secrets"].clone(),
    }
}

fn request_of(mut read: Value) -> Request {
    let key = &read["key"];
    Request {
        key: Key::new(&text(&key["apiVersion"]), &text(&key["kind"]), &text(&key["namespace"]), &text(&key["name"])),
        attempt: read["attempt"].as_u64().unwrap_or(0),
        traceparent: text(&read["traceparent"]),
        object: Some(read["object"].take()).filter(|object| !object.is_null()),
    }
}
