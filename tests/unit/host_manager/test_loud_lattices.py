"""Any client of a lattice can publish any message: the possible effects on a group's status, and their limits."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_manager.domain.decide import RecyclePod, decide
from host_manager.domain.environment import POD_LABEL
from host_manager.domain.snapshot import Snapshot
from host_manager.lattice_status import pods_without_heartbeat
from support.lattices.host_groups import desired
from support.suite.naming import lacking
from trellis.lattice.domain.hosts import MAX_HOSTS, TEXT_KEPT, Host, Sighting, Unit, read_host
from trellis.lattice.domain.models import Model
from trellis.lattice.domain.view import LatticeView
from trellis.lattice.timings import LatticeTimings
from unit.host_manager.test_lattice import CLOCK, LONG_AGO, NOW, condition, pod, sighting, status, view, world

ETCD_BYTES = 1_500_000
"""etcd takes 1.5 MiB; an object has metadata and a spec besides."""
SILENCE = LatticeTimings().silence

_TEXTS = st.integers(0, 2 * TEXT_KEPT).map("x".__mul__)
_HOSTS = st.builds(
    lambda number, labels, units, text: {
        "host_id": f"N{number:04}",
        "version": text,
        "friendly_name": text,
        "labels": {f"label-{at}": text for at in range(labels)} | {POD_LABEL: f"group-{number}"},
        "components": [{"id": f"{at}", "image_ref": text} for at in range(units)],
    },
    st.integers(0, 9999),
    st.integers(0, 100),
    st.integers(0, 300),
    _TEXTS,
)


def lattice(hosts: list[Host], models: int = 0, text: str = "") -> LatticeView:
    apps = tuple(Model(f"{number:05}{text}", text) for number in range(models))
    return view(*(Sighting(host, CLOCK - 5) for host in hosts), models=apps)


@settings(max_examples=10, deadline=None)
@given(st.lists(_HOSTS, max_size=8), st.integers(0, 2000), _TEXTS)
def test_a_status_can_always_be_written_and_reports_omitted_parts(
    descriptions: list[dict[str, object]], models: int, text: str
) -> None:
    read = [read_host(data) for data in descriptions]
    hosts = [replace(host, id=f"{host.id}-{at}-{n}") for n in range(100) for at, host in enumerate(read)]
    pods = [pod(f"group-{number}") for number in range(550)]
    cache = world(*pods, lattice=lattice(hosts, models, text[:TEXT_KEPT]))
    made = status(cache)
    assert len(orjson.dumps(made)) < ETCD_BYTES
    shown, count = len(made["latticeHosts"]), len(hosts)
    expected_text = f"status.latticeHosts shows {shown} of {count}"
    assert (expected_text in condition(cache)[2]) == (shown < count)
    expected_text = f"status.apps shows {len(made['apps'])} of {models}"
    assert (expected_text in condition(cache, "ApplicationsKnown")[2]) == (len(made["apps"]) < models)
    assert made["app_count"] == models


def test_of_thousands_of_hosts_the_number_of_omitted_ones_is_reported() -> None:
    hosts = [Host(f"N{number:05}", version="1.9.2") for number in range(MAX_HOSTS)]
    cache = world(lattice=replace(lattice(hosts), refused=True))
    assert lacking(condition(cache)[2], "status.latticeHosts", "500", str(MAX_HOSTS)) == []


def test_a_host_with_large_heartbeats_displaces_no_other() -> None:
    loud = [sighting(f"pod-{number:03}", labels={"noise": "x" * 50_000}) for number in range(40)]
    shown = status(world(lattice=view(*loud, sighting("quiet"))))["latticeHosts"]
    assert len(shown) == 41
    assert {tuple(item) for item in shown[:40]} == {("id", "startedAt", "version")}
    assert shown[40]["labels"]["zone"] == "a"


@pytest.mark.parametrize("turned", [False, True])
def test_of_two_hosts_that_claim_a_pod_the_one_that_started_last_counts_at_every_look(turned: bool) -> None:
    hosts = (sighting(id="N-a", uptime_seconds=500), sighting(id="N-b", uptime_seconds=3))
    cache = world(pod(), lattice=view(*(reversed(hosts) if turned else hosts)))
    (shown,) = status(cache)["hosts"]
    assert (shown["id"], shown["reported"]) == ("N-b", "Yes")
    first = replace(cache, status=status(cache))
    later = replace(cache, lattice=view(sighting(id="N-a", uptime_seconds=505, ago=0.0), hosts[1]), status=first.status)
    assert status(later)["hosts"] == first.status["hosts"]


def recycling(cache: Snapshot) -> Snapshot:
    deployments = {key: dict(child) for key, child in cache.children.items()}
    deployments["Deployment", "group"]["status"] = {"replicas": 1, "readyReplicas": 1, "updatedReplicas": 1}
    group = desired(2, hostRecycling="OneAtATime").group
    return replace(cache, group=group, children=deployments, may_recycle=True, glance=True)


@pytest.mark.parametrize(
    ("since", "seen", "silent"),
    [
        (LONG_AGO, CLOCK - SILENCE - 1, True),
        (LONG_AGO, CLOCK - 1, False),
        (NOW, CLOCK - SILENCE - 1, False),
        ("2036-01-01T00:00:00Z", CLOCK - SILENCE - 1, False),
    ],
    ids=["silent", "ready a second ago, our clock is ahead", "ready now", "our clock is far behind"],
)
def test_no_clock_that_is_wrong_restarts_a_host(since: str, seen: float, silent: bool) -> None:
    cache = recycling(world(pod(ready_since=since), lattice=view(), ready_at={"group-1": seen}))
    assert pods_without_heartbeat(cache) == ["group-1"] * silent
    assert any(isinstance(action, RecyclePod) for action in decide(cache)) == silent


def test_units_are_listed_in_one_order_for_any_input_order() -> None:
    units = [{"id": name, "image_ref": "i"} for name in ("b", "a", "c")]
    read = read_host({"host_id": "N", "components": units})
    assert read == read_host({"host_id": "N", "components": units[::-1]})
    assert read.components[0] == Unit("a", "i")
