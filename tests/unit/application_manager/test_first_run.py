"""The first run adds the finalizer; what follows in it uses the object with the finalizer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import pytest

from application_manager.apply import Effects
from application_manager.cache import Cache
from application_manager.domain.actions import AddFinalizer, Decision, Deploy, Put, Reason
from application_manager.domain.actions import Announcement as Because
from application_manager.domain.sides import Absence
from application_manager.domain.snapshot import Snapshot
from application_manager.domain.views import Key, read_manifest, view_application
from application_manager.lattice_followers import LatticeFollowers
from application_manager.reconciler import Reconciler
from support.wadm.application_objects import stored
from trellis import names
from trellis.kube.resources import APPLICATIONS
from trellis.lattice.connection.lattice_connection import NatsUnavailableError, TooLargeError
from trellis.telemetry import Metrics, TraceSpans, setup
from trellis_dev.fakes.fake import FakeKube


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


async def test_the_first_run_puts_the_manifest_that_it_wrote_the_finalizer_to() -> None:
    kube, wadm = FakeKube(), AsyncMock()
    held = kube.put(APPLICATIONS, stored(namespace="default", finalizers=[], resourceVersion=None))
    followers = cast("LatticeFollowers", SimpleNamespace(owns=lambda _: True, wadm=lambda _: wadm))
    found = view_application(held)
    parts: Any = (Mock(), Cache({found.key: found}, followers), Mock(), Mock(), Mock())
    because = Because(Reason.APPLIED, "it was applied in Kubernetes")
    snapshot = Snapshot(found.object, Absence.LOST, key=Key("red/1", found.application), view=found)
    await Effects(kube, *parts).apply(snapshot, (AddFinalizer(because), Put(because, "v1"), Deploy(because, "v1")))
    assert [request.method for request in kube.api.requests] == ["PATCH"], "the answer to the write has the manifest"
    [item] = kube.objects(APPLICATIONS)
    assert item["metadata"]["finalizers"] == [names.FINALIZER_APPLICATIONS]
    wadm.put.assert_awaited_once_with(read_manifest(item).under("v1"), [])
    wadm.deploy.assert_awaited_once_with(found.application, "v1")
