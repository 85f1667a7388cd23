"""What a pod's status says about its installer."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.decide import InstallerState
from provisioner.gather import installer_state


def pod(**state: Any) -> dict[str, Any]:
    return {"status": {"phase": "Pending", "containerStatuses": [{"name": "kwasm-provision", **state}]}}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param(
            pod(state={"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image x"}}),
            InstallerState(waiting="ImagePullBackOff: Back-off pulling image x"),
            id="an image that cannot be pulled",
        ),
        pytest.param(
            pod(state={"waiting": {"reason": "ContainerCreating"}}), InstallerState(), id="starting is no trouble"
        ),
        pytest.param(
            pod(state={"terminated": {"exitCode": 3, "reason": "Error", "message": "cp: read-only file system"}}),
            InstallerState(terminated="exit code 3 (Error)", log_tail="cp: read-only file system"),
            id="the end of its log",
        ),
        pytest.param(
            pod(state={"running": {}}, lastState={"terminated": {"exitCode": 137, "reason": "OOMKilled"}}),
            InstallerState(terminated="exit code 137 (OOMKilled)"),
            id="its former end while it runs again",
        ),
        pytest.param(
            {"status": {"phase": "Failed", "reason": "Evicted", "message": "node was low on memory"}},
            InstallerState(terminated="Evicted: node was low on memory"),
            id="a pod that never had a container",
        ),
        pytest.param({}, InstallerState(), id="no status yet"),
    ],
)
def test_a_pods_status_in_words(status: dict[str, Any], expected: InstallerState) -> None:
    assert installer_state(status) == expected
