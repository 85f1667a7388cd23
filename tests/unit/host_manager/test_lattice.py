"""The status of a group about its lattice, and the restart of a silent host."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest

from host_manager.domain.decide import RecordGroupEvent, RecyclePod, decide
from host_manager.domain.environment import POD_LABEL
from host_manager.domain.group import LATEST, Group
from host_manager.domain.pods import PodView, view_pod
from host_manager.domain.resources import make_workload
from host_manager.domain.snapshot import Snapshot
from host_manager.domain.status import StatusInputs, make_status
from host_manager.lattice import lattice_of
from host_manager.lattice_follower import Recycling
from host_manager.lattice_status import due_in, pods_without_heartbeat
from support.lattices.host_groups import MINIMAL, desired
from trellis import names
from trellis.config.nats_credentials import Kind
from trellis.crds.host_config import WasmCloudHostConfigSpec
from trellis.lattice.domain.hosts import Host, Sighting, Unit
from trellis.lattice.domain.models import Model
from trellis.lattice.domain.subjects import SubjectError
from trellis.lattice.domain.view import LatticeView
from unit.host_manager.test_decide import children, settled, snapshot

CLOCK = 10_000.0
NOW = "2026-01-01T00:10:00Z"
LONG_AGO = "2026-01-01T00:00:00Z"


def pod(name: str = "group-1", **changes: Any) -> PodView:
    view = PodView("g", name, f"uid-{name}", "1", "group", ready=True, reports_pod=True, ready_since=LONG_AGO)
    return replace(view, **changes)


def sighting(of: str = "group-1", ago: float = 5.0, **changes: Any) -> Sighting:
    host = Host(f"N-{of}", version="1.9.2", uptime_seconds=100, labels={POD_LABEL: of, "zone": "a"})
    return Sighting(replace(host, **changes), CLOCK - ago)


def view(*hosts: Sighting, **changes: Any) -> LatticeView:
    return replace(LatticeView(connected_since=CLOCK - 1000, hosts=hosts, models=()), **changes)


def world(*pods: PodView, **changes: Any) -> Snapshot:
    return replace(snapshot(children=children(), pods=pods, now=NOW, clock=CLOCK), **changes)


def status(cache: Snapshot) -> dict[str, Any]:
    return make_status(cache, StatusInputs(LATEST))


def condition(cache: Snapshot, kind: str = "HostsReporting") -> tuple[str, str, str]:
    found = next(item for item in status(cache)["conditions"] if item["type"] == kind)
    return found["status"], found["reason"], found["message"]


def test_a_pod_is_shown_with_the_host_in_it() -> None:
    cache = world(pod(), lattice=view(sighting()))
    (host,) = status(cache)["hosts"]
    assert host == {
        "pod": "group-1",
        "ready": True,
        "reported": "Yes",
        "id": "N-group-1",
        "startedAt": "2026-01-01T00:08:15Z",
        "version": "1.9.2",
        "labels": {POD_LABEL: "group-1", "zone": "a"},
    }
    assert condition(cache)[:2] == ("True", "AllReporting")


def test_every_host_of_the_lattice_is_shown_with_what_runs_on_it() -> None:
    units = (Unit("shop-http", "ghcr.io/example/http:1", "shop", 4), Unit("by-hand"))
    elsewhere = sighting("other-7", components=units, providers=(Unit("shop-server", "http-server", "shop"),))
    (host,) = status(world(lattice=view(elsewhere)))["latticeHosts"]
    assert host["components"] == [{"id": "by-hand"}, {"id": "shop-http", "image": "ghcr.io/example/http:1"}]
    assert host["providers"] == [{"id": "shop-server", "image": "http-server"}]
    assert host["applications"] == ["shop"]
    assert host["pod"] == "other-7"


def test_applications_are_those_of_wadm_and_stay_while_it_is_unavailable() -> None:
    models = (Model("shop", "v2", "v1", "deployed"),)
    cache = world(lattice=view(models=models))
    assert (status(cache)["apps"], status(cache)["app_count"]) == ([{"name": "shop", "version": "v2"}], 1)
    assert condition(cache, "ApplicationsKnown")[0] == "True"
    unavailable = replace(cache, status=status(cache), lattice=view(models=None, models_reason="wadm: nobody answers"))
    assert status(unavailable)["app_count"] == 1
    assert condition(unavailable, "ApplicationsKnown") == ("Unknown", "WadmUnavailable", "wadm: nobody answers")


def test_an_equal_heartbeat_changes_nothing() -> None:
    first = world(pod(), lattice=view(sighting(ago=29)))
    first = replace(first, status=status(first))
    later = replace(
        first,
        now="2026-01-01T00:10:29Z",
        clock=CLOCK + 29,
        lattice=view(sighting(ago=-28, uptime_seconds=131)),
    )
    assert status(later) == first.status


def test_an_unreachable_lattice_is_unknown_and_removes_nothing() -> None:
    before = world(pod(), lattice=view(sighting()))
    before = replace(before, status=status(before))
    for hosts in ((sighting(),), ()):
        unavailable = replace(
            before, lattice=view(*hosts, connected_since=None, reason="connection refused (nats://n:4222)")
        )
        assert condition(unavailable)[:2] == ("Unknown", "LatticeUnreachable")
        assert "connection refused (nats://n:4222)" in condition(unavailable)[2]
        (host,) = status(unavailable)["hosts"]
        assert (host["reported"], host["id"]) == ("Unknown", "N-group-1")
        assert status(unavailable)["latticeHosts"] == before.status["latticeHosts"]


def test_a_service_that_just_started_keeps_the_last_reported_state() -> None:
    before = world(pod(), lattice=view(sighting(), models=(Model("shop", "v1"),)))
    before = replace(before, status=status(before))
    started = replace(before, lattice=view(connected_since=None, models=None, settled=False))
    assert status(started)["hosts"] == before.status["hosts"]
    assert status(started)["conditions"] == before.status["conditions"]
    assert status(started)["app_count"] == 1
    assert status(started)["latticeHosts"] == before.status["latticeHosts"]


@pytest.mark.parametrize(
    ("ready_since", "linked", "reported"),
    [
        pytest.param(LONG_AGO, 1000, "No", id="silent though we listened"),
        pytest.param(LONG_AGO, 60, "Unknown", id="we have not listened for long"),
        pytest.param("2026-01-01T00:09:00Z", 1000, "Unknown", id="it is not ready for long"),
        pytest.param("2026-01-01T00:08:45Z", 1000, "No", id="it is ready for long enough"),
        pytest.param("", 1000, "Unknown", id="since when it is ready is not known"),
    ],
)
def test_a_heartbeat_is_missing_only_if_it_could_have_been_received(
    ready_since: str, linked: float, reported: str
) -> None:
    cache = world(pod(ready_since=ready_since), lattice=view(connected_since=CLOCK - linked))
    (host,) = status(cache)["hosts"]
    assert host["reported"] == reported
    assert (pods_without_heartbeat(cache) == ["group-1"]) is (reported == "No")
    assert (due_in(cache) is None) is (reported == "No")


def test_missing_heartbeats_are_reported_with_their_pods_and_once_as_an_event() -> None:
    pods = [pod(f"group-{number}") for number in range(1, 6)]
    cache = world(*pods, lattice=view(sighting("group-1")))
    assert condition(cache)[:2] == ("False", "HeartbeatMissing")
    assert "group-2, group-3, group-4 and 1 more" in condition(cache)[2]
    [event] = [action for action in decide(cache) if isinstance(action, RecordGroupEvent)]
    assert event.reason == "HeartbeatMissing"
    again = replace(cache, status=status(cache))
    assert not [action for action in decide(again) if isinstance(action, RecordGroupEvent)]


def test_a_new_connection_does_not_clear_a_missing_heartbeat() -> None:
    silent = world(pod(), pod("group-2"), lattice=view(sighting("group-2")))
    silent = replace(silent, status=status(silent))
    for linked, hosts in ((CLOCK - 1, ()), (CLOCK - 1, (sighting("group-2"),)), (CLOCK - 71, (sighting("group-2"),))):
        cache = replace(silent, lattice=view(*hosts, connected_since=linked))
        first, second = status(cache)["hosts"]
        assert (first["reported"], second["reported"]) == ("No", "Yes" if hosts else "Unknown")
        assert condition(cache)[:2] == ("False", "HeartbeatMissing")
        assert not [action for action in decide(cache) if isinstance(action, RecordGroupEvent)], "it was said before"
        assert pods_without_heartbeat(cache) == (["group-1"] if linked < CLOCK - 70 else []), (
            "what is shown is no proof"
        )
    assert condition(replace(silent, lattice=view(sighting(), sighting("group-2"))))[:2] == ("True", "AllReporting")


def test_a_pod_that_became_ready_again_has_no_missing_heartbeat() -> None:
    silent = world(pod(), lattice=view())
    silent = replace(silent, status=status(silent))
    reconnected = replace(
        silent, pods=(pod(ready_since="2026-01-01T00:09:55Z"),), lattice=view(connected_since=CLOCK - 1)
    )
    assert status(reconnected)["hosts"][0]["reported"] == "Unknown"


def test_pods_of_the_former_template_do_not_state_their_host() -> None:
    cache = world(pod(reports_pod=False), lattice=view())
    assert condition(cache)[:2] == ("Unknown", "HostIDUnknown")
    assert pods_without_heartbeat(cache) == []


def recycled(cache: Snapshot) -> list[str]:
    return [action.pod.name for action in decide(cache) if isinstance(action, RecyclePod)]


def a_group(**spec: Any) -> Group:
    return Group("group", "g", "uid-1", WasmCloudHostConfigSpec.model_validate(MINIMAL | spec))


def test_hosts_without_heartbeat_are_restarted_one_at_a_time_if_configured() -> None:
    def deployed(**spec: Any) -> Snapshot:
        group = a_group(hostReplicas=2, **spec)
        cache = settled(group=group, children=children(group), pods=(pod("group-1"), pod("group-2")))
        return replace(cache, now=NOW, clock=CLOCK, may_recycle=True, lattice=view())

    cache = deployed(hostRecycling="OneAtATime")
    assert recycled(cache) == ["group-1"]
    assert recycled(deployed()) == []
    assert recycled(replace(cache, lattice=view(sighting("group-1"), sighting("group-2")))) == []
    assert recycled(replace(cache, lattice=view(sighting("group-1")))) == ["group-2"]
    assert recycled(replace(cache, lattice=view(connected_since=None))) == [], "our own link is away"
    assert recycled(replace(cache, lattice=None)) == []
    assert recycled(replace(cache, may_recycle=False)) == [], "one was restarted a moment ago"
    not_ready = replace(cache, pods=(pod("group-1"), pod("group-2", ready=False)))
    assert recycled(not_ready) == [], "another pod is away already"
    assert recycled(replace(cache, pods=(pod("group-1"),))) == [], "a pod is missing"


def test_a_restart_that_does_not_help_is_repeated_ever_more_seldom() -> None:
    times = Recycling()
    assert times.may("g/group", 0)
    pauses = []
    for _ in range(7):
        times.note_restart("g/group", 1000.0)
        pauses.append(times.pauses["g/group"][0] - 1000.0)
    assert pauses == [120, 240, 480, 960, 1920, 3600, 3600]
    assert not times.may("g/group", times.pauses["g/group"][0] - 1)
    times.reset("g/group")
    assert times.may("g/group", 0)


def secret(**data: str) -> dict[str, Any]:
    return {"data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}}


def test_a_lattice_is_reached_where_the_leaves_connect_and_as_they_do() -> None:
    group = a_group(
        natsAddress="tls://nats.example.com",
        natsClientPort=4333,
        secretName="creds",
        leafTls={"secretName": "ca"},
        controlTopicPrefix="my.ctl",
        lattice="prod",
    )
    read = {("Secret", "creds"): secret(**{"nats.creds": "who"}), ("Secret", "ca"): secret(**{"ca.crt": "PEM"})}
    address = lattice_of(group, read)
    assert address.nats.url == "tls://nats.example.com:4333"
    assert address.nats.authorities == "PEM"
    assert address.nats.credentials is not None
    assert (address.nats.credentials.kind, address.nats.credentials.where) == (
        Kind.CREDENTIALS,
        "Secret g/creds, key nats.creds",
    )
    assert (address.lattice, address.control_prefix) == ("prod", "my.ctl")
    assert "who" not in repr(address)
    plain = lattice_of(a_group(), {("Secret", "creds"): None})
    assert plain.nats.credentials is None


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"ca.crt": "CA"}, ""),
        ({"ca.crt": "CA", "tls.crt": "PEM"}, ""),
        ({"tls.key": "KEY"}, ""),
        ({"tls.crt": "PEM", "tls.key": "KEY"}, "PEM\nKEY"),
    ],
    ids=["an authority", "no key", "no certificate", "both"],
)
def test_the_leafs_certificate_is_shown_where_its_key_is_there_too(given: dict[str, str], shown: str) -> None:
    group = a_group(leafTls={"secretName": "tls"})
    address = lattice_of(group, {("Secret", "tls"): secret(**given)})
    assert address.nats.certificate == shown
    assert "KEY" not in repr(address)


def test_groups_share_a_connection_only_by_the_same_certificate() -> None:
    group = a_group(leafTls={"secretName": "tls"})
    read = [{("Secret", "tls"): secret(**{"tls.crt": "PEM", "tls.key": key})} for key in ("ONE", "ONE", "OTHER")]
    first, same, rotated = (lattice_of(group, item).nats for item in read)
    assert first == same
    assert first != rotated


def test_a_lattice_whose_name_is_none_is_a_condition_and_not_listened_to() -> None:
    with pytest.raises(SubjectError):
        lattice_of(a_group(lattice="a.b"), {})
    cache = world(pod(), lattice=None, lattice_reason="the lattice 'a.b' cannot be part of a NATS subject")
    assert condition(cache) == ("Unknown", "LatticeNotConnected", cache.lattice_reason)


def test_a_pod_states_its_host_by_its_environment() -> None:
    made = desired(LATEST)
    template = make_workload(made)["spec"]["template"]
    raw = {
        "metadata": template["metadata"] | {"namespace": "g", "name": "group-1", "uid": "u", "resourceVersion": "1"},
        "spec": template["spec"],
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": LONG_AGO}]},
    }
    found = view_pod(raw)
    assert found.reports_pod
    assert found.ready_since == LONG_AGO


def test_the_status_of_the_lattices_applications_stays() -> None:
    synced = {"type": names.CONDITION_APPLICATIONS_SYNCED, "status": "True", "reason": "Synced", "message": ""}
    cache = world(pod(), lattice=view(sighting()), status={"conditions": [synced]})
    assert synced in status(cache)["conditions"]
    assert sum(item["type"] == synced["type"] for item in status(cache)["conditions"]) == 1
