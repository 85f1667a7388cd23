"""A real node with a shim that works and broken ones, images that cannot run, and a registry with odd images.

In: a cluster with one real node. Out: RuntimeClasses, images on the node, addresses of images. Called by the tests of
``trellis explain`` on a real kubelet and containerd.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from wasmtime import wat2wasm

from support.nodes.https_files import machine_address
from support.nodes.real_nodes import Kubectl, RealNode, eventually, pod, runtime_handlers
from support.nodes.shim_archives import BROKEN, program
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.node_images import architecture
from trellis_dev.localcluster.ociarchive import Image, write_image
from trellis_dev.localcluster.realnode_faults import inspect, load_image, run_in

NODE: Final = "real-0"
OTHER: Final = {"amd64": "arm64", "arm64": "amd64"}[architecture()]
SHIMS: Final = {"wasi": "v1", "exits": "exits-in-use", "other": "other-architecture"}
"""Handlers of the node, and their shims."""
PLUGINS: Final = {"2": "io.containerd.cri.v1.runtime", "1.6": "io.containerd.grpc.v1.cri"}
"""Plugin of the configuration that has the runtimes, by version of containerd."""
_RUNTIME: Final = """
[plugins.'{plugin}'.containerd.runtimes.{name}]
runtime_type = '/opt/shims/{name}'
"""
_INDEX: Final = "application/vnd.oci.image.index.v1+json"
MODULES: Final[Mapping[str, str]] = {
    # Imports a function that no runtime has.
    "imports": """(module (import "wasi:nothing/at-all" "f" (func))
        (memory (export "memory") 1) (func (export "_start")))""",
    # Exits with status 3.
    "exits": """(module (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
        (memory (export "memory") 1) (func (export "_start") (call $exit (i32.const 3))))""",
    # Ends by a trap.
    "traps": """(module (memory (export "memory") 1) (func (export "_start") unreachable))""",
    # Sleeps for an hour, by one subscription to the clock.
    "sleeps": """(module (import "wasi_snapshot_preview1" "poll_oneoff"
          (func $poll (param i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 1)
        (data (i32.const 16) "\\01\\00\\00\\00\\00\\00\\00\\00\\00\\a0\\b8\\30\\46\\03\\00\\00")
        (func (export "_start") (drop (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128)))))""",
}
"""Modules of WASI preview 1, as text."""


def image(name: str) -> str:
    """Return the name of an image of a module."""
    return f"trellis.local/{name}-wasm:1"


def load_images(cluster: ClusterInfo, folder: Path, how: How) -> None:
    """Load the image of each module on the node, one of a text file, and one of a program for another architecture."""
    files = {name: (bytes(wat2wasm(text)), f"{name}.wasm") for name, text in MODULES.items()}
    files["text"] = (b"this is neither a program nor a module\n", "readme.txt")
    files["program"] = (program("other-architecture", how), "program")
    for name, (content, file) in files.items():
        local, archive = folder / file, folder / f"{name}.tar"
        local.write_bytes(content)
        write_image(archive, Image(image(name), [f"/{file}"], architecture()), {file: local})
        load_image(cluster.name, NODE, archive)


def put_shims(node: RealNode, how: How, containerd: str) -> None:
    """Install the shims by hand, with a RuntimeClass of the same name; ``containerd``: a key of :data:`PLUGINS`."""
    root = Path(f"/proc/{inspect(node.cluster.name, node.name).pids['init']}/root")
    (root / "opt/shims").mkdir(parents=True)
    with (root / "etc/containerd/config.toml").open("a") as config:
        for name, of in SHIMS.items():
            shim = root / "opt/shims" / name
            shim.write_bytes(program(of, how))
            shim.chmod(0o755)
            config.write(_RUNTIME.format(name=name, plugin=PLUGINS[containerd]))
            create_class(node.kubectl, name, name)
    answer = run_in(node.cluster.name, node.name, ["timeout", "60", "systemctl", "restart", "containerd"])
    assert answer.returncode == 0, answer.stderr
    listed = set() if containerd == "1.6" else {*SHIMS}
    eventually(lambda: runtime_handlers(node) >= listed, "the node lists the handlers", 120)


def create_class(kubectl: Kubectl, name: str, handler: str, **scheduling: Any) -> None:
    """Create a RuntimeClass."""
    manifest = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": handler}
    kubectl.create(manifest | ({"scheduling": scheduling} if scheduling else {}))


def wasm(name: str, of: str = "", runtime_class: str = "wasi", *, node: str = NODE, **container: Any) -> dict[str, Any]:
    """Return a pod with the image of a module; ``container``: further fields of its container."""
    made = pod(name, "", node, image=container.pop("image", image(of or name)), **container)
    if "command" not in container:
        del made["spec"]["containers"][0]["command"]
    if runtime_class:
        made["spec"]["runtimeClassName"] = runtime_class
    if not node:
        del made["spec"]["nodeName"]
    return made


@contextmanager
def registry(node: RealNode) -> Iterator[str]:
    """Serve ``wrong:1`` (for another architecture), ``private:1`` (401); nothing else. Yield the host of the images.

    The node reads it over plain http.
    """
    content = json.dumps(_index()).encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/v2/private/"):
                self.send_error(HTTPStatus.UNAUTHORIZED)
            elif self.path == "/v2/":
                self._send(b"{}", "application/json")
            elif self.path.startswith("/v2/wrong/manifests/"):
                self._send(content, _INDEX)
            else:
                self.send_error(HTTPStatus.NOT_FOUND)

        def do_HEAD(self) -> None:
            self.do_GET()

        def _send(self, body: bytes, kind: str) -> None:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Docker-Content-Digest", f"sha256:{hashlib.sha256(body).hexdigest()}")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def handle(self) -> None:
            with suppress(OSError):
                super().handle()

        def log_message(self, *args: Any) -> None:
            del args

    server = http.server.ThreadingHTTPServer((machine_address(node.cluster), 0), Handler)
    host = f"{server.server_address[0]!s}:{server.server_port}"
    root = Path(f"/proc/{inspect(node.cluster.name, node.name).pids['init']}/root")
    hosts = root / "etc/containerd/certs.d" / host
    hosts.mkdir(parents=True)
    (hosts / "hosts.toml").write_text(f'server = "http://{host}"\n\n[host."http://{host}"]\n')
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield host
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _index() -> dict[str, Any]:
    platform = {"architecture": OTHER, "os": "linux"}
    manifest = {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": f"sha256:{'ab' * 32}", "size": 100}
    return {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [manifest | {"platform": platform}]}


assert {*SHIMS.values()} - {"v1"} <= {*BROKEN}
