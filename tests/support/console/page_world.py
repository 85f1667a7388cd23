"""A cluster with something of everything that the console's page shows, written as the services would have written it.

In: the API server as its administrator, a name of one's own. Out: objects, and what removes them. Nodes and host pods
are run by kwok; what needs a lattice or a runtime stands in status as its service writes it.
"""

from __future__ import annotations

import http
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from support.console import seen_objects as objects
from trellis import names
from trellis.installer_api.spec import WantedShim
from trellis.provisioning.shims import view_shim, wanted_shim_for
from trellis.provisioning.views import FailedAttempt, encode_digests
from trellis_dev.localcluster.api import Api

Manifest = dict[str, Any]
_GROUPS: Final = "/apis/k8s.wasmcloud.dev/v1alpha1/namespaces/{}/wasmcloudhostconfigs"
_APPS: Final = "/apis/core.oam.dev/v1beta1/namespaces/{}/applications"
_CONTROLLERS: Final = "/apis/trellis.dev/v1alpha1/namespaces/{}/wasmcontrollers"
_SHIMS: Final = "/apis/runtime.spinkube.dev/v1alpha1/shims"
_SLICES: Final = "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices"
_SECONDS: Final = 60.0
_FAULT: Final = "the checksum of spin.tar.gz is 5f0c…, wanted abab…"


