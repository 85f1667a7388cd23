"""A process that campaigns for a lease and, while it leads, writes its name into a ConfigMap over and over.

Run as a program by tests that stop it with signals: ``python leading_process.py <kubeconfig> <namespace> <name>``.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from trellis.health import Health
from trellis.kube.access import Access
from trellis.kube.client import Kube
from trellis.kube.leader import Leader
from trellis.kube.resources import CONFIGMAPS
from trellis.telemetry import setup

LEASE = "trellis-test"
WRITTEN = "written-by-leader"
SECONDS = 0.3


async def main(kubeconfig: Path, namespace: str, name: str) -> None:
    kube = await Kube.connect(Access(kubeconfig), telemetry=setup(name), health=Health(name))
    leader = Leader(kube, lease=LEASE, namespace=namespace, identity=name)
    guarded = kube.guarded(leader.check)

    async def lead(stopping: asyncio.Event) -> None:
        count = 0
        while not stopping.is_set():
            count += 1
            read = await guarded.get(CONFIGMAPS, WRITTEN, namespace)
            metadata = {key: read["metadata"][key] for key in ("uid", "resourceVersion")}
            patch = {"metadata": metadata, "data": {"writer": name, "count": str(count)}}
            await guarded.merge_patch(CONFIGMAPS, WRITTEN, patch, namespace, field_manager=name)
            await asyncio.sleep(SECONDS)

    await leader.run(lead, asyncio.Event())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
