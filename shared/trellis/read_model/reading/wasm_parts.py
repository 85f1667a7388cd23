"""Reads the parts of a snapshot of Wasm pods, with the permissions of the reader.

In: a reader with its permissions. Out: manifests, views, log lines, and the reasons of what could not be read. Called
by the readers of pages and of the table of Wasm pods. Writes nothing. Invariant: a part without permission is unread
with the reason, and a note names it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from trellis.installer_api.redaction import redact_url
from trellis.kube.errors import Forbidden, KubeError, NotFound
from trellis.kube.permissions import missing_right
from trellis.kube.resources import NODES, RUNTIME_CLASSES, SHIMS, Manifest, Resource
from trellis.provisioning.nodes_and_jobs import view_node
from trellis.provisioning.shims import view_shim
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.wasm_pods.explain.containers import failing
from trellis.read_model.wasm_pods.owners import view_runtime_class
from trellis.read_model.wasm_pods.pods import WasmPod
from trellis.read_model.wasm_pods.snapshot import Part, Snapshot

WARNING: Final = "type=Warning"
LOG_LINES: Final = 10
LOG_BYTES: Final = LOG_LINES * 16384
"""containerd and CRI-O split lines at 16 KiB, so this has all of the last lines; the kubelet would cut their end."""
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
"""Colours of a terminal, which programs of Rust write between the words of an error."""


@dataclass(frozen=True, slots=True)
class PartReads:
    """The reads of one page or table. ``unread``: parts that could not be read, with the reason."""

    reading: Reading
    unread: dict[Part, str] = field(default_factory=dict)

    async def list(self, part: Part, res: Resource, namespace: str | None = None, **selectors: str) -> list[Manifest]:
        """Return the objects of a part; none, with a reason, if they cannot be read; raises KubeError."""
        labels, fields = selectors.get("labels"), selectors.get("fields")
        try:
            found = await self.reading.kube.list(res, namespace, label_selector=labels, field_selector=fields)
        except Forbidden as error:
            self.reading.lacks(error, res)
            self.lost(part, error)
        except NotFound:
            self.unread[part] = f"the API server does not serve {res.definition}"
        else:
            return found.items
        return []

    def lost(self, part: Part, error: KubeError) -> None:
        """Note a part that could not be read."""
        right = missing_right(error)
        self.unread[part] = f"this account cannot {right}" if right else str(error)


async def read_shared(read: PartReads) -> Snapshot:
    """Return what pages and tables need: RuntimeClasses, Nodes and Shims."""
    classes, nodes, shims = await asyncio.gather(
        read.list(Part.CLASSES, RUNTIME_CLASSES), read.list(Part.NODES, NODES), _shims(read)
    )
    return Snapshot(
        classes=[*map(view_runtime_class, classes)], nodes=[*map(view_node, nodes)], shims=[*map(view_shim, shims)]
    )


async def _shims(read: PartReads) -> list[Manifest]:
    """Return the Shims; none where the kind is not defined."""
    found = await read.reading.list(SHIMS)
    if not read.reading.knows(SHIMS):
        read.unread[Part.SHIMS] = read.reading.unread[SHIMS]
    return found


async def read_logs(read: PartReads, pods: Sequence[WasmPod]) -> dict[str, Sequence[str]]:
    """Return the last lines of the containers of these pods that ended with an error, by the UID of the pod."""
    found = await asyncio.gather(*(_log(read, pod) for pod in pods))
    return {pod.meta.uid: lines for pod, lines in zip(pods, found, strict=True)}


async def _log(read: PartReads, pod: WasmPod) -> Sequence[str]:
    """Return the last lines of the container of a pod that ended; none without permission, or without a log."""
    item = failing(pod)
    assert item is not None  # the caller has checked it
    try:
        text = await read.reading.kube.pod_log(
            pod.meta.namespace,
            pod.meta.name,
            item.name,
            tail_lines=LOG_LINES,
            limit_bytes=LOG_BYTES,
            previous=item.running,
        )
    except Forbidden as error:
        read.lost(Part.LOGS, error)
    except KubeError as error:
        # The kubelet has removed the log, or does not answer: the rest of the page does not need it.
        read.unread[Part.LOGS] = str(error)
    else:
        return redact_url(_COLOUR.sub("", text)).splitlines()
    return ()
