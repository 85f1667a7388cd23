"""The status that follows a refusal is written to the object with its finalizer, which the same run has added."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from application_manager.cache import Cache
from application_manager.domain.actions import AddFinalizer, Decision, Put, Reason
from application_manager.domain.actions import Announcement as Because
from application_manager.domain.placement import Key
from application_manager.domain.sides import Absence
from application_manager.domain.snapshot import Snapshot
from application_manager.lattice_followers import LatticeFollowers
from application_manager.reconciler import Reconciler
from trellis.lattice.connection.lattice_connection import NatsUnavailableError, TooLargeError
from trellis.telemetry import Metrics, TraceSpans, setup


class Noted(Reconciler):
    """Notes of which object a status is written."""

    async def _report(self, snapshot: Any, *_: object) -> None:
        self.bus.append(snapshot.view.resource_version)  # type: ignore[attr-defined] # a list


def view(version: str, generation: int = 1) -> Any:
    return SimpleNamespace(key="a/shop", uid="uid-shop", generation=generation, resource_version=version)


@pytest.mark.parametrize(("generation", "expected"), [(1, ["2"]), (2, ["1"])], ids=["as it was", "changed meanwhile"])
@pytest.mark.parametrize(
    "error", [NatsUnavailableError("silent"), TooLargeError("too large", 2, 1)], ids=["away", "refused"]
)
async def test_a_status_is_of_the_object_as_this_run_wrote_it(
    error: Exception, generation: int, expected: list[str]
) -> None:
    applications: dict[str, Any] = {}
    cache = Cache(applications, cast("LatticeFollowers", None))

    async def apply(snapshot: Snapshot, _: object) -> None:
        assert snapshot.view is not None
        applications[snapshot.view.key] = view("2", generation)
        raise error

    reported: Any = []
    unused: Any = None
    effects: Any = SimpleNamespace(apply=apply)
    traces = TraceSpans[Key](setup("test", metrics=Metrics()))
    reconciler = Noted(unused, cache, effects, reported, traces, unused)
    because = Because(Reason.APPLIED, "it was applied in Kubernetes")
    found = Snapshot(None, Absence.LOST, view=view("1"))
    await reconciler._act(found, Decision((AddFinalizer(because), Put(because, "v1"))))
    assert reported == expected