@dataclass
class PageWorld:
    """Objects of one test. Nodes are ``<own>-1`` and so on; the Shim has the name ``own`` and is for them alone."""

    kubeconfig: Path
    own: str
    namespace: str
    api: Api
    made: list[str] = field(default_factory=list)
    digest: str = ""
    count: int = 0

    def node(self, number: int) -> str:
        return f"{self.own}-{number}"

    def fill(self, nodes: int = 9) -> None:
        """Create all objects: a third of the nodes is updated, one failed, the others wait."""
        self.count = nodes
        self._shim()
        with ThreadPoolExecutor(8) as pool:
            apis = [Api.of_kubeconfig(self.kubeconfig) for _ in range(8)]
            work = [(apis[at % 8], list(range(at + 1, nodes + 1, 8))) for at in range(8)]
            for done in [pool.submit(self._nodes, api, those) for api, those in work]:
                self.made += done.result()
            for api in apis:
                api.close()
        for number in range(1, nodes // 3 + 1):
            self.update(number)
        self.fail(nodes)
        self._lattice()
        self._controllers()

    def update(self, number: int) -> None:
        """Write the annotations of a node on which the Shim is verified."""
        path = f"/api/v1/nodes/{self.node(number)}"
        uid = self.call("GET", path)["metadata"]["uid"]
        marks = {
            names.ANNOTATION_DIGEST: self.digest,
            names.ANNOTATION_SHIMS: encode_digests({self.own: self.digest}),
            names.ANNOTATION_VERIFIED: "canary",
            names.ANNOTATION_NODE_UID: uid,
        }
        self.call(
            "PATCH", path, {"metadata": {"annotations": marks, "labels": {names.LABEL_WASM_READY: names.WASM_READY}}}
        )

    def fail(self, number: int) -> None:
        path = f"/api/v1/nodes/{self.node(number)}"
        uid = self.call("GET", path)["metadata"]["uid"]
        marks = {
            names.ANNOTATION_FAILURE: _FAULT,
            names.ANNOTATION_FAILED_ATTEMPT: FailedAttempt(self.digest, 3, int(time.time())).encode(),
            names.ANNOTATION_BLAMED: encode_digests({self.own: self.digest}),
            names.ANNOTATION_NODE_UID: uid,
        }
        self.call("PATCH", path, {"metadata": {"annotations": marks}})

    def leave(self) -> None:
        for path in reversed(self.made):
            self.api.call("DELETE", path)

    def call(self, verb: str, path: str, body: Manifest | None = None) -> Manifest:
        status, answer = self.api.call(verb, path, body)
        assert status < http.HTTPStatus.BAD_REQUEST, (verb, path, answer)
        return answer

    def put(self, plural: str, manifest: Manifest) -> None:
        """Create an object, and its status if it has one."""
        status = manifest.pop("status", None)
        for condition in (status or {}).get("conditions", ()):
            condition.setdefault("lastTransitionTime", "2026-11-21T11:14:29Z")
        self.call("POST", plural, manifest)
        path = f"{plural}/{manifest['metadata']['name']}"
        self.made.append(path)
        if status is not None:
            self.call("PATCH", f"{path}/status", {"status": status})

    def _shim(self) -> None:
        manifest = {"apiVersion": "runtime.spinkube.dev/v1alpha1", "kind": "Shim"} | objects.shim(self.own)
        manifest["spec"]["nodeSelector"] = {"page": self.own}
        wanted = wanted_shim_for(view_shim(_read(manifest)), "amd64", require_checksum=False)
        assert isinstance(wanted, WantedShim)
        self.digest = wanted.digest
        self.put(_SHIMS, manifest)

    def _nodes(self, api: Api, numbers: list[int]) -> list[str]:
        for number in numbers:
            manifest = {"apiVersion": "v1", "kind": "Node"} | objects.opted_in(self.node(number))
            labels = {"page": self.own, "kubernetes.io/arch": "amd64"}
            manifest["metadata"]["labels"] |= labels
            manifest["metadata"]["annotations"]["kwok.x-k8s.io/node"] = "fake"
            status, answer = api.call("POST", "/api/v1/nodes", manifest)
            assert status == http.HTTPStatus.CREATED, answer
        return [f"/api/v1/nodes/{self.node(number)}" for number in numbers]

    def _lattice(self) -> None:
        """A group of two hosts, on the first two nodes; an application that is deployed, and one that failed."""
        place = self.namespace
        pods = [f"hosts-{number}" for number in (1, 2)]
        group = objects.group(namespace=place, pods=tuple(pods))
        group["spec"]["lattice"] = self.own
        self.put(
            _GROUPS.format(place), {"apiVersion": "k8s.wasmcloud.dev/v1alpha1", "kind": "WasmCloudHostConfig"} | group
        )
        for number, name in enumerate(pods, 1):
            pod = {"apiVersion": "v1", "kind": "Pod"} | objects.host_pod(name, place, on=self.node(number))
            pod["spec"]["containers"] = [{"name": "host", "image": "host"}]
            pod.pop("status")
            self.put(f"/api/v1/namespaces/{place}/pods", pod)
        for name, phase in (("shop", "Deployed"), ("till", "Failed")):
            app = {"apiVersion": "core.oam.dev/v1beta1", "kind": "Application"} | objects.application(
                name, place, phase=phase
            )
            app["spec"]["components"] = [
                {"name": "web", "type": "component", "properties": {"image": "example.com/web:1"}}
            ]
            app["status"]["lattice"] = self.own
            self.put(_APPS.format(place), app)
        service: Any = {"apiVersion": "v1", "kind": "Service"} | objects.service(namespace=place)
        service["metadata"]["annotations"][names.ANNOTATION_LATTICE] = f"{self.own}/217cd4b31f"
        service["spec"].pop("clusterIP")
        service["metadata"]["labels"] = {names.LABEL_MANAGED_BY: names.MANAGED_BY}
        self.put(f"/api/v1/namespaces/{place}/services", service)
        piece = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice"} | objects.slice_of(namespace=place)
        self.put(_SLICES.format(place), piece)

    def _controllers(self) -> None:
        for name, state, wakes, resident in (("ring", "Suspended", 128, 0), ("quota", "Resident", 9042, 37 * 2**20)):
            manifest = objects.controller(name, self.namespace)
            manifest["spec"] = {
                "serviceAccountName": "default",
                "module": {"configMap": {"name": "module", "key": "module.wasm"}},
                "watches": [{"apiVersion": "v1", "kind": "ConfigMap"}],
            }
            figures = {"residentBytes": resident, "snapshotBytes": 1_400_000, "calls": wakes * 3, "wakeP99": "4.20ms"}
            manifest["status"] |= {"state": state, "wakes": wakes, "traps": 2 if name == "quota" else 0} | figures
            self.put(
                _CONTROLLERS.format(self.namespace),
                {"apiVersion": "trellis.dev/v1alpha1", "kind": "WasmController"} | manifest,
            )


def until(holds: Callable[[], object], what: str, seconds: float = _SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def _read(manifest: Manifest) -> Manifest:
    """Return a manifest as the API server would return it."""
    return manifest | {"metadata": {"uid": "u", "resourceVersion": "1"} | manifest["metadata"]}
