"""`trellis status`, `top` and `explain` before a real API server: one health and one reason of each Wasm owner."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.wasm_pods.served import ServedWasmPods
from trellis.read_model.wasm_pods.reasons import Reason
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

pytestmark = pytest.mark.cluster
SECONDS = 60.0
Run = Callable[..., dict[str, Any]]


@pytest.fixture
def served(cluster_api: Api, namespace: str) -> Iterator[ServedWasmPods]:
    found = ServedWasmPods(cluster_api, namespace)
    yield found
    found.leave()


@pytest.fixture
def run(cluster: ClusterInfo) -> Run:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("TRELLIS_", "KUBE", "NO_COLOR"))}
    own["TRELLIS_KUBECONFIG"] = str(Path(cluster.kubeconfig))
    own["TRELLIS_NATS_URL"] = "nats://127.0.0.1:1"

    def read(*arguments: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "trellis_cli", *arguments, "-o", "json"]
        done = subprocess.run(command, env=own, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.stdout, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return read


def surfaces(run: Run, served: ServedWasmPods, name: str) -> list[tuple[str, str]]:
    """Return health and reason in the row of ``status``, in ``top``, and on the page."""
    rows = run("status")["wasm_pods"]["workloads"]
    [row] = [item for item in rows if (item["namespace"], item["name"]) == (served.namespace, name)]
    entity = run("top", "wasmpods", "--once", "-n", served.namespace)["entities"][served.ids()[name]]
    page = run("explain", f"deployment/{name}", "-n", served.namespace)
    assert row["shim"] == entity["shim"].removeprefix("shim/")
    return [(found["health"], found["reason"]) for found in (row, entity, page)]


def test_status_top_and_explain_agree(run: Run, served: ServedWasmPods) -> None:
    deadline = time.monotonic() + SECONDS
    while True:  # the controller of Deployments creates the pods meanwhile
        found = {name: surfaces(run, served, name) for name in ("hello", "lost")}
        missing = {("Degraded", Reason.RUNTIME_CLASS_MISSING)}
        if {*found["lost"]} == missing and len({*found["hello"]}) == 1:
            break
        assert time.monotonic() < deadline, found
    status = run("status")["wasm_pods"]
    assert status["ok"] is False
    assert "SpinApp" not in json.dumps(status["unread"])
