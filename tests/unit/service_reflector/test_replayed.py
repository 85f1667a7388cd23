"""Everything that a real lattice was recorded to say, in any order, twice, with gaps: the same objects at the end."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service_reflector.domain.actions import CreateService, WriteSlice
from service_reflector.domain.decide import decide
from service_reflector.domain.service_options import options_of
from service_reflector.domain.snapshot import Claim, Snapshot
from support.lattices.lattice_recordings import everything
from support.lattices.replayed import replay
from trellis.lattice.connection.groups import POD_LABEL
from trellis.lattice.domain.group_views import GroupView
from trellis.lattice.domain.hosts import Host, Sighting
from trellis.lattice.domain.models import Model
from trellis.lattice.domain.provider_hosts import ProviderHosts
from trellis.lattice.domain.service_views import PodView
from trellis.lattice.follow.comparison import Comparison
from trellis.lattice.follow.host_watch import HostWatch

Message = dict[str, Any]
APPLICATION, PROVIDER = "hello-world", "hello_world-httpserver"
UNDEPLOYED = "2026-11-21T05:03:39"
GROUP = GroupView("g", "group", "uid-group", "2026-01-01T00:00:00Z", deleting=False, lattice="default/1")
PODS = tuple(
    PodView("g", f"host-{n}", f"uid-{n}", "group", "node", (f"10.0.0.{n}",), serving=True, terminating=False, labels=())
    for n in (1, 2)
)
VERSION = "01M7Y7F1MZ8QC56GGXYTJ2R95E"


def event_of(message: Message) -> str:
    return str(message["data"].get("time", ""))


def of_host(message: Message, number: int) -> Message:
    """The message as the host in a pod would say it; of the second one's providers none starts."""
    found: Message = json.loads(json.dumps(message).replace(message["data"]["source"], f"N{number}"))
    data = found["data"]["data"]
    if "labels" in data:
        data["labels"][POD_LABEL] = f"host-{number}"
    if number == 2 and "providers" in data:
        data["providers"] = []
    return found


def two_hosts() -> list[Message]:
    """Return the recorded events as of two hosts, and of an application that others reach."""
    found: list[Message] = []
    for message in everything():
        if not message["subject"].startswith("wasmbus"):
            found.append(json.loads(json.dumps(message).replace("127.0.0.1", "0.0.0.0")))
            continue
        found.append(of_host(message, 1))
        if not message["subject"].endswith("provider_started"):
            found.append(of_host(message, 2))
    return found


WHOLE = two_hosts()
ALIVE = [message for message in WHOLE if event_of(message) < UNDEPLOYED]


def made(comparison: Comparison, watch: HostWatch) -> tuple[set[str], set[str]]:
    """The ports of the Service, and the pods that it leads to."""
    comparison.applications.refused(comparison.applications.events)
    hosts = {seen.host.labels.get(POD_LABEL, ""): seen for seen in watch.hosts()}
    claims = tuple(
        Claim("default/1", item, options_of(item), PODS, hosts, comparison.running, GROUP)
        for item in comparison.applications.deployed().values()
    )
    actions = decide(Snapshot("g", APPLICATION, claims))
    ports = {name for action in actions if isinstance(action, CreateService) for name, _ in action.target.ports}
    slices = [action.wanted for action in actions if isinstance(action, WriteSlice)]
    return ports, {endpoint["targetRef"]["name"] for piece in slices for endpoint in piece.endpoints}


def run(messages: list[Message]) -> tuple[Comparison, HostWatch]:
    return asyncio.run(replay(messages))


def test_the_recording_in_order() -> None:
    assert len(everything()) == 41
    assert made(*run(ALIVE)) == ({"http"}, {"host-1"})
    assert made(*run(WHOLE)) == (set(), set())
    comparison, watch = run(everything())
    assert not comparison.applications.deployed() or not comparison.applications.absent(APPLICATION)
    assert not any(comparison.running.runs([PROVIDER], seen) for seen in watch.hosts())


@settings(max_examples=60, deadline=None)
@given(st.permutations(ALIVE * 2))
def test_shuffled_and_doubled_it_leads_to_the_same_hosts(messages: list[Message]) -> None:
    assert made(*run(messages)) == ({"http"}, {"host-1"})


@settings(max_examples=60, deadline=None)
@given(st.permutations(WHOLE * 2))
def test_shuffled_and_doubled_until_it_is_undeployed_nothing_is_left(messages: list[Message]) -> None:
    comparison, watch = run(messages)
    assert made(comparison, watch) == (set(), set())
    assert not any(comparison.running.runs([PROVIDER], seen) for seen in watch.hosts())


@settings(max_examples=60, deadline=None)
@given(st.permutations(ALIVE), st.sets(st.integers(0, len(ALIVE) - 1)))
def test_with_gaps_heartbeats_and_wadms_answer_end_in_the_same(messages: list[Message], lost: set[int]) -> None:
    last = [message for message in ALIVE if message["subject"].endswith("host_heartbeat")][-2:]
    comparison, watch = run([item for index, item in enumerate(messages) if index not in lost] + last)
    state = comparison.applications
    now = 10**9 + state.timings.unconfirmed
    state.listed([Model(APPLICATION, VERSION, VERSION)], state.events, now)
    if APPLICATION in state.wanted:
        (published,) = [item for item in ALIVE if item["subject"].endswith("manifest_published")]
        whole, _ = run([published])
        state.got(whole.applications.deployed()[APPLICATION], state.events)
    assert made(comparison, watch) == ({"http"}, {"host-1"})


