"""The Shims of the demo, and the pod that runs with one of them.

Pure: arguments in, manifests out. Called by ``scenario`` and ``real_node``.
"""

from __future__ import annotations

from typing import Any, Final

from trellis import names
from trellis_dev.localcluster.node_images import HELLO_WASM

Manifest = dict[str, Any]

NAME: Final = "spin"
LABEL: Final = ("wasm", "true")
"""Label of the nodes that the Shim selects, as in ``deploy/examples/shim``."""
HELLO: Final = "hello"
"""Name of the pod on the real node."""
MAX_UPDATE: Final = "25%"
VERIFY_SECONDS: Final = 8
"""Time for a node to list the handler. Simulated kubelets need less than one, a busy machine several."""
_RELEASE: Final = "https://github.com/spinkube/containerd-shim-spin/releases/download/v0.25.1"
_SUMS: Final = {
    "amd64": ("x86_64", "1755fbeb2dec7d026faf8c37031d8a025975f5e194b782da10188206a386d6e4"),
    "arm64": ("aarch64", "5ca9c9207a146a182dc9c870eaaad1afbf64e1d9a4781228dbf6e7ef90ff2e1f"),
}


def make_shim(*, options: dict[str, str] | None = None) -> Manifest:
    """Return the Shim for the simulated nodes; other ``options`` of the runtime are another version of it."""
    platforms = [
        {
            "os": "linux",
            "arch": arch,
            "location": f"{_RELEASE}/containerd-shim-spin-v2-linux-{machine}.tar.gz",
            "sha256": sha256,
        }
        for arch, (machine, sha256) in _SUMS.items()
    ]
    return _shim(
        NAME,
        {
            "nodeSelector": dict([LABEL]),
            "fetchStrategy": {"platforms": platforms},
            "rolloutStrategy": {"type": "rolling", "rolling": {"maxUpdate": MAX_UPDATE}},
            "verify": {"timeout": f"{VERIFY_SECONDS}s"},
            **({"containerdRuntimeOptions": options} if options else {}),
        },
    )


def make_real_shim(name: str, path: str, sha256: str) -> Manifest:
    """Return the Shim for nodes with the annotation of KWasm, from the installer image; a canary pod verifies it."""
    spec = {
        "fetchStrategy": {"image": {"path": path, "sha256": sha256}},
        "rolloutStrategy": {"type": "rolling", "rolling": {"maxUpdate": 1}},
        "verify": {"canary": True},
    }
    return _shim(name, spec, labels={names.LABEL_KWASM_DEFAULT: "true"})


def make_hello_pod(runtime_class: str) -> Manifest:
    """Return the pod that prints ``hello from wasm``; the RuntimeClass selects its node."""
    container = {"name": HELLO, "image": HELLO_WASM, "imagePullPolicy": "Never"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": HELLO},
        "spec": {"runtimeClassName": runtime_class, "restartPolicy": "Never", "containers": [container]},
    }


def _shim(name: str, spec: Manifest, labels: dict[str, str] | None = None) -> Manifest:
    return {
        "apiVersion": "runtime.spinkube.dev/v1alpha1",
        "kind": "Shim",
        "metadata": {"name": name, **({"labels": labels} if labels else {})},
        "spec": {**spec, "runtimeClass": {"name": name, "handler": name}},
    }
