//! containerd-shim-wasmi-v1: runs a pod's WASI preview 1 module in the wasmi interpreter.
//!
//! In: what containerd starts a shim with. Out: the module's standard streams and exit status.
//! Invariant: a module sees its arguments, its environment and its standard streams, and no file of the node.

use anyhow::{Context, Result};
use containerd_shim_wasm::sandbox::Sandbox;
use containerd_shim_wasm::sandbox::context::RuntimeContext;
use containerd_shim_wasm::shim::{Cli, Shim, Version, version};
use wasmi::{Engine, Linker, Module, Store};
use wasmi_wasi::{WasiCtx, WasiCtxBuilder};

struct WasmiShim;

#[derive(Clone, Default)]
struct WasmiSandbox;

impl Shim for WasmiShim {
    type Sandbox = WasmiSandbox;

    fn name() -> &'static str {
        "wasmi"
    }

    fn version() -> Version {
        version!()
    }
}

impl Sandbox for WasmiSandbox {
    async fn run_wasi(&self, context: &impl RuntimeContext) -> Result<i32> {
        let entrypoint = context.entrypoint();
        let bytes = entrypoint.source.as_bytes()?;
        let mut wasi = WasiCtxBuilder::new();
        wasi.inherit_stdio().args(context.args())?;
        for variable in context.envs() {
            let (name, value) = variable.split_once('=').unwrap_or((variable, ""));
            wasi.env(name, value)?;
        }

        let engine = Engine::default();
        let module = Module::new(&engine, &bytes).context("this is no module that wasmi can run")?;
        let mut linker = Linker::<WasiCtx>::new(&engine);
        wasmi_wasi::add_to_linker(&mut linker, |wasi| wasi)?;
        let mut store = Store::new(&engine, wasi.build());
        let instance = linker.instantiate_and_start(&mut store, &module)?;
        let function = instance.get_typed_func::<(), ()>(&store, &entrypoint.func)?;
        match function.call(&mut store, ()) {
            Ok(()) => Ok(0),
            // proc_exit ends a module by a trap that carries the status.
            Err(trap) => trap.i32_exit_status().context(format!("the module trapped: {trap}")),
        }
    }
}

fn main() {
    WasmiShim::run(None);
}
