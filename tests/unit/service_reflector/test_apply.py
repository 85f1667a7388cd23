"""What is done about a Service once it is decided, over the API server in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from service_reflector.apply import Effects
from service_reflector.domain.actions import RemoveService
from service_reflector.domain.decide import decide
from service_reflector.domain.snapshot import Snapshot
from trellis import names
from trellis.kube.resources import SERVICES
from trellis.lattice.domain.service_views import ServiceView, view_service
from trellis.limits.breaker import Destruction
from trellis_dev.fakes.fake import FakeKube


@dataclass
class Breaker:
    """A circuit breaker with one answer: None, or the seconds for which it holds."""

    answer: float | None
    asked: list[Destruction] = field(default_factory=list)

    async def hold(self, target: Destruction) -> float | None:
        self.asked.append(target)
        return self.answer


@pytest.mark.parametrize(("answer", "left"), [(600.0, 1), (None, 0)])
async def test_a_service_that_the_circuit_breaker_holds_is_not_deleted(answer: float | None, left: int) -> None:
    kube, breaker = FakeKube(), Breaker(answer)
    manifest = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "shop", "namespace": "default"}, "spec": {}}
    metadata = kube.put(SERVICES, manifest)["metadata"]
    found = ServiceView("default", "shop", metadata["uid"], metadata["resourceVersion"], "shop", "east/1", manifest={})
    target = Destruction("services", "shop", found.uid, "deletion", "v1", "Service", "default")
    parts: list[Any] = [SimpleNamespace(gone=set()), None, None, None]
    effects = Effects(kube, cast("Any", None), *parts, cast("Any", breaker))
    assert await effects.apply("default", [RemoveService(found, "Unpublished", "why", target)]) == answer
    assert breaker.asked == [target]
    assert len(kube.objects(SERVICES)) == left


@pytest.mark.parametrize("finalizers", [[], [names.WASMCLOUD_OPERATOR_SERVICE]], ids=["ours", "of a former version"])
async def test_a_removal_is_one_write_and_one_more_for_the_finalizer_of_a_former_version(finalizers: list[str]) -> None:
    kube = FakeKube()
    marks = {names.ANNOTATION_APPLICATION: "shop", names.ANNOTATION_LATTICE: "east/1"}
    metadata = {"name": "shop", "namespace": "default", "annotations": marks, "finalizers": finalizers}
    kube.put(SERVICES, {"metadata": metadata, "spec": {}})
    gone: set[str] = set()
    parts: list[Any] = [SimpleNamespace(gone=gone), None, None, None]
    effects = Effects(kube, cast("Any", None), *parts, cast("Any", Breaker(None)))
    seen: list[int] = []
    while kube.objects(SERVICES):
        found = view_service(kube.objects(SERVICES)[0])
        assert found.uid not in gone, "it is looked at until it is gone"
        await effects.apply("default", decide(Snapshot("default", "shop", services={"shop": found}, sure=True)))
        seen.append(len(kube.writes))
    assert seen == [1, 2][: 1 + len(finalizers)]
