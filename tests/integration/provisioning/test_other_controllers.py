"""While another operator runs nothing is started beside it, until it is deleted or a user permits it."""

from __future__ import annotations

import http
from collections.abc import Iterator
from typing import Any

import pytest

from support.cluster.exclusion import place
from support.nodes.fleet import Fleet, eventually
from support.nodes.kubelets import kubelets
from support.nodes.leftovers import as_new, leftover
from support.nodes.shims import Shim
from support.suite.typed import Done, bare_environment, typed_meanwhile
from trellis import names
from trellis.provisioning.views import KWASM

pytestmark = pytest.mark.cluster

CONDITION = "OtherControllerActive"


class Operator:
    """A peer's operator in a namespace of the test."""

    def __init__(self, fleet: Fleet, namespace: str, peer: str) -> None:
        self.fleet = fleet
        self.manifest = as_new(leftover(peer, "deployment", namespace=namespace))
        self.path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        self.name = self.manifest["metadata"]["name"]

    def start(self) -> None:
        """Install it."""
        status, answer = self.fleet.api.call("POST", self.path, self.manifest)
        assert status == http.HTTPStatus.CREATED, answer

    def scale_to_0(self) -> None:
        """Let none of it run."""
        status, answer = self.fleet.api.call("PATCH", f"{self.path}/{self.name}", {"spec": {"replicas": 0}})
        assert status == http.HTTPStatus.OK, answer

    def marked(self) -> bool:
        """Say whether a person took over beside it."""
        annotations = self.fleet.api.call("GET", f"{self.path}/{self.name}")[1]["metadata"].get("annotations") or {}
        return annotations.get(names.ANNOTATION_TAKEN_OVER) == "true"

    def delete(self) -> None:
        """Uninstall it."""
        self.fleet.api.call("DELETE", f"{self.path}/{self.name}")


@pytest.fixture
def operators(fleet: Fleet, namespace: str) -> Iterator[dict[str, Operator]]:
    """Both operators, none of them running yet; deleted after the test, which shares its cluster with others."""
    made = {peer: Operator(fleet, namespace, peer) for peer in ("kwasm", "rcm")}
    yield made
    for operator in made.values():
        operator.delete()


async def trellis(fleet: Fleet, *arguments: str) -> Done:
    """Run a command as a user runs it."""
    return await typed_meanwhile(bare_environment(**fleet.environment()), *arguments)


def message_of(shim: Shim) -> str:
    conditions: list[dict[str, Any]] = ((shim.found() or {}).get("status") or {}).get("conditions") or []
    return next((str(condition["message"]) for condition in conditions if condition["type"] == CONDITION), "")


async def test_a_shim_is_left_to_runtime_class_manager_until_it_is_uninstalled(
    fleet: Fleet, shim: Shim, operators: dict[str, Operator]
) -> None:
    operator = operators["rcm"]
    [node] = shim.add_nodes(1)
    operator.start()
    async with fleet.services(), kubelets(fleet):
        offset = fleet.audit_offset()
        shim.apply()
        await eventually(lambda: shim.condition(CONDITION) == ("True", "RuntimeClassManagerRuns"), CONDITION)
        assert "trellis migrate rcm --take-over" in message_of(shim)
        message = await eventually(lambda: fleet.events(node).get(CONDITION), "an Event on the node")
        assert operator.name in message
        found = shim.found()
        assert found is not None
        assert not found["metadata"].get("finalizers")
        assert shim.runtime_class() is None
        assert not fleet.ledger()
        # Only here: of the test before, the controller manager may still be removing Jobs.
        assert not [write for write in fleet.writes(offset) if place(write)[:2] == ("jobs", fleet.installers)]

        operator.scale_to_0()
        await eventually(lambda: shim.has(node), "the node has it", seconds=60)
        await eventually(lambda: shim.condition(CONDITION) == ("False", "NoOtherController"), "it is gone")
        await fleet.quiet()

        shim.delete()
        await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=60)


@pytest.mark.thorough
async def test_a_change_waits_for_an_operator_that_was_installed_later_unless_a_user_overrides_it(
    fleet: Fleet, shim: Shim, operators: dict[str, Operator]
) -> None:
    operator = operators["rcm"]
    [node] = shim.add_nodes(1)
    async with fleet.services(), kubelets(fleet):
        shim.apply()
        await eventually(lambda: shim.has(node), "the node has it", seconds=60)
        await fleet.quiet()
        operator.start()
        await eventually(lambda: shim.condition(CONDITION)[0] == "True", CONDITION)
        before = fleet.annotations(node)[names.ANNOTATION_SHIMS]
        shim.apply(sha256="cd" * 32)
        await eventually(lambda: fleet.events(node).get(CONDITION), "an Event on the node")
        assert not fleet.jobs()
        status = await trellis(fleet, "rollout", "status", shim.name)
        assert "Paused" in status.stdout, status
        assert "runtime-class-manager" in status.stdout

        await trellis(fleet, "migrate", "rcm", "--yes")
        assert not operator.marked()
        taken = await trellis(fleet, "migrate", "rcm", "--yes", "--take-over")
        assert taken.returncode == 0, taken
        assert operator.marked()
        await eventually(
            lambda: fleet.annotations(node)[names.ANNOTATION_SHIMS] != before, "the new version", seconds=60
        )
        await eventually(lambda: shim.condition(CONDITION) == ("False", "NoOtherController"), "taken over")
        again = await trellis(fleet, "migrate", "rcm", "--yes", "--take-over")
        assert "Deployment" not in again.stdout, again
        shim.delete()
        await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=60)


@pytest.mark.thorough
async def test_annotated_nodes_are_left_to_kwasm_and_a_shim_of_other_nodes_is_not(
    fleet: Fleet, shim: Shim, operators: dict[str, Operator]
) -> None:
    operator = operators["kwasm"]
    [selected] = shim.add_nodes(1)
    [annotated] = fleet.add("node")
    operator.start()
    async with fleet.services(), kubelets(fleet):
        shim.apply()
        await eventually(lambda: shim.has(selected), "the node of the nodeSelector has it", seconds=60)
        message = await eventually(lambda: fleet.events(annotated).get(CONDITION), "an Event on the annotated node")
        assert "trellis migrate kwasm --take-over" in message
        assert not fleet.provisioned(annotated)
        assert shim.condition(CONDITION) == ("", "")
        operator.delete()
        await eventually(lambda: fleet.provisioned(annotated), "the annotated node is provisioned", seconds=60)
        assert fleet.annotations(annotated)[names.ANNOTATION_VERIFIED] == "job"

        operator.start()  # reinstalled beside Trellis
        [later] = fleet.add("node")
        await eventually(lambda: fleet.events(later).get(CONDITION), "an Event on the node that came later")
        assert not fleet.provisioned(later)
        assert fleet.provisioned(annotated)
        operator.delete()
        await eventually(lambda: fleet.provisioned(later), "it is provisioned", seconds=60)
        shim.delete()
        await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=60)
    assert KWASM not in fleet.ledger()
