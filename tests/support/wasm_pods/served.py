"""Wasm pods on a real API server: a Shim with its RuntimeClass, and Deployments that wait for nodes and for a class.

In: the API, a namespace. Out: names. Called by tests of commands and of the console. What it creates goes with
``leave``.
"""

from __future__ import annotations

import http
import secrets
from typing import Any

from support.cluster.definitions import ensure_served
from support.wasm_pods.objects import IMAGE, runtime_class, shim, workload
from trellis.kube.resources import DEPLOYMENTS, PODS, RUNTIME_CLASSES, SHIMS, Resource
from trellis_dev.localcluster.api import Api


class ServedWasmPods:
    """Deployment ``hello``, whose RuntimeClass exists, and ``lost``, whose RuntimeClass its Shim has not created."""

    def __init__(self, api: Api, namespace: str) -> None:
        ensure_served(api, SHIMS)
        self.api, self.namespace = api, namespace
        self.shim = f"spin-{secrets.token_hex(4)}"
        self.lost_shim = f"{self.shim}-lost"
        self._made: list[str] = []
        for name in (self.shim, self.lost_shim):
            made = shim(name, runtimeClass={"name": name, "handler": name})
            self._create(SHIMS, "runtime.spinkube.dev/v1alpha1", made)
        self.create_class(self.shim)
        for name, of_class in (("hello", self.shim), ("lost", self.lost_shim)):
            labels = {"app": name}
            made = workload(name, replicas=2, runtime_class=of_class, selector={"matchLabels": labels})
            made["spec"]["template"]["metadata"]["labels"] = labels
            self._create(DEPLOYMENTS, "apps/v1", made, namespace)

    def create_class(self, name: str) -> None:
        """Create the RuntimeClass of a Shim."""
        self._create(RUNTIME_CLASSES, "node.k8s.io/v1", runtime_class(name, name))

    def place(self, node: str) -> str:
        """Create a pod without an owner on a node; return the id of its entity."""
        made = {"metadata": {"name": "placed"}, "spec": {"runtimeClassName": self.shim, "nodeName": node}}
        made["spec"]["containers"] = [{"name": "app", "image": IMAGE}]  # type: ignore[assignment]
        self._create(PODS, "v1", made, self.namespace)
        return f"pod/{self.namespace}/placed"

    def ids(self) -> dict[str, str]:
        """Return the ids of the entities of both Deployments, by name."""
        return {name: f"deployment/{self.namespace}/{name}" for name in ("hello", "lost")}

    def leave(self) -> None:
        """Delete what was created, the newest first."""
        for path in reversed(self._made):
            self.api.call("DELETE", path)

    def _create(self, res: Resource, version: str, manifest: dict[str, Any], namespace: str | None = None) -> None:
        metadata = {key: value for key, value in manifest["metadata"].items() if key in {"name", "labels"}}
        body = {**manifest, "apiVersion": version, "kind": res.kind, "metadata": metadata}
        status, answer = self.api.call("POST", res.path(namespace), body)
        assert status == http.HTTPStatus.CREATED, answer
        self._made.append(res.path(namespace, str(metadata["name"])))
