"""Situations of Wasm pods, with the health and the reason that all surfaces show.

In: nothing. Out: a table by name; surfaces of a Deployment. Called by tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from support.situations.objects import explained, shown
from support.wasm_pods.entities import seen_in
from support.wasm_pods.objects import (
    CREATING,
    SPACE,
    WORLD,
    container,
    event,
    kube_of,
    node,
    pod,
    sandbox,
    unscheduled,
    waiting,
    workload,
)
from trellis.kube.resources import DEPLOYMENTS, EVENTS, NODES, PODS, Resource
from trellis.read_model.health import Health
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.reading.explained_pods import pods_page
from trellis.read_model.reading.wasm_pods import read_wasm_pods
from trellis.read_model.wasm_pods.reasons import Reason
from trellis_cli.status.wasm_pods import wasm_pods_part
from trellis_cli.top.model import Kind

Object = tuple[Resource, dict[str, Any]]
_OF_SET: Final = ("ReplicaSet", "hello-5d8f", "uid-hello")
_KEY: Final = f"{SPACE}/hello"


@dataclass(frozen=True)
class Owned:
    """Deployment ``hello`` with further objects; ``world``: nodes, RuntimeClass and Shim."""

    objects: Sequence[Object] = ()
    replicas: int = 1
    world: Sequence[Object] = WORLD

    async def surfaces(self) -> list[tuple[str, str]]:
        """Return health and reason on the page, as an entity, in ``trellis top`` and in ``trellis status``."""
        kube = kube_of(*self.world, (DEPLOYMENTS, workload(replicas=self.replicas)), *self.objects)
        reading = Reading(kube, "trellis-system")
        found = await read_wasm_pods(reading)
        [row] = wasm_pods_part(found.snapshot, found.workloads).data["workloads"]
        page = explained(await pods_page(reading, "deployment", "hello", SPACE))
        entities = shown(dict(seen_in(kube)), f"deployment/{_KEY}", Kind.WASM_PODS)
        return [page, *entities, (row["health"], row["reason"])]


def _pod(*statuses: dict[str, Any], **fields: Any) -> Object:
    return PODS, pod("hello-5d8f-a", *statuses, owner=_OF_SET, **fields)


def _about(found: dict[str, Any]) -> Object:
    return EVENTS, found


_NO_HANDLER: Final = (NODES, node(handlers=("runc",)))
_PULL: Final = container(waiting("ImagePullBackOff", "Back-off"))
WASM_PODS: Final[dict[str, tuple[Owned, Health, str]]] = {
    "ready": (Owned([_pod()]), Health.HEALTHY, Reason.HEALTHY),
    "no pod yet": (Owned(), Health.PROGRESSING, Reason.WAITING),
    "scaled to zero": (Owned(replicas=0), Health.SUSPENDED, Reason.SCALED_TO_ZERO),
    "no RuntimeClass": (Owned(world=(WORLD[0], WORLD[2])), Health.DEGRADED, Reason.RUNTIME_CLASS_MISSING),
    "no node with the label": (
        Owned([(PODS, unscheduled("hello-5d8f-a", owner=_OF_SET, selector={"zone": "x"}))]),
        Health.DEGRADED,
        Reason.NO_NODE_WITH_LABEL,
    ),
    "no handler": (
        Owned(
            [_pod(CREATING), _about(sandbox('no runtime for "spin" is configured', name="hello-5d8f-a"))],
            world=(_NO_HANDLER, *WORLD[1:]),
        ),
        Health.DEGRADED,
        Reason.HANDLER_NOT_CONFIGURED,
    ),
    "an image that is not found": (
        Owned(
            [
                _pod(_PULL),
                _about(
                    event(
                        "Failed", f'Failed to pull image "x": {"registry.test/shop/hello:1"}: not found', "hello-5d8f-a"
                    )
                ),
            ]
        ),
        Health.DEGRADED,
        Reason.IMAGE_NOT_FOUND,
    ),
    "a probe": (
        Owned(
            [
                _pod(container(ready=False)),
                _about(event("Unhealthy", "Readiness probe failed: refused", "hello-5d8f-a")),
            ]
        ),
        Health.DEGRADED,
        Reason.PROBE_FAILED,
    ),
}
