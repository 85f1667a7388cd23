"""What a pod's status says about its installer."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.decide import InstallerState
from provisioner.gather import installer_state, users_of
from trellis import names
from trellis.testing.builders import a_shim


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


SELECTED = {names.shim_label("spin"): names.SHIM_PROVISIONED}


@pytest.mark.parametrize(
    ("spec", "phase", "uses"),
    [
        pytest.param({"runtimeClassName": "spin-v2"}, "Running", True, id="its RuntimeClass"),
        pytest.param({"runtimeClassName": "spin-v2"}, "Succeeded", False, id="its RuntimeClass, and it ended"),
        pytest.param({"runtimeClassName": "other"}, "Running", False, id="another RuntimeClass"),
        pytest.param({"runtimeClassName": "gone", "nodeSelector": SELECTED}, "Running", True, id="the label"),
        pytest.param({"nodeSelector": SELECTED}, "Running", False, id="the label, and no RuntimeClass"),
    ],
)
@pytest.mark.parametrize("known", [True, False], ids=["the Shim is there", "the Shim is gone"])
def test_a_pod_that_uses_what_is_to_go_is_known_by(
    spec: dict[str, Any], phase: str, *, uses: bool, known: bool
) -> None:
    shims = {"spin": a_shim(runtime_class="spin-v2")} if known else {}
    pods = [{"metadata": {"namespace": "apps", "name": "web", "uid": "u"}, "spec": spec, "status": {"phase": phase}}]
    expected = uses and (known or "nodeSelector" in spec)
    assert bool(users_of(pods, ("spin",), shims)) is expected
