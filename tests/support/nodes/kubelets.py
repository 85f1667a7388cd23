"""Nodes of a fleet on which installers act: the arguments of a Job's container change a state, and kubelets show it.

kwok says how each Job ends; here is what it did. A Job without arguments, or with wrong ones, leaves its node
unchanged, so it is never verified; one that a real installer would refuse fails the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from support.nodes.fleet import Fleet, Manifest
from trellis import names
from trellis.installer_api.spec import SpecError
from trellis.kube.access import Access
from trellis.kube.client import Kube
from trellis.kube.informer import Change, Informer
from trellis.kube.resources import JOBS
from trellis.telemetry import setup
from trellis.telemetry.health import Health
from trellis_dev.fakes.disks import Disk


class Disks(dict[str, Disk]):
    """The disks of a fleet's nodes, by name."""

    def __missing__(self, node: str) -> Disk:
        """Return the disk of a node on which nothing was done yet."""
        return self.setdefault(node, Disk())


@contextlib.asynccontextmanager
async def kubelets(fleet: Fleet, disks: Disks | None = None) -> AsyncIterator[Disks]:
    """Let each finished Job carry out its arguments on its node, and show the resulting handlers.

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

    # A watch, because a Job that is verified at once is gone before anyone could look again.
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
    wanted: list[dict[str, Any]] = [{"name": name} for name in disk.handlers]
    if (fleet.node(node)["status"].get("runtimeHandlers") or []) != wanted:
        fleet.patch(node, {"status": {"runtimeHandlers": wanted}}, "/status")
