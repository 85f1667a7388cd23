"""What is done about a Service once it is decided, over the API server in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from service_reflector.apply import Effects
from service_reflector.domain.actions import RemoveService
from trellis.kube.resources import SERVICES
from trellis.lattice.domain.service_views import ServiceView
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
