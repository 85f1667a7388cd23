"""Carry out the steps of users on nodes and Shims, and read the result.

In: steps of the part ``nodes``. Out: calls to the API server; sentences about what is not as it has to be. Called by
``world``. The names of a schedule (``n0``, ``spin``) become names of this run alone.
"""

from __future__ import annotations

import asyncio
import copy
import http
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field
from typing import Any, Final

from chaos.kubelets import Kubelets
from chaos.model import Expected
from chaos.node_work import NODES, SHIMS, Act, NodeEnd, NodeModel
from chaos.retrying_requests import RetryingRequests
from chaos.steps import Step
from support.nodes.shims import CLASSES
from support.nodes.shims import SHIMS as SHIMS_PATH
from trellis import names
from trellis_dev.fakes.disks import Disk
from trellis_dev.localcluster.nodes import node_manifest

Manifest = dict[str, Any]
_JOBS: Final = "/apis/batch/v1/namespaces"
_DELETION_SECONDS: Final = 0.2
MAX_UPDATE: Final = 2
"""Nodes of a Shim that may be in progress at a time."""


def sha256_of(version: str) -> str:
    """Return the checksum that stands for a version of a Shim."""
    return f"{int(version):064x}"


@dataclass
class NodeSide:
    """``id``: of this run; ``installers``: the namespace of its Jobs."""

    requests: RetryingRequests
    kubelets: Kubelets
    id: str
    installers: str
    deleted: set[str] = field(default_factory=set)
    _requested: NodeModel = field(default_factory=NodeModel)

    def node(self, name: str) -> str:
        """Return the name that a node has in the cluster."""
        return f"acted-{self.id}-{name}"

    def shim(self, name: str) -> str:
        """Return the name that a Shim, its handler, its class and its label have in the cluster."""
        return f"{name}-{self.id}"

    def _selector(self, shim: str) -> dict[str, str]:
        return {f"chaos.example.com/{shim}": self.id}

    async def begin(self) -> None:
        """Create the nodes."""
        for name in NODES:
            await self._create(name, NodeModel())

    async def _create(self, name: str, requested: NodeModel) -> None:
        manifest = node_manifest(self.node(name))
        if name in requested.annotated:
            manifest["metadata"]["annotations"][names.ANNOTATION_OPT_IN] = "true"
        for shim in SHIMS:
            if (name, shim) in requested.selected:
                manifest["metadata"]["labels"] |= self._selector(shim)
        await self.requests.accepted("POST", "/api/v1/nodes", manifest)

    def act(self, step: Step) -> Awaitable[None]:
        """Return what carries a step out, with what was asked for up to then."""
        self._requested.do(step)
        if step.act == Act.DELETE:
            self.deleted.add(self.shim(step.on))
        return self._do(step, copy.deepcopy(self._requested))

    async def _do(self, step: Step, requested: NodeModel) -> None:
        match Act(step.act):
            case Act.OPT_IN | Act.OPT_OUT:
                value = "true" if step.act == Act.OPT_IN else None
                await self._patch(step.on, {"annotations": {names.ANNOTATION_OPT_IN: value}})
            case Act.SELECT:
                await self._patch(step.on, {"labels": self._selector(step.value)})
            case Act.DESELECT:
                await self._patch(step.on, {"labels": dict.fromkeys(self._selector(step.value))})
            case Act.UNLABEL:
                await self._patch(step.on, {"labels": {names.LABEL_PROVISIONED: None, names.LABEL_WASM_READY: None}})
            case Act.REPLACE:
                await self.requests.deleted(f"/api/v1/nodes/{self.node(step.on)}")
                await self._until_deleted(f"/api/v1/nodes/{self.node(step.on)}")
                await self._create(step.on, requested)
            case Act.APPLY:
                await self._apply(step.on, step.value)
            case Act.DELETE:
                await self.requests.deleted(f"{SHIMS_PATH}/{self.shim(step.on)}")
            case Act.FAIL_NEXT:
                self.kubelets.fail_next[self.node(step.on)] += 1
            case Act.DELETE_JOB:
                await self._delete_job(self.node(step.on))

    async def _patch(self, node: str, metadata: Manifest) -> None:
        await self.requests.accepted("PATCH", f"/api/v1/nodes/{self.node(node)}", {"metadata": metadata})

    async def _until_deleted(self, path: str) -> None:
        while await self.requests.found(path) is not None:  # noqa: ASYNC110 (a server is asked)
            await asyncio.sleep(_DELETION_SECONDS)

    async def _apply(self, name: str, version: str) -> None:
        shim, path = self.shim(name), f"{SHIMS_PATH}/{self.shim(name)}"
        source = {"location": f"https://example.com/{name}-{version}.tar.gz", "sha256": sha256_of(version)}
        spec = {
            "nodeSelector": self._selector(name),
            "fetchStrategy": {"anonHttp": source},
            "runtimeClass": {"name": shim, "handler": shim},
            "rolloutStrategy": {"type": "rolling", "rolling": {"maxUpdate": MAX_UPDATE}},
        }
        kind = {"apiVersion": "runtime.spinkube.dev/v1alpha1", "kind": "Shim"}
        while True:
            found = await self.requests.found(path)
            if found is not None and "deletionTimestamp" in found["metadata"]:
                await self._until_deleted(path)
            elif found is not None:
                # Of the very object that was seen: one that is deleted meanwhile is not changed in its last moments.
                await self.requests.accepted(
                    "PATCH", path, {"metadata": {"uid": found["metadata"]["uid"]}, "spec": spec}
                )
                return
            else:
                status, answer = await self.requests.call(
                    "POST", SHIMS_PATH, kind | {"metadata": {"name": shim}, "spec": spec}
                )
                if status == http.HTTPStatus.CREATED:
                    return
                assert status == http.HTTPStatus.CONFLICT, answer

    async def _delete_job(self, node: str) -> None:
        for job in await self.requests.items(f"{_JOBS}/{self.installers}/jobs"):
            if job["metadata"]["annotations"][names.ANNOTATION_NODE] == node:
                path = f"{_JOBS}/{self.installers}/jobs/{job['metadata']['name']}?propagationPolicy=Background"
                await self.requests.deleted(path)

    async def wrong(self, wanted: Expected) -> AsyncIterator[str]:
        """Yield what is not as it has to be."""
        for name, end in wanted.nodes.items():
            async for item in self._wrong_node(name, end):
                yield item
        for name in SHIMS:
            async for item in self._wrong_shim(name, wanted):
                yield item
        if jobs := await self.requests.items(f"{_JOBS}/{self.installers}/jobs"):
            yield f"{len(jobs)} installer Jobs are left: {[job['metadata']['name'] for job in jobs][:3]}"

    async def _wrong_node(self, name: str, end: NodeEnd) -> AsyncIterator[str]:
        node = await self.requests.found(f"/api/v1/nodes/{self.node(name)}")
        if node is None:
            yield f"node {name} is gone"
            return
        metadata = node["metadata"]
        labels = metadata.get("labels") or {}
        if (labels.get(names.LABEL_PROVISIONED) == metadata["name"]) != end.labelled:
            yield f"node {name} is {'not ' if end.labelled else ''}labelled"
        for shim in SHIMS:
            if (labels.get(self.shim(shim)) == names.SHIM_PROVISIONED) != (shim in end.shims):
                yield f"node {name} is {'not ' if shim in end.shims else ''}labelled with {shim}"
        disk = self.kubelets.disks.get(metadata["uid"], Disk())
        has = {handler: installer_spec.sources[0].sha256 for handler, installer_spec in disk.shims.items()}
        wanted = {self.shim(shim): sha256_of(version) for shim, version in end.shims.items()}
        if has != wanted:
            yield f"on the disk of node {name} is {has}, not {wanted}"
        ours = [key for key in metadata.get("annotations") or {} if key.startswith("trellis.dev/")]
        if ours and not end.labelled:
            yield f"node {name} still has {ours}"

    async def _wrong_shim(self, name: str, wanted: Expected) -> AsyncIterator[str]:
        found = await self.requests.found(f"{SHIMS_PATH}/{self.shim(name)}")
        served = await self.requests.found(f"{CLASSES}/{self.shim(name)}")
        if (found is not None) != (name in wanted.shims):
            yield f"Shim {name} is {'there' if found else 'gone'}"
        if (served is not None) != (name in wanted.shims):
            yield f"the RuntimeClass of {name} is {'there' if served else 'gone'}"
        if found is None:
            return
        status = found.get("status") or {}
        nodes = sum(name in end.shims for end in wanted.nodes.values())
        counts = [status.get(field) for field in ("nodes", "nodesReady", "nodesUpdated")]
        if counts != [nodes] * 3:
            yield f"Shim {name} counts {counts} of {nodes} nodes"
        if status.get("observedGeneration") != found["metadata"]["generation"]:
            yield f"Shim {name} has not been looked at since it was changed"
        reported = {
            condition["type"]: (condition["status"], condition["reason"])
            for condition in status.get("conditions") or ()
        }
        if reported.get("Degraded", ("",))[0] != "False" or reported.get("Progressing", ("",))[0] != "False":
            yield f"Shim {name} says {reported}"

    async def release(self) -> None:
        """Ask for the deletion of every Shim."""
        for name in SHIMS:
            await self.requests.deleted(f"{SHIMS_PATH}/{self.shim(name)}")

    async def left(self) -> AsyncIterator[str]:
        """Yield what is still there of what people deleted."""
        for name in SHIMS:
            if (found := await self.requests.found(f"{SHIMS_PATH}/{self.shim(name)}")) is not None:
                yield f"Shim {name} is held by {found['metadata'].get('finalizers')}"

    async def clean_up(self) -> None:
        """Remove what is left; finalizers of a remaining Shim are removed."""
        for name in SHIMS:
            path = f"{SHIMS_PATH}/{self.shim(name)}"
            await self.requests.deleted(path)
            await self.requests.call("PATCH", path, {"metadata": {"finalizers": None}})
            await self.requests.deleted(f"{CLASSES}/{self.shim(name)}")
        for name in NODES:
            await self.requests.deleted(f"/api/v1/nodes/{self.node(name)}")
