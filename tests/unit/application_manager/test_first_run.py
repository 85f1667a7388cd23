"""The status that follows a refusal is written to the object with its finalizer, which the same run has added."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from application_manager.domain.actions import AddFinalizer, Decision, Put, Reason
from application_manager.domain.actions import Said as Because
from application_manager.reconciler import Keep
from trellis.lattice.connection.link import LinkAwayError, TooLargeError
from trellis.telemetry import Metrics, Stories, setup


@dataclass(frozen=True)
class Snapshot:
    wadm: Any = None
    object: Any = None


@dataclass(frozen=True)
class World:
    view: Any
    key: str = "key"
    why: str = ""
    snapshot: Snapshot = field(default_factory=Snapshot)


class Told(Keep):
    """Notes of which object a status is written."""

    async def _tell(self, world: Any, *_: object) -> None:
        self.said.append(world.view.resource_version)  # type: ignore[attr-defined] # a list


def view(version: str, generation: int = 1) -> Any:
    return SimpleNamespace(key="a/shop", uid="uid-shop", generation=generation, resource_version=version)


@pytest.mark.parametrize(("generation", "told"), [(1, ["2"]), (2, ["1"])], ids=["as it was", "changed meanwhile"])
@pytest.mark.parametrize("error", [LinkAwayError("silent"), TooLargeError("too large", 2, 1)], ids=["away", "refused"])
async def test_a_status_is_of_the_object_as_this_run_wrote_it(
    error: Exception, generation: int, told: list[str]
) -> None:
    known: Any = SimpleNamespace(applications={}, refused={})

    async def apply(world: World, _: object) -> None:
        known.applications[world.view.key] = view("2", generation)
        raise error

    said: Any = []
    unused: Any = None
    effects: Any = SimpleNamespace(apply=apply)
    keep = Told(known, effects, unused, Stories(setup("test", metrics=Metrics())), said, unused)
    because = Because(Reason.APPLIED, "it was applied in Kubernetes")
    world: Any = World(view("1"))
    await keep._act(world, Decision((AddFinalizer(because), Put(because, "v1"))))
    assert said == told
