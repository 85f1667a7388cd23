//! Functions of the host besides Kubernetes: logs, clocks, random bytes.
//!
//! Outside WebAssembly there is no host: [`answer_with`] sets a function that answers in its place, so that `cargo
//! test` can call a controller.

use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Debug = 0,
    Info = 1,
    Warning = 2,
    Error = 3,
}

/// Writes a line to the log of the controller.
pub fn log(level: Level, text: &str) {
    imports::log(level, text);
}

/// Returns the nanoseconds since 1970.
pub fn now() -> i64 {
    imports::now()
}

/// Returns nanoseconds of a monotonic clock, which continues while the controller is suspended.
pub fn monotonic() -> i64 {
    imports::monotonic()
}

/// Fills a buffer with random bytes.
pub fn random(bytes: &mut [u8]) {
    imports::random(bytes);
}

/// As [`Outcome::RequeueAfter`](crate::Outcome::RequeueAfter), in milliseconds; the shorter time applies.
pub fn requeue(milliseconds: i64) {
    imports::requeue(milliseconds);
}

pub(crate) fn call(request: &Value) -> Result<Value, serde_json::Error> {
    imports::call(request)
}

#[cfg(not(target_arch = "wasm32"))]
pub use imports::answer_with;

#[cfg(target_arch = "wasm32")]
mod imports {
    use super::Level;
    use serde_json::Value;

    mod trellis {
        #[link(wasm_import_module = "trellis")]
        extern "C" {
            pub fn call(at: *const u8, length: usize) -> usize;
            pub fn take(at: *mut u8);
            pub fn log(level: i32, at: *const u8, length: usize);
            pub fn now() -> i64;
            pub fn monotonic() -> i64;
            pub fn random(at: *mut u8, length: usize);
            pub fn requeue(milliseconds: i64);
        }
    }

    // Sound: the host reads and writes only the passed memory, and only during the call.
    pub fn call(request: &Value) -> Result<Value, serde_json::Error> {
        let text = request.to_string();
        let length = unsafe { trellis::call(text.as_ptr(), text.len()) };
        let mut answer = vec![0; length];
        unsafe { trellis::take(answer.as_mut_ptr()) };
        serde_json::from_slice(&answer)
    }

    pub fn log(level: Level, text: &str) {
        unsafe { trellis::log(level as i32, text.as_ptr(), text.len()) }
    }

    pub fn now() -> i64 {
        unsafe { trellis::now() }
    }

    pub fn monotonic() -> i64 {
        unsafe { trellis::monotonic() }
    }

    pub fn random(bytes: &mut [u8]) {
        unsafe { trellis::random(bytes.as_mut_ptr(), bytes.len()) }
    }

    pub fn requeue(milliseconds: i64) {
        unsafe { trellis::requeue(milliseconds) }
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod imports {
    use super::Level;
    use serde_json::Value;
    use std::cell::RefCell;
    use std::time::{Instant, SystemTime, UNIX_EPOCH};

    type Answer = Box<dyn FnMut(&Value) -> Value>;

    thread_local! {
        static ANSWER: RefCell<Option<Answer>> = RefCell::new(None);
        static STARTED: Instant = Instant::now();
    }

    /// Answers the requests of this thread to Kubernetes by a function. Only outside WebAssembly, for tests.
    pub fn answer_with(answer: impl FnMut(&Value) -> Value + 'static) {
        ANSWER.with(|held| *held.borrow_mut() = Some(Box::new(answer)));
    }

    pub fn call(request: &Value) -> Result<Value, serde_json::Error> {
        ANSWER.with(|held| match &mut *held.borrow_mut() {
            Some(answer) => Ok(answer(request)),
            None => panic!("there is no host outside WebAssembly: call trellis_controller::host::answer_with first"),
        })
    }

    pub fn log(level: Level, text: &str) {
        eprintln!("{:?}: {}", level, text);
    }

    pub fn now() -> i64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
    }

    pub fn monotonic() -> i64 {
        STARTED.with(|started| started.elapsed().as_nanos() as i64)
    }

    pub fn random(bytes: &mut [u8]) {
        use std::hash::{BuildHasher, Hasher};
        for byte in bytes {
            *byte = std::collections::hash_map::RandomState::new().build_hasher().finish() as u8;
        }
    }

    pub fn requeue(_milliseconds: i64) {}
}
