"""The writes of decided actions on a Service, over the API server in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from service_reflector.apply import Effects
from service_reflector.domain.actions import RemoveService, WriteSlice
from service_reflector.domain.decide import decide
from service_reflector.domain.resources import make_slice, make_ties
from service_reflector.domain.slices import Slice
from service_reflector.domain.snapshot import Snapshot
from trellis import names
from trellis.kube.errors import AlreadyExists
from trellis.kube.resources import ENDPOINT_SLICES, SERVICES
from trellis.lattice.domain.preserved import read_preserved
from trellis.lattice.domain.service_views import ServiceView, view_service, view_slice
from trellis.limits.breaker import Deletion
from trellis_dev.fakes.fake import FakeKube


@dataclass
class Breaker:
    """A circuit breaker with one answer: None, or the seconds for which it holds."""

    answer: float | None
    requested: list[Deletion] = field(default_factory=list)

    async def admit(self, target: Deletion) -> float | None:
        self.requested.append(target)
        return self.answer


@pytest.mark.parametrize(("answer", "left"), [(600.0, 1), (None, 0)])
async def test_a_service_whose_deletion_is_paused_is_not_deleted(answer: float | None, left: int) -> None:
    kube, breaker = FakeKube(), Breaker(answer)
    manifest = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "shop", "namespace": "default"}, "spec": {}}
    metadata = kube.put(SERVICES, manifest)["metadata"]
    found = ServiceView("default", "shop", metadata["uid"], metadata["resourceVersion"], "shop", "east/1", stored=b"{}")
    target = Deletion("services", "shop", found.uid, "deletion", "v1", "Service", "default")
    parts: list[Any] = [SimpleNamespace(deleted=set()), None, None, None]
    effects = Effects(kube, cast("Any", None), *parts, cast("Any", breaker))  # type: ignore[call-arg]
    assert await effects.apply("default", [RemoveService(found, "Unpublished", "why", target)]) == answer
    assert breaker.requested == [target]
    assert len(kube.objects(SERVICES)) == left


@pytest.mark.parametrize("finalizers", [[], [names.WASMCLOUD_OPERATOR_SERVICE]], ids=["ours", "of a former version"])
async def test_a_removal_is_one_write_and_one_more_for_the_finalizer_of_a_former_version(finalizers: list[str]) -> None:
    kube = FakeKube()
    marks = {names.ANNOTATION_APPLICATION: "shop", names.ANNOTATION_LATTICE: "east/1"}
    metadata = {"name": "shop", "namespace": "default", "annotations": marks, "finalizers": finalizers}
    kube.put(SERVICES, {"metadata": metadata, "spec": {}})
    deleted: set[str] = set()
    parts: list[Any] = [SimpleNamespace(deleted=deleted), None, None, None]
    effects = Effects(kube, cast("Any", None), *parts, cast("Any", Breaker(None)))  # type: ignore[call-arg]
    seen: list[int] = []
    while kube.objects(SERVICES):
        found = view_service(kube.objects(SERVICES)[0])
        assert found.uid not in deleted, "it is looked at until it is gone"
        await effects.apply("default", decide(Snapshot("default", "shop", services={"shop": found}, sure=True)))
        seen.append(len(kube.writes))
    assert seen == [1, 2][: 1 + len(finalizers)]


MARKS = {names.ANNOTATION_APPLICATION: "shop", names.ANNOTATION_LATTICE: "east/1"}
PRESERVING_SLICE = Slice("shop-0", "shop", "IPv4", (), (), keeps=("shop", "east/1"))


class Slices(SimpleNamespace):
    """The informer of slices, as far as writes pass it their results."""

    def wrote(self, written: Any, _former: object) -> None:
        self.written = view_slice(written)


def a_service(kube: FakeKube, **marks: str) -> ServiceView:
    metadata = {"name": "shop", "namespace": "default", "annotations": MARKS | marks}
    return view_service(kube.put(SERVICES, {"metadata": metadata, "spec": {}}))


def an_unlabelled_slice(kube: FakeKube, wanted: Slice, service: ServiceView) -> None:
    """Have a slice of a Service that lost the label by which it is watched."""
    found = make_slice(wanted, "default", make_ties(wanted, service))
    del found["metadata"]["labels"][names.LABEL_SLICE_MANAGED_BY]
    kube.put(ENDPOINT_SLICES, found)


async def test_a_keeper_without_its_label_is_repaired_beside_a_service_that_was_made_again() -> None:
    kube, slices = FakeKube(), Slices()
    former = a_service(kube)
    an_unlabelled_slice(kube, PRESERVING_SLICE, former)
    await kube.delete(SERVICES, "shop", "default", uid=former.uid)
    service = a_service(kube)
    assert service.uid != former.uid
    parts: list[Any] = [SimpleNamespace(services={service.key: service}), None, slices, None]
    effects = Effects(kube, cast("Any", None), *parts, cast("Any", Breaker(None)))  # type: ignore[call-arg]
    await effects.apply("default", [WriteSlice("shop", PRESERVING_SLICE)])
    [found] = kube.objects(ENDPOINT_SLICES)
    assert found["metadata"]["labels"][names.LABEL_SLICE_MANAGED_BY] == names.SLICE_MANAGED_BY
    preserved = read_preserved(slices.written.preserved)
    assert preserved is not None
    assert (preserved.uid, slices.written.owner) == (service.uid, "")


@pytest.mark.parametrize(
    ("wanted", "marks"),
    [
        (PRESERVING_SLICE, {names.ANNOTATION_LATTICE: "west/1"}),
        (Slice("shop-0", "shop", "IPv6", (), (), keeps=("shop", "east/1")), {}),
    ],
    ids=["a keeper of another lattice's application", "another address family"],
)
async def test_a_slice_without_its_label_that_may_be_another_services_is_left_alone(
    wanted: Slice, marks: dict[str, str]
) -> None:
    kube = FakeKube()
    former = a_service(kube)
    an_unlabelled_slice(kube, wanted, former)
    await kube.delete(SERVICES, "shop", "default", uid=former.uid)
    service = a_service(kube, **marks)
    before = kube.objects(ENDPOINT_SLICES)
    parts: list[Any] = [SimpleNamespace(services={service.key: service}), None, Slices(), None]
    effects = Effects(kube, cast("Any", None), *parts, cast("Any", Breaker(None)))  # type: ignore[call-arg]
    with pytest.raises(AlreadyExists):
        await effects.apply("default", [WriteSlice("shop", PRESERVING_SLICE)])
    assert kube.objects(ENDPOINT_SLICES) == before
