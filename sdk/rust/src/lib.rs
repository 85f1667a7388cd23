//! Kubernetes controllers in WebAssembly, run by Trellis.
//!
//! Implement [`Controller`], name it in [`controller!`], and build a `cdylib` for `wasm32-wasip1`. Objects are
//! [`serde_json::Value`]s. [`kube`] sends requests to Kubernetes as the controller's ServiceAccount. Between two calls,
//! a controller can be suspended to disk and restored unchanged, or restarted: its memory is only a cache.

pub mod abi;
mod error;
pub mod host;
pub mod kube;
mod text;

pub use error::{Error, ErrorKind};
pub use serde_json::{json, Value};
pub use text::{decode_base64, parse_number, parse_time};

/// Identifies the object of a call or of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Key {
    pub api_version: String,
    pub kind: String,
    /// Empty for cluster-scoped kinds.
    pub namespace: String,
    pub name: String,
}

impl Key {
    /// Returns the key of a namespaced object.
    pub fn new(api_version: &str, kind: &str, namespace: &str, name: &str) -> Key {
        Key {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Returns the key of an object; fields that the object does not have are empty.
    pub fn of(object: &Value) -> Key {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        Key {
            api_version: text(&object["apiVersion"]),
            kind: text(&object["kind"]),
            namespace: text(&metadata["namespace"]),
            name: text(&metadata["name"]),
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() {
            return write!(to, "{} {}", self.kind, self.name);
        }
        write!(to, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// An object that may have changed.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub key: Key,
    /// State in the cache of the host's watch, which can be outdated; `None` if the object was deleted.
    pub object: Option<Value>,
    /// Number of consecutive failures of this key.
    pub attempt: u64,
    /// W3C trace context; empty if there is none.
    pub traceparent: String,
}

/// Result of a successful call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Wait for the next change.
    Done,
    /// Call for this key after this time at the latest, also without a change.
    RequeueAfter(u64),
}

/// Input of a cold start.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// Namespace of the WasmController.
    pub namespace: String,
    pub name: String,
    /// `spec.config`; `Null` if there is none.
    pub config: Value,
    /// Data of the ConfigMaps in `spec.configMapRefs`, by name.
    pub config_maps: Value,
    /// Data of the Secrets in `spec.secretRefs`, by name; values are in base64: [`decode_base64`].
    pub secrets: Value,
}

/// State that the former version of a module saved.
#[derive(Clone, Debug, Default)]
pub struct Saved {
    pub sha256: String,
    pub state: Value,
}

/// A controller. One instance serves all keys, one call at a time.
pub trait Controller: Sized {
    /// Called once after a cold start. After an error, the controller does not start, and the host retries.
    fn start(start: &Start) -> Result<Self, Error>;

    /// Reconciles the state that depends on one object. The host can call it twice for one change, and once for
    /// several. After an error, the host retries the key with backoff, and shows the text of the error to users.
    fn reconcile(&mut self, request: &Request) -> Result<Outcome, Error>;

    /// Returns state for the next version of this module: a JSON object; empty if there is none.
    fn save(&self) -> Option<Value> {
        None
    }

    /// Called in place of [`start`](Controller::start) in the first start of a new version, if the former version saved
    /// state.
    fn migrate(start: &Start, from: &Saved) -> Result<Self, Error> {
        let _ = from;
        Self::start(start)
    }
}

/// Makes a [`Controller`] the one of this module: defines the functions that the host calls.
#[macro_export]
macro_rules! controller {
    ($controller:ty) => {
        // On other targets only tests call it; it is not dead code.
        #[cfg(not(target_arch = "wasm32"))]
        const _: fn(&$crate::Start) -> Result<$controller, $crate::Error> = <$controller as $crate::Controller>::start;

        #[cfg(target_arch = "wasm32")]
        mod trellis_exports {
            use super::*;

            thread_local! {
                static HELD: std::cell::RefCell<$crate::abi::Held<$controller>> = std::cell::RefCell::default();
            }

            extern "C" {
                fn __wasm_call_ctors();
            }

            // Once. Without an explicit call of the constructors, the linker calls them around every export, as for a
            // command, which ends after one.
            #[export_name = "_initialize"]
            extern "C" fn initialize() {
                unsafe { __wasm_call_ctors() }
            }
            #[export_name = "abi_version"]
            extern "C" fn abi_version() -> i32 {
                $crate::abi::VERSION
            }
            #[export_name = "alloc"]
            extern "C" fn alloc(length: u32) -> u32 {
                HELD.with(|held| held.borrow_mut().alloc(length))
            }
            #[export_name = "init"]
            extern "C" fn init(_at: u32, length: u32) -> u64 {
                HELD.with(|held| held.borrow_mut().init(length))
            }
            #[export_name = "reconcile"]
            extern "C" fn reconcile(_at: u32, length: u32) -> u64 {
                HELD.with(|held| held.borrow_mut().reconcile(length))
            }
            #[export_name = "save"]
            extern "C" fn save() -> u64 {
                HELD.with(|held| held.borrow_mut().save())
            }
            #[export_name = "migrate"]
            extern "C" fn migrate(_at: u32, length: u32) -> u64 {
                HELD.with(|held| held.borrow_mut().migrate(length))
            }
        }
    };
}
