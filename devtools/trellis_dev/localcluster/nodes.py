"""Simulated nodes: Node objects that kwok keeps Ready.

In: the number. Out: Nodes ``node-0000`` and up in the cluster, all Ready. Called by `up`, and by tests that need nodes
with specific names. Invariant: repeated calls create only missing nodes.
"""

from __future__ import annotations

import http
import math
import platform
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.errors import AbortedError, LocalClusterError, StartError
from trellis_dev.localcluster.progress import Progress

SIMULATED: Final = ("type", "kwok")
"""Label of simulated nodes, by which selectors distinguish them from real ones."""
_THREADS: Final = 8
_POLL: Final = 0.25
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


def node_name(index: int) -> str:
    """Return the name of a simulated node: ``node-0000`` and up."""
    return f"node-{index:04d}"


def node_manifest(name: str) -> dict[str, Any]:
    """Return a Node that kwok manages, with capacity for the pods of any test."""
    architecture = _ARCHITECTURES.get(platform.machine(), "amd64")
    capacity = {"cpu": "32", "memory": "256Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0"},
            "labels": {
                "kubernetes.io/arch": architecture,
                "kubernetes.io/os": "linux",
                "kubernetes.io/hostname": name,
                "beta.kubernetes.io/arch": architecture,
                "beta.kubernetes.io/os": "linux",
                SIMULATED[0]: SIMULATED[1],
            },
        },
        "status": {
            "allocatable": capacity,
            "capacity": capacity,
            "nodeInfo": {"architecture": architecture, "operatingSystem": "linux"},
        },
    }


def ensure_nodes(api: Api, count: int, progress: Progress, abort: threading.Event) -> None:
    """Create the missing nodes of the first ``count``, and wait until all are Ready.

    Raises:
        LocalClusterError: the server rejects a node.
        StartError: they are not all Ready after 60 s plus 0.2 s per node.
    """
    step = f"{count} simulated nodes"
    progress.begin(step)
    create_nodes(api, [node_name(index) for index in range(count)])
    deadline = time.monotonic() + 60 + 0.2 * count
    while (ready := len(ready_nodes(api))) < count:
        progress.note(step, f"{ready} of {count} Ready")
        if abort.is_set():
            raise AbortedError("stop requested while waiting for nodes")
        if time.monotonic() > deadline:
            raise StartError(
                f"only {ready} of {count} simulated nodes became Ready; see kwok.log in the cluster's logs"
            )
        time.sleep(_POLL)
    progress.end(step, "Ready")


def create_nodes(api: Api, names: list[str]) -> None:
    """Create simulated nodes with these names; existing ones are not changed.

    Raises:
        LocalClusterError: the server rejects a node.
    """

    def create_all(part: list[str]) -> None:
        try:
            for name in part:
                status, answer = api.call("POST", "/api/v1/nodes", node_manifest(name))
                if status not in {http.HTTPStatus.CREATED, http.HTTPStatus.CONFLICT}:
                    raise LocalClusterError(f"the API server rejects Node {name}: {answer.get('message', status)}")
        finally:
            api.close_own()

    size = max(1, math.ceil(len(names) / _THREADS))
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(create_all, [names[at : at + size] for at in range(0, len(names), size)]))


def ready_nodes(api: Api) -> set[str]:
    """Return the names of all Ready Nodes."""
    _, answer = api.call("GET", "/api/v1/nodes?resourceVersion=0")
    return {
        node["metadata"]["name"]
        for node in answer.get("items", [])
        if any(c["type"] == "Ready" and c["status"] == "True" for c in node.get("status", {}).get("conditions", []))
    }
