//! Functions for the exports that [`controller!`](crate::controller) defines. Controllers do not call them.
//!
//! In: requests, in memory of `alloc`. Out: results, in memory that is valid until the next call. Called by the
//! host, one call at a time.

use crate::{Controller, Error, Key, Outcome, Request, Saved, Start};
use serde_json::{json, Map, Value};

/// ABI version of this library.
pub const VERSION: i32 = 1;

/// Maximum size of the buffer that remains allocated after a large request.
const KEPT_ROOM: usize = 64 * 1024;

/// The instance of a controller, with the buffers of the current call.
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
    /// Returns memory for a request; 0 if there is none.
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

    /// Starts the controller.
    pub fn init(&mut self, length: u32) -> u64 {
        let read = self.read(length);
        let started = read.and_then(|read| C::start(&start_of(&read)));
        self.keep(started)
    }

    /// Starts the controller with the state that a former version saved.
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

    /// Calls the controller for one key.
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

    /// Requests the state for the next version from the controller.
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
