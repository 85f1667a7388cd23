//! Kubernetes controllers in WebAssembly, run by Trellis.
//!
//! Implement [`Controller`], name it in [`controller!`], build a `cdylib` for `wasm32-wasip1`. Objects are
//! [`serde_json::Value`]s; [`kube`] asks Kubernetes, as the controller's ServiceAccount. Between two calls a controller
//! may be put to disk and brought back as it was, or be started anew: what it holds in memory is a cache.

pub mod abi;
mod error;
pub mod host;
pub mod kube;
mod text;

pub use error::{Error, ErrorKind};
pub use serde_json::{json, Value};
pub use text::{decode_base64, parse_number, parse_time};

/// Which object a call is about, or a request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Key {
    pub api_version: String,
    pub kind: String,
    /// Empty for kinds that have none.
    pub namespace: String,
    pub name: String,
}

impl Key {
    /// The key of an object of a namespace.
    pub fn new(api_version: &str, kind: &str, namespace: &str, name: &str) -> Key {
        Key {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// The key of an object; empty where it says nothing.
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

/// One object that may have changed.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub key: Key,
    /// What the host's watch shows, as old as any cache; `None` if the object is gone.
    pub object: Option<Value>,
    /// Failures of this key in a row.
    pub attempt: u64,
    /// W3C trace context; empty if there is none.
    pub traceparent: String,
}

/// How a call ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing more to do until something changes.
    Done,
    /// Call again for this key after that many seconds, if nothing does earlier.
    RequeueAfter(u64),
}

/// What a controller is told once, after a cold start.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// Of the WasmController.
    pub namespace: String,
    pub name: String,
    /// `spec.config`; `Null` if there is none.
    pub config: Value,
    /// Name → data of the ConfigMaps it refers to.
    pub config_maps: Value,
    /// Name → data of the Secrets it refers to, values in base64: [`decode_base64`].
    pub secrets: Value,
}

/// What the former version of a module saved.
#[derive(Clone, Debug, Default)]
pub struct Saved {
    pub sha256: String,
    pub state: Value,
}

/// A controller. One instance of it serves all its keys, one call at a time.
pub trait Controller: Sized {
    /// Once after a cold start. An error keeps the controller from starting; it is tried again.
    fn start(start: &Start) -> Result<Self, Error>;

    /// Make right what depends on one object. It may be called twice for one change, and once for several. An error
    /// has the key tried again, later and later; people see its text.
    fn reconcile(&mut self, request: &Request) -> Result<Outcome, Error>;

    /// What the next version of this module should know: a JSON object; empty: nothing.
    fn save(&self) -> Option<Value> {
        None
    }

    /// Instead of [`start`](Controller::start), in the first start of a new version, with what the former one saved,
    /// if that is not nothing.
    fn migrate(start: &Start, from: &Saved) -> Result<Self, Error> {
        let _ = from;
        Self::start(start)
    }
}

/// Makes a [`Controller`] the one of this module: defines what the host calls.
#[macro_export]
macro_rules! controller {
    ($controller:ty) => {
        // Elsewhere nobody calls it but tests, and it is no dead code for that.
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

            // Once. If nobody calls the constructors by name, the linker calls them around every export, as for a
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
