"""A Wasm HTTP server for pods of a Shim: a component with ``wasi:sockets``, which the runtime of the project provides.

In: a Rust program. Out: an image for real nodes, a Deployment and a Service. Called by benchmarks. Needs rustup, which
adds the standard library of the target to its toolchain; the component is built once.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, Final

from trellis_dev.localcluster.building import How, LoggedBuild, make_once
from trellis_dev.localcluster.crates import lacking
from trellis_dev.localcluster.node_images import architecture
from trellis_dev.localcluster.ociarchive import Image, write_image
from trellis_dev.localcluster.paths import cache_root

HTTP_WASM: Final = "trellis.local/http-wasm:1"
PORT: Final = 8080
"""Port of the server, and of its Service."""
PRE_STOP: Final = 5
"""Seconds for which a pod that is being deleted still answers, until no node sends requests to it."""
_TARGET: Final = "wasm32-wasip2"
_SOURCE: Final = Path(__file__).with_name("http_server") / "main.rs"
_HINT: Final = f"It needs a Rust toolchain of rustup with the target {_TARGET}."
Manifest = dict[str, Any]


def missing() -> str | None:
    """Return in one line why this machine cannot build the server; None if it can, or it is built."""
    if _component().exists():
        return None
    lacks = lacking(("rustup", "rustc"))
    return f"the HTTP server for Wasm pods cannot be built here; missing: {', '.join(lacks)}" if lacks else None


def http_image(folder: Path, how: How) -> Path:
    """Write the archive of :data:`HTTP_WASM` into a folder and return it.

    Raises:
        ToolError: the target cannot be added, or the program does not compile.
    """

    def make(target: Path, log: Path) -> None:
        build = LoggedBuild(target.parent, log, how.abort, os.environ, _HINT)
        build.run(["rustup", "target", "add", _TARGET])
        options = ["--edition", "2021", "--target", _TARGET, "-O", "-C", "strip=symbols"]
        build.run(["rustc", *options, "-o", str(target), str(_SOURCE)])

    component = make_once(_component(), "build the HTTP server for Wasm pods", how, make)
    archive = folder / "http-wasm.tar"
    write_image(archive, Image(HTTP_WASM, ["/server.wasm"], architecture()), {"server.wasm": component})
    return archive


def _component() -> Path:
    return cache_root() / "images" / f"http-{hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:12]}.wasm"


def http_deployment(name: str, runtime_class: str, replicas: int, *, apart: bool) -> Manifest:
    """Return a Deployment of the server; ``apart``: no two of its pods are on one node."""
    labels = {"app": name}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
    probe = {"httpGet": {"path": "/", "port": PORT}, "periodSeconds": 1, "failureThreshold": 1}
    container = {
        "name": "server",
        "image": HTTP_WASM,
        "imagePullPolicy": "Never",
        "readinessProbe": probe,
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP}}},
    }
    spec: Manifest = {
        "runtimeClassName": runtime_class,
        "terminationGracePeriodSeconds": 2 * PRE_STOP,
        "containers": [container],
    }
    if apart:
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def http_service(name: str) -> Manifest:
    """Return the Service of a Deployment of the server."""
    spec = {"selector": {"app": name}, "ports": [{"port": PORT}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
