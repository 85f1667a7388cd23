"""Short scenarios of users in phases: after each phase the state must be as requested, wherever a process died.

Pure. In: nothing. Out: the phases of each part of the workload, and its services. Called by ``crashes``. A scenario
makes its services send every write that they can send without faults.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from chaos import controller_work, lattice_work, node_work
from chaos.points import ACKNOWLEDGE, Point, When
from chaos.steps import Schedule, Step

Phase = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """``services``: as `trellis run` names them; ``phases``: steps of users, with a wait after each phase.

    ``boundaries``: messages of its services in each run; ``optional``: possible further ones; ``transient``: events
    that are published only while their cause holds, which may have ended when a successor looks.
    """

    part: str
    services: tuple[str, ...]
    phases: tuple[Phase, ...]
    boundaries: tuple[str, ...]
    optional: frozenset[str] = frozenset()
    transient: frozenset[str] = frozenset()

    def until(self, phase: int) -> Schedule:
        """Return all that was done when a phase is over, counted from 0."""
        return Schedule(0, 0.0, 1, tuple(step for item in self.phases[: phase + 1] for step in item))

    def points(self) -> list[Point]:
        """Return each boundary's two sides, the first time; after an acknowledgement nothing is left to lose."""
        sides = [Point(what, 1, when) for what in self.boundaries for when in When]
        return [side for side in sides if side.when is When.BEFORE or not side.what.startswith(ACKNOWLEDGE)]


def _phases(part: str, *phases: Iterable[tuple[str, str, str]]) -> tuple[Phase, ...]:
    return tuple(tuple(Step(0.0, part, act, on, value) for act, on, value in phase) for phase in phases)


_N, _L, _C = node_work.Act, lattice_work.Act, controller_work.Act
NODES: Final = Scenario(
    node_work.PART,
    ("node-watcher", "provisioner"),
    _phases(
        node_work.PART,
        [(_N.OPT_IN, "n0", ""), (_N.SELECT, "n1", "spin"), (_N.APPLY, "spin", "1")],
        [(_N.APPLY, "spin", "2"), (_N.OPT_OUT, "n0", "")],
        [(_N.DELETE, "spin", "")],
    ),
    (
        "acknowledge node_watcher-provision", "acknowledge provisioner-nodes", "create configmaps",
        "create controllerrevisions", "create jobs", "create runtimeclasses", "delete jobs",
        "delete runtimeclasses", "patch nodes", "patch shims", "patch shims/status", "publish node.opted_in",
        "publish node.opted_out", "publish node.ready", "publish provision.removed", "publish provision.started",
        "publish provision.succeeded", "update configmaps",
    ),
    frozenset({"create namespaces", "create events", "patch events"}),
    frozenset({"publish provision.started"}),
)  # fmt: skip
LATTICE: Final = Scenario(
    lattice_work.PART,
    ("host-manager", "service-reflector", "application-manager"),
    _phases(
        lattice_work.PART,
        [(_L.APPLY, "k0", "1"), (_L.PUT, "w0", "2"), (_L.SCALE, "g0", "1")],
        [(_L.APPLY, "k0", "3"), (_L.UNDEPLOY, "w0", ""), (_L.SCALE, "g0", "2")],
        [(_L.DELETE, "k0", ""), (_L.WASH_DELETE, "w0", ""), (_L.DELETE_GROUP, "g0", "")],
    ),
    (
        "acknowledge trellis-host_manager", "create applications", "create endpointslices", "create services",
        "delete applications", "delete endpointslices", "delete services", "patch applications",
        "patch applications/status", "patch configmaps", "patch deployments", "patch endpointslices",
        "patch poddisruptionbudgets", "patch rolebindings", "patch roles", "patch serviceaccounts", "patch services",
        "patch wasmcloudhostconfigs", "patch wasmcloudhostconfigs/status", "publish application.deleted",
        "publish application.synced", "publish hosts.ready", "publish hosts.removed", "publish lattice",
        "publish service.reflected", "publish service.removed", "wadm del", "wadm deploy", "wadm put",
    ),
    frozenset({"create namespaces", "create events", "patch events", "update configmaps", "create configmaps"}),
    frozenset({"publish application.deleted"}),
)  # fmt: skip
CONTROLLERS: Final = Scenario(
    controller_work.PART,
    ("controller-host",),
    _phases(
        controller_work.PART,
        [(_C.SET, "a", "1"), (_C.SET, "b", "2")],
        [(_C.SET, "a", "3"), (_C.DELETE, "b", "")],
    ),
    (
        "create configmaps",
        "delete configmaps",
        "patch wasmcontrollers/status",
        "update configmaps",
    ),
    frozenset(
        {
            "create namespaces",
            "create events",
            "patch events",
            "publish controller.suspended",
            "publish controller.woken",
        }
    ),
)
SCENARIOS: Final = (NODES, LATTICE, CONTROLLERS)
