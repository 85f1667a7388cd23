"""OAM manifests of tests: an application with an http-server, and whatever a test makes of it."""

from __future__ import annotations

import copy
from typing import Any

Manifest = dict[str, Any]
ANY_HOST: Manifest = {"type": "daemonscaler", "properties": {"instances": 1}}


def link(address: str | None = "0.0.0.0:8080", **changes: Any) -> Manifest:
    """A link that makes an http-server listen."""
    properties: Manifest = {"namespace": "wasi", "package": "http", "interfaces": ["incoming-handler"]}
    if address is not None:
        properties["source"] = {"config": [{"name": "http", "properties": {"address": address}}]}
    return {"type": "link", "properties": {**properties, "target": {"name": "component"}, **changes}}


def capability(name: str = "httpserver", *traits: Manifest, **properties: Any) -> Manifest:
    """A capability with traits; without any: a link and a daemonscaler."""
    return {
        "name": name,
        "type": "capability",
        "properties": {"image": "ghcr.io/wasmcloud/http-server:0.27.0", **properties},
        "traits": copy.deepcopy(list(traits or (link(), ANY_HOST))),
    }


def manifest(name: str = "shop", *components: Manifest, version: str = "v1", **annotations: str) -> Manifest:
    """An application; without components one with an http-server on port 8080."""
    return {
        "apiVersion": "core.oam.dev/v1beta1",
        "kind": "Application",
        "metadata": {"name": name, "annotations": {"version": version, **annotations}},
        "spec": {
            "components": [
                {"name": "component", "type": "component", "properties": {"image": "example.com/hello:1"}},
                *(components or (capability(),)),
            ]
        },
    }
