"""Images of components for hosts of wasmCloud v2, made without a toolchain: those that the recordings name.

In: texts. Out: bytes of components, and images in a registry. Called by tests. Sources: the component model's text
format; the OCI distribution specification, by which an artifact of one ``application/wasm`` layer is a component.
"""

from __future__ import annotations

import hashlib
import json
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wasmtime import wat2wasm

_HTTP_TEXT: Final = Path(__file__).with_name("http_text.wat")
_COUNTER: Final = Path(__file__).with_name("counter.wat")
_CONSTANT: Final = """\
(core module $text
  (import "memory" "memory" (memory 1))
  (data (i32.const 4096) "{text}")
  (func (export "text") (result i32 i32) (i32.const 4096) (i32.const {length})))
(core instance $text (instantiate $text (with "memory" (instance $memory))))
"""
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.wasm.config.v0+json"
_LAYER: Final = "application/wasm"
ARCHIVE: Final = "application/vnd.wasmcloud.provider.archive.layer.v1+par"
"""Media type of a provider of wasmCloud v1."""


def hello(text: str, *imports: str) -> bytes:
    """Return a component that answers HTTP requests with a text of letters, and imports instances with a function."""
    instances = "\n".join(f'(import "{name}" (instance (export "spin" (func))))' for name in imports)
    return _http_text(instances + "\n" + _CONSTANT.format(text=text, length=len(text)))


def counter() -> bytes:
    """Return a component that answers HTTP requests with their number, which it keeps in wasi:keyvalue."""
    return _http_text(_COUNTER.read_text())


def _http_text(text: str) -> bytes:
    source = _HTTP_TEXT.read_text().replace("\n  TEXT\n", f"\n{text}\n")
    return bytes(wat2wasm(source))


@dataclass(frozen=True)
class Content:
    """An image: its bytes, and what a host finds in them. ``component``: False if they are not WebAssembly."""

    data: bytes
    imports: tuple[str, ...] = ()
    http: bool = True
    component: bool = True


def _hello(text: str, *imports: str) -> Content:
    return Content(hello(text, *imports), imports)


RECORDED: Final[Mapping[str, Content]] = {
    "demo/hello:1": _hello("hello-1"),
    "demo/hello:2": _hello("hello-2"),
    "demo/widget:1": _hello("widget", "acme:widgets/gizmo@1.0.0"),
    "demo/counter:1": _hello(
        "counter",
        *("wasi:blobstore/blobstore@0.2.0-draft", "wasi:blobstore/container@0.2.0-draft"),
        *("wasi:blobstore/types@0.2.0-draft", "wasi:keyvalue/store@0.2.0-draft", "wasi:keyvalue/atomics@0.2.0-draft"),
        *("wasi:logging/logging@0.1.0-draft", "wasi:config/runtime@0.2.0-draft"),
    ),
    "demo/egress:1": _hello("egress"),
    "demo/nohandler:1": Content(bytes(wat2wasm("(component)")), http=False),
    "demo/garbage:1": Content(b"this is not WebAssembly", http=False, component=False),
}
"""The images of the recordings by repository and tag: each has the interfaces that decide what a host does with it."""


def push(registry: str, name: str, layer: bytes, media_type: str = _LAYER) -> str:
    """Store an image ``repository:tag`` of one layer in a registry without TLS; return its digest.

    Raises:
        urllib.error.HTTPError: the registry refuses it.
    """
    repository, _, tag = name.partition(":")
    described = [
        {"mediaType": kind, "digest": _upload(registry, repository, content), "size": len(content)}
        for kind, content in ((_CONFIG, b"{}"), (media_type, layer))
    ]
    manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": described[0], "layers": described[1:]}
    body = json.dumps(manifest).encode()
    _put(f"http://{registry}/v2/{repository}/manifests/{tag}", body, _MANIFEST)
    return _digest(body)


def _upload(registry: str, repository: str, content: bytes) -> str:
    begin = urllib.request.Request(f"http://{registry}/v2/{repository}/blobs/uploads/", method="POST")
    with urllib.request.urlopen(begin) as answer:
        location = urllib.parse.urljoin(begin.full_url, answer.headers["Location"])
    separator = "&" if urllib.parse.urlparse(location).query else "?"
    _put(
        f"{location}{separator}{urllib.parse.urlencode({'digest': _digest(content)})}",
        content,
        "application/octet-stream",
    )
    return _digest(content)


def _put(url: str, body: bytes, media_type: str) -> None:
    headers = {"Content-Type": media_type}
    with urllib.request.urlopen(urllib.request.Request(url, body, headers, method="PUT")):
        pass


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
