"""Short stories of what people do, in chapters: after each all has to be as they asked, wherever a process died.

Pure. In: nothing. Out: the chapters of each part of the workload, which services have a part in it. Called by
``crashes``. A story makes its services write everything that they can write when nothing goes wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from chaos import controller_work, lattice_work, node_work
from chaos.points import ACKNOWLEDGE, Point, When
from chaos.steps import Schedule, Step

Chapter = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Story:
    """``services``: as `trellis run` names them; ``chapters``: what people do, and wait, and do then.

    ``boundaries``: what it makes its services send, each time that it is told; ``may``: what it may make them send.
    ``passes``: what is said only while something is so, and may not be so any more when a successor looks.
    """

    part: str
    services: tuple[str, ...]
    chapters: tuple[Chapter, ...]
    boundaries: tuple[str, ...]
    may: frozenset[str] = frozenset()
    passes: frozenset[str] = frozenset()

    def until(self, chapter: int) -> Schedule:
        """Return all that was done when a chapter is over, counted from 0."""
        return Schedule(0, 0.0, 1, tuple(step for item in self.chapters[: chapter + 1] for step in item))

    def points(self) -> list[Point]:
        """Return each boundary's two sides, the first time; after an acknowledgement nothing is left to lose."""
        sides = [Point(what, 1, when) for what in self.boundaries for when in When]
        return [side for side in sides if side.when is When.BEFORE or not side.what.startswith(ACKNOWLEDGE)]


def _chapters(part: str, *chapters: Iterable[tuple[str, str, str]]) -> tuple[Chapter, ...]:
    return tuple(tuple(Step(0.0, part, act, on, value) for act, on, value in chapter) for chapter in chapters)


_N, _L, _C = node_work.Act, lattice_work.Act, controller_work.Act
NODES: Final = Story(
    node_work.PART,
    ("node-watcher", "provisioner"),
    _chapters(
        node_work.PART,
        [(_N.OPT_IN, "n0", ""), (_N.SELECT, "n1", "spin"), (_N.APPLY, "spin", "1")],
        [(_N.APPLY, "spin", "2"), (_N.OPT_OUT, "n0", "")],
        [(_N.DELETE, "spin", "")],
    ),
    (
        "acknowledge node_watcher-provision", "acknowledge provisioner-nodes", "create configmaps",
        "create controllerrevisions", "create jobs", "create runtimeclasses", "delete jobs",
        "delete runtimeclasses", "patch nodes", "patch shims", "patch shims/status", "say node.opted_in",
        "say node.opted_out", "say node.ready", "say provision.removed", "say provision.started",
        "say provision.succeeded", "update configmaps",
    ),
    frozenset({"create namespaces", "create events", "patch events"}),
    frozenset({"say provision.started"}),
)  # fmt: skip
LATTICE: Final = Story(
    lattice_work.PART,
    ("host-manager", "service-reflector", "application-manager"),
    _chapters(
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
        "patch wasmcloudhostconfigs", "patch wasmcloudhostconfigs/status", "say application.deleted",
        "say application.synced", "say hosts.ready", "say hosts.removed", "say lattice", "say service.reflected",
        "say service.removed", "wadm del", "wadm deploy", "wadm put",
    ),
    frozenset({"create namespaces", "create events", "patch events", "update configmaps", "create configmaps"}),
    frozenset({"say application.deleted"}),
)  # fmt: skip
CONTROLLERS: Final = Story(
    controller_work.PART,
    ("controller-host",),
    _chapters(
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
        {"create namespaces", "create events", "patch events", "say controller.suspended", "say controller.woken"}
    ),
)
STORIES: Final = (NODES, LATTICE, CONTROLLERS)
