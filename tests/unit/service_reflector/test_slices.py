"""EndpointSlices: packed to a hundred, and kept where they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service_reflector.domain.slices import ENDPOINTS_MAX, EndpointSet, Slice, pack
from trellis.lattice.domain.addresses import Family
from trellis.lattice.domain.service_views import PodView, ServiceView, SliceView
from trellis.limits.compact import compact

BOTH = (Family.IPV4, Family.IPV6)
OWNER, ANOTHER = ServiceView("g", "shop", "owner", "1"), ServiceView("g", "shop", "another", "1")


def a_pod(number: int, *, serving: bool = True, terminating: bool = False, six: bool = False) -> PodView:
    addresses = (f"10.0.{number // 250}.{number % 250 + 1}", *([f"fd00::{number + 1:x}"] if six else []))
    return PodView("g", f"host-{number}", f"uid-{number}", "group", "node", addresses, serving, terminating, ())


def endpoint_set(pods: Iterable[PodView], families: tuple[Family, ...] = (Family.IPV4,), port: int = 80) -> EndpointSet:
    return EndpointSet("http", (("http", port, "http"),), families, tuple(pods))


def served(item: Slice | SliceView) -> dict[str, object]:
    return {"endpoints": item.endpoints, "ports": item.ports}


def stored(wanted: Sequence[Slice]) -> list[SliceView]:
    """The slices as they are once they were written."""
    return [
        SliceView("g", item.name, f"uid-{item.name}", "1", item.service, "owner", item.family, compact(served(item)))
        for item in wanted
    ]


def test_an_endpoint_has_the_conditions_ready_serving_and_terminating() -> None:
    pods = [a_pod(1), a_pod(2, serving=False), a_pod(3, terminating=True), a_pod(4, serving=False, terminating=True)]
    (piece,) = pack("shop", [endpoint_set(pods)], [])
    assert [tuple(endpoint["conditions"].values()) for endpoint in piece.endpoints] == [
        (True, True, False),
        (False, False, False),
        (False, True, True),
        (False, False, True),
    ]
    assert piece.endpoints[0]["targetRef"] == {"kind": "Pod", "name": "host-1", "namespace": "g", "uid": "uid-1"}
    assert piece.endpoints[0]["nodeName"] == "node"


def test_each_family_has_slices_of_its_own() -> None:
    pieces = pack("shop", [endpoint_set([a_pod(1, six=True), a_pod(2)], BOTH)], [])
    found = {piece.family: [endpoint["addresses"] for endpoint in piece.endpoints] for piece in pieces}
    assert found == {"IPv4": [["10.0.0.2"], ["10.0.0.3"]], "IPv6": [["fd00::2"]]}


def test_a_pod_without_an_address_is_no_endpoint() -> None:
    assert (
        pack("shop", [endpoint_set([replace(a_pod(1), addresses=()), replace(a_pod(2), addresses=("?",))])], []) == []
    )


def test_ports_of_other_hosts_are_other_slices() -> None:
    pieces = pack("shop", [endpoint_set([a_pod(1)]), replace(endpoint_set([a_pod(2)]), name="admin")], [])
    assert len({piece.name for piece in pieces}) == 2


def test_a_port_that_moves_changes_slices_and_makes_none() -> None:
    before = stored(pack("shop", [endpoint_set([a_pod(1)])], []))
    (piece,) = pack("shop", [endpoint_set([a_pod(1)], port=81)], before)
    assert (piece.name, piece.ports[0]["port"]) == (before[0].name, 81)
    assert piece.differs(OWNER)


def test_a_written_slice_differs_only_for_another_service() -> None:
    pods = [a_pod(number) for number in range(150)]
    again = pack("shop", [endpoint_set(pods)], stored(pack("shop", [endpoint_set(pods)], [])))
    assert not any(piece.differs(OWNER) for piece in again)
    assert all(piece.differs(ANOTHER) for piece in again)


def test_a_slice_that_became_empty_stays_for_the_next() -> None:
    before = stored(pack("shop", [endpoint_set([a_pod(1)])], []))
    (piece,) = pack("shop", [endpoint_set([])], before)
    assert (piece.name, piece.endpoints) == (before[0].name, ())


@dataclass
class Packed:
    """Slices that follow pods, and how many were written last."""

    pods: dict[int, PodView] = field(default_factory=dict)
    slices: list[SliceView] = field(default_factory=list)

    def step(self) -> int:
        wanted = pack("shop", [endpoint_set(self.pods[number] for number in sorted(self.pods))], self.slices)
        deleted = {item.name for item in self.slices} - {item.name for item in wanted}
        writes = len(deleted) + sum(item.differs(OWNER) for item in wanted)
        self.slices = stored(wanted)
        return writes


@given(st.lists(st.tuples(st.sampled_from(["add", "remove", "change"]), st.integers(0, 400)), max_size=40))
def test_a_change_of_one_pod_writes_one_slice(steps: list[tuple[str, int]]) -> None:
    packed = Packed({number: a_pod(number) for number in range(0, 400, 2)})
    packed.step()
    for kind, number in steps:
        if kind == "add":
            packed.pods.setdefault(number, a_pod(number))
        elif kind == "remove":
            packed.pods.pop(number, None)
        elif number in packed.pods:
            packed.pods[number] = replace(packed.pods[number], serving=not packed.pods[number].serving)
        assert packed.step() <= 1
        assert all(len(item.endpoints) <= ENDPOINTS_MAX for item in packed.slices)
        placed = [endpoint["targetRef"]["uid"] for each in packed.slices for endpoint in each.endpoints]
        assert sorted(placed) == sorted(pod.uid for pod in packed.pods.values())
    assert packed.step() == 0


@pytest.mark.parametrize("count", [0, 1, 100, 101, 1000])
def test_there_are_no_more_slices_than_needed(count: int) -> None:
    pieces = pack("shop", [endpoint_set(a_pod(number) for number in range(count))], [])
    assert len(pieces) == -(-count // 100)
    assert len({piece.name for piece in pieces}) == len(pieces)
