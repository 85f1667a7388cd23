"""The installer pods of a simulated kubelet: those that run, and those that kwok forgot."""

from __future__ import annotations

from typing import Any

import pytest

from chaos import kubelets
from chaos.kubelets import Kubelets
from chaos.retrying_requests import RetryingRequests
from trellis_dev.localcluster.api import Api


class Pods(RetryingRequests):
    """A namespace of one installer pod; ``ended``: what it ended as, which it then is."""

    def __init__(self, phase: str) -> None:
        super().__init__(Api.__new__(Api))
        owner = {"ownerReferences": [{"name": "job"}], "labels": {"kwasm.sh/job": "true"}}
        self.pod: dict[str, Any] = {
            "metadata": {"name": "pod", "uid": "u", **owner},
            "spec": {"nodeName": "n0", "containers": [{"name": "install", "image": "i"}]},
            "status": {"phase": phase},
        }
        self.ended: list[str] = []

    async def items(self, path: str) -> list[dict[str, Any]]:
        assert path == "/api/v1/namespaces/installers/pods"
        return [self.pod]

    async def found(self, path: str) -> dict[str, Any] | None:
        return {"metadata": {"name": path.rpartition("/")[2], "uid": "any"}}

    async def accepted(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        assert (method, path, body is None) == ("PATCH", "/api/v1/namespaces/installers/pods/pod/status", False)
        assert body is not None
        self.pod["status"] = body["status"]
        self.ended.append(body["status"]["phase"])
        return self.pod


@pytest.mark.parametrize(
    ("phase", "waited", "ended"),
    [
        pytest.param("Running", 0.0, ["Failed"], id="a pod that runs is acted on"),
        pytest.param("Pending", 1.0, [], id="one that kwok may still take is left to it"),
        pytest.param("Pending", 6.0, ["Failed"], id="one that kwok forgot is acted on"),
        pytest.param("Succeeded", 6.0, [], id="one that has ended is left alone"),
    ],
)
async def test_a_pod_is_acted_on_when_it_is_due(
    monkeypatch: pytest.MonkeyPatch, phase: str, waited: float, ended: list[str]
) -> None:
    now = 100.0
    monkeypatch.setattr(kubelets.time, "monotonic", lambda: now)
    pods = Pods(phase)
    made = Kubelets(pods, "installers")
    made.fail_next["n0"] = 1
    if phase == "Pending":
        await made.look()
        assert pods.ended == []
    now += waited
    await made.look()
    assert pods.ended == ended