def test_a_restarted_provider_is_a_change_even_if_its_stop_was_missed() -> None:
    running = ProviderHosts()
    assert running.record(PROVIDER, "N1", True, 1.0, "1")
    assert not running.record(PROVIDER, "N1", True, 1.5, "1"), "it came twice"
    assert not running.runs([PROVIDER], Sighting(Host("N1"), 2.0, "2")), "its host says that it is gone"
    assert running.record(PROVIDER, "N1", True, 3.0, "3")
    assert running.runs([PROVIDER], Sighting(Host("N1"), 2.0, "2"))


def published() -> Message:
    return next(json.loads(json.dumps(item)) for item in ALIVE if item["subject"].endswith("manifest_published"))


@pytest.mark.parametrize(
    "change",
    [
        {"time": None},
        {"time": "2026-11-21T06:57:34.116784543+02:00"},
        {"specversion": "1.0.2", "dataschema": "https://example.com/a", "subject": "s", "unknownextension": 5},
        {"source": "urn:wadm:1", "datacontenttype": "application/cloudevents+json; charset=utf-8"},
    ],
)
def test_a_cloud_event_in_another_form_of_it_is_taken(change: dict[str, Any]) -> None:
    message = published()
    message["data"] = {key: value for key, value in {**message["data"], **change}.items() if value is not None}
    assert made(*run([message]))[0] == {"http"}


def test_a_cloud_event_with_its_data_in_base64_is_taken() -> None:
    message = published()
    data = json.dumps(message["data"].pop("data")).encode()
    message["data"]["data_base64"] = base64.b64encode(data).decode()
    assert made(*run([message]))[0] == {"http"}


def test_times_in_several_zones_are_put_in_order() -> None:
    deleted = {"data": {"name": APPLICATION}, "time": "2026-11-21T05:57:34.1+01:00"}
    message = {"subject": "wadm.evt.default.manifest_unpublished", "data": deleted}
    assert made(*run([published(), message]))[0] == {"http"}, "that was before"
    deleted["time"] = "2026-11-21T04:27:34.2-00:30"
    assert made(*run([message, published()]))[0] == set()


def test_a_provider_event_without_a_host_is_its_sources() -> None:
    messages = [message for message in ALIVE if not message["subject"].endswith(("provider_started", "heartbeat"))]
    started = next(item for item in ALIVE if item["subject"].endswith("provider_started"))
    started = json.loads(json.dumps(started))
    del started["data"]["data"]["host_id"]
    beats = [json.loads(json.dumps(item)) for item in ALIVE if item["subject"].endswith("heartbeat")][:2]
    assert made(*run([*messages, *beats, started])) == ({"http"}, {"host-1"})


@pytest.mark.parametrize(
    ("subject", "data"),
    [
        ("wadm.evt.default.manifest_unpublished", {"data": {"name": APPLICATION}, "time": "yesterday"}),
        ("wadm.evt.default.manifest_unpublished", {"data": {"name": ""}, "time": "2027-01-01T00:00:00Z"}),
        ("wadm.evt.default.manifest_unpublished", {"data": {"name": "other"}, "time": "2027-01-01T00:00:00Z"}),
        ("wadm.evt.default.manifest_unpublished", {"data": "hello-world", "time": "2027-01-01T00:00:00Z"}),
        ("wadm.evt.default.manifest_unpublished", b"\xff"),
        ("wadm.evt.default.manifest_published", {"data": {"metadata": {}}, "time": "2027-01-01T00:00:00Z"}),
        ("wasmbus.evt.default.host_stopped", {"data": {"labels": {}}, "source": "N9"}),
        ("wasmbus.evt.default.host_stopped", {"data": {"labels": {}}}),
        ("wasmbus.evt.default.host_heartbeat", {"data": {"host_id": "N1", "version": "1", "providers": 5}}),
        (
            "wasmbus.evt.default.provider_stopped",
            {"source": "N1", "data": {"provider_id": PROVIDER, "host_id": "N1", "annotations": {"a": 1}}},
        ),
        ("wasmbus.evt.default.provider_stopped", {"source": "N1", "data": {"provider_id": 5, "host_id": "N1"}}),
        ("wasmbus.evt.default.health_check_failed", {"data": {"provider_id": PROVIDER, "host_id": "N1"}}),
        ("wasmbus.evt.default.component_scaled", {"data": {"max_instances": 0, "host_id": "N1"}}),
        ("wasmbus.evt.default.linkdef_deleted", {"data": {"source_id": PROVIDER, "name": "default"}}),
    ],
)
def test_malformed_and_unrelated_messages_remove_nothing(subject: str, data: object) -> None:
    assert made(*run([*ALIVE, {"subject": subject, "data": data}])) == ({"http"}, {"host-1"})
