//! The HTTP server of the host: requests to the components that have `wasi:http/incoming-handler`, by their host names.
//!
//! In: workloads that the runtime binds, connections. Out: responses of components; 404 without a body for other names,
//! 500 if the component fails. Called by the runtime, as its plugin: the one of its crate knows one workload for each
//! name and no aliases. Invariant, as recorded: a port in `Host` has no effect, and a component without a name does not
//! start.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tracing::{error, info};
use wash_runtime::engine::ctx::Ctx;
use wash_runtime::engine::workload::{ResolvedWorkload, WorkloadComponent};
use wash_runtime::plugin::HostPlugin;
use wash_runtime::wasmtime::component::InstancePre;
use wash_runtime::wit::{WitInterface, WitWorld};
use wasmtime_wasi_http::WasiHttpView;
use wasmtime_wasi_http::bindings::ProxyPre;
use wasmtime_wasi_http::bindings::http::types::Scheme;
use wasmtime_wasi_http::body::HyperOutgoingBody;
use wasmtime_wasi_http::io::TokioIo;

pub const NAMESPACE: &str = "wasi";
pub const PACKAGE: &str = "http";

/// A component that serves a name.
#[derive(Clone)]
struct Route {
    workload: ResolvedWorkload,
    component: String,
    instance: InstancePre<Ctx>,
}

/// Routes by host name. Replicas of a workload on one host share their names; requests go to each in turn.
#[derive(Default)]
struct Routes {
    by_name: Mutex<HashMap<String, Vec<Route>>>,
    requests: AtomicUsize,
}

impl Routes {
    fn add(&self, names: &[String], route: Route) {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        for name in names {
            by_name.entry(name.clone()).or_default().push(route.clone());
        }
    }

    fn remove(&self, workload: &str) {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        by_name.retain(|_, routes| {
            routes.retain(|route| route.workload.id() != workload);
            !routes.is_empty()
        });
    }

    fn find(&self, name: &str) -> Option<Route> {
        let by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let routes = by_name.get(name)?;
        let turn = self.requests.fetch_add(1, Ordering::Relaxed);
        Some(routes[turn % routes.len()].clone())
    }
}

pub struct Http {
    address: SocketAddr,
    routes: Arc<Routes>,
    /// Names by component, between the binding of a component and that of its workload.
    names: Mutex<HashMap<String, Vec<String>>>,
}

impl Http {
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            routes: Arc::default(),
            names: Mutex::default(),
        }
    }
}

#[async_trait::async_trait]
impl HostPlugin for Http {
    fn id(&self) -> &'static str {
        "http-server"
    }

    fn world(&self) -> WitWorld {
        let interface = format!("{NAMESPACE}:{PACKAGE}/incoming-handler,outgoing-handler");
        WitWorld {
            imports: HashSet::from([WitInterface::from(interface)]),
            ..WitWorld::default()
        }
    }

    async fn start(&self) -> Result<()> {
        let listener = TcpListener::bind(self.address)
            .await
            .with_context(|| format!("cannot listen on {}", self.address))?;
        info!(addr = %self.address, "HTTP server listening");
        tokio::spawn(accept(listener, self.routes.clone()));
        Ok(())
    }

    async fn on_component_bind(
        &self,
        component: &mut WorkloadComponent,
        interfaces: HashSet<WitInterface>,
    ) -> Result<()> {
        let found = interfaces
            .iter()
            .find(|it| it.interfaces.contains("incoming-handler"));
        let Some(interface) = found else {
            return Ok(());
        };
        let host = interface
            .config
            .get("host")
            .context("no host header found")?;
        let aliases = interface
            .config
            .get("host-aliases")
            .map_or("", String::as_str);
        let given = std::iter::once(host.as_str()).chain(aliases.split(','));
        let names = given
            .map(|name| name.trim().to_lowercase())
            .filter(|name| !name.is_empty());
        let mut known = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(component.id().to_string(), names.collect());
        Ok(())
    }

    async fn on_workload_resolved(
        &self,
        workload: &ResolvedWorkload,
        component: &str,
    ) -> Result<()> {
        let found = self
            .names
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(component);
        let Some(names) = found else { return Ok(()) };
        let instance = workload.instantiate_pre(component).await?;
        let route = Route {
            workload: workload.clone(),
            component: component.to_string(),
            instance,
        };
        self.routes.add(&names, route);
        Ok(())
    }

    async fn on_workload_unbind(
        &self,
        workload: &ResolvedWorkload,
        _: HashSet<WitInterface>,
    ) -> Result<()> {
        self.routes.remove(workload.id());
        Ok(())
    }
}

async fn accept(listener: TcpListener, routes: Arc<Routes>) {
    loop {
        match listener.accept().await {
            Ok((connection, _)) => {
                let routes = routes.clone();
                let service = service_fn(move |request| respond(request, routes.clone()));
                // An error here is of the client, which closed the connection.
                tokio::spawn(
                    http1::Builder::new().serve_connection(TokioIo::new(connection), service),
                );
            }
            Err(cause) => error!(%cause, "a connection cannot be accepted"),
        }
    }
}

async fn respond(
    request: Request<Incoming>,
    routes: Arc<Routes>,
) -> Result<Response<HyperOutgoingBody>, hyper::Error> {
    let header = request
        .headers()
        .get("host")
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let name = header.split(':').next().unwrap_or_default().to_lowercase();
    let Some(route) = routes.find(&name) else {
        return Ok(without_body(404));
    };
    Ok(call(route, request).await.unwrap_or_else(|cause| {
        error!(
            host = name,
            reason = format!("{cause:#}"),
            "the component failed"
        );
        without_body(500)
    }))
}

/// Return the response as soon as the component gives its head, so that the body is sent while the component writes it.
async fn call(route: Route, request: Request<Incoming>) -> Result<Response<HyperOutgoingBody>> {
    let mut store = route.workload.new_store(&route.component).await?;
    // Plugins create the data of a component under its id, and look it up by that of the store, which is new for each
    // request: without this, a component would find none of its data in the next one.
    store.data_mut().id = route.component.clone();
    let (sender, receiver) = oneshot::channel();
    let request = store
        .data_mut()
        .new_incoming_request(Scheme::Http, request)?;
    let out = store.data_mut().new_response_outparam(sender)?;
    let component = ProxyPre::new(route.instance)?;
    let call = tokio::spawn(async move {
        let proxy = component.instantiate_async(&mut store).await?;
        let handler = proxy.wasi_http_incoming_handler();
        handler.call_handle(&mut store, request, out).await
    });
    match receiver.await {
        Ok(response) => Ok(response?),
        Err(_) => {
            call.await??;
            bail!("the component gave no response")
        }
    }
}

fn without_body(status: u16) -> Response<HyperOutgoingBody> {
    let mut response = Response::new(HyperOutgoingBody::default());
    *response.status_mut() = hyper::StatusCode::from_u16(status).unwrap_or_default();
    response
}
