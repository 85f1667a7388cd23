"""Deployments of a controller that Trellis replaces, and work that must wait for it."""

from __future__ import annotations

from typing import Any

import pytest

from trellis import names
from trellis.provisioning.other_controllers import Controller, Peer, blocking_controller, in_charge, view_controller
from trellis.provisioning.views import KWASM
from trellis_dev.testing.builders import a_node, opted_in

KWASM_IMAGE = "ghcr.io/kwasm/kwasm-operator:v0.2.3"


def deployment(*images: str, replicas: int | None = 1, running: int = 1, **metadata: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"template": {"spec": {"containers": [{"image": image} for image in images]}}}
    if replicas is not None:
        spec["replicas"] = replicas
    place = {"namespace": "ns", "name": "operator", "uid": "uid-1"}
    return {"metadata": place | metadata, "spec": spec, "status": {"replicas": running}}


@pytest.mark.parametrize(
    ("manifest", "peer"),
    [
        pytest.param(deployment(KWASM_IMAGE), Peer.KWASM, id="KWasm by its image"),
        pytest.param(deployment("mirror:5000/x/kwasm-operator@sha256:ab"), Peer.KWASM, id="a mirror, by digest"),
        pytest.param(deployment("sidecar", "r/runtime-class-manager"), Peer.RCM, id="the second container"),
        pytest.param(
            deployment("r/other", labels={"app.kubernetes.io/name": "kwasm-operator"}),
            Peer.KWASM,
            id="its chart's label",
        ),
        pytest.param(deployment(KWASM_IMAGE, replicas=None, running=0), Peer.KWASM, id="one replica by default"),
        pytest.param(deployment(KWASM_IMAGE, replicas=0, running=1), Peer.KWASM, id="scaled to 0, a pod is left"),
        pytest.param(deployment(KWASM_IMAGE, replicas=0, running=0), None, id="scaled to 0"),
        pytest.param(deployment("r/kwasm-operator-docs:1"), None, id="a name that begins alike"),
        pytest.param(
            deployment(
                "ghcr.io/spinframework/spin-operator:latest", labels={"app.kubernetes.io/name": "spin-operator"}
            ),
            None,
            id="spin-operator, which stays",
        ),
        pytest.param(deployment("r/kwasm-operator/site:1"), None, id="a folder of that name"),
        pytest.param(deployment(), None, id="no container"),
    ],
)
def test_a_deployment_runs_a_peer_if(manifest: dict[str, Any], peer: Peer | None) -> None:
    found = view_controller(manifest)
    assert (found.peer if found else None) is peer


@pytest.mark.parametrize(
    "manifest",
    [
        deployment("ghcr.io/wasmcloud/wasmcloud-operator:0.4.0"),
        deployment("ghcr.io/wasmcloud/wadm-operator:0.5.1"),
        deployment("mirror/other", labels={"app.kubernetes.io/name": "wadm-operator"}),
    ],
)
def test_the_operator_of_hosts_goes_by_two_names_and_is_nothing_to_nodes(manifest: dict[str, Any]) -> None:
    found = view_controller(manifest, (Peer.WASMCLOUD_OPERATOR,))
    assert found is not None
    assert "trellis migrate wasmcloud-operator --take-over" in found.advice
    assert view_controller(manifest) is None


def test_hosts_themselves_are_not_taken_for_their_operator() -> None:
    labels = {"app.kubernetes.io/name": "wasmcloud", "app.kubernetes.io/managed-by": "wadm-operator"}
    hosts = deployment("nats:2.10-alpine", "ghcr.io/wasmcloud/wasmcloud:1.9.2", labels=labels)
    assert view_controller(hosts, (Peer.WASMCLOUD_OPERATOR,)) is None


@pytest.mark.parametrize(("value", "counts"), [("true", False), ("false", True), ("", True), ("yes", True)])
def test_only_the_word_true_takes_a_controller_over(value: str, counts: bool) -> None:
    found = view_controller(deployment(KWASM_IMAGE, annotations={names.ANNOTATION_TAKEN_OVER: value}))
    assert bool(in_charge([found, None])) is counts


OPERATOR = Controller(Peer.KWASM, "kwasm", "kwasm-operator", "uid-1")
MANAGER = Controller(Peer.RCM, "rcm", "rcm", "uid-2")
ANNOTATED = opted_in(a_node())


@pytest.mark.parametrize(
    ("node", "shims", "controllers", "expected"),
    [
        pytest.param(ANNOTATED, (KWASM,), (OPERATOR,), OPERATOR, id="KWasm and an annotated node"),
        pytest.param(ANNOTATED, ("spin",), (OPERATOR,), OPERATOR, id="whatever goes there"),
        pytest.param(a_node(), (KWASM,), (OPERATOR,), OPERATOR, id="KWasm and its image by auto-provisioning"),
        pytest.param(a_node(), ("spin",), (OPERATOR,), None, id="KWasm and a node of a nodeSelector"),
        pytest.param(a_node(opt_in="false"), ("spin",), (OPERATOR,), None, id="KWasm and a node opted out"),
        pytest.param(ANNOTATED, (), (OPERATOR,), None, id="nothing is to change"),
        pytest.param(a_node(), ("spin",), (MANAGER,), MANAGER, id="runtime-class-manager and a Shim"),
        pytest.param(ANNOTATED, (KWASM,), (MANAGER,), None, id="runtime-class-manager and the legacy image"),
        pytest.param(a_node(), (KWASM, "spin"), (MANAGER,), MANAGER, id="both on one node"),
        pytest.param(ANNOTATED, ("spin",), (), None, id="nobody else"),
    ],
)
def test_another_controller_prevents_work_of_trellis(
    node: Any, shims: tuple[str, ...], controllers: tuple[Controller, ...], expected: Controller | None
) -> None:
    assert blocking_controller(node, shims, controllers) is expected
