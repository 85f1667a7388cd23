"""Compact the history of the API server for good: watches cannot continue from their former resource version.

In: a local cluster. Out: a compaction of its etcd, and an API server that begins to remember now: the old one has some
history in its memory. A request with a former resource version is answered with 410, as after a long outage. Called by
``faults``.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from typing import Any, Final

import psutil

from trellis_dev import localcluster

API: Final = "kube-apiserver"
_OPTION: Final = "--listen-client-urls="
_SECONDS: Final = 10.0


async def compact(cluster: str) -> None:
    """Forget everything but what is."""
    await asyncio.to_thread(_compact, cluster)
    await asyncio.to_thread(localcluster.restart, cluster, API)


def _compact(cluster: str) -> None:
    [info] = localcluster.status(cluster)
    arguments = psutil.Process(info.pids["etcd"]).cmdline()
    [url] = [argument.removeprefix(_OPTION) for argument in arguments if argument.startswith(_OPTION)]
    now = _ask(f"{url}/v3/kv/range", {"key": "AA==", "keys_only": True, "limit": "1"})["header"]["revision"]
    _ask(f"{url}/v3/kv/compaction", {"revision": now, "physical": True})


def _ask(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
        return json.loads(answer.read())
