//! containerd-shim-wasi-v1: runs the WASI module or component of a container in Wasmtime.
//!
//! In: the arguments by which containerd starts a shim. Out: the standard streams and the exit status of the guest; the
//! error of a guest that cannot run, on its standard error.
//! Invariant: a guest has the arguments, environment, root file system and network of its container, and nothing of the
//! node: runwasi has entered the namespaces of the container before `run_wasi`.

use std::io::{Write, stderr};

use anyhow::{Result, bail};
use containerd_shim_wasm::sandbox::Sandbox;
use containerd_shim_wasm::sandbox::context::{RuntimeContext, WasmBinaryType};
use containerd_shim_wasm::shim::{Cli, Shim, Version, version};
use wasmtime::component::{Component, Linker as ComponentLinker, ResourceTable};
use wasmtime::{Config, Engine, Linker, Module, Store};
use wasmtime_wasi::p2::bindings::Command;
use wasmtime_wasi::preview1::{self, WasiP1Ctx};
use wasmtime_wasi::{DirPerms, FilePerms, I32Exit, WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

struct WasiShim;

#[derive(Clone, Default)]
struct WasiSandbox;

/// State of a component.
struct Guest {
    wasi: WasiCtx,
    table: ResourceTable,
}

impl WasiView for Guest {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl Shim for WasiShim {
    type Sandbox = WasiSandbox;

    fn name() -> &'static str {
        "wasi"
    }

    fn version() -> Version {
        version!()
    }
}

impl Sandbox for WasiSandbox {
    async fn run_wasi(&self, context: &impl RuntimeContext) -> Result<i32> {
        exit_on_sigterm();
        run(context).await.inspect_err(|error| {
            // runwasi writes the error to the log of containerd only, where `kubectl logs` does not read it. youki has
            // replaced the standard error by that of the container. `eprintln!` would panic if nothing reads it.
            let _ = writeln!(stderr(), "{error:?}");
        })
    }
}

/// Runs the entrypoint of a container, and returns its exit status.
async fn run(context: &impl RuntimeContext) -> Result<i32> {
    let entrypoint = context.entrypoint();
    let bytes = entrypoint.source.as_bytes()?;
    let engine = Engine::new(Config::new().async_support(true))?;
    let ended = match WasmBinaryType::from_bytes(&bytes) {
        Some(WasmBinaryType::Module) => run_module(context, &engine, &bytes, &entrypoint.func).await,
        Some(WasmBinaryType::Component) => run_component(context, &engine, &bytes).await,
        None => bail!("the entrypoint is neither a WebAssembly module nor a component"),
    };
    // A guest exits by a trap that carries the status.
    ended.or_else(|trap| match trap.downcast_ref::<I32Exit>() {
        Some(exit) => Ok(exit.0),
        None => Err(trap),
    })
}

/// Runs a module of WASI preview 1 from its function, `_start` by default.
async fn run_module(context: &impl RuntimeContext, engine: &Engine, bytes: &[u8], function: &str) -> Result<i32> {
    let module = Module::new(engine, bytes)?;
    let mut linker = Linker::<WasiP1Ctx>::new(engine);
    preview1::add_to_linker_async(&mut linker, |wasi| wasi)?;
    let mut store = Store::new(engine, wasi_of(context)?.build_p1());
    let instance = linker.instantiate_async(&mut store, &module).await?;
    let start = instance.get_typed_func::<(), ()>(&mut store, function)?;
    start.call_async(&mut store, ()).await?;
    Ok(0)
}

/// Runs a component of the world `wasi:cli/command`.
async fn run_component(context: &impl RuntimeContext, engine: &Engine, bytes: &[u8]) -> Result<i32> {
    let component = Component::new(engine, bytes)?;
    let mut linker = ComponentLinker::<Guest>::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    let guest = Guest { wasi: wasi_of(context)?.build(), table: ResourceTable::new() };
    let mut store = Store::new(engine, guest);
    let command = Command::instantiate_async(&mut store, &component, &linker).await?;
    let result = command.wasi_cli_run().call_run(&mut store).await?;
    Ok(i32::from(result.is_err()))
}

/// Returns the WASI context of the container. `/` is its root file system, with its volumes.
fn wasi_of(context: &impl RuntimeContext) -> Result<WasiCtxBuilder> {
    let mut wasi = WasiCtxBuilder::new();
    wasi.args(context.args())
        .inherit_stdio()
        .inherit_network()
        .allow_ip_name_lookup(true)
        .preopened_dir("/", "/", DirPerms::all(), FilePerms::all())?;
    for variable in context.envs() {
        let (name, value) = variable.split_once('=').unwrap_or((variable, ""));
        wasi.env(name, value);
    }
    Ok(wasi)
}

/// Ends the process at SIGTERM with the status of a shell. The process is the init process of its container, for which
/// the kernel ignores signals without a handler, so a pod would end only after its grace period.
fn exit_on_sigterm() {
    extern "C" fn exit(signal: libc::c_int) {
        // SAFETY: `_exit` may be called by a signal handler.
        unsafe { libc::_exit(128 + signal) }
    }
    // SAFETY: the handler calls only `_exit`, and it is installed before the guest runs.
    unsafe { libc::signal(libc::SIGTERM, exit as extern "C" fn(libc::c_int) as libc::sighandler_t) };
}

fn main() {
    WasiShim::run(None);
}
