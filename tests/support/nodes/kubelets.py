"""Nodes of a fleet on which installers act: what a Job's container is told is done to a state, and kubelets show it.

kwok says how each Job ends; here is what it did. A Job that is told nothing, or the wrong thing, leaves its node as it
was, so it is never proved; one that a real installer would refuse fails the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.nodes.fleet import Fleet, Manifest
from trellis import names
from trellis.installer_api.spec import SpecError, WantedShim, parse_spec
from trellis.kube.access import Access
from trellis.kube.client import Kube
from trellis.kube.informer import Change, Informer
from trellis.kube.resources import JOBS
from trellis.provisioning.views import decode_digests
from trellis.telemetry import setup
from trellis.telemetry.health import Health


@dataclass
class Disk:
    """What installers left on one node: shims by handler; ``done``: uids of the Jobs that worked on it."""

    shims: dict[str, WantedShim] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)

    def run(self, job: Manifest) -> None:
        """Do what a Job's container is told.

        Raises:
            SpecError: a real installer would refuse it.
        """
        pod = job["spec"]["template"]["spec"]
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            self._run(container, job["metadata"]["annotations"])

    def _run(self, container: Manifest, annotations: Mapping[str, str]) -> None:
        told = {item["name"]: item.get("value", "") for item in container["env"]}
        if names.INSTALLER_SPEC not in told:
            handlers = filter(None, annotations.get(names.ANNOTATION_HANDLER, "").split(","))
            self.shims |= {handler: WantedShim("legacy", handler, "", "legacy") for handler in handlers}
            return
        match container["args"]:
            case ["install"]:
                self._install(told[names.INSTALLER_SPEC], decode_digests(annotations[names.ANNOTATION_SHIMS]))
            case ["uninstall"] | ["uninstall", "--force"]:
                self._uninstall(told[names.INSTALLER_SPEC])
            case other:
                message = f"no operation: {other}"
                raise SpecError(message)

    def _install(self, text: str, promised: Mapping[str, str]) -> None:
        spec = parse_spec(text)
        for wish in spec.shims:
            former = self.shims.get(wish.handler)
            if former is not None and former.owner != wish.owner:
                message = f"HandlerConflict: {wish.handler} belongs to {former.owner}, not to {wish.owner}"
                raise SpecError(message)
            if promised.get(wish.name) != wish.digest:
                message = f"the Job promises {dict(promised)}, and installs {wish.name}={wish.digest}"
                raise SpecError(message)
            if spec.require_checksum and not all(one.sha256 or "@sha256:" in one.location for one in wish.sources):
                message = f"ChecksumMissing: {wish.name}"
                raise SpecError(message)
        self.shims |= {wish.handler: wish for wish in spec.shims}

    def _uninstall(self, text: str) -> None:
        for wish in parse_spec(text, removal=True).shims:
            meant = [
                handler
                for handler, shim in self.shims.items()
                if shim.owner == wish.owner and wish.handler in {"", handler}
            ]
            for handler in meant:
                del self.shims[handler]


class Disks(dict[str, Disk]):
    """The disks of a fleet's nodes, by name."""

    def __missing__(self, node: str) -> Disk:
        """Return the disk of a node on which nothing was done yet."""
        return self.setdefault(node, Disk())


@contextlib.asynccontextmanager
async def kubelets(fleet: Fleet, disks: Disks | None = None) -> AsyncIterator[Disks]:
    """Let each finished Job do on its node what its container is told, and show the handlers that are there then.

    ``disks``: where an earlier kubelet left them.
    """
    disks = Disks() if disks is None else disks
    refused: list[str] = []

    def work(change: Change[Manifest]) -> None:
        job = change.new
        if job is None or not (job.get("status") or {}).get("succeeded"):
            return
        uid, node = job["metadata"]["uid"], job["metadata"]["annotations"][names.ANNOTATION_NODE]
        if uid in disks[node].done:
            return
        disks[node].done.add(uid)
        try:
            disks[node].run(job)
        except (SpecError, LookupError) as error:
            refused.append(f"{job['metadata']['name']} on {node}: {error!r}")
        show(fleet, node, disks[node])

    # A watch, because a Job that is proved at once is gone before anyone could look again.
    access = Access(Path(fleet.info.kubeconfig))
    kube = await Kube.connect(access, telemetry=setup("kubelets"), health=Health("kubelets"))
    task = asyncio.create_task(Informer(kube, JOBS, _as_it_is, work, namespace=fleet.installers).run())
    try:
        yield disks
        assert not task.done(), task
        assert not refused, refused
    finally:
        task.cancel()
        await asyncio.wait([task])
        await kube.close()
        # aiohttp closes TLS connections a moment after its session, and tells nobody when it has.
        await asyncio.sleep(0.25)
        if refused:
            sys.stderr.write(f"installers would have refused: {refused}\n")


def _as_it_is(manifest: Manifest) -> Manifest:
    return manifest


def show(fleet: Fleet, node: str, disk: Disk) -> None:
    """Write the handlers that are on a disk into the node's status, as containerd and kubelet would."""
    wanted: list[dict[str, Any]] = [{"name": name} for name in sorted({"runc", *disk.shims})]
    if (fleet.node(node)["status"].get("runtimeHandlers") or []) != wanted:
        fleet.patch(node, {"status": {"runtimeHandlers": wanted}}, "/status")
