"""A Wasm program that never ends, for tests of what becomes of pods when their runtime is to go."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from support.nodes.real_nodes import pod
from trellis_dev.localcluster.node_images import architecture
from trellis_dev.localcluster.ociarchive import Image, write_image

BUSY: Final = "trellis.local/busy-wasm:1"
BUSY_MODULE: Final = bytes.fromhex(
    "0061736d01000000 01040160 0000 03020100 070a01065f73746172740000 0a0901070003400c000b0b"
)
"""``_start`` is a loop that never ends."""


def busy_image(folder: Path) -> Path:
    """Write the archive of :data:`BUSY` into a folder and return it."""
    module, archive = folder / "busy.wasm", folder / "busy.tar"
    module.write_bytes(BUSY_MODULE)
    write_image(archive, Image(BUSY, ["/busy.wasm"], architecture()), {"busy.wasm": module})
    return archive


def busy_pod(name: str, node: str, runtime_class: str) -> dict[str, Any]:
    """Return a pod of a runtime class that runs until it is ended."""
    manifest = pod(name, "", node, image=BUSY)
    del manifest["spec"]["containers"][0]["command"]
    manifest["spec"]["runtimeClassName"] = runtime_class
    return manifest
